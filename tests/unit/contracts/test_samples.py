"""Samples hold every sampled token once, exactly as it was sampled; what does not go on is another branch."""

from typing import Any

import msgspec
import pytest

from contracts.call_tokens import ModelEvents
from contracts.errors import BlobMissing, OtherTokenizer, TwoPayloads
from contracts.samples import build_samples
from contracts.tokens import Capture, PolicySpan, pack_ids, pack_logprobs
from tests.unit.contracts.conversations import Conversations, capture, equal, logprob

S, U = "system", "user"


def two_turns(**second: Any) -> Conversations:
    """A call, a tool's result, another call that cites all tokens of the first."""
    rollout = Conversations()
    rollout.call("m_0", [S, U], ["a0"], capture([1, 2, 3], [4, 5]))
    rollout.call("m_2", [S, U, "a0", "t"], ["a1"], capture([6, 7], [8, 9, 10], cited=("m_0", 5), **second))
    return rollout


def test_a_conversation_is_one_sample() -> None:
    """T1, T4, T5, T7, T13: what stands between turns is not trained on."""
    (sample,) = build_samples(two_turns().events).samples
    assert sample.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert sample.mask.tolist() == [False, False, False, True, True, False, False, True, True, True]
    sampled = {4, 5, 8, 9, 10}
    assert sample.logprobs.tolist() == [logprob(token) if token in sampled else 0 for token in sample.tokens.tolist()]
    assert sample.versions.tolist() == [3 if token in sampled else -1 for token in sample.tokens.tolist()]
    assert sample.calls == ("m_0", "m_2")
    assert sample.turns == ((3, 5), (7, 10))
    assert (sample.start, sample.trained, sample.model, sample.truncated) == (3, 5, "policy", False)
    assert [array.dtype.name for array in (sample.tokens, sample.mask, sample.logprobs, sample.versions)] == [
        "int32",
        "bool",
        "float32",
        "int32",
    ]


def test_prompts_that_are_written_out_make_the_same_samples_as_cited_ones() -> None:
    whole = Conversations()
    whole.call("m_0", [S, U], ["a0"], capture([1, 2, 3], [4, 5]))
    whole.call("m_2", [S, U, "a0", "t"], ["a1"], capture([1, 2, 3, 4, 5, 6, 7], [8, 9, 10]))
    assert equal(build_samples(whole.events), build_samples(two_turns().events))


def test_a_call_whose_weights_changed_on_the_way_has_both_versions() -> None:
    """T15."""
    (sample,) = build_samples(two_turns(spans=(PolicySpan(3, 2), PolicySpan(4, 1)), policy=(3, 4)).events).samples
    assert sample.versions[7:].tolist() == [3, 3, 4]
    assert build_samples(two_turns().events).oldest_version == 3


def test_tokens_without_spans_are_of_the_version_at_the_start_and_without_that_of_none() -> None:
    (sample,) = build_samples(two_turns(spans=(), policy=(5, 6)).events).samples
    assert sample.versions[7:].tolist() == [5, 5, 5]
    unknown = build_samples(two_turns(spans=(), policy=None).events)
    assert unknown.samples[0].versions[7:].tolist() == [-1, -1, -1]
    assert unknown.oldest_version is None


def test_a_generation_that_was_cut_goes_on_without_an_end_token() -> None:
    """T14."""
    rollout = Conversations()
    rollout.call("m_0", [S, U], ["a0"], capture([1, 2, 3], [4, 5]), status="incomplete")
    (cut,) = build_samples(rollout.events).samples
    assert cut.truncated
    assert cut.tokens.tolist() == [1, 2, 3, 4, 5]
    rollout.call("m_1", [S, U, "a0", "go on"], ["a1"], capture([1, 2, 3, 4, 5, 99, 7], [8]))
    (sample,) = build_samples(rollout.events).samples
    assert not sample.truncated
    assert sample.mask.tolist() == [False] * 3 + [True] * 2 + [False] * 2 + [True]


def test_branches_that_share_calls_train_on_them_once() -> None:
    """T6: the first has the mask, the others neither mask, nor logprob, nor version."""
    rollout = Conversations()
    rollout.call("m_0", [S, U], ["a0"], capture([1, 2, 3], [4, 5]))
    for branch in (1, 2):
        rollout.call(f"m{branch}_0", [S, U, "a0", f"t{branch}"], ["b"], capture([20 + branch], [30], cited=("m_0", 5)))
    found = build_samples(rollout.events)
    first, second = found.samples
    assert [first.calls, second.calls] == [("m_0", "m1_0"), ("m_0", "m2_0")]
    assert first.mask.tolist() == [False] * 3 + [True] * 2 + [False, True]
    assert second.mask.tolist() == [False] * 6 + [True]
    assert second.tokens.tolist() == [1, 2, 3, 4, 5, 22, 30]
    assert second.logprobs[:6].tolist() == [0] * 6
    assert second.versions[:6].tolist() == [-1] * 6
    assert found.trained == 4
    assert found.breaks == ()


