"""A model's reply: `Response`, with its usage and how it ended."""

from typing import Literal

from contracts.base import ApiModel, JsonObject, Number
from contracts.responses.item import Item
from contracts.responses.items import FunctionCall, OutputMessage
from contracts.responses.request import PromptTemplate, Reasoning, TextConfig
from contracts.responses.tools import Tool, ToolChoice


class InputTokensDetails(ApiModel):
    """Of the input tokens. None is unknown, not zero."""

    cached_tokens: int | None = None
    """Read from the engine's prefix cache."""
    cache_write_tokens: int | None = None


class OutputTokensDetails(ApiModel):
    """Of the output tokens. None is unknown, not zero."""

    reasoning_tokens: int | None = None


class ResponseUsage(ApiModel):
    """Tokens as the engine counts them."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails | None = None
    output_tokens_details: OutputTokensDetails | None = None


class IncompleteDetails(ApiModel):
    """Why a response is incomplete."""

    reason: str | None = None
    """`max_output_tokens`, `content_filter`, …"""


class ResponseError(ApiModel):
    """Why a response failed."""

    code: str
    message: str
    type: str | None = None
    param: str | None = None


class Response(ApiModel):
    """What a model answered; of a rollout, all items since its task."""

    id: str
    object: Literal["response"]
    created_at: Number
    """Seconds since 1970."""
    model: str
    output: list[Item]
    status: str | None = None
    """`completed`, `incomplete`, `failed`, `in_progress`, `cancelled` or `queued`."""
    incomplete_details: IncompleteDetails | None = None
    error: ResponseError | None = None
    usage: ResponseUsage | None = None
    completed_at: Number | None = None

    instructions: str | list[Item] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    max_output_tokens: int | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_logprobs: int | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    truncation: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    conversation: JsonObject | None = None
    prompt: PromptTemplate | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    background: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    user: str | None = None

    @property
    def output_text(self) -> str:
        """The text of all messages that the model wrote, joined."""
        return "".join(item.text for item in self.output if isinstance(item, OutputMessage))

    @property
    def function_calls(self) -> list[FunctionCall]:
        """The functions that the model called, in order."""
        return [item for item in self.output if isinstance(item, FunctionCall)]
