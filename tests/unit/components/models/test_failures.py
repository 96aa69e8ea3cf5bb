"""What a failed attempt means."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from components.models.failures import SHOWN, excerpt, of_status, retry_after, without_credentials

OVERFLOWS = {
    "openai": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "openai code": {"message": "Your input is too big", "code": "context_length_exceeded"},
    "vllm prompt": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "vllm output": "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum is 4096",
    "vllm nothing left": "max_tokens must be at least 1, got -12.",
    "sglang": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "llama.cpp": {
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
    },
    "anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "gemini": "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).",
}


@pytest.mark.parametrize("said", OVERFLOWS.values(), ids=OVERFLOWS.keys())
@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_a_request_that_does_not_fit_the_model_is_a_context_length_error_and_not_tried_again(
    said: str | dict[str, str], status: int
) -> None:
    error = {"message": said} if isinstance(said, str) else said
    failure = of_status(status, {}, json.dumps({"error": error}).encode(), ())
    assert (failure.kind, failure.retry) == ("context_length", False)


@pytest.mark.parametrize(
    "said", ["max_tokens must be at least 1, got 0.", "unknown parameter: contxt", "too long name"]
)
def test_another_bad_request_is_no_context_length_error(said: str) -> None:
    assert of_status(400, {}, json.dumps({"error": {"message": said}}).encode(), ()).kind == "bad_request"


def test_a_rate_limit_in_tokens_is_a_rate_limit() -> None:
    failure = of_status(429, {}, b'{"error": {"message": "input token count for today exceeds your quota"}}', ())
    assert (failure.kind, failure.retry) == ("unavailable", True)


def test_retry_after_is_read_in_seconds_and_as_a_date() -> None:
    assert retry_after("1.5") == 1.5
    assert retry_after("-3") == 0.0
    assert retry_after(None) is None
    assert retry_after("soon") is None
    later = datetime.now(UTC) + timedelta(seconds=60)
    assert 50 < (retry_after(format_datetime(later, usegmt=True)) or 0) <= 60
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


def test_an_engines_own_message_is_quoted_with_its_type_and_code() -> None:
    body = b'{"error": {"message": "no such model", "type": "not_found", "code": 404}}'
    assert excerpt(body, ()) == "no such model (not_found) (404)"
    assert excerpt(b'{"object": "error", "message": "said flatly"}', ()) == "said flatly"


def test_a_long_body_is_quoted_by_its_start_on_one_line() -> None:
    quoted = excerpt(b"<html>\n" + b"x" * 10_000, ())
    assert quoted.startswith("<html> xxx")
    assert len(quoted) == SHOWN + 1


def test_a_secret_is_taken_out_before_a_quote_is_cut() -> None:
    assert "sk-secret"[:4] not in excerpt(b"x" * (SHOWN - 4) + b"sk-secret", ("sk-secret",))


def test_the_credentials_and_the_query_of_a_url_are_not_told() -> None:
    assert without_credentials("https://me:word@host:8000/v1/responses?key=k#x") == "https://host:8000/v1/responses"
