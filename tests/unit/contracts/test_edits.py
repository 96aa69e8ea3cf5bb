"""What becomes of a conversation whose items are others now, or gone: for random conversations."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contracts.samples import build_samples
from tests.unit.contracts.conversations import Conversations, capture

Json = dict[str, Any]


def user(text: str) -> Json:
    return {"type": "message", "role": "user", "content": text}


@st.composite
def told(draw: st.DrawFn) -> tuple[Conversations, list[Json]]:
    """A conversation of some turns, each a tool call, or an answer and the user's next word; and all of its items."""
    rollout, said = Conversations(), [user("system"), user("question")]
    for turn in range(draw(st.integers(2, 4))):
        calls = draw(st.booleans())
        reply = (
            {"type": "function_call", "id": f"fc_{turn}", "call_id": f"call_{turn}", "arguments": "{}"}
            if calls
            else {"type": "message", "role": "assistant", "id": f"msg_{turn}", "content": "so"}
        )
        cited = (f"m_{turn - 1}", 2 * turn) if turn else None
        rollout.call(f"m_{turn}", said, [reply], capture([50 + turn], [10 + turn], cited=cited))
        result = {"type": "function_call_output", "call_id": f"call_{turn}", "output": "4"}
        said = [*said, reply, result if calls else user("go on")]
    return rollout, said[:-1]


def known(item: Json) -> bool:
    return "id" in item or "call_id" in item


def kind_of(rollout: Conversations, items: Sequence[Json]) -> str | None:
    """Of the break that a next call with these items makes; its tokens never go on."""
    rollout.call("m_9", items, ["a"], capture([77], [90]))
    return next((found.kind for found in build_samples(rollout.events).breaks), None)


FRESH = st.sampled_from([[], [user("go on")], [user("another"), user("go on")]])


@given(told(), FRESH, st.data())
def test_items_that_are_others_now_are_an_edit_also_where_the_conversation_goes_back(
    conversation: tuple[Conversations, list[Json]], fresh: list[Json], data: st.DataObject
) -> None:
    """T2: however much of the end was left, and whatever is said anew."""
    rollout, said = conversation
    changed = data.draw(st.sets(st.integers(1, len(said) - 1), min_size=1, max_size=3))
    behind = 1 if known(said[min(changed)]) else 2  # then it is known by what stands behind it
    until = data.draw(st.integers(min(len(said), max(changed) + behind), len(said)))
    items = [{**item, "status": "edited"} if place in changed else item for place, item in enumerate(said)][:until]
    kept = any(place not in changed for place in range(min(changed), until))
    kind = kind_of(rollout, [*items, *fresh])
    assert kind == "edited" if kept else kind in ("edited", "template")  # a branch from an earlier reply


@given(told(), FRESH, st.booleans(), st.data())
def test_items_that_are_gone_are_a_compaction_also_where_a_summary_stands_for_them(
    conversation: tuple[Conversations, list[Json]], fresh: list[Json], summed_up: bool, data: st.DataObject
) -> None:
    """T2: a message in place of several items, or nothing in place of some; what stood behind them had an ID."""
    rollout, said = conversation
    last = max(place for place, item in enumerate(said) if known(item))
    first = data.draw(st.integers(1, last - 1 - summed_up))
    end = data.draw(st.integers(first + 1 + summed_up, last))
    summary = [user("summary")] if summed_up else []
    assert kind_of(rollout, [*said[:first], *summary, *said[end:], *fresh]) == "compacted"


@given(told(), st.data())
def test_everything_in_one_summary_is_a_compaction(
    conversation: tuple[Conversations, list[Json]], data: st.DataObject
) -> None:
    rollout, said = conversation
    first = data.draw(st.integers(1, len(said) - 2))
    assert kind_of(rollout, [*said[:first], user("summary")]) in ("compacted", "template")  # as above
