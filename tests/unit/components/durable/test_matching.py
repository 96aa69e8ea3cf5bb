"""Invariant E4: whatever is changed in a recorded history is found, at that event, with file and line."""

import asyncio
import hashlib
import inspect
import itertools
import json
import random
import re
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from components.durable import Context, History, NondeterminismError, Reply, reexecute
from components.durable.history import RecordedCall
from components.durable.matching import UNANSWERED
from tests.unit.components.durable.programs import agent, generate
from tests.unit.components.durable.world import ROLLOUT, START, Entry, Main, World, history, recorded


async def ask(context: Context, what: object) -> object:
    data = json.dumps(what).encode()
    return json.loads(await context.call("models", "it", "model.requested", data))


async def talk(context: Context) -> str:
    """Turns of one branch, then branches beside each other, then a timer; every call holds all replies before it."""
    seen: list[object] = []
    for turn in range(2):
        seen.append(await ask(context, {"turn": turn, "seen": seen}))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(context, {"branch": number, "seen": seen})) for number in range(2)]
    seen += [task.result() for task in tasks]
    await asyncio.sleep(3)
    seen.append(await ask(context, {"now": str(context.now()), "seen": seen}))
    return json.dumps(seen)


LINES, FIRST = inspect.getsourcelines(talk)
FILE = inspect.getsourcefile(talk)
ASK = inspect.getsourcelines(ask)[1] + 2


def departure(
    world: World, log: list[Entry], *, complete: bool = True, main: Main | None = None
) -> NondeterminismError:
    """What re-execution says of this log."""
    execution = world.execution() if main is None else World.execution_of(main)
    with pytest.raises(NondeterminismError) as caught:
        reexecute(execution, history(log, complete=complete))
    assert execution.done
    error = caught.value
    assert error.rollout_id == ROLLOUT
    assert f"{error.file}:{error.line}" in str(error)
    return error


@pytest.fixture
def world() -> World:
    return World(talk, 3, trouble=False)


def in_agent(error: NondeterminismError) -> bool:
    spans = [inspect.getsourcelines(function) for function in (talk, ask)]
    return error.file == FILE and any(first <= error.line < first + len(lines) for lines, first in spans)


def test_deleting_any_event_is_found_at_its_call(world: World) -> None:
    for index, gone in enumerate(world.log):
        error = departure(world, world.log[:index] + world.log[index + 1 :])
        assert in_agent(error)
        assert error.call_key == gone.key
        of_the_call = [entry.seq for entry in world.log if entry.key == gone.key and entry is not gone]
        assert error.seq == of_the_call[0]
        assert isinstance(gone, RecordedCall) or error.reason == UNANSWERED


@pytest.mark.parametrize("seed", range(40))
def test_deleting_a_reply_of_any_program_is_found_at_its_call_or_where_what_followed_from_it_shows(seed: int) -> None:
    """Never at others alone that are said to be unanswered: a program may race calls and leave some."""
    world = World(agent(generate(random.Random(seed))), seed)
    for index, gone in enumerate(world.log):
        if isinstance(gone, Reply) and (error := found(world, world.log[:index] + world.log[index + 1 :])) is not None:
            named = {error.call_key, *re.findall(r"[mcg][\d-]*_\d+", error.recorded.partition(", and then")[0])}
            assert error.reason != UNANSWERED or gone.key in named


def found(world: World, log: list[Entry]) -> NondeterminismError | None:
    """What re-execution says of this log, if anything."""
    try:
        reexecute(world.execution(), history(log, complete=True))
    except NondeterminismError as error:
        return error
    return None


def test_in_a_rollout_still_in_flight_too(world: World) -> None:
    last_needed = max(entry.seq for entry in world.log if isinstance(entry, RecordedCall))
    for index, gone in enumerate(world.log):
        if gone.seq < last_needed:
            assert in_agent(departure(world, world.log[:index] + world.log[index + 1 :], complete=False))


