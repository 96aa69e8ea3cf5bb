"""Whatever an author's code does ends as an output, a reward or a typed error of its own call."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from components.resources import (
    History,
    Resources,
    ResourcesConfig,
    ResourcesError,
    Reward,
    Runtime,
    TaskFields,
    ToolError,
    tool,
)
from components.resources.errors import (
    DeadlineExceeded,
    MetricsFailed,
    ResponseMisfit,
    SeedFailed,
    SessionLost,
    TaskMisfit,
    VerifyFailed,
)
from components.resources.sessions import Place
from contracts.responses import Response, output_message
from contracts.rollouts import ToolCall, VerifyRequest

TASK = b'{"responses_create_params": {"input": "go"}, "start": 2}'


class Task(TaskFields):
    start: int = 0
    how: str = ""


@dataclass
class Sum:
    value: int
    order: list[int] = field(default_factory=list)


class Adder(Resources):
    """Keeps a sum. Its tools do what their names say."""

    go_on: ClassVar[threading.Event]
    seeded = 0

    def seed_session(self, task: Task) -> Sum:
        type(self).seeded += 1
        if task.how == "raise":
            raise ValueError("no seed")
        return Sum(task.start)

    @tool
    async def add(self, session: Sum, number: int) -> str:
        """Adds on the loop, after others had their chance to run."""
        before = session.value
        await asyncio.sleep(0)
        session.value = before + number
        session.order.append(number)
        return str(session.value)

    @tool
    def add_in_thread(self, session: Sum, number: int) -> int:
        """Adds in a thread."""
        session.value += number
        return session.value

    @tool
    async def hang(self) -> str:
        """Waits for ever."""
        await asyncio.Event().wait()
        return "never"

    @tool
    def hang_in_thread(self) -> str:
        """Waits for ever in a thread."""
        self.go_on.wait()
        return "never"

    @tool
    def hang_on_session(self, session: Sum) -> str:
        """Waits for ever in a thread and could then change the session."""
        self.go_on.wait()
        return "never"

    @tool
    async def fail(self, how: str) -> object:
        """Fails on the loop."""
        return _fail(how)

    @tool
    def fail_in_thread(self, how: str) -> object:
        """Fails in a thread."""
        return _fail(how)

    async def verify(self, task: Task, session: Sum, response: Response) -> Reward:
        return Reward(reward=float(session.value == 5), said=response.output_text, order=session.order)


FAULTS: dict[str, type[BaseException] | BaseException] = {
    "tool_error": ToolError("the drawer is locked"),
    "value": ValueError("bad thing"),
    "empty": KeyError,
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
    "timeout": TimeoutError("the shop did not answer"),
    "closed": GeneratorExit,
    "stop": StopIteration,
}


def _fail(how: str) -> object:
    if how in FAULTS:
        raise FAULTS[how]
    return {"x": float("nan")} if how == "nan" else object()


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[EventDict]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    with capture_logs() as entries:
        yield entries
    structlog.reset_defaults()


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    Adder.go_on = threading.Event()
    yield Adder.go_on
    Adder.go_on.set()


def _call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(name=name, arguments=arguments, call_id="c")


def _add(number: int) -> ToolCall:
    return _call("add", f'{{"number": {number}}}')


async def _said(runtime: Runtime, call: ToolCall, session: str = "r") -> Any:
    return msgspec.json.decode((await runtime.call(session, call)).output)


def _request(task: bytes = TASK, text: str = "done") -> VerifyRequest:
    response = Response(
        id="resp", object="response", created_at=0, model="m", output=[output_message(text, item_id="msg")]
    )
    return VerifyRequest(task=msgspec.Raw(task), response=msgspec.Raw(response.to_json()))


async def _seeded(config: ResourcesConfig | None = None) -> Runtime:
    runtime = Runtime(Adder(config))
    await runtime.seed("r", TASK)
    return runtime


# --- the way of a rollout -----------------------------------------------------------------------------------------


async def test_a_session_is_seeded_used_by_tools_and_scored() -> None:
    runtime = await _seeded()
    assert await _said(runtime, _add(2)) == "4"
    assert await _said(runtime, _call("add_in_thread", '{"number": 1}')) == "5"
    verdict = await runtime.verify("r", _request(text="five"))
    assert verdict.reward == 1.0
    assert msgspec.json.decode(verdict.extra["said"]) == "five"


async def test_sessions_do_not_touch_each_other() -> None:
    runtime = await _seeded()
    await runtime.seed("other", b'{"start": 10}')
    await _said(runtime, _add(1))
    assert await _said(runtime, _add(1), "other") == "11"


async def test_calls_of_one_session_run_one_at_a_time_in_the_order_in_which_they_came() -> None:
    runtime = await _seeded()
    await asyncio.gather(*(_said(runtime, _add(number)) for number in range(30)))
    verdict = await runtime.verify("r", _request())
    assert msgspec.json.decode(verdict.extra["order"]) == list(range(30))
    assert await _said(runtime, _add(0)) == str(2 + sum(range(30)))


async def test_calls_that_touch_no_session_and_other_sessions_do_not_wait(go_on: threading.Event) -> None:
    runtime = await _seeded()
    await runtime.seed("other", TASK)
    blocked = asyncio.create_task(_said(runtime, _call("hang_on_session")))
    waiting = asyncio.create_task(_said(runtime, _add(1)))
    assert await _said(runtime, _call("add_in_thread", '{"number": 1}'), "other") == "3"
    assert "the drawer" in await _said(runtime, _call("fail", '{"how": "tool_error"}'))
    assert not waiting.done()
    go_on.set()
    assert (await blocked, await waiting) == ("never", "3")


async def test_a_second_seed_starts_the_session_afresh() -> None:
    runtime = await _seeded()
    await _said(runtime, _add(1))
    await runtime.seed("r", TASK)
    assert await _said(runtime, _add(0)) == "2"


# --- what models get wrong (E11) ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("add", "{", "not valid JSON"),
        ("add", "", "`number` is missing"),
        ("add", '{"number": "two"}', "valid integer"),
        ("add", '{"number": 1, "extra": 2}', "no parameter `extra`"),
        ("add", '{"session": {}, "number": 1}', "no parameter `session`"),
        ("subtract", "{}", "there is no tool 'subtract'; the tools: add, "),
        ("", "{}", "the call names no tool"),
        ("verify", "{}", "there is no tool 'verify'"),
        ("__init__", "{}", "there is no tool '__init__'"),
    ],
)
async def test_a_malformed_call_becomes_an_output_and_the_rollout_is_scored(
    name: str, arguments: str, told: str
) -> None:
    runtime = await _seeded()
    output = await _said(runtime, _call(name, arguments))
    assert told in msgspec.json.decode(output)["error"]
    await _said(runtime, _add(3))
    assert (await runtime.verify("r", _request())).reward == 1.0


# --- what authors' code does wrong (E10) --------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["fail", "fail_in_thread"])
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("value", "raised ValueError: bad thing"),
        ("empty", "raised KeyError"),
        ("exit", "raised SystemExit: 3"),
        ("interrupt", "raised KeyboardInterrupt"),
        ("cancelled", "raised CancelledError"),
        ("closed", "GeneratorExit"),
        ("timeout", "raised TimeoutError: the shop did not answer"),
        ("stop", "StopIteration"),
    ],
)
async def test_a_tool_that_raises_tells_the_model_type_and_message_and_the_log_everything(
    where: str, how: str, told: str, logged: list[EventDict]
) -> None:
    runtime = await _seeded()
    error = msgspec.json.decode(await _said(runtime, _call(where, f'{{"how": "{how}"}}')))["error"]
    assert told in error
    assert "Traceback" not in error
    (entry,) = [entry for entry in logged if entry["event"] == "resources.raised"]
    assert isinstance(entry["exc_info"], BaseException)
    assert entry["session"] == "r"


async def test_a_tool_error_is_for_the_model_alone(logged: list[EventDict]) -> None:
    runtime = await _seeded()
    assert await _said(runtime, _call("fail", '{"how": "tool_error"}')) == '{"error":"the drawer is locked"}'
    assert not [entry for entry in logged if entry["log_level"] == "error"]


@pytest.mark.parametrize("how", ["object", "nan"])
async def test_a_tool_that_returns_what_json_cannot_say_tells_so(how: str) -> None:
    output = await _said(await _seeded(), _call("fail", f'{{"how": "{how}"}}'))
    assert "fail returned what JSON cannot say" in output


@pytest.mark.parametrize("name", ["hang", "hang_in_thread"])
async def test_a_tool_that_hangs_becomes_an_output_at_its_deadline(name: str, go_on: threading.Event) -> None:
    runtime = await _seeded(ResourcesConfig(tool_deadline_s=0.02, threads=1))
    assert f"Adder.{name} did not finish within 0.02 seconds" in await _said(runtime, _call(name))


async def test_a_thread_that_hangs_on_a_session_ends_the_session_since_it_could_still_change_it(
    go_on: threading.Event,
) -> None:
    runtime = await _seeded(ResourcesConfig(tool_deadline_s=0.02))
    with pytest.raises(DeadlineExceeded) as refusal:
        await runtime.call("r", _call("hang_on_session"))
    assert refusal.value.call_error().kind == "deadline"
    assert not runtime.has("r")


async def test_a_call_that_is_cancelled_from_outside_stays_cancelled() -> None:
    runtime = await _seeded()
    call = asyncio.create_task(runtime.call("r", _call("hang")))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_seed_that_raises_is_a_typed_error_and_leaves_no_session() -> None:
    runtime = Runtime(Adder())
    with pytest.raises(SeedFailed, match=r"Adder\.seed_session raised ValueError: no seed") as failure:
        await runtime.seed("r", b'{"how": "raise"}')
    error = failure.value.call_error()
    assert (error.kind, error.details) == ("verify_error", {"exception": "ValueError"})
    assert not runtime.has("r")


@pytest.mark.parametrize("task", [b'{"start": "two"}', b"[]", b"{"])
async def test_a_task_that_does_not_fit_is_a_bad_request_that_names_the_field(task: bytes) -> None:
    runtime = await _seeded()
    with pytest.raises(TaskMisfit, match="the task does not fit Task of Adder"):
        await runtime.seed("r", task)
    with pytest.raises(TaskMisfit) as refusal:
        await runtime.verify("r", _request(task))
    assert refusal.value.call_error().kind == "bad_request"


async def test_what_is_no_response_is_a_bad_request() -> None:
    runtime = await _seeded()
    with pytest.raises(ResponseMisfit, match="`output`"):
        await runtime.verify("r", VerifyRequest(task=msgspec.Raw(TASK), response=msgspec.Raw(b"{}")))


class Judge(Resources):
    async def verify(self, task: Task) -> object:
        values: dict[str, object] = {"none": None, "nan": float("nan"), "text": "1"}
        return values[task.how] if task.how in values else _fail(task.how)


class ThreadJudge(Resources):
    def verify(self, task: Task) -> object:
        return None if task.how == "none" else _fail(task.how)


@pytest.mark.parametrize("how", ["none", "nan", "text", "value", "exit", "cancelled", "tool_error", "object"])
@pytest.mark.parametrize("judge", [ThreadJudge, Judge])
async def test_a_verifier_that_raises_or_returns_no_number_is_an_error_and_no_reward(
    judge: type[Resources], how: str
) -> None:
    with pytest.raises(VerifyFailed) as failure:
        await Runtime(judge()).verify("r", _request(b'{"how": "%s"}' % how.encode()))
    assert failure.value.call_error().kind == "verify_error"
    assert judge.__name__ in str(failure.value)


class SlowJudge(Resources):
    async def verify(self) -> float:
        await asyncio.Event().wait()
        return 1.0


async def test_a_verifier_that_hangs_is_a_deadline_error() -> None:
    runtime = Runtime(SlowJudge(ResourcesConfig(verify_deadline_s=0.01)))
    with pytest.raises(DeadlineExceeded, match=r"SlowJudge\.verify did not finish within 0\.01 seconds"):
        await runtime.verify("r", _request())


# --- sessions that are not here -----------------------------------------------------------------------------------


async def test_a_session_is_rebuilt_from_its_seed_and_calls_malformed_ones_included() -> None:
    runtime = Runtime(Adder())
    calls = [_add(1), _call("add", "{"), _call("nothing"), _call("fail", '{"how": "value"}'), _add(2)]
    await runtime.rebuild("r", History(TASK, calls))
    assert (await runtime.verify("r", _request())).reward == 1.0


async def test_a_call_recovers_its_session_in_its_own_turn() -> None:
    runtime, reads = Runtime(Adder()), 0

    async def recover() -> History:
        nonlocal reads
        reads += 1
        await asyncio.sleep(0)
        return History(TASK, [_add(1)])

    outputs = await asyncio.gather(*(runtime.call("r", _add(number), recover=recover) for number in (10, 20)))
    assert [bytes(output.output) for output in outputs] == [b'"13"', b'"33"']
    assert reads == 1


async def test_a_call_whose_session_lacks_the_one_before_it_is_recovered_and_one_beside_it_is_not() -> None:
    """Calls that do not take the session come between those that do, and need not be in it."""
    runtime, reads = Runtime(Adder()), 0
    await runtime.seed("r", TASK, place=Place("m_0", ""))

    async def recover() -> History:
        nonlocal reads
        reads += 1
        return History(TASK, [_add(1), _add(10)], last="m_2")

    await runtime.call("r", _add(1), recover=recover, place=Place("m_1", "m_0"))
    assert reads == 0
    output = await runtime.call("r", _add(100), recover=recover, place=Place("m_3", "m_2"))
    assert (reads, bytes(output.output)) == (1, b'"113"')
    await runtime.call("r", _call("nothing"), place=Place("m_4", "m_3"))
    output = await runtime.call("r", _add(1000), recover=recover, place=Place("m_5", "m_4"))
    assert (reads, bytes(output.output)) == (1, b'"1113"')


async def test_what_is_here_is_kept_where_the_history_says_that_it_is_the_last() -> None:
    """The call before was answered with an error, and is in no session."""

    async def recover() -> History:
        return History(TASK, [], last="m_0")

    runtime = Runtime(Unrepeatable())
    await runtime.seed("r", TASK, place=Place("m_0", ""))
    await runtime.verify("r", _request(), recover=recover, place=Place("m_2", "m_1"))


async def test_a_session_that_is_here_is_not_recovered() -> None:
    async def recover() -> History:
        raise AssertionError("read for nothing")

    runtime = await _seeded()
    await runtime.call("r", _add(3), recover=recover)
    assert (await runtime.verify("r", _request(), recover=recover)).reward == 1.0


async def test_verify_recovers_the_session_too() -> None:
    async def recover() -> History:
        return History(TASK, [_add(3)])

    assert (await Runtime(Adder()).verify("r", _request(), recover=recover)).reward == 1.0


async def test_a_session_that_cannot_be_recovered_is_lost_with_a_reason() -> None:
    with pytest.raises(SessionLost, match="the session of r is lost: it was never seeded") as loss:
        await Runtime(Adder()).call("r", _add(1))
    assert loss.value.call_error().kind == "unavailable"


class Unrepeatable(Adder):
    rebuild = "fail"


async def test_a_component_that_does_not_rebuild_says_so() -> None:
    runtime = Runtime(Unrepeatable())
    with pytest.raises(SessionLost, match=r"Unrepeatable does not rebuild sessions"):
        await runtime.rebuild("r", History(TASK, []))
    await runtime.seed("r", TASK)
    assert await _said(runtime, _add(1)) == "3"


async def test_a_session_that_had_to_make_room_is_lost_for_that_reason() -> None:
    runtime = Runtime(Unrepeatable(ResourcesConfig(max_sessions=1)))
    for name in ("a", "b"):
        await runtime.seed(name, TASK)
    with pytest.raises(SessionLost, match="let it go for want of room: give it a larger max_sessions, or more workers"):
        await runtime.rebuild("a", History(TASK, []))
    with pytest.raises(SessionLost, match=r"\(rebuild = 'fail'\)$"):
        await runtime.rebuild("never", History(TASK, []))


async def test_sessions_are_bounded_and_the_oldest_is_recovered_when_it_is_needed() -> None:
    async def recover() -> History:
        return History(TASK, [_add(1)])

    runtime = Runtime(Adder(ResourcesConfig(max_sessions=2)))
    for name in ("a", "b", "c"):
        await runtime.seed(name, TASK)
        await runtime.call(name, _add(1))
    assert [runtime.has(name) for name in ("a", "b", "c")] == [False, True, True]
    output = await runtime.call("a", _add(1), recover=recover)
    assert bytes(output.output) == b'"4"'


async def test_a_dropped_session_is_gone() -> None:
    runtime = await _seeded()
    runtime.drop("r")
    runtime.drop("r")
    assert not runtime.has("r")


async def test_a_component_without_sessions_needs_no_seed() -> None:
    runtime = Runtime(ThreadJudge())
    await runtime.seed("r", TASK)
    assert not runtime.has("r")
    await runtime.rebuild("r", History(TASK, []))


# --- metrics ------------------------------------------------------------------------------------------------------


class Counting(SlowJudge):
    def aggregate_metrics(self, lines: list[dict[str, Any]]) -> dict[str, Any]:
        if not lines:
            raise ValueError("nothing to count")
        return {"lines": len(lines)}


class CountingOnLoop(SlowJudge):
    async def aggregate_metrics(self, lines: list[dict[str, Any]]) -> dict[str, Any]:
        return {"lines": len(lines)}


async def test_metrics_are_the_components_own_or_none() -> None:
    assert await Runtime(ThreadJudge()).aggregate_metrics([{}]) == {}
    assert await Runtime(Counting()).aggregate_metrics([{}, {}]) == {"lines": 2}
    assert await Runtime(CountingOnLoop()).aggregate_metrics([{}]) == {"lines": 1}


async def test_metrics_that_raise_are_a_typed_error() -> None:
    with pytest.raises(MetricsFailed, match="nothing to count"):
        await Runtime(Counting()).aggregate_metrics([])


def test_every_error_of_a_call_has_a_kind_of_the_contracts() -> None:
    for error in (TaskMisfit, ResponseMisfit, SeedFailed, VerifyFailed, MetricsFailed, DeadlineExceeded, SessionLost):
        assert issubclass(error, ResourcesError)
        assert msgspec.json.decode(msgspec.json.encode(error("x", key="value").call_error()))["message"] == "x"
