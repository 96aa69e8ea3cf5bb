"""The Chat Completions API as engines speak it (OpenAI, vLLM, SGLang, llama.cpp): request, response and error body.

Used by `contracts.convert` and the chat models. Import it as a module (`from contracts import chat`): some names here
have a namesake in `contracts.responses`. What an engine adds (`prompt_token_ids`, `token_ids`, `timings`,
`chat_template_kwargs`, …) is kept as extra fields. Does no I/O.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field

from contracts.base import ApiModel, JsonObject, Number, Variants


class TextPart(ApiModel):
    """Text."""

    type: Literal["text"]
    text: str


class ImageUrl(ApiModel):
    """Where an image is, also as `data:`."""

    url: str
    detail: str | None = None


class ImagePart(ApiModel):
    """An image."""

    type: Literal["image_url"]
    image_url: ImageUrl


class AudioData(ApiModel):
    """Sound in base64."""

    data: str
    format: str


class AudioPart(ApiModel):
    """Sound."""

    type: Literal["input_audio"]
    input_audio: AudioData


class FileData(ApiModel):
    """A file: content in base64, or the ID of an uploaded one."""

    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class FilePart(ApiModel):
    """A file."""

    type: Literal["file"]
    file: FileData


class VideoUrl(ApiModel):
    """Where a video is, also as `data:`."""

    url: str


class VideoPart(ApiModel):
    """A video; vLLM and SGLang take it."""

    type: Literal["video_url"]
    video_url: VideoUrl


class RefusalPart(ApiModel):
    """The assistant's words for not doing it."""

    type: Literal["refusal"]
    refusal: str


class UnknownPart(ApiModel):
    """A part of a type that this version does not know, kept whole."""

    type: str


Part: TypeAlias = Annotated[
    TextPart | ImagePart | AudioPart | FilePart | VideoPart | RefusalPart | UnknownPart, Variants()
]
"""One part of a message."""

Content: TypeAlias = str | list[Part]


class CalledFunction(ApiModel):
    """A function's name and its arguments as JSON text, not checked."""

    name: str
    arguments: str


class FunctionToolCall(ApiModel):
    """The assistant calls a function."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class CalledCustom(ApiModel):
    """A custom tool's name and its input."""

    name: str
    input: str


class CustomToolCall(ApiModel):
    """The assistant calls a custom tool."""

    id: str
    type: Literal["custom"]
    custom: CalledCustom


class UnknownToolCall(ApiModel):
    """A call of a type that this version does not know, kept whole."""

    type: str


ToolCall: TypeAlias = Annotated[FunctionToolCall | CustomToolCall | UnknownToolCall, Variants()]


class SystemMessage(ApiModel):
    """A message of the system."""

    role: Literal["system"]
    content: Content
    name: str | None = None


class DeveloperMessage(ApiModel):
    """A message of the developer; not all engines' templates know the role."""

    role: Literal["developer"]
    content: Content
    name: str | None = None


class UserMessage(ApiModel):
    """A message of the user."""

    role: Literal["user"]
    content: Content
    name: str | None = None


class AssistantMessage(ApiModel):
    """A message of the model, in a reply as in a later request's history."""

    role: Literal["assistant"]
    content: Content | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    reasoning_content: str | None = None
    """Reasoning, as vLLM (older), SGLang, llama.cpp and DeepSeek name it."""
    reasoning: str | None = None
    """Reasoning, as vLLM and OpenRouter name it."""
    name: str | None = None
    function_call: CalledFunction | None = None
    """The older form of `tool_calls`."""
    audio: JsonObject | None = None
    annotations: list[JsonObject] | None = None


class ToolMessage(ApiModel):
    """What a tool answered."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str
    name: str | None = None


class FunctionMessage(ApiModel):
    """What a function answered; the older form of `ToolMessage`."""

    role: Literal["function"]
    content: str | None = None
    name: str


Message: TypeAlias = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage,
    Discriminator("role"),
]
"""One message of the history."""


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
    metadata: dict[str, str] | None = None


class ErrorDetail(ApiModel):
    """What went wrong; some engines (SGLang) answer with this alone."""

    message: str
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class ErrorBody(ApiModel):
    """The body of an HTTP error."""

    error: ErrorDetail
