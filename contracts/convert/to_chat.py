"""A Responses request as a Chat Completions request: `request_to_chat`. Used by chat models.

Options of the same name and meaning pass as they are, and so does every field that the Responses API does not define:
it is the engine's own. What Chat Completions cannot say is refused unless its value asks for nothing. A null option is
the same as none.
"""

from itertools import takewhile
from typing import Final

from contracts import chat
from contracts import responses as r
from contracts.base import JsonObject
from contracts.convert.check import LOGPROBS, SAME, checked, keep, short
from contracts.convert.history import messages_of
from contracts.convert.parts import given
from contracts.convert.style import DEFAULT_STYLE, ChatStyle, leave_out
from contracts.convert.tools import choice_to_chat, tools_to_chat
from contracts.errors import NoChatForm

_NO_CHAT_FORM: Final[dict[str, tuple[object, ...]]] = {
    "truncation": ("disabled",),
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "background": (False,),
    "max_tool_calls": (),
    "context_management": ([],),
}
"""Options that Chat Completions does not have, and their values that ask for nothing."""

_SYSTEM: Final = ("system", "developer")
_PLAIN: Final = {"role", "content"}


def request_to_chat(params: r.ResponseCreateParams, style: ChatStyle = DEFAULT_STYLE) -> chat.ChatCompletionParams:
    """`params` as a Chat Completions request, said as `style` wants it.

    Raises `NoChatForm`, whose `name` is the item, part, tool or option that cannot be said.
    """
    if params.instructions:
        given_input = params.input if isinstance(params.input, list) else [r.user_message(params.input)]
        messages = messages_of([r.system_message(params.instructions), *given_input], style)
    elif isinstance(params.input, str):
        messages = [{"role": "user", "content": params.input}]
    else:
        messages = messages_of(params.input, style)
    body: JsonObject = {"messages": _merged(messages) if style.merge_system else messages}
    body |= {name: value for name in SAME if (value := getattr(params, name)) is not None}
    if params.max_output_tokens is not None:
        body[style.max_tokens_field] = params.max_output_tokens
    _tools_to_chat(params, body, style)
    _text_to_chat(params.text, body)
    _reasoning_to_chat(params.reasoning, body, style)
    _logprobs_to_chat(params, body, style)
    for name, harmless in _NO_CHAT_FORM.items():
        value = getattr(params, name)
        if value is not None and value not in harmless:
            leave_out(name, f"the request sets it to {short(value)}", style)
    keep(params.model_extra, body, NoChatForm)
    if body.get("n") not in (None, 1):
        raise NoChatForm("n", f"n is {body['n']!r}: a response holds one answer, ask as many times instead")
    return checked(chat.ChatCompletionParams, body, NoChatForm)


def _merged(messages: list[JsonObject]) -> list[JsonObject]:
    """`messages` with the system and developer messages at the start joined by blank lines."""
    first = list(takewhile(lambda message: message["role"] in _SYSTEM and message.keys() == _PLAIN, messages))
    if len(first) <= 1:
        return messages
    contents = [message["content"] for message in first]
    if all(isinstance(content, str) for content in contents):
        merged: object = "\n\n".join(contents)
    else:
        merged = [
            part
            for content in contents
            for part in ([{"type": "text", "text": content}] if isinstance(content, str) else content)
        ]
    return [{"role": messages[0]["role"], "content": merged}, *messages[len(first) :]]


def _tools_to_chat(params: r.ResponseCreateParams, body: JsonObject, style: ChatStyle) -> None:
    """Without tools nothing is said of them: engines refuse `tool_choice` and `parallel_tool_calls` alone."""
    tools = tools_to_chat(params.tools or (), style)
    choice = None if params.tool_choice is None else choice_to_chat(params.tool_choice)
    if tools:
        body["tools"] = tools
        if choice is not None:
            body["tool_choice"] = choice
        return
    body.pop("parallel_tool_calls", None)
    if choice not in (None, "auto", "none"):
        raise NoChatForm("tool_choice", f"tool_choice is {short(choice)}, and the request has no tools to call")


def _text_to_chat(text: r.TextConfig | None, body: JsonObject) -> None:
    if text is None:
        return
    match text.format:
        case None:
            pass
        case r.JsonSchemaFormat():
            schema = given(text.format, "name", "description", "strict") | {"schema": text.format.schema_}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        case _:
            body["response_format"] = text.format.to_dict()
    if text.verbosity is not None:
        body["verbosity"] = text.verbosity
    if text.model_extra:
        body["text"] = text.model_extra


def _reasoning_to_chat(options: r.Reasoning | None, body: JsonObject, style: ChatStyle) -> None:
    if options is None:
        return
    if options.effort is not None:
        body["reasoning_effort"] = options.effort
    for name in ("summary", "generate_summary", "context", "mode"):
        if (value := getattr(options, name)) is not None:
            leave_out(f"reasoning.{name}", f"the request sets it to {short(value)}", style)
    if options.model_extra:
        body["reasoning"] = options.model_extra


def _logprobs_to_chat(params: r.ResponseCreateParams, body: JsonObject, style: ChatStyle) -> None:
    include = params.include or []
    if LOGPROBS in include or params.top_logprobs:
        body["logprobs"] = True
        if params.top_logprobs is not None:
            body["top_logprobs"] = params.top_logprobs
    if others := [wanted for wanted in include if wanted != LOGPROBS]:
        leave_out(
            "include", f"of all that can be included, it has log-probabilities, and not {', '.join(others)}", style
        )
