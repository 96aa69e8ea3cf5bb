"""What an engine answers: `ChatCompletion`, or the body of an HTTP error."""

from typing import Literal

from contracts.base import ApiModel, JsonObject, Number
from contracts.chat.messages import AssistantMessage


class TopLogprob(ApiModel):
    """One token that the model considered at a place."""

    token: str
    logprob: Number
    """Natural logarithm of its probability."""
    bytes: list[int] | None = None


class TokenLogprob(ApiModel):
    """A token that the model wrote, and what else it considered there."""

    token: str
    logprob: Number
    bytes: list[int] | None = None
    top_logprobs: list[TopLogprob] | None = None


class ChoiceLogprobs(ApiModel):
    """Log-probabilities of the text and of the refusal."""

    content: list[TokenLogprob] | None = None
    refusal: list[TokenLogprob] | None = None


class Choice(ApiModel):
    """One of the `n` answers."""

    index: int
    message: AssistantMessage
    finish_reason: str | None = None
    """`stop`, `length`, `tool_calls`, `content_filter`, `function_call`, or an engine's own like `abort`."""
    logprobs: ChoiceLogprobs | None = None


class PromptTokensDetails(ApiModel):
    """Of the prompt's tokens. None is unknown, not zero."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    audio_tokens: int | None = None


class CompletionTokensDetails(ApiModel):
    """Of the generated tokens. None is unknown, not zero."""

    reasoning_tokens: int | None = None
    audio_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class CompletionUsage(ApiModel):
    """Tokens as the engine counts them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


class ChatCompletion(ApiModel):
    """What an engine answered."""

    id: str
    object: Literal["chat.completion"]
    created: Number
    """Seconds since 1970."""
    model: str
    choices: list[Choice]
    usage: CompletionUsage | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    metadata: JsonObject | None = None
    """Texts, where the engine keeps to the API; SGLang says here which weights answered."""


class ErrorDetail(ApiModel):
    """What went wrong; some engines (SGLang) answer with this alone."""

    message: str
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class ErrorBody(ApiModel):
    """The body of an HTTP error."""

    error: ErrorDetail
