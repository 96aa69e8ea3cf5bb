"""The parts of a message: text, images, files, audio, refusals, with their annotations and log-probabilities."""

from typing import Annotated, Literal, TypeAlias

from contracts.base import ApiModel, Number
from contracts.variants import Variants


class InputText(ApiModel):
    """Text that the model reads."""

    type: Literal["input_text"]
    text: str


class InputImage(ApiModel):
    """An image that the model sees, by URL (also `data:`) or by the ID of an uploaded file."""

    type: Literal["input_image"]
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None
    """`low`, `high`, `auto` or `original`."""


class InputFile(ApiModel):
    """A file that the model reads: its content in base64, its URL, or the ID of an uploaded one."""

    type: Literal["input_file"]
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    detail: str | None = None


class AudioData(ApiModel):
    """Sound in base64."""

    data: str
    format: str
    """`mp3` or `wav`."""


class InputAudio(ApiModel):
    """Sound that the model hears."""

    type: Literal["input_audio"]
    input_audio: AudioData


class Annotation(ApiModel):
    """A citation in a text: `url_citation`, `file_citation`, `container_file_citation` or `file_path`."""

    type: str
    start_index: int | None = None
    end_index: int | None = None
    url: str | None = None
    title: str | None = None
    index: int | None = None
    file_id: str | None = None
    filename: str | None = None
    container_id: str | None = None


class TopLogprob(ApiModel):
    """One token that the model considered at a place."""

    token: str
    logprob: Number
    """Natural logarithm of its probability."""
    bytes: list[int] | None = None
    """The token's UTF-8 bytes."""


class Logprob(ApiModel):
    """A token that the model wrote, and what else it considered there."""

    token: str
    logprob: Number
    bytes: list[int] | None = None
    top_logprobs: list[TopLogprob] | None = None


class OutputText(ApiModel):
    """Text that the model wrote."""

    type: Literal["output_text"]
    text: str
    annotations: list[Annotation] | None = None
    logprobs: list[Logprob] | None = None


class Refusal(ApiModel):
    """The model's words for not doing it."""

    type: Literal["refusal"]
    refusal: str


class ReasoningText(ApiModel):
    """Reasoning as the model wrote it."""

    type: Literal["reasoning_text"]
    text: str


class SummaryText(ApiModel):
    """Reasoning as a summary tells it."""

    type: Literal["summary_text"]
    text: str


class UnknownPart(ApiModel):
    """A part of a type that this version does not know, kept whole."""

    type: str


ContentPart: TypeAlias = Annotated[
    InputText | InputImage | InputFile | InputAudio | OutputText | Refusal | UnknownPart, Variants()
]
"""One part of a message or of a tool's output."""

ReasoningPart: TypeAlias = Annotated[SummaryText | ReasoningText | UnknownPart, Variants()]
"""One part of a reasoning item."""