def test_swapping_any_two_events_is_found(world: World) -> None:
    for one, other in itertools.combinations(range(len(world.log)), 2):
        log = list(world.log)
        first, second = log[one], log[other]
        log[one] = msgspec.structs.replace(second, seq=first.seq)
        log[other] = msgspec.structs.replace(first, seq=second.seq)
        if {entry.cause if isinstance(entry, RecordedCall) else entry.id for entry in (first, second)} == {"e4"}:
            continue  # the two requests of one step stand in the log in any order
        assert in_agent(departure(world, log))


def test_swapping_the_contents_of_any_two_events_of_a_kind_is_found(world: World) -> None:
    for one, other in itertools.combinations(range(len(world.log)), 2):
        first, second = world.log[one], world.log[other]
        if type(first) is not type(second) or "timer.replied" in {first.type, second.type}:
            continue  # what a timer answers is not looked at
        log = list(world.log)
        log[one] = msgspec.structs.replace(first, data=second.data)
        log[other] = msgspec.structs.replace(second, data=first.data)
        if second is world.log[-1]:
            continue  # the last reply shows in the result only
        error = departure(world, log)
        assert in_agent(error)
        assert error.seq == first.seq if isinstance(first, RecordedCall) else error.seq > first.seq
        assert error.recorded != error.made


@pytest.mark.parametrize("change", ["data", "kind", "instance", "type", "cause", "id", "time", "failed"])
def test_editing_any_event_is_found_at_it_or_at_the_first_request_that_follows_from_it(
    world: World, change: str
) -> None:
    edits: dict[str, Callable[[Entry], dict[str, object]]] = {
        "data": lambda entry: {"data": json.dumps([json.loads(entry.data), "edited"]).encode()},
        "kind": lambda entry: {"kind": "agents"},
        "instance": lambda entry: {"instance": "other"},
        "type": lambda entry: {"type": "tool.requested"},
        "cause": lambda entry: {"cause": "e77"},
        "id": lambda entry: {"id": "e77"},
        "time": lambda entry: {"time": START + timedelta(days=1)},
        "failed": lambda entry: {"type": "model.failed", "data": b'{"kind":"deadline","message":"too late"}'},
    }
    of_requests, of_replies = {"data", "kind", "instance", "type", "cause"}, {"data", "id", "time", "failed"}
    last_request = max(entry.seq for entry in world.log if isinstance(entry, RecordedCall))
    causes = {entry.cause for entry in world.log if isinstance(entry, RecordedCall)}
    tried = 0
    for index, entry in enumerate(world.log):
        request = isinstance(entry, RecordedCall)
        if change not in (of_requests if request else of_replies):
            continue
        if not request and entry.seq > last_request:
            continue  # it shows in the result only
        if entry.type == "timer.replied" and change in {"data", "failed"}:
            continue  # what a timer answers is not looked at
        if change == "id" and isinstance(entry, Reply) and entry.id not in causes:
            continue  # no request follows from it directly
        edited = msgspec.structs.replace(entry, **edits[change](entry))
        if edited == entry:
            continue
        tried += 1
        log = [*world.log[:index], edited, *world.log[index + 1 :]]
        error = departure(world, log)
        assert in_agent(error)
        assert error.seq == entry.seq if request else error.seq > entry.seq
    assert tried >= 4


def test_the_message_names_rollout_call_file_line_both_values_and_the_first_differing_field(world: World) -> None:
    last = next(entry for entry in reversed(world.log) if isinstance(entry, RecordedCall))
    data = json.loads(last.data)
    data["seen"][1][1] = "other"
    edited = msgspec.structs.replace(last, data=json.dumps(data).encode())
    error = departure(world, [edited if entry is last else entry for entry in world.log])
    assert (error.call_key, error.seq) == (last.key, last.seq)
    assert (error.file, error.line) == (FILE, ASK)
    assert error.field == "data.seen[1][1]"
    assert error.recorded == '"other"'
    assert error.made == json.dumps(json.loads(last.data)["seen"][1][1])
    for part in (ROLLOUT, last.key, f"{FILE}:{ASK}", "data.seen[1][1]", '"other"', error.made):
        assert part in str(error)


