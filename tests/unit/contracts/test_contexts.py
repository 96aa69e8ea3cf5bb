"""What a rollout's events say of its conversation together is all of it, and they say it once."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.contexts import REMEMBERED, SHORT, Citation, ModelCalls, Speaker, read_request
from contracts.errors import MissingContext

ITEMS = st.lists(st.integers(0, 5).map(lambda number: {"role": "user", "content": f"{number}" * 900}), max_size=6)
SETTINGS = st.dictionaries(
    st.sampled_from(["model", "temperature", "tools", "instructions"]), st.sampled_from(["a", "b" * 3000]), max_size=4
)
TURNS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 30), ITEMS, SETTINGS, st.lists(st.integers(0, 5), max_size=3)),
    min_size=1,
    max_size=8,
)


def encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Rollout:
    """The data of the events of one rollout, and who wrote and reads them."""

    def __init__(self) -> None:
        self.requests: dict[str, bytes] = {}
        self.replies: dict[str, bytes] = {}
        self.speaker = Speaker()
        self.calls = ModelCalls(self.requests, self.replies)

    def turn(self, request: dict[str, Any], output: list[Any]) -> str:
        key = f"m_{len(self.requests)}"
        self.requests[key], asked = self.speaker.ask(encoded(request))
        self.replies[key] = encoded({"id": "r", "output": output})
        self.speaker.hear(key, asked, self.replies[key])
        return key


@given(TURNS)
def test_whatever_an_agent_does_with_its_conversation_models_and_verifiers_are_asked_exactly_that(
    turns: list[tuple[int, int, list[Any], dict[str, Any], list[int]]],
) -> None:
    """It may go on from any turn, drop the end of what was said there, add to it, and change its settings."""
    rollout = Rollout()
    contexts: list[list[Any]] = [[]]
    for base, kept, new, settings, said in turns:
        context = [*contexts[base % len(contexts)][:kept], *new]
        request = {**settings, "input": context}
        output = [{"type": "message", "id": f"{number}", "content": "x" * 400} for number in said]
        key = rollout.turn(request, output)
        assert json.loads(rollout.calls.whole_request(rollout.requests[key])) == request
        contexts.append([*context, *output])
        for first in (0, len(context)):
            response = encoded({"id": "r", "output": [*contexts[-1][first:], {"last": True}], "status": "completed"})
            short, cited = rollout.speaker.cite(msgspec.Raw(response))
            assert bytes(rollout.calls.whole_response(short, cited)) == response


def grown(turns: int) -> Rollout:
    rollout, items = Rollout(), [{"role": "user", "content": "hello"}]
    for turn in range(turns):
        output = [{"type": "function_call", "call_id": f"c{turn}", "name": "look", "arguments": "x" * 500}]
        rollout.turn({"model": "m", "tools": [{"name": "look"}], "input": items}, output)
        items = [*items, *output, {"type": "function_call_output", "call_id": f"c{turn}", "output": "y" * 500}]
    return rollout


def test_a_conversation_s_requests_grow_with_its_items_and_not_with_their_square() -> None:
    sizes = {turns: sum(map(len, grown(turns).requests.values())) for turns in (50, 200)}
    assert sizes[200] < 4.5 * sizes[50]
    assert sizes[200] < 200 * 900


def test_what_is_short_is_sent_whole() -> None:
    first, second, *_ = grown(3).requests.values()
    assert len(second) < SHORT
    assert read_request(first).cited is None
    assert read_request(second).cited is None


def test_a_setting_is_said_again_when_it_changes_and_one_that_is_gone_is_named() -> None:
    rollout, items = Rollout(), [{"role": "user", "content": "x" * SHORT}]
    rollout.turn({"temperature": 1, "top_p": 1, "input": items}, [])
    key = rollout.turn({"temperature": 0, "model": "m", "input": items}, [])
    request = read_request(rollout.requests[key])
    assert json.loads(bytes(request.request)) == {"temperature": 0, "model": "m", "input": []}
    assert (request.cited, request.without) == (Citation(call="m_0", last=1), ("top_p",))


def test_branches_beside_each_other_each_go_on_from_their_own() -> None:
    rollout = Rollout()
    branches = [[{"role": "user", "content": f"{branch}" * SHORT}] for branch in range(REMEMBERED)]
    keys = [rollout.turn({"input": items}, []) for items in branches]
    for key, items in zip(keys, branches, strict=True):
        data, _ = rollout.speaker.ask(encoded({"input": [*items, {"role": "user", "content": "more"}]}))
        assert read_request(data).cited == Citation(call=key, last=1)


def test_a_request_whose_input_is_a_text_cites_nothing_and_is_not_cited() -> None:
    rollout = Rollout()
    key = rollout.turn({"input": "x" * SHORT}, [{"type": "message", "content": "y"}])
    assert json.loads(rollout.calls.whole_request(rollout.requests[key])) == {"input": "x" * SHORT}
    again, _ = rollout.speaker.ask(encoded({"input": [{"role": "user", "content": "x" * SHORT}]}))
    assert read_request(again).cited is None


@pytest.mark.parametrize("response", [b"{}", b"[1]", b'{"output": 3}', b"no JSON", b'{"output": []}'])
def test_what_is_no_response_stays_as_it_is(response: bytes) -> None:
    speaker = grown(5).speaker
    raw = msgspec.Raw(response + b" " * SHORT)
    assert speaker.cite(raw) == (raw, None)


def test_a_citation_of_what_is_not_there_is_a_clear_error() -> None:
    rollout = grown(9)
    last = rollout.requests["m_8"]
    del rollout.replies["m_7"]
    with pytest.raises(MissingContext, match="'m_7', which a later event cites, is not answered in the log"):
        rollout.calls.whole_request(last)
    far = Citation(call="m_0", last=99)
    with pytest.raises(MissingContext, match="items 0 to 99 of model call 'm_0' are cited, it has 2"):
        rollout.calls.whole_response(msgspec.Raw(b'{"output":[]}'), far)
