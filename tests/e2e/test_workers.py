"""What real workers do together when something goes wrong that no death explains: each ends as the right thing."""

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import LogConfig
from bus.catalog import stored_blobs
from bus.deadletter import DeadLetterData
from components.workers.stops import UNSUSPECTED
from contracts.rollouts import RolloutFailure, RolloutResult
from tests.e2e.workers import PATIENCE_S, Deployment, Instance

SHARED = {"model": "policy", "resources": "stage"}


def model(folder: Path, **config: Any) -> Instance:
    return Instance("models", "noting", {"notes": str(folder / "notes"), **config})


def instances(folder: Path) -> dict[str, Instance]:
    """A pool for each way to fail, and puppets that use them."""
    deadlines = {"tool_deadline_s": 0.2, "verify_deadline_s": 0.2}
    return {
        "policy": model(folder, deadline_s=0.3),
        "stage": Instance("resources", "stage", deadlines),
        "helper": Instance("agents", "puppet", SHARED),
        "puppet": Instance("agents", "puppet", {**SHARED, "helper": "helper"}),
        "hasty": Instance("agents", "puppet", {**SHARED, "helper": "helper", "deadline_s": 0.5}),
        "hanging": model(folder, deadline_s=0.2, faults=[{"kind": "hang", "rate": 1.0}]),
        "unavailable": model(folder, turns=[{"error": "unavailable"}]),
        "full": model(folder, turns=[{"error": "context_length"}]),
        **{name.lower(): model(folder, raises=name) for name in ("TimeoutError", "SystemExit", "KeyError")},
    }


@pytest.fixture
async def deployment(server: str, config: LogConfig, tmp_path: Path) -> AsyncIterator[Deployment]:
    log = config.model_copy(update={"blob_limit": 1_000_000})
    found = instances(tmp_path)
    async with Deployment(server, log, found) as deployment:
        await deployment.start(*found)
        yield deployment


async def dead_letters(deployment: Deployment) -> list[DeadLetterData]:
    bus = deployment.bus
    return [
        msgspec.json.decode(await bus.fetch_data(recorded.event), type=DeadLetterData)
        async for recorded in bus.scan(f"{bus.config.namespace}.0.dead.>")
    ]


# --- what fails, fails with its kind, and never has a reward (E9) ---------------------------------------------------

FAILURES: dict[str, tuple[dict[str, Any], str, str]] = {
    "the agent raises": ({"plan": [["raise", "no idea"]]}, "agent_error", "ValueError: no idea ("),
    "it returns no result": ({"plan": [["return", "nothing"]]}, "agent_error", "RolloutResult"),
    "its reward is NaN": ({"plan": [["return", "nan"]]}, "agent_error", "must be a finite number, it is nan"),
    "its result is no JSON": ({"plan": [["return", "broken"]]}, "agent_error", "the RolloutResult is not JSON"),
    "its result is too large": ({"plan": [["return", "much"]]}, "poison", "the limit is 1,000,000"),
    "seeding raises": ({"plan": [], "verdict": "no session"}, "verify_error", "there is no room"),
    "the verifier raises": ({"plan": [], "verdict": "raise"}, "verify_error", "the judge is out ?"),
    "the verifier hangs": ({"plan": [], "verdict": "hang"}, "deadline", "did not finish within 0.2 seconds"),
    "the verdict is NaN": ({"plan": [], "verdict": "nan"}, "verify_error", "nan"),
    "a tool before the seed": ({"plan": [["add", 1]], "bare": 1}, "bad_request", "seed_session first"),
    "the model is away": ({"plan": [["model", "unavailable"]]}, "unavailable", "fails turn 0"),
    "the prompt is too long": ({"plan": [["model", "full"]]}, "context_length", "fails turn 0"),
    "the model hangs": ({"plan": [["model", "hanging"]]}, "deadline", "its deadline_s of 0.2 seconds"),
    "the model raises": ({"plan": [["model", "keyerror"]]}, "internal", "KeyError"),
    "the model's own timeout": ({"plan": [["model", "timeouterror"]]}, "internal", "TimeoutError"),
    "the model exits": ({"plan": [["model", "systemexit"]]}, "internal", "SystemExit"),
    "a model that is not there": ({"plan": [["model", "polcy"]]}, "poison", "no instance 'polcy'; it has: full, "),
    "a model with a bad name": ({"plan": [["model", "po.li.cy"]]}, "poison", "no instance 'po.li.cy'"),
    "a failed call in a task group": (
        {"plan": [["parallel", [["model", "full"]], [["sleep", 30]]]]},
        "context_length",
        "fails turn 0",
    ),
    "a called agent fails": ({"plan": [["ask", {"plan": [["raise", "oh"]]}]]}, "agent_error", "ValueError: oh ("),
    "the model of a called agent fails": (
        {"plan": [["parallel", [["ask", {"plan": [["model", "full"]]}]]]]},
        "context_length",
        "fails turn 0",
    ),
    "the agent waits for nothing": ({"plan": [["stick"]]}, "agent_error", "AgentStuck"),
}


