"""Where two JSON documents first differ."""

import pytest

from components.durable import first_difference
from components.durable.difference import MAX_SHOWN, shown


@pytest.mark.parametrize(
    ("recorded", "made", "difference"),
    [
        ('{"a":1}', '{"a":2}', (".a", "1", "2")),
        ('{"a":{"b":[1,{"c":"x"}]}}', '{"a":{"b":[1,{"c":"y"}]}}', (".a.b[1].c", '"x"', '"y"')),
        ('{"a":1,"b":2}', '{"a":1}', (".b", "2", "nothing")),
        ('{"a":1}', '{"a":1,"b":null}', (".b", "nothing", "null")),
        ("[1,2]", "[1,2,3]", ("[2]", "nothing", "3")),
        ('{"a":[]}', '{"a":{}}', (".a", "[]", "{}")),
        ("1", "true", ("", "1", "true")),
        ("[0]", "[false]", ("[0]", "0", "false")),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', ("", '{"a":1,"b":2}', '{"b":2,"a":1}')),
        ("{}", "{", ("", "{}", "{")),
    ],
)
def test_the_first_differing_field_is_named_with_both_values(
    recorded: str, made: str, difference: tuple[str, str, str]
) -> None:
    assert first_difference(recorded.encode(), made.encode()) == difference


def test_long_values_are_cut_for_messages() -> None:
    assert shown("x" * MAX_SHOWN) == "x" * MAX_SHOWN
    assert shown("x" * 500) == f"{'x' * MAX_SHOWN}… (500 characters)"
