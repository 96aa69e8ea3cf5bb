"""The usage of a conversation is that of its turns together, and what no turn knows stays unknown."""

from typing import Any

from components.agents.conversation import Conversation
from contracts.responses import Response, ResponseCreateParams


def reply(usage: dict[str, Any] | None) -> Response:
    """A reply with this usage."""
    document = {"id": "resp", "object": "response", "created_at": 0, "model": "m", "output": [], "usage": usage}
    return Response.model_validate(document)


def total(*usages: dict[str, Any] | None) -> dict[str, Any] | None:
    """The usage of a conversation of these turns."""
    conversation = Conversation(ResponseCreateParams(input="Go."))
    for each in usages:
        conversation.hear(reply(each))
    usage: dict[str, Any] | None = conversation.response().to_dict()["usage"]
    return usage


FIRST = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 7},
    "output_tokens": 10,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 110,
}
SECOND = {
    "input_tokens": 200,
    "input_tokens_details": {"cached_tokens": 90},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 220,
}


def test_counts_are_summed_over_the_turns_each_detail_over_those_that_know_it() -> None:
    assert total(FIRST, SECOND) == {
        "input_tokens": 300,
        "input_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 7},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 9},
        "total_tokens": 330,
    }


def test_a_detail_that_no_turn_knows_is_left_out() -> None:
    plain = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    assert total(plain, plain) == {"input_tokens": 2, "output_tokens": 4, "total_tokens": 6}


def test_turns_without_usage_count_for_nothing() -> None:
    assert total(None, SECOND) == SECOND
    assert total(None, None) is None
