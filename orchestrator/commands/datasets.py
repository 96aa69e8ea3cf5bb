"""`jetgym datasets`: what files of tasks there are, and whether one is right."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml
from rich.padding import Padding

from components.loading import INSTALLED
from orchestrator.commands.common import console
from orchestrator.errors import ConfigError, InputError, Problem, UsageError
from orchestrator.hints import counted
from orchestrator.tasks import SHOWN, TaskLine, read_tasks

CARD = "card.yaml"


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Files of tasks: list them, check one.", no_args_is_help=True)
    group.command("list")(list_datasets)
    group.command("check", no_args_is_help=True)(check)
    app.add_typer(group, name="datasets")


def list_datasets() -> None:
    """Lists the files in the datasets/ folders of the working directory and of JetGym.

    \b
    jetgym datasets list
    """  # noqa: D301 - the help keeps these lines as they are
    found = 0
    for root in dict.fromkeys((Path.cwd(), INSTALLED)):
        for file in sorted((root / "datasets").rglob("*.jsonl")):
            found += 1
            card = _card(file.with_name(CARD))
            with file.open("rb") as lines:
                count = sum(1 for line in lines if line.strip())
            facts = (counted(count, "task"), card.get("license"), card.get("description"))
            console.print(str(file.relative_to(root) if root == Path.cwd() else file), markup=False, soft_wrap=True)
            console.print(Padding(" · ".join(str(fact) for fact in facts if fact), (0, 0, 0, 2)), markup=False)
    if not found:
        console.print("there is no datasets/ folder with tasks")


def check(
    file: Annotated[Path, typer.Argument(help="A JSONL file, one task a line.", show_default=False)],
) -> None:
    """Checks every line of a file of tasks, and says what its tasks have in common.

    A task is a JSON object with `responses_create_params`, an OpenAI Responses request; all else is the environment's.

    \b
    jetgym datasets check datasets/mcqa/example.jsonl
    """  # noqa: D301 - the help keeps these lines as they are
    problems: list[Problem] = []
    good: list[TaskLine] = []
    fields: dict[str, int] = {}
    bad = tools = 0
    for line in read_tasks(file):
        if isinstance(line, Problem):
            bad += 1
            problems += [line] if bad <= SHOWN else []
            continue
        good.append(line)
        tools += bool(msgspec.json.decode(line.params.get("tools", msgspec.Raw(b"null"))))
        for field in line.fields:
            fields[field] = fields.get(field, 0) + 1
    if bad:
        said = f"{file}: {counted(bad, 'bad line')}, {counted(len(good), 'task')}"
        raise InputError(said, problems=problems, total=bad)
    if not good:
        raise UsageError(f"{file} holds no task: a task is a line with a JSON object")
    console.print(f"{file}: {counted(len(good), 'task')}, {tools} of them with tools of their own", markup=False)
    for field, count in fields.items():
        console.print(f"  {field}" + ("" if count == len(good) else f" (in {count})"), markup=False)


def _card(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        card = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    return card if isinstance(card, dict) else {}
