"""In which order did an agent ask a resources instance?

Not always that of the log: a request that was refused for a moment, or whose data is stored apart, gets there after
later ones. So each names the one before it (`Event.afterkey`). Called by whoever applies recorded calls to a session,
the resources worker and `replay`. Does no I/O.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from contracts.events import Event

T = TypeVar("T")


def in_order(asked: Iterable[T], event: Callable[[T], Event]) -> list[T]:
    """What one caller asked one instance, as it was asked; `asked` is in the order of the log, `event` its request.

    One that names no other of them stands at its place in the log.
    """
    found = {event(each).callkey: each for each in asked}
    after: defaultdict[str | None, list[T]] = defaultdict(list)
    for each in found.values():
        before = event(each).afterkey
        after[before if before in found else None].append(each)
    ordered: list[T] = []
    rest = after[None][::-1]
    while rest:
        ordered.append(rest.pop())
        rest += after[event(ordered[-1]).callkey][::-1]
    return ordered
