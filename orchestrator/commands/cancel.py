"""`jetgym cancel`: has a run, the rollouts of one task, or one rollout end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from bus import Bus
from bus.errors import LogFull
from bus.room import unless_full
from bus.run_folder import MATERIALIZED, read_lines
from bus.subjects import NO_ROLLOUT
from components.workers.cancellations import cancel, cancel_run
from contracts.ids import ROOT_CALL
from orchestrator.commands.common import console, run_async
from orchestrator.commands.logs import (
    Json,
    Namespace,
    Url,
    Where,
    folder_of,
    one_run,
    opened,
    runs_of,
    unknown_run,
    words_for,
    working,
)
from orchestrator.errors import UsageError
from orchestrator.full_log import no_room
from orchestrator.hints import counted
from orchestrator.requests import request_if_readable


class _Input(msgspec.Struct):
    rollout_id: str
    task_index: int


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    run_id: str
    rollouts: tuple[str, ...] | None
    """None: all of the run."""
    ended: tuple[str, ...] = ()
    """Of these, the ones that had ended: they keep their end."""
    open: int = 0
    """Those that had not ended, asked for or not; of all that is known of the run, if `rollouts` is None."""


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("cancel", no_args_is_help=True)(command)


def command(
    where: Where = None,
    *,
    run: Annotated[
        str | None, typer.Option("--run", help="ID of the run, where the log holds several.", show_default=False)
    ] = None,
    rollout: Annotated[
        str | None, typer.Option("--rollout", help="Only this rollout, with its later attempts.", show_default=False)
    ] = None,
    task: Annotated[
        int | None, typer.Option("--task", help="Only the rollouts of this task (its task_index).", show_default=False)
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Stands in failures.jsonl.")] = "cancelled by jetgym cancel",
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Cancels a run, or some of its rollouts: queued and running work ends, calls in progress are aborted.

    What has ended keeps its end. A `jetgym run` that collects goes on with the rest; of a run that is stopped,
    what is cancelled stays so when it is resumed.

    \b
    jetgym cancel results/first
    jetgym cancel results/first --task 3
    jetgym cancel --url nats://127.0.0.1:4222 --run r1129-1612-x7k2 \\
        --rollout r1129-1612-x7k2-00003-01
    """  # noqa: D301 - the help keeps these lines as they are
    if rollout is not None and task is not None:
        raise UsageError("name a --rollout or a --task, not both")
    folder = folder_of(where)
    inputs = _inputs(folder)

    async def ask() -> Cancelled:
        with working("opening the log"):
            async with opened(folder, url, namespace) as bus:
                name = await one_run(bus, run, folder)
                asked = _cancel(bus, name, rollout=rollout, task=task, reason=reason, inputs=inputs)
                try:
                    return await unless_full(bus, asked)
                except LogFull:
                    raise await no_room(bus, await _undone(bus, name), words_for(folder, url, namespace)) from None

    found = run_async(ask())
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        _show(found)


def _inputs(folder: Path | None) -> list[_Input]:
    """What the run was going to ask for, where its directory says it."""
    return [] if folder is None else list(filter(None, read_lines(folder / MATERIALIZED, _Input)))


async def _cancel(
    bus: Bus, run: str, *, rollout: str | None, task: int | None, reason: str, inputs: Sequence[_Input]
) -> Cancelled:
    if run not in await runs_of(bus):
        raise await unknown_run(bus, run)
    if rollout is None and task is None:
        still_open = await _count_open(bus, run, inputs)
        await cancel_run(bus, run, reason)  # also if all have ended: another attempt may be on its way
        return Cancelled(run_id=run, rollouts=None, open=still_open)
    asked = {line.rollout_id: line.task_index for line in inputs} | await _asked(bus, run)
    meant = sorted(each for each, index in asked.items() if each == rollout or index == task)
    if not meant:
        which = f"rollout {rollout!r}" if rollout is not None else f"task with the index {task}"
        raise UsageError(f"run {run} has no {which}: `replay list` shows its rollouts")
    ended = [each for each in meant if await bus.last(bus.subjects.ended(run, each)) is not None]
    for each in meant:
        await cancel(bus, run, each, reason)  # also if it has ended: another attempt may be on its way
    return Cancelled(run_id=run, rollouts=tuple(meant), ended=tuple(ended), open=len(meant) - len(ended))


async def _undone(bus: Bus, run: str) -> str:
    """What is the case when the log has had no room for all that was to be said: something may be in it."""
    said = [
        each.subject.rpartition(".")[2]
        for partition in range(bus.config.partitions)
        async for each in bus.scan(bus.subjects.cancels_of(partition), partition=partition)
        if each.subject.split(".")[-2] == run
    ]
    if not said:
        return "nothing was cancelled"
    told = "a part of the run" if NO_ROLLOUT in said else counted(len(said), "rollout")
    return f"not all was cancelled: {told} of it is by now"


async def _count_open(bus: Bus, run: str, inputs: Sequence[_Input]) -> int:
    known, ended = {line.rollout_id for line in inputs}, set()
    for partition in range(bus.config.partitions):
        requests = f"{bus.config.namespace}.{partition}.agents.*.*.request.*.{ROOT_CALL}"
        async for recorded in bus.scan(requests, bus.subjects.ended_of(partition, run), partition=partition):
            event = recorded.event
            if event.type != "rollout.requested":
                ended.add(event.rolloutid)
            elif event.replyto == bus.subjects.ended(run, event.rolloutid):
                known.add(event.rolloutid)
    return len(known - ended)


async def _asked(bus: Bus, run: str) -> dict[str, int]:
    """The rollouts that the run has asked for, with the index of their task."""
    found: dict[str, int] = {}
    for partition in range(bus.config.partitions):
        requests = f"{bus.config.namespace}.{partition}.agents.*.*.request.*.{ROOT_CALL}"
        async for recorded in bus.scan(requests, partition=partition):
            event = recorded.event
            if event.replyto == bus.subjects.ended(run, event.rolloutid):
                request = await request_if_readable(bus, event)
                if request is not None:
                    found[event.rolloutid] = request.task_index
    return found


def _show(found: Cancelled) -> None:
    if found.rollouts is None:
        told = f"run {found.run_id}: {counted(found.open, 'rollout')} had not ended, and will end as cancelled"
        if not found.open:
            told = f"run {found.run_id}: all of its rollouts have ended, nothing is left to cancel"
    else:
        told = f"{counted(found.open, 'rollout')} of run {found.run_id} will end as cancelled"
        if found.ended:
            told += f"; {len(found.ended)} had ended"
    console.print(told, markup=False, soft_wrap=True)
