"""Which sessions does this worker hold, and whose turn is it on each?

Used by the runtime. A session in use is never let go; of the others the least recently used goes first when there
are too many. It never makes a session's state and never looks into it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from components.resources.errors import SessionLost
from contracts.rollouts import SessionSnapshot, ToolCall, ToolOutput

__all__ = ["FREE", "History", "Place", "Recover", "Session", "Sessions"]


class History(NamedTuple):
    """What a session is made from again."""

    task: bytes | msgspec.Raw
    """The task's line that the session was seeded with."""
    calls: Sequence[ToolCall]
    """The tool calls made on it since, in the order in which they were asked."""
    snapshot: SessionSnapshot | None = None
    """The session after the last of them, where the component takes snapshots."""
    last: str = ""
    """Key of the last of them that takes the session, or of the seed."""
    outputs: Sequence[ToolOutput] = ()
    """What the calls were answered with, each at its call's place; empty where the calls are not made again."""


class Place(NamedTuple):
    """Where a call stands among those that were asked of one session."""

    key: str = ""
    after: str | None = None
    """Key of the one before it, empty for the first; None where that is not known."""


FREE: Final = Place()
"""It is applied as it comes."""

REMEMBERED: Final = 65_536
"""So many sessions that had to go are known as such."""

Recover = Callable[[], Awaitable[History]]
"""Reads a session's history."""


class Session:
    """One session: `async with` takes a turn on it, in the order of asking."""

    __slots__ = ("_lock", "_owner", "_passed", "_users", "calls", "kept", "key", "last", "state")

    def __init__(self, owner: "Sessions", key: str) -> None:
        self.key = key
        self.kept = False
        self.state: object = None
        self.calls = 0
        """Tool calls that the state has in it, since the seed; counted where the component takes snapshots."""
        self.last = ""
        """Key of the last call that the state has in it."""
        self._passed: dict[str, str] = {}
        """By its key, what a call that does not take the session came after."""
        self._lock = asyncio.Lock()
        self._owner = owner
        self._users = 0

    @property
    def idle(self) -> bool:
        """Nobody is on it or waits for it."""
        return self._users == 0

    def keep(self, state: object, calls: int = 0, last: str = "") -> None:
        """Holds `state` from now on."""
        self.state, self.calls, self.last, self.kept = state, calls, last, True

    def forget(self) -> None:
        """Holds nothing any more."""
        self.state, self.calls, self.last, self.kept = None, 0, "", False

    def pass_by(self, place: Place) -> None:
        """A call that does not take the session: the one after it need not wait for it."""
        if place.after is not None:
            self._passed[place.key] = place.after

    def due(self, place: Place) -> bool:
        """Whether it is the turn of this call: the state has the one before it in it, and none since."""
        after = place.after
        while after != self.last and after in self._passed:
            after = self._passed.pop(after)
        return after in (None, self.last)

    def lost(self, reason: str) -> SessionLost:
        """The error that says that the session is not here."""
        return SessionLost(f"the session of {self.key} is lost: {reason}", session=self.key)

    async def __aenter__(self) -> Self:
        self._users += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        self._users -= 1
        if self.idle and not self.kept:
            self._owner.remove(self)


class Sessions:
    """The sessions of one worker, at most `limit` beside those in use."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[str, Session] = OrderedDict()
        self._let_go: OrderedDict[str, None] = OrderedDict()
        """The latest that went for want of room."""

    def use(self, key: str) -> Session:
        """The session of that key, made empty where there is none; enter it at once with `async with`."""
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = Session(self, key)
            self._make_room(held)
        else:
            self._held.move_to_end(key)
        return held

    def pass_by(self, key: str, place: Place) -> None:
        """A call of this session's rollout that does not take it."""
        held = self._held.get(key)
        if held is not None:
            held.pass_by(place)

    def has(self, key: str) -> bool:
        """Whether the session's state is here."""
        held = self._held.get(key)
        return held is not None and held.kept

    def had_to_go(self, key: str) -> bool:
        """Whether the session went lately since there were too many."""
        return key in self._let_go

    def drop(self, key: str) -> None:
        """Forgets the session's state. Those who wait for a turn keep it, and find the session empty."""
        held = self._held.get(key)
        if held is not None:
            held.forget()
            if held.idle:
                self.remove(held)

    def remove(self, session: Session) -> None:
        """Takes an idle session off the list."""
        if self._held.get(session.key) is session:
            del self._held[session.key]

    def _make_room(self, newest: Session) -> None:
        over = len(self._held) - self._limit
        if over > 0:
            idle = (held for held in self._held.values() if held.idle and held is not newest)
            for held in [held for held, _ in zip(idle, range(over), strict=False)]:
                del self._held[held.key]
                self._let_go[held.key] = None
                if len(self._let_go) > REMEMBERED:
                    self._let_go.popitem(last=False)
