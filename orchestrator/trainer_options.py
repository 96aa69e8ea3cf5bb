"""What may be chosen of a trainer, and what does it tell of itself?

Plain data for `trainer`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, get_args

import msgspec
import structlog

from orchestrator.describing import Descriptions
from orchestrator.errors import UsageError, nearest
from orchestrator.settings import RetrySettings

_log = structlog.get_logger("trainer")

FEED: Final = "trainer"
"""Name of the feed, unless another one is given."""

UNFINISHED: Final = 8_192
"""Rollouts that are unfinished at most, unless something else is asked for."""

PATIENCE_S: Final = 3600.0
"""Seconds for which nothing may come nearer to a batch that is awaited, unless something else is asked for."""

Order = Literal["finish", "fifo"]


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
_NONE: Final = ("groups", "max_lag", "models")
"""Options that may be None, which is as if they were left out."""


def check_options(options: Options) -> None:
    """Refuses what no option is, since a misspelled bound would bound nothing, and values that no option has.

    Raises `TypeError` and `ValueError`, as a function with these arguments does.
    """
    known = list(Options.__annotations__)
    if unknown := [name for name in options if name not in known]:
        raise TypeError(f"a trainer has no option {unknown[0]!r}; {nearest(unknown[0], known)}")
    given = {name: value for name, value in options.items() if value is not None or name not in _NONE}
    for name, least in _LEAST.items():
        if name in given:
            check_whole(name, given[name], least)
    if "models" in given:
        check_names("models", given["models"])
    if not isinstance(given.get("retry", RetrySettings()), RetrySettings):
        raise TypeError(f"retry is RetrySettings(…), not {given['retry']!r}")


def check_whole(name: str, value: Any, least: int) -> None:
    """Raises `ValueError` for what is no whole number from `least` on."""
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is a whole number, {least} or more, not {value!r}")


def check_seconds(name: str, value: Any) -> None:
    """Raises `ValueError` for what is no time that can be waited for; infinity is one."""
    if not isinstance(value, int | float) or isinstance(value, bool) or isnan(value) or value < 0:
        raise ValueError(f"{name} is a number of seconds, 0 or more, not {value!r}")


def check_names(name: str, value: Any, known: Sequence[str] | None = None) -> None:
    """Raises `ValueError` for what is no sequence of names, an empty one, and one with names that are not `known`."""
    if isinstance(value, str) or not isinstance(value, Collection) or not value:
        raise ValueError(f"{name} are several names, as ('policy',), not {value!r}")
    if wrong := [each for each in value if not isinstance(each, str)]:
        raise ValueError(f"{name} are names, and {wrong[0]!r} is none")
    if others := set(value) - set(value if known is None else known):
        raise ValueError(f"{', '.join(sorted(others))}: not among the models that are trained, {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """How batches are made; see `Trainer.feed`. Exactly one of the first three says how large they are."""

    groups: int | None
    rollouts: int | None
    tokens: int | None
    order: Order
    max_lag: int | None
    drop_zero_variance: bool
    straggler_s: float | None
    patience_s: float

    def __post_init__(self) -> None:
        sizes = {"groups": self.groups, "rollouts": self.rollouts, "tokens": self.tokens}
        given = {name: size for name, size in sizes.items() if size is not None}
        if len(given) != 1:
            raise ValueError("say how large a batch is with one of groups, rollouts and tokens")
        for name, size in given.items():
            check_whole(name, size, 1)
        if self.order not in get_args(Order):
            raise ValueError(f"order is one of {', '.join(map(repr, get_args(Order)))}, not {self.order!r}")
        if self.max_lag is not None:
            check_whole("max_lag", self.max_lag, 0)
        if not isinstance(self.drop_zero_variance, bool):
            raise TypeError(f"drop_zero_variance is True or False, not {self.drop_zero_variance!r}")
        if self.rollouts is not None and self.drop_zero_variance:
            raise ValueError("drop_zero_variance compares the rollouts of a group: take groups or tokens")
        if self.straggler_s is not None:
            check_seconds("straggler_s", self.straggler_s)
        check_seconds("patience_s", self.patience_s)

    @property
    def single(self) -> bool:
        """Whether a batch is of single rollouts."""
        return self.rollouts is not None


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
    untrainable: int
    """Committed rollouts with a reward and without a captured token: there was nothing to train on."""
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


def said(what: str) -> None:
    """Tells it in a log line, where nobody else wants to be told."""
    _log.warning("server", told=what)


def told(what: str) -> None:
    """The same of a deployment of one's own, of which there is more to tell."""
    _log.info("deployment", told=what)


def write_metrics(path: Path, state: TrainerState) -> None:
    """What a trainer leaves in the directory of its run. Whoever is killed over it leaves what was there."""
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.format(msgspec.json.encode({"run": state}), indent=2) + b"\n")
    part.replace(path)
