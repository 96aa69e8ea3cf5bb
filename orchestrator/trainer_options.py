"""What may be chosen of a trainer, and what does it tell of itself?

Plain data for `trainer`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypedDict

import msgspec

from orchestrator.describing import Descriptions
from orchestrator.errors import UsageError, nearest
from orchestrator.settings import RetrySettings

UNFINISHED: Final = 8_192
"""Rollouts that are unfinished at most, unless something else is asked for."""


class Options(TypedDict, total=False):
    """What both ways to a trainer take beside its run."""

    feed: str
    """Name of the feed, `trainer` by default. Another name takes the same run's rollouts once more."""
    models: Sequence[str]
    """Model instances that have the weights which are trained; by default the only one there is."""
    groups: int
    """That are trained on between two policy versions; with `max_lag` it paces what is asked for."""
    max_lag: int
    """Versions that a delivered group may be behind; 0 is exactly on-policy."""
    unfinished: int
    """Rollouts that are unfinished at most; 8192 by default."""
    retry: RetrySettings
    """Which failed rollouts are asked for again; by default as the config says, else none."""


_LEAST: Final = {"groups": 1, "max_lag": 0, "unfinished": 1}


def check_options(options: Options) -> None:
    """Refuses what no option is, since a misspelled bound would bound nothing, and numbers that admit nothing.

    Raises `TypeError` and `ValueError`, as a function with these arguments does.
    """
    known = list(Options.__annotations__)
    if unknown := [name for name in options if name not in known]:
        raise TypeError(f"a trainer has no option {unknown[0]!r}; {nearest(unknown[0], known)}")
    for name, least in _LEAST.items():
        given = options.get(name)
        if isinstance(given, int) and given < least:
            raise ValueError(f"{name} is {least} or more, not {given}")


class TrainerState(msgspec.Struct, frozen=True, kw_only=True):
    """What a trainer knows of its run."""

    run_id: str
    version: int
    unfinished: int
    """Groups that were asked for and have not ended."""
    waiting: int
    """Groups that have ended and are not committed: the depth of the queue."""
    unfinished_rollouts: int
    consumed: int
    """Rollouts that were committed or dropped."""
    staleness: dict[int, int]
    """Committed rollouts by their staleness at delivery."""
    dropped: dict[str, int]
    """Dropped rollouts by reason."""


def models_of(descriptions: Descriptions, names: Sequence[str] | None) -> tuple[str, ...]:
    """The model instances of these names, or the only one; raises `UsageError`."""
    there = [name for name, description in descriptions.items() if description.kind == "models"]
    if names is None:
        if len(there) > 1:
            raise UsageError(f"which models are trained? Name them with models=(…); {nearest('', there)}")
        return tuple(there)
    if unknown := [name for name in names if name not in there]:
        raise UsageError(f"there is no model {unknown[0]!r}; {nearest(unknown[0], there)}")
    return tuple(names)


def write_metrics(path: Path, state: TrainerState) -> None:
    """What a trainer leaves in the directory of its run."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode({"run": state}), indent=2) + b"\n")
