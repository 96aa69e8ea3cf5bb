"""The tokens of model calls, from an engine that speaks vLLM's fields into the log: what it said, and nothing else."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from bus import Bus, Conflict, LogConfig
from bus.errors import EventIdReused
from contracts.events import Event
from contracts.rollouts import PolicyUpdated, RolloutResult
from contracts.tokens import Capture, PolicySpan, read_capture, unpack_ids, unpack_logprobs
from tests.e2e.workers import Deployment, Instance
from tests.engines.tokenizer import END_ID, spelled_out, tokenizer, written_call
from tests.engines.vllm import Vllm

TASK = {"options": [{"A": "this"}, {"B": "that"}], "expected_answer": "A", "grading_mode": "strict_single_letter_boxed"}
LOOKS = written_call("look", '{"at": "it"}'), written_call("look", '{"at":  "that"}')
SCRIPT = (f"I look. {LOOKS[0]}", LOOKS[1], r"\boxed{A}")


@dataclass(frozen=True)
class Call:
    """A model call as the log has it."""

    event: Event
    capture: Capture
    prompt: list[int]
    generated: list[int]
    logprobs: list[float]


async def calls_of(bus: Bus, rollout: str) -> list[Call]:
    """The answered model calls of a rollout in the log's order, with the whole of their tokens."""
    calls: dict[str, Call] = {}
    for event in (entry.event for entry in await bus.history(rollout)):
        if event.type == "model.replied":
            raw = await bus.fetch_capture(event)
            capture = Capture() if raw == b"null" else read_capture(raw)
            before: list[int] = []
            if capture.cited is not None:
                cited = calls[capture.cited.call]
                before = (cited.prompt + cited.generated)[: capture.cited.count]
            calls[event.callkey] = Call(
                event,
                capture,
                before + list(unpack_ids(capture.prompt)),
                list(unpack_ids(capture.generated)),
                list(unpack_logprobs(capture.logprobs)),
            )
    return list(calls.values())


def instances(engine: Vllm, **config: Any) -> dict[str, Instance]:
    model = {"base_url": engine.url, "token_ids": True, "http": {"tries": 1}, **config}
    return {
        "policy": Instance("models", "chat_model", model),
        "quiz": Instance("resources", "mcqa"),
        "solver": Instance("agents", "simple_agent", {"model": "policy", "resources": "quiz", "max_repeats": 99}),
    }


async def run(deployment: Deployment, rollout: str = "r", task: Mapping[str, Any] = TASK) -> list[Call]:
    """The model calls of one rollout that completes."""
    await deployment.ask(rollout, task, agent="solver")
    result = await deployment.end(rollout)
    assert isinstance(result, RolloutResult), result
    await deployment.check([rollout])
    return await calls_of(deployment.bus, rollout)


async def ask(deployment: Deployment, key: str, request: dict[str, Any], rollout: str = "r") -> dict[str, Any]:
    """The reply to one model call, as an agent makes it."""
    bus = deployment.bus
    subject, replyto = bus.subjects.request("models", "policy", 1, rollout, key), bus.subjects.reply("t", rollout, key)
    data = msgspec.json.encode({"request": request})
    event = bus.event("model.requested", subject, data, rolloutid=rollout, callkey=key, replyto=replyto)
    await bus.publish(event)
    reply: dict[str, Any] = await deployment.replied(rollout, key)
    return reply


def is_continued(calls: list[Call]) -> list[bool]:
    """Whether each prompt begins with the prompt and generated tokens of the call before (T1)."""
    pairs = pairwise(calls)
    return [
        after.prompt[: len(before.prompt + before.generated)] == before.prompt + before.generated
        for before, after in pairs
    ]


async def announce(bus: Bus, version: int) -> None:
    data = msgspec.json.encode(PolicyUpdated(instance="policy", version=version))
    await bus.publish(bus.event("policy.updated", bus.subjects.policy("policy", version), data))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
