"""The messages of a chat: their parts, and the calls of tools in them."""

from typing import Annotated, Literal, TypeAlias

from contracts.base import ApiModel, JsonObject
from contracts.variants import Variants


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
    """A function's name and its arguments as JSON text; not checked, since a model may leave out either."""

    name: str | None = None
    arguments: str | None = None


class FunctionToolCall(ApiModel):
    """The assistant calls a function. Some engines give no ID."""

    id: str | None = None
    type: Literal["function"]
    function: CalledFunction


class CalledCustom(ApiModel):
    """A custom tool's name and its input; not checked."""

    name: str | None = None
    input: str | None = None


class CustomToolCall(ApiModel):
    """The assistant calls a custom tool."""

    id: str | None = None
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
    Variants(by="role"),
]
"""One message of the history."""
