"""`jetgym new`: makes a working, tested component folder to start from."""

import keyword
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Annotated, Final, Literal

import typer

from components.loading import INSTALLED
from orchestrator.commands.common import console
from orchestrator.errors import UsageError
from orchestrator.hints import to_install_pytest, typed

TEMPLATES: Final = Path(__file__).parent.parent / "templates"

Name = Annotated[
    str, typer.Argument(help="In lower case with underscores: it is the folder's and the implementation's name.")
]


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Make a working, tested component folder to start from.", no_args_is_help=True)
    group.command("agent", no_args_is_help=True)(agent)
    group.command("model", no_args_is_help=True)(model)
    group.command("resources", no_args_is_help=True)(resources)
    app.add_typer(group, name="new")


def agent(name: Name) -> None:
    """Makes components/agents/NAME: an agent that calls a model twice.

    \b
    jetgym new agent second_thought
    """  # noqa: D301 - the help keeps these lines as they are
    _make("agent", "agents", name)


def model(name: Name) -> None:
    """Makes components/models/NAME: a model that repeats what it is told.

    \b
    jetgym new model my_engine
    """  # noqa: D301 - the help keeps these lines as they are
    _make("model", "models", name)


def resources(name: Name) -> None:
    """Makes components/resources/NAME and datasets/NAME: an environment with a tool, a session and a verifier.

    \b
    jetgym new resources my_environment
    """  # noqa: D301 - the help keeps these lines as they are
    _make("resources", "resources", name)


def _make(template: Literal["agent", "model", "resources"], kind: str, name: str) -> None:
    if keyword.iskeyword(name):
        raise UsageError(f"{name!r} cannot be a component's name, since it is a keyword of Python: choose another name")
    if not name.isidentifier() or name != name.lower():
        raise UsageError(f"{name!r} cannot be a component's name: use lower case letters, digits and underscores")
    root = Path.cwd()
    files = dict(_files(root, template, kind, name))
    if taken := [path for path in files if path.exists()] or [
        place / "components" / kind / name
        for place in (root, INSTALLED)
        if (place / "components" / kind / name).exists()
    ]:
        raise UsageError(f"{taken[0]} exists already: choose another name")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        console.print(f"  {path.relative_to(root)}", markup=False)
    folder = f"components/{kind}/{name}"
    if (install := to_install_pytest()) is not None:
        console.print(f"First:   {install}", markup=False, soft_wrap=True)
    console.print(f"Try it:  {typed('python', '-m', 'pytest', folder)}", markup=False, soft_wrap=True)
    console.print(f"Read:    {folder}/README.md", markup=False, soft_wrap=True)


def _files(root: Path, template: str, kind: str, name: str) -> Iterator[tuple[Path, str]]:
    """The files to write, and their content."""
    component, dataset = root / "components" / kind / name, root / "datasets" / name
    inside = root.resolve() == INSTALLED.resolve()
    places = {
        "test.py": component / "tests" / f"test_{name}.py",
        "card.yaml": dataset / "card.yaml",
        "example.jsonl": dataset / "example.jsonl",
    }
    class_name = "".join(part.capitalize() for part in name.split("_"))
    words = {
        "name": name,
        "name_agent": f"{name}_agent",
        "class_name": class_name,
        "class_name_config": f"{class_name}Config",
        "class_name_task": f"{class_name}Task",
    }
    for source in sorted((TEMPLATES / template).iterdir()):
        target = source.name.removesuffix(".txt")
        text = Template(source.read_text()).substitute(words)
        yield places.get(target, component / target), _among_jetgyms(text) if inside and target == "test.py" else text
    yield component / "requirements.txt", ""
    if not inside:
        yield component / "tests" / "conftest.py", (TEMPLATES / "conftest.py.txt").read_text()


def _among_jetgyms(test: str) -> str:
    """A test with its imports sorted as they are where JetGym's packages are the project's own."""
    lines = test.splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if line.startswith("from ")]
    imports = sorted(lines[place] for place in places)
    before = lines[: places[0]]
    if before[-1] != "\n":
        before.append("\n")
    return "".join([*before, *imports, *lines[places[-1] + 1 :]])
