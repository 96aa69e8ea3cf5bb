"""A request to a model: `ResponseCreateParams` and its options."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from contracts.base import ApiModel, JsonObject, Number
from contracts.responses.item import Item
from contracts.responses.tools import Tool, ToolChoice
from contracts.variants import Variants


class Reasoning(ApiModel):
    """How much the model thinks and what it shows of it."""

    effort: str | None = None
    """`none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`."""
    summary: str | None = None
    """`auto`, `concise` or `detailed`."""
    generate_summary: str | None = None
    """The older name of `summary`."""
    context: str | None = None
    mode: str | None = None


class TextFormat(ApiModel):
    """Free text."""

    type: Literal["text"]


class JsonSchemaFormat(ApiModel):
    """JSON that follows a schema."""

    type: Literal["json_schema"]
    name: str
    schema_: JsonObject = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class JsonObjectFormat(ApiModel):
    """Any JSON object; the older way."""

    type: Literal["json_object"]


class UnknownFormat(ApiModel):
    """A format that this version does not know, kept whole."""

    type: str


Format: TypeAlias = Annotated[TextFormat | JsonSchemaFormat | JsonObjectFormat | UnknownFormat, Variants()]
"""The form that the model's text must have."""


class TextConfig(ApiModel):
    """The form and length of the model's text."""

    format: Format | None = None
    verbosity: str | None = None
    """`low`, `medium` or `high`."""


class PromptTemplate(ApiModel):
    """A prompt that the engine stores, and what to fill in."""

    id: str
    version: str | None = None
    variables: JsonObject | None = None


class ResponseCreateParams(ApiModel):
    """What a model is asked: the items so far, the tools, and how to sample."""

    input: str | list[Item]
    model: str | None = None
    instructions: str | None = None
    """Stands before `input` as a system message, for this request only."""
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    max_output_tokens: int | None = None
    """Limit on generated tokens, reasoning included."""
    temperature: Number | None = None
    top_p: Number | None = None
    top_logprobs: int | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    """Further data wanted in the response, like `reasoning.encrypted_content` or `message.output_text.logprobs`."""
    truncation: str | None = None
    """`auto` or `disabled`."""
    metadata: dict[str, str] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: JsonObject | None = None
    previous_response_id: str | None = None
    conversation: str | JsonObject | None = None
    context_management: list[JsonObject] | None = None
    prompt: PromptTemplate | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    background: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
