"""Where is an async generator finished that agent code has dropped half-way?

On the loop of its rollout, as a branch of its own, not on the worker's loop around it. Python has one pair of hooks
a thread; they are replaced once by hooks that know whose generator it is. (Setting them anew for each step would cost
more than the step: Python audits it.) Used by `loop` only.
"""

import sys
from asyncio.events import _get_running_loop
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, Protocol, runtime_checkable
from weakref import WeakValueDictionary

Generator = AsyncGenerator[Any, Any]
Hook = Callable[[Generator], object] | None


@runtime_checkable
class Owner(Protocol):
    """A loop that finishes its own generators."""

    def drop_asyncgen(self, agen: Generator) -> None:
        """Finishes a generator."""


_owners: Final[WeakValueDictionary[int, Owner]] = WeakValueDictionary()
"""By `id` of the generator. One that ended by itself leaves its entry until the next with that `id` begins."""


class Finalizer:
    """Called by Python as it destroys a generator that has not ended."""

    __slots__ = ("outer",)

    def __init__(self, outer: Hook) -> None:
        self.outer = outer

    def __call__(self, agen: Generator) -> None:  # noqa: D102
        owner = _owners.pop(id(agen), None)
        if owner is not None:
            owner.drop_asyncgen(agen)
        elif self.outer is not None:
            self.outer(agen)


class FirstIter:
    """Called by Python as a generator begins."""

    __slots__ = ("outer",)

    def __init__(self, outer: Hook) -> None:
        self.outer = outer

    def __call__(self, agen: Generator) -> None:  # noqa: D102
        loop = _get_running_loop()
        if isinstance(loop, Owner):
            _owners[id(agen)] = loop
            return
        _owners.pop(id(agen), None)
        if self.outer is not None:
            self.outer(agen)


def install() -> None:
    """Makes sure that this thread has the hooks."""
    firstiter, finalizer = sys.get_asyncgen_hooks()
    if not isinstance(finalizer, Finalizer):
        sys.set_asyncgen_hooks(FirstIter(firstiter), Finalizer(finalizer))
