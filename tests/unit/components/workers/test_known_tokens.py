"""What a model worker remembers of the tokens of a rollout, and how it finds them again."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from components.workers.known_tokens import KnownTokens, place_after, said
from contracts.tokens import pack_ids

USER = {"role": "user", "content": "Go."}
CALL = {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "3"}


def request(*items: dict[str, Any], **settings: Any) -> bytes:
    return json.dumps({**settings, "input": list(items)}).encode()


def reply(*items: dict[str, Any]) -> bytes:
    return json.dumps({"id": "r", "output": list(items), "usage": None}).encode()


def test_a_request_comes_by_the_place_where_an_earlier_reply_ended() -> None:
    place = place_after(said(request(USER)).places[-1], reply(CALL))
    later = said(request(USER, CALL, OUTPUT))
    assert later.places[2] == place
    assert later.written == 2


def test_ids_status_sampling_and_the_two_forms_of_a_message_make_no_other_place() -> None:
    place = place_after(said(request(USER, temperature=1, metadata={"a": "b"})).places[-1], reply(CALL))
    bare = {name: value for name, value in CALL.items() if name not in ("id", "status")}
    assert said(request({"type": "message", **USER}, bare, temperature=0.5, tools=None)).places[-1] == place
    assert said(b'{"input": "Go."}').places == said(request(USER)).places


def test_other_tools_other_instructions_and_other_words_are_another_conversation() -> None:
    place = said(request(USER, CALL)).places[-1]
    others = [
        request(USER, CALL, tools=[{"type": "function", "name": "f"}]),
        request(USER, CALL, instructions="Be kind."),
        request({**USER, "content": "Go!"}, CALL),
        request(USER, {**CALL, "arguments": "{ }"}),
        request(CALL, USER),
    ]
    assert all(place not in said(other).places for other in others)


def test_the_longest_known_start_counts_and_a_longer_strand_gives_a_shorter_one_back() -> None:
    known = KnownTokens()
    first, second = said(request(USER)).places[-1], said(request(USER, CALL)).places[-1]
    known.keep("r", "m_0", first, pack_ids([1, 2]))
    known.keep("r", "m_1", second, pack_ids([1, 2, 3, 4]))
    assert known.longest("r", said(request(USER, OUTPUT)).places) == (pack_ids([1, 2]), 1)
    assert known.longest("r", said(request(USER, CALL, OUTPUT)).places) == (pack_ids([1, 2, 3, 4]), 2)
    assert known.longest("other", [first]) is None
    assert known.longest("r", said(request(OUTPUT)).places) is None


def test_a_strand_is_kept_once_and_the_oldest_rollouts_go() -> None:
    known = KnownTokens(limit=4 * 100)
    for turn in range(1, 11):
        known.keep("r", f"m_{turn}", b"%d" % turn, pack_ids(range(5 * turn)))
    assert known._bytes == 4 * 50, "ten calls that go on from each other"
    known.keep("r", "m_other", b"other", pack_ids(range(100, 120)))
    assert known._bytes == 4 * 70
    known.keep("s", "m_0", b"0", pack_ids(range(31)))
    assert (known.longest("r", [b"5"]), known.longest("s", [b"0"])) == (None, (pack_ids(range(31)), 0))
    assert known._bytes == 4 * 31


STRANDS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=6)


@given(strands=STRANDS, prompt=st.lists(st.integers(0, 2), max_size=10))
def test_what_a_prompt_shares_with_a_call_is_the_longest_start_that_any_has(
    strands: list[list[int]], prompt: list[int]
) -> None:
    known = KnownTokens()
    for number, strand in enumerate(strands):
        known.keep("r", f"m_{number}", b"%d" % number, pack_ids(strand))
    call, size = known.shared("r", pack_ids(prompt))
    longest = max(_common(strand, prompt) for strand in strands)
    assert size == 4 * longest
    if size:
        assert strands[int(call[2:])][:longest] == prompt[:longest], "the call that is named has them"


def _common(left: list[int], right: list[int]) -> int:
    size = 0
    while left[: size + 1] == right[: size + 1] and size < min(len(left), len(right)):
        size += 1
    return size
