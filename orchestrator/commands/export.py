"""`jetgym export`: training data out of a run's log."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from orchestrator.commands.common import console, run_async
from orchestrator.commands.failures import errors
from orchestrator.commands.logs import Json, Namespace, Url, Where, folder_of, one_run, opened, unknown_run, working
from orchestrator.errors import UsageError
from orchestrator.hints import amount, counted

if TYPE_CHECKING:
    from orchestrator.export import Exported

TOLD: Final = "samples.json"
"""What was exported: there once everything is."""
_NAMED: Final = 3


def add_to(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="Training data out of a run's log.", no_args_is_help=True)
    group.callback()(_group)
    group.command("samples", no_args_is_help=True)(write_samples)
    app.add_typer(group, name="export")


def _group() -> None:
    pass


def write_samples(
    *,
    where: Where = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A directory that is new or empty.")],
    form: Annotated[Literal["npz", "parquet", "jsonl"], typer.Option("--format", help="Of the files.")] = "npz",
    pack: Annotated[
        int | None,
        typer.Option(
            "--pack", metavar="LENGTH", min=1, help="Samples in rows of so many tokens at most.", show_default=False
        ),
    ] = None,
    tokenizer: Annotated[
        str,
        typer.Option("--tokenizer", metavar="DIGEST", help="Refuse tokens of another tokenizer.", show_default=False),
    ] = "",
    template: Annotated[
        str,
        typer.Option(
            "--template", metavar="DIGEST", help="Refuse tokens of another chat template.", show_default=False
        ),
    ] = "",
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="NAME", help="Only what this model sampled; may be repeated.", show_default=False
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="ID of the run, where the log holds several.", show_default=False)
    ] = None,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Writes the training samples of the rollouts that completed.

    A sample is one branch of a rollout: token IDs, mask, log-probabilities and
    policy versions, one a token, with the rollout's latest reward and group. With
    --pack, whole samples stand one behind the other in rows with position IDs
    and boundaries; one that is longer than a row is left out and named.
    Ends with code 2 where nothing is left to write, or something fails;
    then it leaves nothing behind.

    \b
    jetgym export samples results/first --out samples
    jetgym export samples results/first --out packed --pack 32768
    jetgym export samples --url nats://127.0.0.1:4222 --out samples --format jsonl
    """  # noqa: D301 - the help keeps these lines as they are
    from orchestrator.export import completed, export_samples  # noqa: PLC0415 - numpy is loaded where it is used
    from orchestrator.sample_files import writer  # noqa: PLC0415

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is there already: name a new directory with --out")
    into = writer(out, form)

    async def work() -> "Exported":
        async with opened(folder_of(where), url, namespace) as bus:
            with working("reading the log"):
                name = await one_run(bus, run, folder_of(where))
                rollouts, others = await completed(bus, name)
            if not rollouts and not others:
                raise await unknown_run(bus, name)
            shown = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            with Progress("rollouts", *shown, console=errors, disable=not errors.is_terminal) as bar, into:
                task = bar.add_task("rollouts", total=len(rollouts))
                found = await export_samples(
                    bus,
                    name,
                    rollouts,
                    into,
                    tokenizer=tokenizer,
                    template=template,
                    models=models or None,
                    pack=pack,
                    on_rollout=lambda: bar.advance(task),
                )
            found.not_completed = others
            return found

    with _made(out):
        found = run_async(work())
        (out / TOLD).write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    if as_json:
        files = [str(path) for path in into.files]
        typer.echo(msgspec.json.encode({**msgspec.to_builtins(found), "files": files}).decode())
    else:
        _tell(out, found, sum(path.stat().st_size for path in into.files))


@contextmanager
def _made(out: Path) -> Iterator[None]:
    """A directory that is new or empty, and is so again after an error: an export is whole or not there."""
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for file in out.iterdir():
            file.unlink()
        if new:
            out.rmdir()
        raise


def _tell(out: Path, found: "Exported", size: int) -> None:
    packed = f" in {counted(found.rows, 'row')}" if found.rows != found.samples else ""
    tokens = f"{counted(found.tokens, 'token')}, {found.trained:,} of them to train on, {amount(size)}"
    lines = [f"{out}: {counted(found.samples, 'sample')}{packed} of {counted(found.rollouts, 'rollout')}, {tokens}"]
    if found.breaks:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(found.breaks.items()))
        lines.append(f"conversations whose tokens did not go on: {kinds}")
    if found.tokenless_calls:
        where = f", {counted(found.tokenless_rollouts, 'rollout')} without any" if found.tokenless_rollouts else ""
        why = f", {found.refused_calls:,} of them refused" if found.refused_calls else ""
        lines.append(f"{counted(found.tokenless_calls, 'model call')} without tokens{why}{where}")
    if found.revised:
        lines.append(f"{counted(found.revised, 'rollout')} with the reward of a later verifier")
    if found.not_completed:
        lines.append(f"{counted(found.not_completed, 'rollout')} that did not complete: they have no reward")
    if found.too_long:
        named = ", ".join(found.too_long[:_NAMED]) + (", …" if len(found.too_long) > _NAMED else "")
        lines.append(f"{counted(len(found.too_long), 'sample')} left out, longer than a row: {named}")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