def test_calls_that_ask_the_same_again_and_sub_agents_are_samples_and_no_breaks() -> None:
    rollout = Conversations()
    for key in ("m_0", "m_1", "m1_0", "m_3--m_0"):
        rollout.call(key, [S, U], [f"by {key}"], capture([1, 2, 3], [4, 5]))
    rollout.call("m_4", ["another", "conversation"], ["a"], capture([9], [8]))
    found = build_samples(rollout.events)
    assert [sample.calls for sample in found.samples] == [("m_0",), ("m_1",), ("m1_0",), ("m_3--m_0",), ("m_4",)]
    assert found.breaks == ()


def test_a_text_that_is_asked_is_one_message_of_the_user() -> None:
    """Asked again it is no break; a list that begins with this message goes on from it, or says why it does not."""
    rollout = Conversations()
    for key in ("m_0", "m_1"):
        rollout.call(key, "Go.", [f"by {key}"], capture([1, 2, 3], [4, 5]))
    rollout.call("m_2", "Another one.", ["a"], capture([9], [8]))
    assert build_samples(rollout.events).breaks == ()
    message = {"role": "user", "content": "Go.", "type": "message"}
    rollout.call("m_3", [message, "by m_1", "t"], ["b"], capture([1, 2, 3, 4, 6], [7]))
    (found,) = build_samples(rollout.events).breaks
    assert (found.call, found.kind, found.before, found.place) == ("m_3", "retokenized", "m_1", 4)


def test_another_model_that_speaks_in_between_is_prompt_to_this_one() -> None:
    rollout = Conversations()
    rollout.call("m_0", [S, U], ["a0"], capture([1, 2], [3]))
    rollout.call("m_1", [S, U, "a0"], ["j"], capture([1, 2, 3], [4]), model="judge")
    rollout.call("m_2", [S, U, "a0", "j"], ["a1"], capture([1, 2, 3, 4, 5], [6]))
    found = build_samples(rollout.events)
    assert [(sample.model, sample.calls) for sample in found.samples] == [
        ("policy", ("m_0", "m_2")),
        ("judge", ("m_1",)),
    ]
    assert found.breaks == ()
    assert found.samples[0].mask.tolist() == [False, False, True, False, False, True]
    only = build_samples(rollout.events, models=["policy"])
    assert [sample.model for sample in only.samples] == ["policy"]


A0, T0, A1, T1 = "a0", "t0", "a1", "t1"
LONG = list(range(100, 120))


@pytest.mark.parametrize(
    ("items", "prompt", "settings", "kind"),
    [
        ([S, U, A0, T0, A1, T1], [1, 2, *LONG, 40, 41, 51, 60], {}, "retokenized"),
        ([S, U, A0, T0, A1, T1], [1, 2, *LONG[4:], 40, 41, 50, 60], {}, "template"),
        ([S, U, A0, T0, A1, T1], [1, 9, *LONG, 40, 41, 50, 60], {}, "template"),
        ([S, U, A0, T0, A1, T1], [1, 2, *LONG[:3], 77, *LONG[5:], 40, 41, 50, 60], {}, "retokenized"),
        ([S, U, A0, T0, A1, T1], [8, 1, 2, *LONG, 40, 41, 50, 60], {"tools": ["calculator"]}, "tools_changed"),
        ([S, U, A0, T0, A1, T1], [8, 1, 2, *LONG, 40, 41, 50, 60], {"instructions": "be brief"}, "edited"),
        ([S, U, A0, "other", A1, T1], [1, 2, *LONG, 44, 41, 50, 60], {}, "edited"),
        ([S, U, A0, T0, "better", T1], [1, 2, *LONG, 40, 41, 55, 60], {}, "edited"),
        ([S, U, A1, T1], [1, 2, 41, 50, 60], {}, "compacted"),
        ([S, U, "summary"], [1, 2, 70], {}, "compacted"),
        ([S, "summary", T1], [1, 70, 60], {}, "compacted"),
        ([], [70], {"input": 7}, "unknown"),
    ],
)
def test_what_does_not_go_on_is_another_branch_and_says_why(
    items: Any, prompt: list[int], settings: dict[str, Any], kind: str
) -> None:
    """T2."""
    rollout = Conversations()
    rollout.call("m_0", [S, U], [A0], capture([1, 2], LONG))
    rollout.call("m_1", [S, U, A0, T0], [A1], capture([40, 41], [50], cited=("m_0", 22)))
    rollout.call("m_2", items, ["a2"], capture(prompt, [90]), settings=settings)
    found = build_samples(rollout.events)
    assert [(each.call, each.kind, each.before) for each in found.breaks] == [("m_2", kind, "m_1")]
    assert found.breaks_by_kind == {kind: 1}
    assert sum(sample.trained for sample in found.samples) == 22
    assert ("m_0", "m_1") in [sample.calls for sample in found.samples]
    assert found.samples[-1].tokens.tolist() == [*prompt, 90]