async def test_the_log_has_the_engines_tokens_bit_for_bit_and_each_prompt_once(
    server: str, config: LogConfig, workers: int, stream: bool
) -> None:
    """T1, T3, T7, T9: with two workers, a worker reads from the log what the other one captured."""
    async with (
        Vllm(SCRIPT).serving() as engine,
        Deployment(server, config, instances(engine, stream=stream)) as deployment,
    ):
        await deployment.start("quiz", "solver")
        for number in range(workers):
            await deployment.start_one("policy", worker=f"policy-{number}")
        calls = await run(deployment)
        assert len(calls) == len(SCRIPT)
        assert [(call.prompt, call.generated, call.logprobs) for call in calls] == engine.said
        assert all(len(call.generated) == len(call.logprobs) for call in calls)
        assert is_continued(calls) == [True, True]
        stored = sum(len(call.capture.prompt) + len(call.capture.generated) for call in calls)
        assert stored == 4 * len(calls[-1].prompt + calls[-1].generated), "what was said is said once"
        assert [call.capture.cited and call.capture.cited.call for call in calls] == [None, "m_1", "m_2"]


async def test_a_model_that_spells_otherwise_than_the_tokenizer_is_continued_where_the_engine_takes_a_prefix(
    server: str, config: LogConfig
) -> None:
    """T1, T13: between two turns there are only the template's own tokens, which the model did not sample."""
    async with Vllm(SCRIPT, spells=True).serving() as engine, Deployment(server, config, instances(engine)) as plain:
        await plain.start("quiz", "solver", "policy")
        assert is_continued(await run(plain)) == [False, False], "its text is tokenized again, in another way"
    engine = Vllm(SCRIPT, spells=True, takes_prefix=True)
    async with engine.serving(), Deployment(server, config, instances(engine, required_prefix=True)) as exact:
        await exact.start("quiz", "solver", "policy")
        calls = await run(exact, "exact")
        assert is_continued(calls) == [True, True]
        assert [(call.prompt, call.generated) for call in calls] == [(said[0], said[1]) for said in engine.said[-3:]]
        for before, after in pairwise(calls):
            between = after.prompt[len(before.prompt + before.generated) :]
            assert tokenizer().decode(between, skip_special_tokens=False).startswith("\n<|im_start|>tool\n")


async def test_an_answer_that_was_cut_off_has_no_end_token_and_the_next_turn_goes_on_from_it(
    server: str, config: LogConfig
) -> None:
    """T14: the end that the template adds is not the model's."""
    engine = Vllm(["I write and write.", "Done."], spells=True, takes_prefix=True)
    async with engine.serving(), Deployment(server, config, instances(engine, required_prefix=True)) as deployment:
        await deployment.start("policy")
        first = {"role": "user", "content": "Write."}
        said = await ask(deployment, "m_0", {"input": [first], "max_output_tokens": 7})
        assert said["status"] == "incomplete"
        await ask(deployment, "m_1", {"input": [first, *said["output"], {"role": "user", "content": "Go on."}]})
        cut, after = await calls_of(deployment.bus, "r")
        assert cut.generated == spelled_out("I write and write.")[:7]
        whole = cut.prompt + cut.generated
        assert after.prompt[: len(whole) + 1] == [*whole, END_ID]
        assert after.prompt.count(END_ID) == 3, "of two messages of the user, and of the one that was cut off"


async def test_a_prompt_that_was_said_otherwise_before_is_recorded_as_it_was_read(
    server: str, config: LogConfig
) -> None:
    """A template that changes what it said before breaks the prefix: nothing is papered over."""
    engine = Vllm(SCRIPT, retemplates=True)
    async with engine.serving(), Deployment(server, config, instances(engine)) as deployment:
        await deployment.start("quiz", "solver", "policy")
        calls = await run(deployment)
        assert is_continued(calls) == [False, False]
        assert [(call.prompt, call.generated, call.logprobs) for call in calls] == engine.said


async def test_no_token_reaches_the_agent_the_verifier_or_the_result(server: str, config: LogConfig) -> None:
    """T18: also where the author asks for log-probabilities, or puts token fields into the task."""
    author: dict[str, Any] = {
        "input": [{"role": "user", "content": "Go.", "prompt_token_ids": [1, 2], "generation_token_ids": [3]}],
        "include": ["message.output_text.logprobs"],
        "input_ids": [7, 7, 7],
    }
    own = json.dumps(author["input"][0]).partition(", ")[2].replace(" ", "").encode()
    for task in (TASK, TASK | {"responses_create_params": author}):
        engine = Vllm(SCRIPT, bundles=True)
        async with engine.serving(), Deployment(server, config, instances(engine)) as deployment:
            await deployment.start("quiz", "solver", "policy")
            rollout = f"r{len(task)}"
            calls = await run(deployment, rollout, task)
            assert [(call.prompt, call.generated, call.logprobs) for call in calls] == engine.said
            asked_for = "include" in task.get("responses_create_params", {})
            for entry in await deployment.bus.history(rollout):
                if entry.event.type.startswith(("model.replied", "verify", "tool", "rollout.completed")):
                    data = (await deployment.bus.fetch_data(entry.event)).replace(own, b"")
                    assert not any(name in data for name in (b"token_ids", b"token_id:", b"generation_log_probs"))
                    if entry.event.type == "model.replied":
                        assert (b'"logprob":' in data) == asked_for
            for asked in engine.asked:
                assert "input_ids" not in asked
                assert not any("prompt_token_ids" in message for message in asked["messages"])


