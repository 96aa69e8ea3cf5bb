"""Which runs leave a log by themselves, because they are old?

Where `log.max_age` is set, the process that keeps a deployment up takes finished runs out whose last event is older, as
`jetgym log prune --older-than` does: when it starts, and then now and again. Called by `launch`. It never takes a run
of which something is open or still to be asked for, nor the one that this process collects, nor one of a trainer, of
which nobody can tell whether it is over. Blobs that nothing needs any more it takes out when it starts, before anybody
else writes.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NoReturn

import structlog

from bus import Bus, BusError
from orchestrator.errors import UsageError
from orchestrator.hints import amount, counted
from orchestrator.prune import Choice, choose, prune
from orchestrator.usage import usage

OFTEN: Final = timedelta(minutes=1)
"""Between two looks at a log of the least age; each reads the whole log."""
SELDOM: Final = timedelta(hours=6)
_PART: Final = 10
"""A run may stay this part of the age longer."""

_log = structlog.get_logger("ageing")


async def prune_old(
    bus: Bus, max_age: timedelta, report: Callable[[str], None], *, collected: str | None, keep_blobs: bool = False
) -> None:
    """Takes out what is old now, and reports it.

    Args:
        bus: on the log.
        max_age: of the last event of a run.
        report: told in a few words what is gone.
        collected: the run that goes on.
        keep_blobs: blobs stay: somebody may be writing.

    Raises:
        BusError: as it is used.
    """
    runs = [run for run in (await usage(bus, largest=0)).runs if run.run != collected and not run.trained]
    old = [run.run for run in choose(runs, Choice(older_than=max_age), served=True)]
    if not old and keep_blobs:
        return
    try:
        gone = await prune(bus, old, keep_blobs=keep_blobs)
    except UsageError as error:  # one of them goes on again, since it was chosen
        _log.warning("old_runs_stay", runs=old, why=str(error))
        return
    if not old:
        if gone.blobs:
            report(f"pruned {counted(gone.blobs, 'blob')} that nothing needs any more: {amount(gone.blob_bytes)}")
        return
    told = f"{counted(gone.events, 'event')}, {amount(gone.bytes + gone.blob_bytes)}"
    report(f"pruned {counted(len(old), 'run')} that ended longer ago than log.max_age: {', '.join(old)} ({told})")


async def keep_young(bus: Bus, max_age: timedelta, report: Callable[[str], None], *, collected: str | None) -> NoReturn:
    """Takes out what gets old, for ever. Blobs stay until the next start: workers may only be away for a moment."""
    pause_s = min(max(max_age / _PART, OFTEN), SELDOM).total_seconds()
    while True:
        await asyncio.sleep(pause_s)
        try:
            await prune_old(bus, max_age, report, collected=collected, keep_blobs=True)
        except BusError as error:  # the server is away, which is told elsewhere
            _log.warning("old_runs_stay", why=str(error))
