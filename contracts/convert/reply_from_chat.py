"""A chat completion as a response: `response_from_chat`. Used by chat models.

What an engine says beside the answer is kept: fields of the completion that the Responses API does not know become
fields of the response, and those of its one choice are under `choice`. Only the token fields (`TOKEN_FIELDS`) stay
behind: the model component reads them from the completion, since they lie beside the reply in the log, not in it.

IDs derive from the completion's: the same completion gives the same response.
"""

from typing import Final

import msgspec

from contracts import chat
from contracts import responses as r
from contracts.base import JsonObject
from contracts.convert.check import checked, keep
from contracts.convert.items import items_of
from contracts.convert.style import DEFAULT_STYLE, ChatStyle
from contracts.errors import NoResponsesForm

TOKEN_FIELDS: Final = frozenset(
    {
        "prompt_token_ids", "token_ids", "response_token_ids", "generation_token_ids", "generation_log_probs",
        "prompt_logprobs", "routed_experts", "meta_info", "sglext", "policy_spans",
    }
)  # fmt: skip
"""Fields of a completion, its choice and its message that `response_from_chat` does not copy."""

_ENDED: Final = frozenset({None, "stop", "tool_calls", "function_call"})
REASONS: Final = {"length": "max_output_tokens"}
"""Where the two APIs have different words for why a reply is incomplete."""

CHOICE: Final = "choice"
"""Field of a response that holds further fields of the one choice."""

DETAILS: Final = (
    (
        "input_tokens_details",
        "prompt_tokens_details",
        "cached_tokens",
        ("cached_input_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens"),
    ),
    ("output_tokens_details", "completion_tokens_details", "reasoning_tokens", ("reasoning_output_tokens",)),
)
"""Details of the usage: their name in responses and in completions, the count that engines also give outside of them,
and what they call it there."""

ALWAYS_SENT: Final = {
    "input_tokens_details": ("cached_tokens", "cache_write_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}
"""The details that clients of the Responses API rely on, since the API sends them with every usage."""

_PREFIXES: Final = {
    "reasoning": "rs",
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}
_ECHOED: Final = (
    "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "max_output_tokens",
    "temperature", "top_p", "top_logprobs", "text", "reasoning", "truncation", "metadata", "store",
    "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_retention", "background", "service_tier",
    "safety_identifier", "user",
)  # fmt: skip


def response_from_chat(
    completion: chat.ChatCompletion,
    style: ChatStyle = DEFAULT_STYLE,
    *,
    request: r.ResponseCreateParams | None = None,
    name: str = "",
) -> r.Response:
    """`completion` as a response. With `request`, its options are repeated in the response, as the API does.

    `name` stands for the completion's ID in the IDs made here, for engines whose own are empty or not unique. What the
    model wrote passes as it is, broken arguments too. Raises `NoResponsesForm` unless there is exactly one choice.
    """
    if len(completion.choices) != 1:
        raise NoResponsesForm("choices", f"completion {completion.id!r} has {len(completion.choices)} choices, not one")
    (choice,) = completion.choices
    stem = name or completion.id.removeprefix("chatcmpl-")
    items = items_of(choice.message, style, without=TOKEN_FIELDS)
    body: JsonObject = {"id": f"resp_{stem}", "object": "response", "created_at": completion.created}
    body |= {"model": completion.model, "output": items, **_status(choice.finish_reason)}
    _identify(items, stem, body["status"])
    rest = _kept(choice)
    if choice.logprobs is not None and (unplaced := _logprobs_from_chat(choice.logprobs, items)):
        rest["logprobs"] = unplaced
    if completion.usage is not None:
        body["usage"] = _usage_from_chat(completion.usage)
    if request is not None:
        body |= {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}  # clients expect these three
        body |= {name: value for name in _ECHOED if (value := getattr(request, name)) is not None}
    own = ("service_tier", "system_fingerprint")
    body |= {name: value for name in own if (value := getattr(completion, name)) is not None}
    if completion.metadata is not None:
        body["metadata"] = {name: _text(value) for name, value in completion.metadata.items()}
    keep(_kept(completion), body, NoResponsesForm)
    if rest:
        keep({CHOICE: rest}, body, NoResponsesForm)
    return checked(r.Response, body, NoResponsesForm)


def _text(value: object) -> str:
    """A value of metadata, of which responses know only texts: what is none, as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _kept(model: chat.ChatCompletion | chat.Choice) -> JsonObject:
    extra = model.model_extra or {}
    return {name: value for name, value in extra.items() if value is not None and name not in TOKEN_FIELDS}


def _status(finish: str | None) -> JsonObject:
    if finish in _ENDED:
        return {"status": "completed"}
    return {"status": "incomplete", "incomplete_details": {"reason": REASONS.get(finish or "", finish)}}


def _identify(items: list[JsonObject], stem: str, status: str) -> None:
    """Gives each item an ID and a status; what was cut off is in the last one."""
    for index, item in enumerate(items):
        item["id"] = f"{_PREFIXES[item['type']]}_{stem}_{index}"
        item["status"] = status if index == len(items) - 1 else "completed"
        if item.get("call_id") == "":
            item["call_id"] = f"call_{stem}_{index}"


def _logprobs_from_chat(logprobs: chat.ChoiceLogprobs, items: list[JsonObject]) -> JsonObject:
    """Puts log-probabilities on the text and the refusal that they belong to; returns those without a place."""
    document = {name: value for name, value in logprobs.to_dict().items() if value is not None}
    for item in items:
        if item["type"] == "message":
            for part in item["content"]:
                name = "content" if part["type"] == "output_text" else part["type"]
                if name in document:
                    part["logprobs"] = document.pop(name)
    return document


def _usage_from_chat(usage: chat.CompletionUsage) -> JsonObject:
    """Engines name the cached and the reasoning tokens in several ways; where they say nothing of them, they are 0."""
    extra = dict(usage.model_extra or {})
    document: JsonObject = {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
    for name, details, count, aliases in DETAILS:
        found = getattr(usage, details)
        known = {} if found is None else {key: value for key, value in found.to_dict().items() if value is not None}
        if count not in known:
            known.update((count, extra[alias]) for alias in aliases if isinstance(extra.get(alias), int))
        document[name] = dict.fromkeys(ALWAYS_SENT[name], 0) | known
    return extra | document