def _no_ids(answer: dict[str, Any]) -> None:
    answer["prompt_token_ids"] = answer["choices"][0]["token_ids"] = None
    for entry in answer["choices"][0]["logprobs"]["content"]:
        entry["token"] = "text"


def _no_prompt(answer: dict[str, Any]) -> None:
    answer["prompt_token_ids"] = None


def _nan(answer: dict[str, Any]) -> None:
    answer["choices"][0]["logprobs"]["content"][1]["logprob"] = float("nan")


def _never(answer: dict[str, Any]) -> None:
    answer["choices"][0]["logprobs"]["content"][1]["logprob"] = -9999.0


def _over_zero(answer: dict[str, Any]) -> None:
    answer["choices"][0]["logprobs"]["content"][1]["logprob"] = 0.5


def _one_short(answer: dict[str, Any]) -> None:
    del answer["choices"][0]["logprobs"]["content"][-1]


def _others(answer: dict[str, Any]) -> None:
    answer["choices"][0]["token_ids"][0] += 1


def _spans(answer: dict[str, Any]) -> None:
    answer["policy_spans"] = [[3, 1]]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_no_ids, "no IDs of the prompt"),
        (_no_prompt, "no IDs of the prompt"),
        (_nan, "NaN"),
        (_never, "cannot be sampled"),
        (_over_zero, "over 0"),
        (_one_short, "differ: "),
        (_others, "differ: "),
        (_spans, "policy spans"),
    ],
)
async def test_tokens_that_are_none_leave_a_flaw_and_the_rollout_goes_on(
    server: str, config: LogConfig, spoil: Any, words: str
) -> None:
    """T3, T10: nothing is made up for what an engine does not say, or says wrongly."""
    engine = Vllm(SCRIPT, spoil=spoil)
    async with engine.serving(), Deployment(server, config, instances(engine)) as deployment:
        await deployment.start("quiz", "solver", "policy")
        for call in await run(deployment):
            assert words in call.capture.flaw
            assert not call.capture.has_tokens
            assert (call.prompt, call.generated, call.logprobs, call.capture.cited) == ([], [], [], None)


async def test_a_log_probability_of_0_that_was_rounded_is_0(server: str, config: LogConfig) -> None:
    """T3."""

    def round_up(answer: dict[str, Any]) -> None:
        answer["choices"][0]["logprobs"]["content"][1]["logprob"] = 3e-6

    engine = Vllm(["Done."], spoil=round_up)
    async with engine.serving(), Deployment(server, config, instances(engine)) as deployment:
        await deployment.start("quiz", "solver", "policy")
        (call,) = await run(deployment)
        ((_, _, said),) = engine.said
        assert call.logprobs == [said[0], 0.0, *said[2:]]


async def test_tokens_that_the_log_could_not_hold_are_left_out_and_the_reply_is_not(
    server: str, config: LogConfig
) -> None:
    config = config.model_copy(update={"inline_limit": 1024, "blob_limit": 4096})
    engine = Vllm(["word " * 300], spells=True)
    async with engine.serving(), Deployment(server, config, instances(engine)) as deployment:
        await deployment.start("policy")
        said = await ask(deployment, "m_0", {"input": [{"role": "user", "content": "Write."}]})
        assert said["output"][0]["content"][0]["text"] == "word " * 300
        (call,) = await calls_of(deployment.bus, "r")
        assert "blob_limit" in call.capture.flaw
        await ask(deployment, "m_1", {"input": "Write."})
        assert [call.capture.cited for call in await calls_of(deployment.bus, "r")] == [None, None]