def test_another_template_or_tokenizer_never_goes_on() -> None:
    for changed, kind in (("template", "template"), ("tokenizer", "retokenized")):
        found = build_samples(two_turns(**{changed: "another"}).events)
        assert [sample.calls for sample in found.samples] == [("m_0",), ("m_2",)]
        assert [each.kind for each in found.breaks] == [kind]


def test_no_call_takes_over_token_ids_that_cannot_be_any() -> None:
    rollout = Conversations()
    rollout.call("m_0", [S, U], ["a0"], capture([1, -7], [4]))
    rollout.call("m_1", [S, U, "a0"], ["a1"], capture([5], [6], cited=("m_0", 3)))
    found = build_samples(rollout.events)
    assert found.samples == ()
    assert [(each.call, "below 0" in each.why or "not known" in each.why) for each in found.tokenless] == [
        ("m_0", True),
        ("m_1", True),
    ]


def test_a_conversation_that_goes_on_from_an_earlier_reply_is_a_branch_and_no_break() -> None:
    rollout = two_turns()
    rollout.call("m_3", [S, U, "a0", "another try"], ["a2"], capture([1, 2, 3, 4, 5, 11], [12]))
    found = build_samples(rollout.events)
    assert [sample.calls for sample in found.samples] == [("m_0", "m_2"), ("m_0", "m_3")]
    assert found.breaks == ()


@pytest.mark.parametrize(
    ("flawed", "why"),
    [
        (None, "not captured"),
        (Capture(), "not captured"),
        (Capture(policy=(3, 4)), "not captured"),
        (Capture(flaw="it has no tokenizer"), "it has no tokenizer"),
        (capture([1], [2], logprobs=pack_logprobs([float("nan")])), "not finite"),
        (capture([1], [2], logprobs=pack_logprobs([float("-inf")])), "not finite"),
        (capture([1], [2], logprobs=pack_logprobs([0.5])), "above 0"),
        (capture([1], [2, 3], logprobs=pack_logprobs([-1])), "2 generated tokens and 1 log-prob"),
        (capture([1], [2], logprobs=b""), "1 generated tokens and 0 log-prob"),
        (capture([1], [2, 3], spans=(PolicySpan(1, 1),)), "policy spans"),
        (capture([], [2]), "no prompt"),
        (capture([1], []), "no token was generated"),
        (capture([1], [2], spans=(PolicySpan(2**31, 1),)), "policy version"),
        (capture([1], [2], spans=(PolicySpan(-7, 1),)), "policy version"),
        (capture([1], [-2]), "below 0"),
        (capture([-1], [2]), "below 0"),
        (msgspec.structs.replace(capture([1], [2]), generated=b"\x01\x00"), "no whole number"),
        (capture([1], [2], cited=("m_9", 3)), "cites call 'm_9'"),
        (capture([1], [2], cited=("m_1", 1)), "cites itself"),
        (capture([1], [2], cited=("m_0", 6)), "cites 6 tokens of call 'm_0', which has 5"),
    ],
)
def test_a_call_without_sound_tokens_is_told_and_never_trained_on(flawed: Capture | None, why: str) -> None:
    """T3, T10, T16."""
    rollout = Conversations()
    rollout.call("m_0", [S, U], ["a0"], capture([1, 2, 3], [4, 5]))
    rollout.call("m_1", [S], ["a"], flawed)
    found = build_samples(rollout.events)
    assert [sample.calls for sample in found.samples] == [("m_0",)]
    ((call, told),) = [(each.call, each.why) for each in found.tokenless]
    assert (call, why in told) == ("m_1", True), told
    assert len(found.refused) == (why != "not captured")
    alone = Conversations()
    alone.call("m_0", [S], ["a"], None)
    none = build_samples(alone.events)
    assert (none.trainable, none.samples, none.trained, none.oldest_version) == (False, (), 0, None)
    assert [each.call for each in none.tokenless] == ["m_0"]


