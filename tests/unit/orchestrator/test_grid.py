"""How tables are laid out: nothing cut, no name broken."""

import io
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from orchestrator.grid import grid

NAMES = st.text("abc_", min_size=1, max_size=90)
FIGURES = st.text("0123456789", min_size=1, max_size=5)


def test_names_are_on_the_left_and_figures_in_columns_on_the_right() -> None:
    shown = grid(["pool", "pending", "done\nagain"], [[Text("policy\nmodels"), "1,200", "3\n± 1"], ["x", "0", "-"]], 40)
    assert shown.plain.splitlines() == [
        "pool    pending   done",
        "                 again",
        "──────────────────────",
        "policy    1,200      3",
        "models             ± 1",
        "x             0      -",
    ]


def test_a_name_that_leaves_no_room_has_its_figures_below_it() -> None:
    name = "an_environment_with_a_long_name_agent"
    assert grid(["agent", "done"], [[name, "12"], ["short", "3"]], 40).plain.splitlines() == [
        "agent                               done",
        "────────────────────────────────────────",
        name,
        "                                      12",
        "short                                  3",
    ]


@given(names=st.lists(NAMES, min_size=1, max_size=5), figures=st.lists(FIGURES, min_size=4, max_size=4))
def test_no_name_and_no_figure_is_ever_broken_or_wider_than_the_terminal(names: list[str], figures: list[str]) -> None:
    text = io.StringIO()
    shown = grid(["agent", *(["number"] * 4)], [[name, *figures] for name in names], 80)
    Console(file=text, width=80).print(shown, soft_wrap=True)
    lines = text.getvalue().splitlines()
    assert all(len(line) <= 80 or line in names for line in lines)
    words = [line.split() for line in lines[2:]]
    assert all(
        line == [name, *figures] or [line, below] == [[name], figures]
        for name in names
        for line, below in pairwise([*words, []])
        if line and line[0] == name
    )
    assert [line[0] for line in words if line != figures] == names