def test_arguments_kept_outside_the_log_are_compared_by_digest(world: World) -> None:
    first = world.log[0]
    assert isinstance(first, RecordedCall)
    digest = f"sha256:{hashlib.sha256(first.data).hexdigest()}"
    kept = msgspec.structs.replace(first, data=b"", dataref=digest)
    assert reexecute(world.execution(), history([kept, *world.log[1:]], complete=True)) == []
    other = msgspec.structs.replace(first, data=b"", dataref=f"sha256:{'0' * 64}")
    error = departure(world, [other, *world.log[1:]])
    assert error.seq == first.seq
    assert error.made == digest


def test_a_call_that_the_code_makes_no_longer_is_named_with_the_line_where_the_code_waits_instead(world: World) -> None:
    async def silent(context: Context) -> str:
        await ask(context, {"turn": 0, "seen": []})
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def shorter(context: Context) -> str:
        await ask(context, {"turn": 0, "seen": []})
        return "done"

    for main in (silent, shorter):
        error = departure(world, world.log, main=main)
        second = [entry for entry in world.log if isinstance(entry, RecordedCall)][1]
        assert (error.call_key, error.seq) == (second.key, second.seq)
        assert error.file == FILE


def test_code_that_raises_is_named_with_its_own_line_also_where_a_library_raised(world: World) -> None:
    """Else all errors of all agents would be one place of departure: that at which JetGym calls agents."""

    def counted() -> int:
        return int(json.loads("{"))

    async def breaks(context: Context) -> str:
        await ask(context, {"turn": 0, "seen": []})
        return str(counted())

    error = departure(world, world.log, main=breaks)
    assert (error.file, error.line) == (FILE, inspect.getsourcelines(counted)[1] + 1)
    assert "it ends with JSONDecodeError" in str(error)


def test_a_call_that_a_finished_rollout_does_not_have_is_found() -> None:
    async def one(context: Context) -> str:
        return json.dumps(await ask(context, 1))

    async def two(context: Context) -> str:
        return json.dumps([await ask(context, 1), await ask(context, 2)])

    world = World(one, trouble=False)
    error = departure(world, world.log, main=two)
    assert error.call_key == "m_1"
    assert (error.file, error.line) == (FILE, ASK)
    unrecorded = reexecute(World.execution_of(two), history(world.log))
    assert [call.key for call in unrecorded] == ["m_1"]


def test_agent_code_cannot_swallow_a_departure(world: World) -> None:
    async def stubborn(context: Context) -> str:
        while True:
            try:
                await asyncio.gather(ask(context, 1), ask(context, 2))
            except Exception:  # noqa: BLE001 - this is the point
                await ask(context, 3)
            except BaseExceptionGroup:
                await ask(context, 4)

    first = world.log[0]
    wrong = RecordedCall(key="m1_0", kind="models", instance="it", type="model.requested", data=b"2", seq=1)
    error = departure(world, [wrong], main=stubborn, complete=False)
    assert (error.call_key, error.recorded, error.made) == ("m1_0", "2", "1")
    assert first.key == "m_0"


def test_after_a_departure_nothing_is_left_running(world: World) -> None:
    execution = World.execution_of(talk)
    wrong = msgspec.structs.replace(world.log[0], data=b"{}")
    with pytest.raises(NondeterminismError):
        reexecute(execution, history([wrong]))
    assert execution.done
    assert execution.outstanding == set()


def test_an_execution_goes_on_live_where_its_history_ends(world: World) -> None:
    for length in range(len(world.log)):
        execution = world.execution()
        unrecorded = [call.key for call in reexecute(execution, world.history(length))]
        for entry in world.log[length:]:
            if isinstance(entry, RecordedCall):
                unrecorded.remove(entry.key)
            else:
                unrecorded += [call.key for call in execution.deliver(entry)]
        assert unrecorded == []
        assert execution.result() == world.outcome


def test_requests_without_a_recorded_cause_are_compared_all_the_same(world: World) -> None:
    log = [
        msgspec.structs.replace(entry, cause="") if isinstance(entry, RecordedCall) else entry for entry in world.log
    ]
    assert reexecute(world.execution(), history(log, complete=True)) == []


def test_an_empty_history_is_the_start() -> None:
    execution = World.execution_of(talk)
    assert [call.key for call in reexecute(execution, History(calls={}))] == ["m_0"]
    assert recorded(World.execution_of(talk).start()[0], 1).key == "m_0"