def test_a_call_without_tokens_does_not_end_the_branch_that_it_is_in() -> None:
    rollout = Conversations()
    rollout.call("m_0", [S, U], ["a0"], capture([1, 2, 3], [4, 5]))
    rollout.call("m_1", [S, U, "a0", "t"], ["a1"], None)
    rollout.call("m_2", [S, U, "a0", "t", "a1", "t"], ["a2"], capture([1, 2, 3, 4, 5, 6, 7], [8]))
    found = build_samples(rollout.events)
    assert [sample.calls for sample in found.samples] == [("m_0", "m_2")]
    assert found.breaks == ()


def test_failed_and_unanswered_calls_are_in_no_sample() -> None:
    rollout = two_turns()
    rollout.request("m_4", {"request": {"input": [S]}})
    rollout.request("m_5", {"request": {"input": [S]}})
    rollout.write("model.failed", f"jetgym.0.reply.x.{rollout.rollout}.m_5", "m_5", {"kind": "deadline"})
    assert equal(build_samples(rollout.events), build_samples(two_turns().events))


def test_a_call_that_was_delivered_twice_is_one_call() -> None:
    """T11."""
    rollout = two_turns()
    again = [msgspec.structs.replace(each, seq=each.seq + 10) for each in rollout.events]
    assert equal(build_samples([*again, *rollout.events]), build_samples(rollout.events))


@pytest.mark.parametrize(("place", "field"), [(0, "data"), (1, "data"), (1, "capture")])
def test_two_payloads_of_one_call_are_an_error(place: int, field: str) -> None:
    """T11."""
    rollout = two_turns()
    event = msgspec.structs.replace(rollout.events[place].event, **{field: msgspec.Raw(b"{}")})
    other = msgspec.structs.replace(rollout.events[place], seq=9, event=event)
    with pytest.raises(TwoPayloads, match="m_0"):
        build_samples([*rollout.events, other])


def test_tokens_are_not_given_under_another_tokenizer_or_template() -> None:
    """T17."""
    found = build_samples(two_turns().events)
    found.check()
    found.check(tokenizer="tok", template="tem")
    with pytest.raises(OtherTokenizer, match="the tokenizer tok recorded"):
        found.check(tokenizer="other")
    with pytest.raises(OtherTokenizer, match="the chat template tem recorded"):
        found.check(tokenizer="tok", template="other")
    rollout = Conversations()
    rollout.call("m_0", [S], ["a"], capture([1], [2], tokenizer=""))
    with pytest.raises(OtherTokenizer, match="no tokenizer recorded"):
        build_samples(rollout.events).check(tokenizer="tok")


def test_captures_and_data_that_are_claim_checks_are_looked_up() -> None:
    rollout = two_turns()
    blobs: dict[str, bytes] = {}
    moved = []
    for number, each in enumerate(rollout.events):
        event = each.event
        blobs |= {f"sha256:{number}d": bytes(event.data), f"sha256:{number}c": bytes(event.capture)}
        event = msgspec.structs.replace(
            event,
            data=msgspec.Raw(b"null"),
            dataref=f"sha256:{number}d",
            capture=msgspec.Raw(b"null"),
            captureref=f"sha256:{number}c" if event.type == "model.replied" else "",
        )
        moved.append(msgspec.structs.replace(each, event=event))
    assert equal(build_samples(moved, blobs), build_samples(rollout.events))
    with pytest.raises(BlobMissing, match="sha256:1c"):
        build_samples(moved)


def test_stored_tokens_cannot_be_written_to() -> None:
    """T2: what calls share is read only; a sample has its own copy."""
    calls = ModelEvents(two_turns().events).calls()
    with pytest.raises(ValueError, match="read-only"):
        calls["m_0"].generated[0] = 7
    assert calls["m_2"].prompt_ids().tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_ids_pack_as_the_engine_gave_them() -> None:
    """T7."""
    ids = [0, 151_643, 2**31 - 1]
    rollout = Conversations()
    rollout.call("m_0", [S], ["a"], capture([1], ids))
    (sample,) = build_samples(rollout.events).samples
    assert sample.tokens[1:].tobytes() == pack_ids(ids)
