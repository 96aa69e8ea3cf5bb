"""What runs on a rollout's loop: its callbacks, tasks and futures.

Made by `loop` only. Tasks and futures hash by the order of their creation, since asyncio keeps them in sets and
iterates those; asyncio's own hash by their address.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec


class Handle(msgspec.Struct, eq=False):
    """A callback in the ready queue. `asyncio.Handle`, as far as it can be seen, and quicker to make."""

    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: contextvars.Context

    def cancel(self) -> None:
        """The callback is not to be called."""
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.callback is None


class Timer(Handle, eq=False):
    """A callback that waits for the reply of its timer call. `asyncio.TimerHandle`, as far as it can be seen."""

    due: float

    def when(self) -> float:
        """The loop's time at which the callback is due."""
        return self.due


class Branch(asyncio.Task[Any]):
    """A task that knows its place in the tree of tasks, and hashes by the order of creation."""

    __slots__ = ("calls", "children", "draws", "order", "path")

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        loop: asyncio.AbstractEventLoop,
        order: int,
        path: str,
        *,
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        self.order = order
        self.path = path
        self.calls = self.children = self.draws = 0
        super().__init__(coro, loop=loop, name=path if name is None else name, context=context)
        self._log_destroy_pending = False  # Execution keeps its branches: they only go together, when it is dropped

    def __hash__(self) -> int:
        return self.order


class Outside:
    """Stands for a branch where no task runs."""

    __slots__ = ("calls", "children", "draws", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls = self.children = self.draws = 0


class Promise(asyncio.Future[Any]):
    """A future that hashes by the order of creation."""

    __slots__ = ("order",)

    def __init__(self, loop: asyncio.AbstractEventLoop, order: int) -> None:
        self.order = order
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.order
