"""What can be done about a log that is full?

Called by the commands that write into one. It says what to type: which finished runs can go, and how the bound is
raised while the log is in use. It changes nothing.
"""

from collections.abc import Sequence
from typing import Final

from bus import Bus
from bus.errors import LogFull
from bus.room import LogRoom
from orchestrator.hints import amount, typed
from orchestrator.usage import usage

_NAMED: Final = 5
"""Finished runs that are named, the oldest."""


async def no_room(bus: Bus, undone: str, where: Sequence[str]) -> LogFull:
    """The error of who had something to write into a full log.

    Args:
        bus: on the log.
        undone: what is the case now.
        where: the words that name this log to `jetgym log`.
    """
    room = LogRoom(bus)
    await room.full()
    full = await room.full()
    size = "" if full is None else f" ({full.name}: {amount(full.used)} of {amount(full.limit)}, log.max_bytes)"
    over = [run.run for run in (await usage(bus, largest=0)).runs if run.finished and not run.trained]
    lines = [f"the log is full{size}, so {undone}. Make room, then say it again:"]
    if over:
        names = [word for name in over[:_NAMED] for word in ("--run", name)]
        lines.append(f"  {typed('jetgym', 'log', 'prune', *where, *names)}")
    else:
        lines.append("  no run in it is over, so none can be pruned;")
    if full is None:
        lines.append("  its server's own store is full: give it more disk, or a larger max_file_store")
    else:
        lines.append(f"  {typed('jetgym', 'log', 'resize', *where, '--max-bytes', str(2 * full.limit))}")
    return LogFull("\n".join(lines))
