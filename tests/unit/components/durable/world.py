"""The outside of an execution for the tests: a log, and callees that answer in any order.

As in a deployment, the log takes the requests of one step late and in any order, but a request stands before its
reply, and replies are delivered in the order of the log. All choices follow from a seed.
"""

import json
import random
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from components.durable import Call, Context, Execution, History, Reply, reexecute
from components.durable.history import RecordedCall
from contracts.events import CallError
from tests.unit.components.durable.programs import agent, describe, generate

START = datetime(2025, 3, 1, 12, tzinfo=UTC)
ROLLOUT = "run-00001-02"
Main = Callable[[Context], Coroutine[Any, Any, str]]
Entry = RecordedCall | Reply


class World:
    """One rollout, run to its end."""

    def __init__(self, main: Main, seed: int = 0, *, trouble: bool = True, rebuild: bool = False) -> None:
        self.main = main
        self.log: list[Entry] = []
        self.made: list[list[Call]] = []
        """All calls made so far: at the start, and after each reply."""
        self._rng = random.Random(seed)
        self._trouble = trouble  # calls may fail, and timers may be quicker than other calls
        self._rebuild = rebuild
        self._time = START
        self._run()

    def execution(self) -> Execution[str]:
        """A fresh execution of the same code."""
        return self.execution_of(self.main)

    @staticmethod
    def execution_of(main: Main) -> Execution[str]:
        return Execution(ROLLOUT, main, time=START, cause="e0")

    def history(self, length: int | None = None) -> History:
        return history(self.log[:length], complete=length is None)

    def replies(self, length: int) -> int:
        """How many of the first `length` events are replies."""
        return sum(isinstance(entry, Reply) for entry in self.log[:length])

    def _run(self) -> None:
        execution = self.execution()
        unsent = execution.start()
        self.made.append(list(unsent))
        unanswered: list[Call] = []
        while not execution.done or unsent:
            if unsent and (not unanswered or self._rng.random() < 0.7):
                call = unsent.pop(self._rng.randrange(len(unsent)))
                self.log.append(recorded(call, len(self.log) + 1))
                unanswered.append(call)
            else:
                ready = [call for call in unanswered if self._trouble or call.kind != "timers"] or unanswered
                call = self._rng.choice(ready)
                unanswered.remove(call)
                if call.kind == "timers" and call.key not in execution.outstanding and self._rng.random() < 0.5:
                    continue  # a worker need not fire a timer that was cancelled
                reply = self._reply(call)
                self.log.append(reply)
                calls = execution.deliver(reply)
                unsent += calls
                self.made.append([*self.made[-1], *calls])
            if self._rebuild and not execution.done:
                execution.close()
                execution = self.execution()
                assert {call.key for call in reexecute(execution, self.history(len(self.log)))} == {
                    call.key for call in unsent
                }
        self.outcome = outcome(execution)

    def _reply(self, call: Call) -> Reply:
        self._time += timedelta(seconds=self._rng.uniform(-0.5, 2.0))
        seq = len(self.log) + 1
        ok = not self._trouble or call.kind == "timers" or self._rng.random() < 0.95
        error = CallError(kind="tool_error", message=f"it broke {self._rng.randint(1, 9)}")
        return Reply(
            key=call.key,
            type=f"{call.type.partition('.')[0]}.{'replied' if ok else 'failed'}",
            data=json.dumps([call.key, self._rng.randint(0, 99)]).encode() if ok else msgspec.json.encode(error),
            time=self._time,
            id=f"e{seq}",
            seq=seq,
        )


def recorded(call: Call, seq: int) -> RecordedCall:
    """A call as it stands in the log."""
    return RecordedCall(
        key=call.key, kind=call.kind, instance=call.instance, type=call.type, data=call.data, cause=call.cause, seq=seq
    )


def history(entries: list[Entry], *, complete: bool = False) -> History:
    """The history that these events make."""
    return History(
        calls={entry.key: entry for entry in entries if isinstance(entry, RecordedCall)},
        replies=tuple(entry for entry in entries if isinstance(entry, Reply)),
        complete=complete,
    )


def outcome(execution: Execution[str]) -> str:
    """How an execution ended."""
    try:
        return execution.result()
    except Exception as error:  # noqa: BLE001 - the agent's
        return describe(error)


def histories(count: int) -> str:
    """What `count` rollouts of generated programs do and say, as one JSON document."""
    found = []
    for seed in range(count):
        world = World(agent(generate(random.Random(seed))), seed)
        found.append([world.outcome, *(entry.data.decode() for entry in world.log)])
    return json.dumps(found)


def reply(key: str, data: bytes = b"null", *, after: float = 0.0, type: str = "model.replied") -> Reply:  # noqa: A002
    """A reply, some seconds after the start."""
    return Reply(key=key, type=type, data=data, time=START + timedelta(seconds=after))


async def ask(context: Context, data: bytes = b"null") -> bytes:
    """One call."""
    return await context.call("models", "it", "model.requested", data)
