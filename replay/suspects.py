"""Which line of agent code reaches for something that is not a function of the log?

Used by `trials`. While it watches, the clock, randomness and the like are replaced in their modules by functions that
do the same and note which line of the author's called them. What is not seen: `datetime.now`, which cannot be replaced,
names that a module took (`from time import time`) before the watching began, and what libraries do.
"""

import os
import random
import secrets
import sys
import sysconfig
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import msgspec

from components.durable.location import calling, is_agents
from components.durable.loop import RolloutLoop


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """One line that reaches for it."""

    what: str
    """Such as `time.time`."""
    file: str
    line: int


_WATCHED: Final[tuple[tuple[ModuleType, tuple[str, ...]], ...]] = (
    (time, ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")),
    (random, ("random", "randint", "randrange", "choice", "choices", "sample", "shuffle", "uniform", "getrandbits")),
    (secrets, ("token_hex", "token_bytes", "token_urlsafe", "randbelow", "choice")),
    (uuid, ("uuid1", "uuid4")),
    (os, ("urandom", "getpid")),
)

_LIBRARIES: Final = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@contextmanager
def watched() -> Iterator[dict[Suspect, int]]:
    """The suspects, with how often each was met."""
    found: dict[Suspect, int] = {}
    plain = [(module, name, getattr(module, name)) for module, names in _WATCHED for name in names]
    for module, name, function in plain:
        setattr(module, name, _noting(f"{module.__name__}.{name}", function, found))
    try:
        yield found
    finally:
        for module, name, function in plain:
            setattr(module, name, function)


def _noting(what: str, function: Callable[..., Any], found: dict[Suspect, int]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)  # noqa: SLF001 - who calls
        place = frame.f_code.co_filename, frame.f_lineno
        if RolloutLoop.runs_now() and place == calling() and is_agents(place) and not place[0].startswith(_LIBRARIES):
            suspect = Suspect(what=what, file=place[0], line=place[1])
            found[suspect] = found.get(suspect, 0) + 1
        return function(*args, **kwargs)

    return call
