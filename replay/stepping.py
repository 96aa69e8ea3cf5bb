"""An agent's execution at any point of its recorded history.

Called by `debugger`. A position is how many replies the code was given: 0 before it starts, 1 after its start, k + 1
after k replies. Forward is one more reply; back is a new execution from the start, which takes well under a
millisecond an event. It never goes beyond the first event at which code and recording differ, and it neither reads nor
writes anything.
"""

import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

import msgspec

from components.agents.base import Agent, AgentConfig
from components.durable import Execution, InvalidHistory, NondeterminismError, Reply, UnknownReply, reexecute
from components.durable.location import authored
from components.workers.ending import outcome_of
from contracts.events import CallError, Recorded
from contracts.rollouts import RolloutResult
from replay.engine import Departure, departure_of, execution_in, history_in
from replay.errors import BrokenHistory
from replay.trajectory import AgentRun, Call, Trajectory


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0


class _Response(msgspec.Struct):
    usage: _Usage | None = None


_RESPONSE: Final = msgspec.json.Decoder(_Response)


class Branch(msgspec.Struct, frozen=True):
    """One branch of the code, where it waits."""

    path: str
    """`m` is the main one."""
    frames: list[FrameType]
    """Of agent code, the outermost first."""


class Stepper:
    """One execution, moved through its history."""

    def __init__(
        self, trajectory: Trajectory, run: AgentRun, agent: type[Agent[AgentConfig]], config: AgentConfig
    ) -> None:
        """Raises `BrokenHistory`."""
        self.trajectory = trajectory
        self.prefix = run.prefix
        """Of the keys of its calls."""
        self._run, self._agent, self._config = run, agent, config
        try:
            self._history = history_in(trajectory, run)
        except InvalidHistory as error:
            raise BrokenHistory(f"rollout {trajectory.rollout_id}: {error}") from error
        self._replies = self._history.replies
        self._seqs, self._turns, self._tokens = [0], [0], [0]
        """Of each reply its event, and what there is up to and with it; each is read once for that."""
        for reply in self._replies:
            self._seqs.append(reply.seq)
            self._turns.append(self._turns[-1] + reply.type.startswith("model."))
            self._tokens.append(self._tokens[-1] + _tokens(reply))
        with _quietly():
            self.departure: Departure | None = departure_of(trajectory, run, agent, config)
            """Where code and recording differ, if they do."""
            self.last = self._last()
            """The position that nothing goes beyond."""
        self.position = 0
        self._execution: Execution[RolloutResult] | None = None
        self._ended: tuple[RolloutResult | CallError, list[FrameType]] | None = None

    @property
    def reply(self) -> Reply | None:
        """The reply that the code was given last."""
        return self._replies[self.position - 2] if self.position > 1 else None

    @property
    def call(self) -> Call | None:
        """The call that this was the reply to."""
        return self.trajectory.calls.get(self.reply.key) if self.reply is not None else None

    @property
    def event(self) -> Recorded | None:
        """The event that the code was given last; its request at the start."""
        if self.position == 0:
            return None
        return self.call.replied if self.call is not None else self._run.requested

    @property
    def calls(self) -> list[Call]:
        """The calls whose replies the code is given, in their order."""
        return [self.trajectory.calls[reply.key] for reply in self._replies if reply.key in self.trajectory.calls]

    @property
    def most_turns(self) -> int:
        """Turns at the end."""
        return self._turns[-1]

    @property
    def most_tokens(self) -> int:
        """Tokens at the end."""
        return self._tokens[-1]

    @property
    def tokens(self) -> int:
        """Tokens that its model calls took so far, as the engines count them."""
        return self._tokens[max(0, self.position - 1)]

    @property
    def turns(self) -> int:
        """Model calls that were answered so far."""
        return self._turns[max(0, self.position - 1)]

    @property
    def departs(self) -> bool:
        """Whether this is where code and recording differ."""
        return self.departure is not None and self.position == self.last

    @property
    def done(self) -> bool:
        """Whether the code has ended."""
        return self._execution is not None and self._execution.done

    @property
    def outcome(self) -> RolloutResult | CallError | None:
        """What the code came to; None while it runs."""
        if self._execution is None or not self._execution.done:
            return None
        if self._ended is None:
            outcome = outcome_of(self._execution)
            self._ended = outcome, authored(_raised(self._execution.error()))
        return self._ended[0]

    def waiting(self) -> list[Call | str]:
        """What the code waits for: recorded calls, or the keys of calls that it makes and that are not recorded."""
        keys = sorted(self._execution.outstanding) if self._execution is not None else []
        return [self.trajectory.calls.get(key, key) for key in keys]

    def branches(self) -> list[Branch]:
        """Where the code is: each branch that waits, or where the code raised, as the branch `m`."""
        if self._execution is None:
            return []
        if not self._execution.done:
            return [Branch(path, frames) for path, frames in self._execution.stacks()]
        return [Branch("m", self._ended[1])] if self.outcome is not None and self._ended and self._ended[1] else []

    def position_of(self, seq: int) -> int:
        """The position at which the code has all replies up to and with the event of this number."""
        return min(self.last, bisect_right(self._seqs, seq))

    def goto(self, position: int, breakpoint_hook: Callable[..., Any] | None = None) -> None:
        """Goes to a position, from 0 to `last`; `breakpoint()` in the code does something in the last step only."""
        position = max(0, min(position, self.last))
        if position == self.position:
            return
        if self._execution is None or position < self.position:
            with _quietly():
                self._restart(position - 1)
        while self.position < position:
            with _breakpoints(breakpoint_hook if self.position == position - 1 else None):
                self._step()

    def close(self) -> None:
        """Ends the code, wherever it is."""
        if self._execution is not None:
            self._execution.close()
        self._execution = self._ended = None
        self.position = 0

    def _restart(self, position: int) -> None:
        """A fresh execution, taken to a position in one go."""
        self.close()
        if position < 0:
            return
        execution = execution_in(self.trajectory, self._run, self._agent, self._config)
        self._execution = execution
        if position > 0:
            reexecute(execution, self._until(position))
            self.position = position

    def _step(self) -> None:
        """One reply more, or the start."""
        assert self._execution is not None
        self.position += 1
        if self.position == 1:
            self._execution.start()
            return
        try:
            self._execution.deliver(self._replies[self.position - 2])
        except UnknownReply:
            if self.departure is None:
                raise

    def _until(self, position: int) -> Any:
        """The history up to before the reply that comes after this position."""
        given = position - 1
        calls = self._history.calls
        if given < len(self._replies):
            next_seq = self._seqs[given + 1]
            calls = {key: call for key, call in calls.items() if call.seq < next_seq}
        return msgspec.structs.replace(self._history, calls=calls, replies=self._replies[:given], complete=False)

    def _last(self) -> int:
        whole = len(self._replies) + 1
        if self.departure is None:
            return whole
        for position in range(1, whole + 1):
            execution = execution_in(self.trajectory, self._run, self._agent, self._config)
            try:
                reexecute(execution, self._until(position))
            except NondeterminismError:
                return position
            finally:
                execution.close()
        return whole