async def test_each_failure_ends_its_rollout_with_its_kind(deployment: Deployment) -> None:
    """E8, E9, E10: and the pools go on: all of them at once, and a rollout that is scored after them."""
    names = {f"f{number}": name for number, name in enumerate(FAILURES)}
    for rollout, name in names.items():
        await deployment.ask(rollout, FAILURES[name][0])
    found = {names[rollout]: await deployment.end(rollout) for rollout in names}
    assert {name: type(end) for name, end in found.items()} == dict.fromkeys(FAILURES, RolloutFailure)
    for name, (_, kind, said) in FAILURES.items():
        failure = found[name]
        assert isinstance(failure, RolloutFailure)
        assert (name, failure.kind) == (name, kind)
        assert said in failure.message
    await deployment.ask("after", {"plan": [["model"], ["add", 1]], "expected": 1})
    assert await deployment.reward("after") == 1.0
    await deployment.check(["after", *names])
    assert await dead_letters(deployment) == []


async def test_what_an_agent_catches_does_not_fail_it(deployment: Deployment) -> None:
    plans: dict[str, list[Any]] = {
        "tool": [["tool", "fail", {"how": how}] for how in ("exit", "key", "no luck")],
        "tool that is not there": [["tool", "", {}], ["tool", "ad", {"count": 1}], ["tool", "add", {"cuont": 1}]],
        "call": [["catch", [["model", "full"]]]],
        "agent": [["catch", [["ask", {"plan": [["raise", "oh"]]}]]]],
        "hang": [["tool", "hang", {"seconds": 2}], ["tool", "add_slowly", {"count": 0, "seconds": 60}]],
    }
    rollouts = {f"c{number}": plan for number, plan in enumerate(plans.values())}
    for rollout, plan in rollouts.items():
        await deployment.ask(rollout, {"plan": [*plan, ["add", 3]], "expected": 3})
    assert [await deployment.reward(rollout) for rollout in rollouts] == [1.0] * len(plans)
    await deployment.check(rollouts)


async def test_what_called_agents_used_is_in_the_counts_of_their_caller(deployment: Deployment) -> None:
    """A failed one has made its calls too."""
    scored = {"plan": [["model"], ["adds", 1, 2]], "expected": 3}
    failed = {"plan": [["model"], ["raise", "oh"]]}
    await deployment.ask("r", {"plan": [["ask", scored], ["catch", [["ask", failed]]], ["model"]], "expected": 1})
    result = await deployment.end("r")
    assert isinstance(result, RolloutResult)
    stats = result.stats
    assert stats is not None
    assert (result.reward, stats.turns, stats.tool_calls, stats.models) == (1.0, 3, 3, ("policy",))
    response = msgspec.json.decode(result.response)
    assert stats.usage.total_tokens == 3 * response["usage"]["total_tokens"] > 0


async def test_a_rollout_past_its_deadline_fails_and_its_late_replies_harm_nothing(deployment: Deployment) -> None:
    """E8: the whole rollout has a deadline, whatever it waits for."""
    waits = {"sleep": [["sleep", 60]], "agent": [["ask", {"plan": [["sleep", 1.0]]}], ["add", 1]], "done": [["model"]]}
    for rollout, plan in waits.items():
        await deployment.ask(rollout, {"plan": plan}, agent="hasty")
    assert isinstance(await deployment.end("done"), RolloutResult)
    for rollout in ("sleep", "agent"):
        failure = await deployment.failure(rollout)
        message = "the rollout took longer than its deadline_s of 0.5 seconds"
        assert (failure.kind, failure.message) == ("deadline", message)
    assert (await deployment.replied("agent", "m_1"))["reward"] == 1.0
    await deployment.check(waits)


# --- what a model writes (E11) --------------------------------------------------------------------------------------


