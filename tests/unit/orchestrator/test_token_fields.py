"""Tokens stand on the items that their calls put out, and on no item that might be another call's."""

from typing import Any

import msgspec
import pytest

from contracts.contexts import Citation
from contracts.rollouts import RolloutResult
from contracts.tokens import Capture
from orchestrator.token_fields import FIELDS, with_tokens
from tests.unit.contracts.conversations import Conversations, capture, logprob


def item(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "id": name, **more}


def rollout(second: Capture | None = None) -> Conversations:
    """Two turns; the first puts out two items."""
    found = Conversations()
    found.call("m_0", [item("u")], [item("r0"), item("a0")], capture([1, 2], [3, 4]))
    third = capture([5], [6], cited=("m_0", 4)) if second is None else second
    found.call("m_1", [item("u"), item("r0"), item("a0"), item("t")], [item("a1")], third)
    return found


def lines(found: Conversations, *output: Any) -> list[Any]:
    """The output items of a response that the agent put together like this, with their tokens."""
    response = msgspec.Raw(msgspec.json.encode({"id": "x", "output": list(output), "status": "completed"}))
    line = msgspec.json.decode(with_tokens(RolloutResult(response=response, reward=1.0), found.events, {}))
    assert (line["id"], line["status"]) == ("x", "completed")
    output_items: list[Any] = line["output"]
    return output_items


A0 = {"prompt_token_ids": [1, 2], "generation_token_ids": [3, 4], "generation_log_probs": [logprob(3), logprob(4)]}
A1 = {"prompt_token_ids": [1, 2, 3, 4, 5], "generation_token_ids": [6], "generation_log_probs": [logprob(6)]}


def test_the_last_item_of_each_call_has_the_whole_prompt_and_what_was_sampled() -> None:
    found = lines(rollout(), item("r0"), item("a0"), item("t"), item("a1"))
    assert found == [item("r0"), item("a0", **A0), item("t"), item("a1", **A1)]


@pytest.mark.parametrize("dropped", [[], ["r0"], ["t", "r0"], ["a0"]])
def test_an_agent_may_drop_and_reorder_items(dropped: list[str]) -> None:
    names = [name for name in ("a1", "t", "a0", "r0") if name not in dropped]
    found = lines(rollout(), *map(item, names))
    tokens = {"a0": A0, "a1": A1}
    assert found == [item(name, **tokens.get(name, {})) for name in names]


def test_an_item_that_was_changed_or_is_there_twice_has_none() -> None:
    found = lines(rollout(), item("r0"), item("a0", text="mine"), item("a1"), item("a1"))
    assert found == [item("r0"), item("a0", text="mine"), item("a1"), item("a1")]


def test_an_item_that_two_calls_put_out_has_none() -> None:
    found = rollout()
    found.call("m_2", [item("u")], [item("a0"), item("a2")], capture([1, 2], [9]))
    assert lines(found, item("r0"), item("a0"), item("a2"))[1] == item("a0")


def test_calls_that_put_out_the_same_item_each_have_theirs_where_all_are_there() -> None:
    """An engine that gives all its answers one ID, and says the same twice."""
    found = Conversations()
    found.call("m_0", [item("u")], [item("a")], capture([1, 2], [3, 4]))
    found.call("m_1", [item("u"), item("a"), item("t")], [item("a")], capture([5], [6], cited=("m_0", 4)))
    assert lines(found, item("a"), item("t"), item("a")) == [item("a", **A0), item("t"), item("a", **A1)]
    assert lines(found, item("t"), item("a")) == [item("t"), item("a")], "one was dropped: nobody knows which"


def test_tokens_that_an_agent_wrote_are_taken_away() -> None:
    """T18."""
    forged = dict(zip(FIELDS, ([1], [2], [-1.0]), strict=True))
    found = lines(rollout(), item("a0", **forged), item("t", **forged), item("a1"))
    assert found == [item("a0"), item("t"), item("a1", **A1)]


def test_a_call_without_sound_tokens_has_none() -> None:
    """T3, T10: never `[]`, never NaN."""
    found = lines(rollout(capture([1, 2, 3], [4], logprobs=b"")), item("a0"), item("a1"))
    assert found == [item("a0", **A0), item("a1")]


def test_a_response_that_is_no_responses_object_stays_as_it_is() -> None:
    for raw in (b'"text"', b"{}", b'{"output": 3}'):
        result = RolloutResult(response=msgspec.Raw(raw), reward=1.0)
        assert with_tokens(result, rollout().events, {}) == msgspec.Raw(raw)


def test_a_response_that_cites_a_call_is_made_whole() -> None:
    found = rollout()
    found.write("rollout.completed", "jetgym.0.rollout.ended.run.r-0", "run", {})
    short = msgspec.Raw(msgspec.json.encode({"id": "x", "status": "completed", "output": [item("end")]}))
    result = RolloutResult(response=short, reward=1.0, cited=Citation(call="m_1", first=1, last=5))
    output = msgspec.json.decode(with_tokens(result, found.events, {}))["output"]
    assert output == [item("r0"), item("a0", **A0), item("t"), item("a1", **A1), item("end")]
