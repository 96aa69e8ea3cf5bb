"""`jetgym validate`: resolves a config, checks every reference and type, shows the result, starts no worker."""

from typing import Annotated

import typer
from rich.syntax import Syntax
from rich.text import Text
from rich.tree import Tree

from orchestrator.commands.common import Configs, Steps, console, resolve, run_async
from orchestrator.describing import Descriptions, check, pool_size, pool_slots
from orchestrator.grid import grid


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("validate", no_args_is_help=True)(validate)


def validate(
    configs: Configs,
    yaml_only: Annotated[bool, typer.Option("--yaml", help="Print the resolved YAML and nothing else.")] = False,
) -> None:
    """Resolves a config and checks it; starts no server and no worker.

    Shows the instances, how they refer to each other, and the whole config with defaults filled in and secrets hidden.
    A component with a venv of its own is asked there; a venv that is missing is built, once, which downloads packages.

    \b
    jetgym validate configs/demo.yaml
    jetgym validate configs/demo.yaml ++policy.models.local_llm.seed=1 --yaml
    """  # noqa: D301 - the help keeps these lines as they are
    config = resolve(configs)
    if yaml_only:
        checked = run_async(check(config, lambda _: None))
        typer.echo(config.to_yaml(checked.descriptions), nl=False)
        return
    with Steps() as report:
        checked = run_async(check(config, report))
    console.print(_instances(checked.descriptions), soft_wrap=True)
    console.print()
    for name, description in checked.descriptions.items():
        if description.kind == "agents":
            console.print(_tree(name, checked.descriptions))
    console.print(Syntax(config.to_yaml(checked.descriptions), "yaml", background_color="default", word_wrap=True))


def _instances(descriptions: Descriptions) -> Text:
    rows = [
        (
            Text.assemble(name, (f"\n{found.kind}/{found.implementation}", "dim")),
            str(pool_size(found)),
            str(pool_slots(found)),
        )
        for name, found in descriptions.items()
    ]
    return grid(("instance\nimplementation", "workers", "slots"), rows, console.width)


def _tree(name: str, descriptions: Descriptions) -> Tree:
    """An agent and what it refers to, directly and through others."""
    tree = Tree(f"[bold]{name}[/bold]")
    _grow(tree, name, descriptions, (name,))
    return tree


def _grow(tree: Tree, name: str, descriptions: Descriptions, above: tuple[str, ...]) -> None:
    for reference in descriptions[name].references:
        branch = tree.add(f"{reference.path}: {reference.name} [dim]({reference.kind})[/dim]")
        if tools := [str(tool.get("name", "?")) for tool in descriptions[reference.name].tools]:
            branch.add(f"[dim]tools:[/dim] {', '.join(tools)}")
        if reference.name not in above:
            _grow(branch, reference.name, descriptions, (*above, reference.name))
