"""A session of a component that takes snapshots is restored from the last one, and no call is made again."""

import threading
from typing import Any

import msgspec
import pytest

from components.resources import History, Resources, ResourcesConfig, Runtime, TaskFields, tool
from components.resources.errors import DeadlineExceeded, SessionLost, SnapshotFailed
from components.resources.trial import Trial
from contracts.rollouts import SessionSnapshot, ToolCall, ToolOutput, VerifyRequest

TASK = b'{"responses_create_params": {"input": "go"}, "start": 2}'


class Task(TaskFields):
    start: int = 0


class Sums(Resources):
    """Counts how often anything is applied, over all sessions."""

    rebuild = "snapshot"

    def __init__(self, config: ResourcesConfig | None = None) -> None:
        super().__init__(config)
        self.applied = 0
        self.go_on = threading.Event()

    def seed_session(self, task: Task) -> list[object]:
        return [task.start]

    @tool
    async def add(self, session: list[object], value: int) -> str:
        """Adds a value."""
        self.applied += 1
        session.append(value)
        return str(session)

    @tool
    def spoil(self, session: list[object], how: str) -> str:
        """Puts into the session what its snapshot cannot have."""
        values: dict[str, object] = {
            "tuple": (1, 2),
            "number as a key": {1: 2},
            "set": {1},
            "object": object(),
            "not a number": float("nan"),
            "half a character": "\ud800",
            "itself": session,
        }
        session.append(values.get(how, how))
        return "done"

    @tool
    async def look(self) -> str:
        """Needs no session."""
        return "nothing"

    def snapshot(self, session: list[object]) -> object:
        if "hang" in session:
            self.go_on.wait(10)
        if "raise" in session:
            raise OSError("no room")
        return session

    async def restore(self, task: Task, snapshot: list[object]) -> list[object]:
        if snapshot[0] != task.start:
            raise ValueError("another task")
        return snapshot

    async def verify(self, session: list[int]) -> float:
        return sum(session)


def _call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(name=name, arguments=msgspec.json.encode(arguments).decode(), call_id="c")


def _shown(snapshot: SessionSnapshot | None) -> tuple[int, Any]:
    assert snapshot is not None
    return snapshot.calls, msgspec.json.decode(snapshot.state)


def _at(calls: int, state: bytes) -> SessionSnapshot:
    return SessionSnapshot(calls=calls, state=msgspec.Raw(state))


async def test_the_seed_and_each_call_on_the_session_leave_a_snapshot_that_counts_the_calls() -> None:
    runtime = Runtime(Sums())
    assert runtime.takes_snapshots
    assert _shown(await runtime.seed("r", TASK)) == (0, [2])
    assert _shown((await runtime.call("r", _call("add", value=3))).snapshot) == (1, [2, 3])
    assert (await runtime.call("r", _call("look"))).snapshot is None
    assert (await runtime.call("r", _call("nothing"))).snapshot is None
    assert _shown((await runtime.call("r", _call("add", value="text"))).snapshot) == (2, [2, 3])
    assert _shown((await runtime.call("r", _call("add", value=4))).snapshot) == (3, [2, 3, 4])
    assert _shown(await runtime.seed("r", TASK)) == (0, [2])
    assert _shown((await runtime.call("r", _call("add", value=5))).snapshot) == (1, [2, 5])


async def test_a_session_is_restored_and_no_call_is_made_again() -> None:
    sums = Sums()
    runtime = Runtime(sums)

    async def recover() -> History:
        calls = [_call("add", value=3), _call("look"), _call("add", value=4)]
        return History(TASK, calls, _at(2, b"[2,30,40]"))

    output = await runtime.call("r", _call("add", value=5), recover=recover)
    assert _shown(output.snapshot) == (3, [2, 30, 40, 5])
    assert sums.applied == 1
    request = VerifyRequest(task=msgspec.Raw(TASK), response=msgspec.Raw(b"{}"))
    assert (await Runtime(sums).verify("r", request, recover=recover)).reward == 72.0
    assert sums.applied == 1


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (None, "the log has no snapshot of it"),
        (_at(1, b"[2,3]"), "2 calls on it were answered, and its last snapshot has 1 in it"),
        (_at(3, b"[2,3,4,5]"), "2 calls on it were answered, and its last snapshot has 3 in it"),
        (_at(2, b"[1,3,4]"), r"Sums\.restore raised ValueError: another task"),
    ],
)
async def test_a_session_that_cannot_be_restored_is_lost_with_the_reason(
    snapshot: SessionSnapshot | None, reason: str
) -> None:
    calls = [_call("add", value=3), _call("add", value=4)]
    with pytest.raises(SessionLost, match=f"the session of r is lost: {reason}"):
        await Runtime(Sums()).rebuild("r", History(TASK, calls, snapshot))


@pytest.mark.parametrize(
    "how", ["raise", "tuple", "number as a key", "set", "object", "not a number", "half a character", "itself"]
)
async def test_a_call_whose_snapshot_cannot_be_stored_fails_and_is_not_in_the_session(how: str) -> None:
    runtime = Runtime(Sums())
    await runtime.seed("r", TASK)
    with pytest.raises(SnapshotFailed, match=r"Sums\.snapshot (raised OSError: no room|returned what JSON)") as failure:
        await runtime.call("r", _call("spoil", how=how))
    assert failure.value.call_error().kind == "verify_error"
    assert not runtime.has("r")


async def test_a_snapshot_that_hangs_is_a_deadline_error() -> None:
    sums = Sums(ResourcesConfig(seed_deadline_s=0.05))
    runtime = Runtime(sums)
    await runtime.seed("r", TASK)
    with pytest.raises(DeadlineExceeded, match=r"Sums\.snapshot did not finish within 0\.05 seconds"):
        await runtime.call("r", _call("spoil", how="hang"))
    assert not runtime.has("r")
    sums.go_on.set()


class Spoiled(Sums):
    def seed_session(self, task: Task) -> list[object]:
        return [task.start, "raise"]


async def test_a_seed_without_a_snapshot_starts_no_session() -> None:
    runtime = Runtime(Spoiled())
    with pytest.raises(SnapshotFailed):
        await runtime.seed("r", TASK)
    assert not runtime.has("r")


async def test_what_a_call_leaves_is_in_the_reply_beside_the_output() -> None:
    runtime = Runtime(Sums())
    await runtime.seed("r", TASK)
    output = await runtime.call("r", _call("add", value=3))
    written = msgspec.json.encode(output)
    assert written == b'{"output":"[2, 3]","snapshot":{"calls":1,"state":[2,3]}}'
    assert msgspec.json.encode(ToolOutput(output=output.output)) == b'{"output":"[2, 3]"}'


async def test_a_trial_restores_the_session_as_another_worker_would() -> None:
    sums = Sums()
    trial = Trial(sums, {"start": 2})
    await trial.rebuild()
    assert await trial.call("add", value=3) == "[2, 3]"
    await trial.rebuild()
    assert await trial.call("look") == "nothing"
    assert await trial.call("add", value=4) == "[2, 3, 4]"
    await trial.rebuild()
    assert (await trial.verify()).reward == 9.0
    assert sums.applied == 2


async def test_a_trial_goes_on_after_a_call_that_failed_without_it() -> None:
    trial = Trial(Sums(), {"start": 2})
    assert await trial.call("add", value=3) == "[2, 3]"
    with pytest.raises(SnapshotFailed):
        await trial.call("spoil", how="raise")
    assert await trial.call("add", value=4) == "[2, 3, 4]"
