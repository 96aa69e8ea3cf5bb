"""Token IDs and log-probabilities travel packed, beside the reply and not in it."""

import msgspec
import pytest

from contracts.tokens import (
    Capture,
    CitedTokens,
    PolicySpan,
    glance,
    pack_ids,
    pack_logprobs,
    read_capture,
    unpack_ids,
    unpack_logprobs,
)


def test_ids_and_logprobs_come_back_as_they_were() -> None:
    ids, logprobs = [0, 1, 151_643, 2**31 - 1], [0.0, -0.5, -123.25]
    assert list(unpack_ids(pack_ids(ids))) == ids
    assert list(unpack_logprobs(pack_logprobs(logprobs))) == logprobs
    assert pack_ids([1]) == b"\x01\x00\x00\x00"


def test_bytes_that_are_no_whole_number_of_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        unpack_ids(b"\x00\x00\x00")


@pytest.mark.parametrize("ids", [[2**31], [-(2**31) - 1], [1.5], ["1"]])
def test_what_is_no_token_id_is_refused(ids: list[int]) -> None:
    with pytest.raises((OverflowError, TypeError)):
        pack_ids(ids)


def test_a_glance_at_a_capture_tells_what_reading_it_would() -> None:
    """Whatever its texts say; a policy version alone is neither."""
    tokens = Capture(prompt=b"1234", generated=b"1234", logprobs=b"1234", tokenizer='"flaw":')
    for capture in (Capture(), Capture(policy=(1, 1)), tokens, Capture(flaw='it said "generated": and "flaw": itself')):
        assert glance(msgspec.json.encode(capture)) == (capture.has_tokens, bool(capture.flaw))


def test_a_capture_comes_back_as_it_was() -> None:
    capture = Capture(
        cited=CitedTokens(call="m_0", count=3),
        prompt=pack_ids([7]),
        generated=pack_ids([8, 9]),
        logprobs=pack_logprobs([-0.25, -1.0]),
        spans=(PolicySpan(3, 1), PolicySpan(4, 1)),
        policy=(3, 4),
        tokenizer="t",
        usage=(4, 2),
    )
    assert read_capture(msgspec.json.encode(capture)) == capture
    assert capture.has_tokens
    assert not read_capture(b'{"flaw":"the engine gave no IDs"}').has_tokens
