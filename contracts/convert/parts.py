"""How one part of a message is said in the other API; annotations included. Used by the rest of `contracts.convert`."""

from collections.abc import Callable, Sequence
from typing import Final

from contracts import chat
from contracts import responses as r
from contracts.base import ApiModel, JsonObject
from contracts.errors import NoChatForm, NoResponsesForm

_RESPONSES_ONLY: Final = (
    "input_",
    "output_",
    "computer_screenshot",
    "encrypted_content",
    "reasoning_text",
    "summary_text",
)
"""How the types of parts begin that only the Responses API knows; any other unknown part is the engine's own."""


def given(model: ApiModel, *names: str) -> JsonObject:
    """Those of the fields `names` that are not null, and all fields that our types do not know."""
    document = {name: value for name in names if (value := getattr(model, name)) is not None}
    return document | model.model_extra if model.model_extra else document


# ------------------------------------------------------------------------------------------- Responses -> Chat


def parts_to_chat(parts: Sequence[r.ContentPart]) -> list[JsonObject]:
    """`parts` as Chat Completions parts; raises `NoChatForm` that names the part."""
    return [_TO_CHAT[type(part)](part) for part in parts]


def _text(part: r.InputText) -> JsonObject:
    return {"type": "text", "text": part.text} | (part.model_extra or {})


def _output_text(part: r.OutputText) -> JsonObject:
    document: JsonObject = {"type": "text", "text": part.text} | (part.model_extra or {})
    if part.annotations:
        document["annotations"] = [_annotation_to_chat(annotation.to_dict()) for annotation in part.annotations]
    return document


def _image(part: r.InputImage) -> JsonObject:
    if not part.image_url:
        what = f"the uploaded file {part.file_id!r}" if part.file_id else "neither a URL nor data"
        raise NoChatForm(
            "input_image",
            f"an input_image has {what}: Chat Completions takes images by `image_url` only, also as `data:` URL",
        )
    url = {"url": part.image_url} if part.detail is None else {"url": part.image_url, "detail": part.detail}
    return {"type": "image_url", "image_url": url, **given(part, "file_id")}


def _file(part: r.InputFile) -> JsonObject:
    if part.file_url:
        raise NoChatForm(
            "input_file",
            f"an input_file has the URL {part.file_url!r}: Chat Completions takes files by `file_data` or `file_id`",
        )
    file = {n: v for n in ("file_data", "file_id", "filename", "detail") if (v := getattr(part, n)) is not None}
    return {"type": "file", "file": file} | (part.model_extra or {})


def _audio(part: r.InputAudio) -> JsonObject:
    return part.to_dict()


def _refusal(part: r.Refusal) -> JsonObject:
    extra = {name: value for name, value in (part.model_extra or {}).items() if name != "logprobs"}
    return {"type": "refusal", "refusal": part.refusal} | extra


def _unknown(part: r.UnknownPart) -> JsonObject:
    extra = part.model_extra or {}
    if part.type == "input_video" and extra.get("video_url"):
        return {"type": "video_url", "video_url": {"url": extra["video_url"]}} | {
            name: value for name, value in extra.items() if name != "video_url"
        }
    if part.type.startswith(_RESPONSES_ONLY):
        raise NoChatForm(
            part.type,
            f"a part of type {part.type} has no form in Chat Completions: text, images, audio, files and refusals have",
        )
    return part.to_dict()


_TO_CHAT: Final[dict[type[ApiModel], Callable[..., JsonObject]]] = {
    r.InputText: _text,
    r.OutputText: _output_text,
    r.InputImage: _image,
    r.InputFile: _file,
    r.InputAudio: _audio,
    r.Refusal: _refusal,
    r.UnknownPart: _unknown,
}


def _annotation_to_chat(annotation: JsonObject) -> JsonObject:
    """`{"type": t, …}` as `{"type": t, t: {…}}`."""
    kind = annotation.pop("type")
    return {"type": kind, kind: annotation}


# ------------------------------------------------------------------------------------------- Chat -> Responses


def parts_from_chat(parts: Sequence[chat.Part], text_type: str) -> list[JsonObject]:
    """`parts` as Responses parts; `text_type` is `input_text` or `output_text`."""
    return [_from_chat(part, text_type) for part in parts]


def _from_chat(part: chat.Part, text_type: str) -> JsonObject:
    match part:
        case chat.TextPart():
            document = {"type": text_type, "text": part.text} | (part.model_extra or {})
            if text_type == "output_text":
                document["annotations"] = annotations_from_chat(document.get("annotations"))
            return document
        case chat.ImagePart():
            return {
                "type": "input_image",
                "image_url": part.image_url.url,
                **given(part.image_url, "detail"),
                **given(part),
            }
        case chat.FilePart():
            return {"type": "input_file", **given(part.file, "file_data", "file_id", "filename"), **given(part)}
        case chat.VideoPart():
            return {"type": "input_video", "video_url": part.video_url.url, **given(part.video_url), **given(part)}
        case chat.AudioPart() | chat.RefusalPart() | chat.UnknownPart():
            return part.to_dict()


def annotations_from_chat(annotations: object) -> list[JsonObject]:
    """The annotations of a text as the Responses API has them; empty where there are none."""
    if not annotations:
        return []
    if not isinstance(annotations, list):
        raise NoResponsesForm("annotations", f"annotations are no list: {annotations!r}")
    return [_annotation_from_chat(annotation) for annotation in annotations]


def _annotation_from_chat(annotation: JsonObject) -> JsonObject:
    kind = annotation.get("type")
    inner = annotation.get(kind) if isinstance(kind, str) else None
    if not isinstance(inner, dict):
        return annotation
    return {"type": kind, **inner, **{name: value for name, value in annotation.items() if name not in ("type", kind)}}
