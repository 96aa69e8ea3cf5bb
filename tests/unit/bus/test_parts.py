"""Long strings are found in JSON, so that what many data have in common can be stored once."""

import json
from itertools import pairwise

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus.parts import PART_BYTES, long_strings

many = settings(max_examples=60, suppress_health_check=list(HealthCheck))
TEXTS = st.builds(
    lambda unit, times: unit * times,
    st.text(max_size=8) | st.sampled_from(['"', "\\", '\\"', "\n", "é"]),
    st.integers(0, PART_BYTES + 1),
)
JSON = st.recursive(
    st.none() | st.integers() | TEXTS | st.lists(st.integers(), max_size=3).map(lambda some: some * PART_BYTES),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def found(data: bytes) -> list[bytes]:
    return [data[begin:end] for begin, end in long_strings(data)]


@many
@given(JSON, st.booleans())
def test_parts_are_long_and_apart_and_stand_between_quotes(value: object, plain: bool) -> None:
    data = json.dumps(value).encode() if plain else msgspec.json.encode(value)
    places = list(long_strings(data))
    for begin, end in places:
        assert end - begin >= PART_BYTES
        assert data[begin - 1 : begin] == data[end : end + 1] == b'"'
    assert all(before[1] < after[0] for before, after in pairwise(places))


@many
@given(st.binary(max_size=200).map(lambda some: some * 500))
def test_bytes_that_are_no_json_have_parts_that_are_apart(data: bytes) -> None:
    """A blob of an imported file may be anything."""
    places = [(0, 0), *long_strings(data), (len(data), len(data))]
    assert all(before[1] <= after[0] for before, after in pairwise(places))


@many
@given(TEXTS, JSON, JSON)
def test_a_long_string_is_found_whatever_stands_around_it(text: str, before: object, after: object) -> None:
    inside = msgspec.json.encode(text)[1:-1]
    data = msgspec.json.encode({"before": before, "text": text, "after": after})
    if len(inside) >= PART_BYTES and not inside.endswith(b"\\"):
        assert inside in found(data)


def test_what_is_shorter_than_a_part_stays() -> None:
    assert found(msgspec.json.encode(["x" * (PART_BYTES - 1), "x" * PART_BYTES])) == [b"x" * PART_BYTES]
    assert found(b"") == found(b'"') == found(b"1") == []
