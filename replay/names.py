"""Which rollout, or which run, does a name mean?

A name is an ID, a beginning of one that no other shares, or `last`. Called by the commands. Where a name means nothing
or several things, the error names the ones there are.
"""

from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Final

import msgspec

from contracts.errors import InvalidName
from contracts.ids import rollout_id
from replay.errors import AmbiguousName, UnknownName
from replay.source import Source

LAST: Final = "last"
SHOWN: Final = 6
"""So many candidates an error names."""


class _Run(msgspec.Struct):
    run_id: str = ""


_RUN: Final = msgspec.json.Decoder(_Run)


def one_of(known: Sequence[str], name: str, what: str) -> str:
    """The one of `known` that `name` means. Raises `UnknownName` or `AmbiguousName`; `what` says what it names."""
    if name in known:
        return name
    if not name:
        raise UnknownName(f"an empty name means no {what}: give its ID, a beginning of it, or `{LAST}`")
    matching = [candidate for candidate in known if candidate.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise AmbiguousName(f"{name!r} begins {len(matching)} {what}s: {shown(matching)}", candidates=matching)
    near = get_close_matches(name, known, n=SHOWN, cutoff=0.7) or list(known)
    if not near:
        raise UnknownName(f"there is no {what} {name!r}, nor any other {what}")
    raise UnknownName(f"there is no {what} {name!r}; there are: {shown(near)}", candidates=near)


async def find_rollout(source: Source, name: str, run: str | None = None) -> str:
    """The ID of the rollout that `name` means; `last` is the one that ended last, else the one requested last.

    With a run's ID, `last` is that run's.
    """
    if name != LAST and _can_be_id(name):
        async for _ in source.stream(name):
            return name
    requested: dict[str, datetime] = {}
    ended = ""
    async for recorded in source.outline():
        if name == LAST and run is not None and not recorded.event.rolloutid.startswith(f"{run}-"):
            continue
        if recorded.event.type == "rollout.requested":
            requested[recorded.event.rolloutid] = recorded.event.time
        else:
            ended = recorded.event.rolloutid
    if name != LAST:
        return one_of(list(requested), name, "rollout")
    if not requested:
        raise UnknownName(f"there is no rollout in {source.name}")
    return ended or max(requested, key=requested.__getitem__)


async def find_run(source: Source, name: str) -> str:
    """The ID of the run that `name` means among the runs of a source; `last` is the one requested last."""
    runs: dict[str, datetime] = {}
    async for recorded in source.outline():
        if recorded.event.type == "rollout.requested":
            run = _RUN.decode(await source.data(recorded.event)).run_id
            runs[run] = max(recorded.event.time, runs.get(run, recorded.event.time))
    if name != LAST:
        return one_of(list(runs), name, "run")
    if not runs:
        raise UnknownName(f"there is no run in {source.name}")
    return max(runs, key=runs.__getitem__)


def _can_be_id(name: str) -> bool:
    """Whether a rollout may have this ID; another name could match more than one in the log."""
    try:
        rollout_id(name)
    except InvalidName:
        return False
    return True


def shown(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
