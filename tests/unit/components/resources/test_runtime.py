"""Whatever an author's code does ends as an output, a reward or a typed error of its own call."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

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
    Runtime,
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
from contracts.rollouts import VerifyRequest
from tests.unit.components.resources.adder import (
    TASK,
    Adder,
    Task,
    add,
    broken,
    call,
    request,
    said,
    seeded,
)


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


async def test_a_session_is_seeded_used_by_tools_and_scored() -> None:
    runtime = await seeded()
    assert await said(runtime, add(2)) == "4"
    assert await said(runtime, call("add_in_thread", '{"number": 1}')) == "5"
    verdict = await runtime.verify("r", request(text="five"))
    assert verdict.reward == 1.0
    assert msgspec.json.decode(verdict.extra["said"]) == "five"


async def test_sessions_do_not_touch_each_other() -> None:
    runtime = await seeded()
    await runtime.seed("other", b'{"start": 10}')
    await said(runtime, add(1))
    assert await said(runtime, add(1), "other") == "11"


async def test_calls_of_one_session_run_one_at_a_time_in_the_order_in_which_they_came() -> None:
    runtime = await seeded()
    await asyncio.gather(*(said(runtime, add(number)) for number in range(30)))
    verdict = await runtime.verify("r", request())
    assert msgspec.json.decode(verdict.extra["order"]) == list(range(30))
    assert await said(runtime, add(0)) == str(2 + sum(range(30)))


async def test_calls_that_touch_no_session_and_other_sessions_do_not_wait(go_on: threading.Event) -> None:
    runtime = await seeded()
    await runtime.seed("other", TASK)
    blocked = asyncio.create_task(said(runtime, call("hang_on_session")))
    waiting = asyncio.create_task(said(runtime, add(1)))
    assert await said(runtime, call("add_in_thread", '{"number": 1}'), "other") == "3"
    assert "the drawer" in await said(runtime, call("fail", '{"how": "tool_error"}'))
    assert not waiting.done()
    go_on.set()
    assert (await blocked, await waiting) == ("never", "3")


async def test_a_second_seed_starts_the_session_afresh() -> None:
    runtime = await seeded()
    await said(runtime, add(1))
    await runtime.seed("r", TASK)
    assert await said(runtime, add(0)) == "2"


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
    runtime = await seeded()
    output = await said(runtime, call(name, arguments))
    assert told in msgspec.json.decode(output)["error"]
    await said(runtime, add(3))
    assert (await runtime.verify("r", request())).reward == 1.0


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
    runtime = await seeded()
    error = msgspec.json.decode(await said(runtime, call(where, f'{{"how": "{how}"}}')))["error"]
    assert told in error
    assert "Traceback" not in error
    (entry,) = [entry for entry in logged if entry["event"] == "resources.raised"]
    assert isinstance(entry["exc_info"], BaseException)
    assert entry["session"] == "r"


async def test_a_tool_error_is_for_the_model_alone(logged: list[EventDict]) -> None:
    runtime = await seeded()
    assert await said(runtime, call("fail", '{"how": "tool_error"}')) == '{"error":"the drawer is locked"}'
    assert not [entry for entry in logged if entry["log_level"] == "error"]


@pytest.mark.parametrize("how", ["object", "nan"])
async def test_a_tool_that_returns_what_json_cannot_say_tells_so(how: str) -> None:
    output = await said(await seeded(), call("fail", f'{{"how": "{how}"}}'))
    assert "fail returned what JSON cannot say" in output


@pytest.mark.parametrize("name", ["hang", "hang_in_thread"])
async def test_a_tool_that_hangs_becomes_an_output_at_its_deadline(name: str, go_on: threading.Event) -> None:
    runtime = await seeded(ResourcesConfig(tool_deadline_s=0.02, threads=1))
    assert f"Adder.{name} did not finish within 0.02 seconds" in await said(runtime, call(name))


async def test_a_thread_that_hangs_on_a_session_ends_the_session_since_it_could_still_change_it(
    go_on: threading.Event,
) -> None:
    runtime = await seeded(ResourcesConfig(tool_deadline_s=0.02))
    with pytest.raises(DeadlineExceeded) as refusal:
        await runtime.call("r", call("hang_on_session"))
    assert refusal.value.call_error().kind == "deadline"
    assert not runtime.has("r")


async def test_a_call_that_is_cancelled_from_outside_stays_cancelled() -> None:
    runtime = await seeded()
    running = asyncio.create_task(runtime.call("r", call("hang")))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_seed_that_raises_is_a_typed_error_and_leaves_no_session() -> None:
    runtime = Runtime(Adder())
    with pytest.raises(SeedFailed, match=r"Adder\.seed_session raised ValueError: no seed") as failure:
        await runtime.seed("r", b'{"how": "raise"}')
    error = failure.value.call_error()
    assert (error.kind, error.details) == ("verify_error", {"exception": "ValueError"})
    assert not runtime.has("r")


@pytest.mark.parametrize("task", [b'{"start": "two"}', b"[]", b"{"])
async def test_a_task_that_does_not_fit_is_a_bad_request_that_names_the_field(task: bytes) -> None:
    runtime = await seeded()
    with pytest.raises(TaskMisfit, match="the task does not fit Task of Adder"):
        await runtime.seed("r", task)
    with pytest.raises(TaskMisfit) as refusal:
        await runtime.verify("r", request(task))
    assert refusal.value.call_error().kind == "bad_request"


async def test_what_is_no_response_is_a_bad_request() -> None:
    runtime = await seeded()
    with pytest.raises(ResponseMisfit, match="`output`"):
        await runtime.verify("r", VerifyRequest(task=msgspec.Raw(TASK), response=msgspec.Raw(b"{}")))


class Judge(Resources):
    async def verify(self, task: Task) -> object:
        values: dict[str, object] = {"none": None, "nan": float("nan"), "text": "1"}
        return values[task.how] if task.how in values else broken(task.how)


class ThreadJudge(Resources):
    def verify(self, task: Task) -> object:
        return None if task.how == "none" else broken(task.how)


@pytest.mark.parametrize("how", ["none", "nan", "text", "value", "exit", "cancelled", "tool_error", "object"])
@pytest.mark.parametrize("judge", [ThreadJudge, Judge])
async def test_a_verifier_that_raises_or_returns_no_number_is_an_error_and_no_reward(
    judge: type[Resources], how: str
) -> None:
    with pytest.raises(VerifyFailed) as failure:
        await Runtime(judge()).verify("r", request(b'{"how": "%s"}' % how.encode()))
    assert failure.value.call_error().kind == "verify_error"
    assert judge.__name__ in str(failure.value)


class SlowJudge(Resources):
    async def verify(self) -> float:
        await asyncio.Event().wait()
        return 1.0


async def test_a_verifier_that_hangs_is_a_deadline_error() -> None:
    runtime = Runtime(SlowJudge(ResourcesConfig(verify_deadline_s=0.01)))
    with pytest.raises(DeadlineExceeded, match=r"SlowJudge\.verify did not finish within 0\.01 seconds"):
        await runtime.verify("r", request())


async def test_a_component_without_sessions_needs_no_seed() -> None:
    runtime = Runtime(ThreadJudge())
    await runtime.seed("r", TASK)
    assert not runtime.has("r")
    await runtime.rebuild("r", History(TASK, []))


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