async def test_an_engine_that_is_not_asked_for_tokens_leaves_no_capture(server: str, config: LogConfig) -> None:
    """T10: not `[]` and not `[0]`; where a policy was announced, its version all the same."""
    engine = Vllm(SCRIPT)
    async with engine.serving(), Deployment(server, config, instances(engine, token_ids=False)) as deployment:
        await deployment.start("quiz", "solver", "policy")
        assert all(bytes(call.event.capture) == b"null" for call in await run(deployment))
        await announce(deployment.bus, 4)
        await _until_known(deployment, 4)
        calls = await run(deployment, "later")
        assert [call.capture for call in calls] == [Capture(policy=(4, 4))] * len(SCRIPT)
        assert not any("return_token_ids" in asked for asked in engine.asked)


async def test_a_count_of_the_engine_that_is_not_how_many_tokens_it_gave_is_recorded(
    server: str, config: LogConfig
) -> None:
    """T8."""

    def miscount(answer: dict[str, Any]) -> None:
        answer["usage"]["completion_tokens"] += 7

    engine = Vllm(SCRIPT)
    async with engine.serving(), Deployment(server, config, instances(engine)) as deployment:
        await deployment.start("quiz", "solver", "policy")
        assert [call.capture.usage for call in await run(deployment)] == [None, None, None]
        engine.spoil = miscount
        for call in await run(deployment, "miscounted"):
            assert call.capture.usage == (len(call.prompt), len(call.generated) + 7)
            assert call.capture.has_tokens


async def _until_known(deployment: Deployment, version: int) -> None:
    """Waits until all model workers have heard of a version."""
    async with asyncio.timeout(60):
        while any(policies.version != version for policies in deployment.policies):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("newest", [None, "2", "3"])
async def test_a_call_is_stamped_with_the_policy_versions_at_its_start_and_its_end(
    server: str, config: LogConfig, newest: str | None
) -> None:
    """T15: where the engine does not say which weights wrote what, all of it counts as the older ones'.

    SGLang's `weight_version` says which weights it has when it answers.
    """

    def say(answer: dict[str, Any]) -> None:
        if newest is not None:
            answer["choices"][0]["meta_info"] = {"weight_version": newest}

    gate = asyncio.Event()
    engine = Vllm(["Done."], gate=gate, spoil=say)
    async with engine.serving(), Deployment(server, config, instances(engine)) as deployment:
        await announce(deployment.bus, 1)
        await deployment.start("quiz", "solver", "policy")
        running = asyncio.create_task(run(deployment))
        async with asyncio.timeout(60):
            while not engine.asked:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await announce(deployment.bus, 2)
        await _until_known(deployment, 2)
        gate.set()
        (call,) = await running
        assert call.capture.policy == call.event.policy == (1, int(newest or 2))
        assert call.capture.spans == (PolicySpan(1, len(call.generated)),)


async def test_the_engines_own_spans_partition_what_was_generated(server: str, config: LogConfig) -> None:
    """T15: a change of weights inside a call."""
    engine = Vllm(["I am long enough to be changed."], versions=lambda count: [[6, 3], [7, count - 3]])
    async with engine.serving(), Deployment(server, config, instances(engine)) as deployment:
        await deployment.start("quiz", "solver", "policy")
        (call,) = await run(deployment)
        assert call.capture.policy == (6, 7)
        assert call.capture.spans == (PolicySpan(6, 3), PolicySpan(7, len(call.generated) - 3))


async def test_a_call_that_is_delivered_twice_leaves_one_call_and_another_answer_is_an_error(
    server: str, config: LogConfig
) -> None:
    """T11: the worker dies when its first reply is in the log, and before it is acknowledged."""
    config = config.model_copy(update={"ack_wait_s": 1.0})
    engine = Vllm(SCRIPT)
    async with engine.serving(), Deployment(server, config, instances(engine)) as deployment:
        await deployment.start("quiz", "solver")
        dying = await deployment.start_one("policy", worker="policy-dying", fails_at=1)
        await deployment.ask("r", TASK, agent="solver")
        async with asyncio.timeout(60):
            await dying.failed.wait()
        await deployment.start_one("policy", worker="policy-other")
        assert isinstance(await deployment.end("r"), RolloutResult)
        calls = await calls_of(deployment.bus, "r")
        assert [(call.prompt, call.generated, call.logprobs) for call in calls] == engine.said
        assert len(engine.asked) == len(SCRIPT), "what is answered is not asked again"
        again = msgspec.structs.replace(calls[0].event, capture=msgspec.Raw(b'{"flaw":"another"}'))
        with pytest.raises(EventIdReused):
            await deployment.bus.publish(again)
        with pytest.raises(Conflict):
            await deployment.bus.publish(msgspec.structs.replace(again, id="other-1"))
