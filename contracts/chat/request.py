"""What an engine is asked: `ChatCompletionParams`, with tools, tool choice and response format."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from contracts.base import ApiModel, JsonObject, Number
from contracts.chat.messages import Message
from contracts.variants import Variants


class FunctionDefinition(ApiModel):
    """A function offered to the model; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class FunctionTool(ApiModel):
    """A function with JSON arguments."""

    type: Literal["function"]
    function: FunctionDefinition


class CustomDefinition(ApiModel):
    """A custom tool offered to the model."""

    name: str
    description: str | None = None
    format: JsonObject | None = None
    """`{"type": "text"}` or `{"type": "grammar", "grammar": {"syntax": …, "definition": …}}`."""


class CustomTool(ApiModel):
    """A tool whose input is free text, or text of a grammar."""

    type: Literal["custom"]
    custom: CustomDefinition


class UnknownTool(ApiModel):
    """A tool of a type that this version does not know, kept whole."""

    type: str


Tool: TypeAlias = Annotated[FunctionTool | CustomTool | UnknownTool, Variants()]


class ToolName(ApiModel):
    """The tool that a choice names."""

    name: str


class FunctionChoice(ApiModel):
    """The model must call this function."""

    type: Literal["function"]
    function: ToolName


class CustomChoice(ApiModel):
    """The model must call this custom tool."""

    type: Literal["custom"]
    custom: ToolName


class AllowedTools(ApiModel):
    """The model may (`auto`) or must (`required`) call one of these tools only."""

    mode: Literal["auto", "required"]
    tools: list[JsonObject]


class AllowedToolsChoice(ApiModel):
    """Restricts the model to some tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class UnknownChoice(ApiModel):
    """A choice of a type that this version does not know, kept whole."""

    type: str


ToolChoice: TypeAlias = (
    Literal["none", "auto", "required"]
    | Annotated[FunctionChoice | CustomChoice | AllowedToolsChoice | UnknownChoice, Variants()]
)


class TextFormat(ApiModel):
    """Free text."""

    type: Literal["text"]


class JsonSchema(ApiModel):
    """A schema under a name."""

    name: str
    schema_: JsonObject | None = Field(alias="schema", default=None)
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(ApiModel):
    """JSON that follows a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class JsonObjectFormat(ApiModel):
    """Any JSON object."""

    type: Literal["json_object"]


class UnknownFormat(ApiModel):
    """A format that this version does not know, kept whole."""

    type: str


ResponseFormat: TypeAlias = Annotated[TextFormat | JsonSchemaFormat | JsonObjectFormat | UnknownFormat, Variants()]


class StreamOptions(ApiModel):
    """What a stream carries beside the text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatCompletionParams(ApiModel):
    """What an engine is asked."""

    messages: list[Message]
    model: str | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    max_completion_tokens: int | None = None
    """Limit on generated tokens, reasoning included."""
    max_tokens: int | None = None
    """The older name of the same; many engines know only this one."""
    temperature: Number | None = None
    top_p: Number | None = None
    frequency_penalty: Number | None = None
    presence_penalty: Number | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    logit_bias: dict[str, Number] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    functions: list[FunctionDefinition] | None = None
    function_call: str | ToolName | None = None
    modalities: list[str] | None = None
    audio: JsonObject | None = None
    prediction: JsonObject | None = None
    web_search_options: JsonObject | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