async def test_malformed_calls_become_outputs_that_say_so_and_the_rollout_is_scored(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    """E11: the calls of one turn in their order, right and wrong ones."""
    calls: dict[str, tuple[str, Any, str]] = {
        "broken JSON": ("add", '{"count": ', "not valid JSON"),
        "no object": ("add", "[1]", "no JSON object"),
        "unknown tool": ("subtract", {"count": 1}, "there is no tool 'subtract'; the tools: add, "),
        "empty name": ("", {"count": 1}, "the call names no tool"),
        "extra argument": ("add", {"count": 1, "by": 2}, "no parameter `by`"),
        "missing argument": ("add", {}, "`count` is missing"),
        "wrong type": ("add", {"count": "many"}, "a valid integer"),
        "right": ("add", {"count": 4}, "4"),
    }
    turns = [{"calls": [{"name": name, "arguments": given} for name, given, _ in calls.values()]}, {"text": "done"}]
    found = {
        "policy": model(tmp_path, turns=turns),
        "stage": Instance("resources", "stage"),
        "solver": Instance("agents", "simple_agent", SHARED),
    }
    async with Deployment(server, config, found) as deployment:
        await deployment.start(*found)
        await deployment.ask("r", {"expected": 4}, agent="solver")
        result = await deployment.end("r")
        assert isinstance(result, RolloutResult)
        assert result.reward == 1.0
        output = msgspec.json.decode(result.response)["output"]
        outputs = [item["output"] for item in output if item["type"] == "function_call_output"]
        for (_, _, said), output in zip(calls.values(), outputs, strict=True):
            assert said in output
        await deployment.check(["r"])


# --- large data -----------------------------------------------------------------------------------------------------


async def test_data_over_the_inline_limit_travels_as_blobs_and_keeps_its_order(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    """Small replies that follow a large one are not given to the agent before it; a task can be large too."""
    log = config.model_copy(update={"inline_limit": 2_000})
    found = {
        "policy": model(tmp_path, turns=[{"text": "y" * 200_000}]),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", SHARED),
    }
    plan = [["parallel", *([["read", 200_000 + n]] for n in range(4)), [["adds", 1, 2, 3]], [["model"], ["add", 4]]]]
    async with Deployment(server, log, found) as deployment:
        await deployment.start(*found)
        for number in range(8):
            await deployment.ask(f"r{number}", {"plan": plan, "expected": 10, "more": "z" * 3_000})
        rollouts = [f"r{number}" for number in range(8)]
        assert [await deployment.reward(rollout) for rollout in rollouts] == [1.0] * 8
        events = await deployment.bus.history("r0")
        assert {entry.event.type for entry in events if entry.event.dataref} >= {
            "rollout.requested",
            "session.requested",
            "verify.requested",
            "tool.replied",
            "model.replied",
        }
        await deployment.check(rollouts)


async def said(deployment: Deployment, rollout: str) -> tuple[float, Any, Any]:
    """What a rollout comes to, without what every run has of its own: times and IDs."""
    result = await deployment.end(rollout)
    assert isinstance(result, RolloutResult)
    assert result.stats is not None
    response = msgspec.json.decode(result.response)
    return result.reward, [item["content"] for item in response["output"]], result.stats.usage


async def test_an_image_of_many_tasks_is_stored_once_and_changes_no_result(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    """A rollout's request, its session, its model call and its verification hold it, amid texts of their own."""
    image = "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(147_000)).decode()
    found = {
        "policy": model(tmp_path, turns=[{"text": "A cat."}]),
        "stage": Instance("resources", "stage"),
        "solver": Instance("agents", "simple_agent", SHARED),
    }
    rollouts = [f"r{number}" for number in range(20)]
    results: dict[str, list[Any]] = {}
    for name, limit in (("parts", 65_536), ("inline", 900_000)):
        log = config.model_copy(update={"namespace": name, "inline_limit": limit})
        async with Deployment(server, log, found) as deployment:
            await deployment.start(*found)
            for rollout in rollouts:
                shown = [
                    {"type": "input_image", "image_url": image, "detail": "auto"},
                    {"type": "input_text", "text": f"What is on picture {rollout}?"},
                ]
                asked = {"input": [{"role": "user", "content": shown}]}
                await deployment.ask(rollout, {"responses_create_params": asked, "expected": 0}, agent="solver")
            results[name] = [await said(deployment, rollout) for rollout in rollouts]
            await deployment.check(rollouts)
            blobs = await stored_blobs(deployment.bus)
            if name == "parts":
                assert len(blobs) == 4 * len(rollouts) + 1
                assert sum(blob.size for blob in blobs.values()) < len(image) + 100_000
            else:
                assert not blobs
    assert results["parts"] == results["inline"]


# --- poison (B5, B6) ------------------------------------------------------------------------------------------------


async def test_a_request_that_is_none_is_buried_and_its_rollout_fails(deployment: Deployment) -> None:
    """B5: with its bytes and the reason; the pool goes on."""
    bad = {
        "no-object": b"[]",
        "no-task": b'{"agent": "puppet", "run_id": "run"}',
        "wrong-type": b'{"agent": "puppet", "run_id": "run", "task": {}, "task_index": "first"}',
        "no-run": b'{"agent": "puppet", "task": {}}',
        "bad-run": b'{"agent": "puppet", "task": {}, "run_id": "a.b"}',
    }
    for rollout, data in bad.items():
        await deployment.ask_with(rollout, data)
    await deployment.ask("task-of-no-agent", {"plan": 7})
    for rollout in bad:
        failure = await deployment.failure(rollout)
        assert (failure.kind, failure.details) == ("poison", {"reason": "undecodable"})
        assert failure.message.startswith("not a rollout request: ")
    assert (await deployment.failure("task-of-no-agent")).kind == "agent_error"
    letters = await dead_letters(deployment)
    assert sorted(letter.subject.split(".")[6] for letter in letters) == sorted(bad)
    assert {msgspec.json.decode(letter.raw)["rolloutid"] for letter in letters} == set(bad)
    await deployment.ask("after", {"plan": [["add", 1]], "expected": 1})
    assert await deployment.reward("after") == 1.0


async def test_a_call_whose_workers_all_die_fails_and_is_buried(server: str, config: LogConfig, tmp_path: Path) -> None:
    """B6: deliveries exhausted; nothing waits for ever. The first two are not held against it, all others are."""
    log = config.model_copy(update={"ack_wait_s": 1.0, "max_deliver": 2})
    async with Deployment(server, log, instances(tmp_path)) as deployment:
        await deployment.start("stage", "puppet")
        await deployment.ask("r", {"plan": [["model"]]})
        for number in range(UNSUSPECTED + log.max_deliver):
            fails_at = 0.5 if number < UNSUSPECTED else 1.5
            policy = await deployment.start_one("policy", worker=f"policy-{number}", fails_at=fails_at)
            async with asyncio.timeout(PATIENCE_S):
                await policy.failed.wait()
        await deployment.start_one("policy", worker="policy-last")
        failure = await deployment.failure("r")
        assert (failure.kind, failure.details) == ("poison", {"reason": "exhausted"})
        assert failure.message.startswith("2 workers in a row ended, or gave it back, without answering it")
        assert [letter.reason for letter in await dead_letters(deployment)] == ["exhausted"]
        await deployment.check(["r"])


@pytest.mark.parametrize("progress", [True, False], ids=["goes on", "stands still"])
async def test_a_rollout_may_outlive_any_number_of_workers_as_long_as_it_goes_on(
    server: str, config: LogConfig, tmp_path: Path, progress: bool
) -> None:
    """B6: it fails when so many workers in a row died and nothing was added to it."""
    log = config.model_copy(update={"ack_wait_s": 0.5, "max_deliver": 3})
    async with Deployment(server, log, instances(tmp_path)) as deployment:
        await deployment.start("policy", "stage")
        await deployment.ask("r", {"plan": [["add", 1]] * 3, "expected": 3})
        for number, calls in enumerate([1, 1, 1, 1] if progress else [1, 0, 0]):
            claims = 1 if number else 0
            puppet = await deployment.start_one("puppet", worker=f"puppet-{number}", fails_at=claims + calls + 0.5)
            async with asyncio.timeout(PATIENCE_S):
                await puppet.failed.wait()
        await deployment.start_one("puppet", worker="puppet-last")
        if progress:
            result = await deployment.end("r")
            assert isinstance(result, RolloutResult)
            assert result.reward == 1.0
            assert result.stats is not None
            assert (result.stats.adoptions, result.stats.tool_calls) == (4, 3)
            await deployment.check(["r"])
        else:
            failure = await deployment.failure("r")
            assert (failure.kind, failure.details) == ("poison", {"reason": "exhausted"})
            assert failure.message.startswith("3 workers in a row")
            assert [letter.reason for letter in await dead_letters(deployment)] == ["exhausted"]