@contextmanager
def _breakpoints(hook: Callable[..., Any] | None) -> Iterator[None]:
    """`breakpoint()` calls this hook, or that of a debugger that is attached, or does nothing."""
    if hook is not None and (debugger := _debugger()) is not None:
        hook = debugger.breakpoint
    outer, sys.breakpointhook = sys.breakpointhook, hook or _pass_by
    try:
        yield
    finally:
        sys.breakpointhook = outer


@contextmanager
def _quietly() -> Iterator[None]:
    """For what is run once more: it neither stops nor prints."""
    debugger = _debugger()
    if debugger is not None:
        debugger.trace_this_thread(False)
    try:
        with _breakpoints(None), Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            yield
    finally:
        if debugger is not None:
            debugger.trace_this_thread(True)


def _debugger() -> ModuleType | None:
    """debugpy, where somebody has attached to this process with it."""
    found = sys.modules.get("debugpy")
    return found if found is not None and found.is_client_connected() else None


def _pass_by(*_args: Any, **_kwargs: Any) -> None:
    """`breakpoint()` where it does nothing."""


def _raised(error: BaseException | None) -> list[FrameType]:
    """The frames through which an exception left the code, the outermost first."""
    trace, frames = error.__traceback__ if error is not None else None, []
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames


def _tokens(reply: Reply) -> int:
    if reply.type != "model.replied":
        return 0
    try:
        usage = _RESPONSE.decode(reply.data).usage
    except msgspec.DecodeError:
        return 0
    return usage.input_tokens + usage.output_tokens if usage is not None else 0
