"""Lines under a margin: what may be broken, and what never is."""

import io

from rich.console import Console
from rich.text import Text

from replay.page import Page, Wrap

PATH = "/a/path/of/an/agent/somewhere/that/is/too/long/for/one/line/app.py:13"
CHINESE = "计数器现在是十一" * 6


def written(text: str, wrap: Wrap = "words", *, terminal: bool = False) -> list[str]:
    output = io.StringIO()
    page = Page(Console(file=output, width=40, force_terminal=terminal, color_system=None))
    page.write(Text(text), first="at        ", rest=" " * 10, wrap=wrap)
    return output.getvalue().splitlines()


def test_a_name_or_a_path_is_never_broken_nor_cut() -> None:
    assert written(f"line 1 of {PATH} is wrong") == ["at        line 1 of", f"          {PATH}", "          is wrong"]
    assert written(f"line 1 of {PATH} is wrong", terminal=True) == written(f"line 1 of {PATH} is wrong")


def test_text_without_spaces_is_broken_on_a_terminal_alone() -> None:
    assert written(CHINESE, "anywhere") == [f"at        {CHINESE}"]
    lines = written(CHINESE, "anywhere", terminal=True)
    assert "".join(line[10:] for line in lines) == CHINESE
    assert len(lines) == 4


def test_lines_that_are_laid_out_stay_as_they_are() -> None:
    line = "    return await agent(config, context).run(task)"
    assert written(f"{line}\n           ~~~~~^^^^^^", "never") == [f"at        {line}", " " * 21 + "~~~~~^^^^^^"]
