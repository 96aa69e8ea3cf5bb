"""Items as messages: `messages_of` folds the items of one turn of the assistant into one message.

A turn is said in the order that a message has: reasoning, text, calls. An item that would go back in that order
starts another message, so that two messages of the assistant stay two. Only while a call waits for its output does
everything go into the message that made it: Chat Completions has nothing stand between a call and its output.

IDs and status of items, and log-probabilities, say how a reply came about and are not sent back to an engine.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from contracts import responses as r
from contracts.base import JsonObject
from contracts.convert import reasoning
from contracts.convert.parts import given, parts_to_chat
from contracts.convert.style import ChatStyle, leave_out
from contracts.errors import NoChatForm

_REASONING, _TEXT, _CALL = 0, 1, 2
_CALL_FIELDS: Final = ("namespace", "caller", "created_by")
_OUTPUT_FIELDS: Final = ("name", *_CALL_FIELDS)


def messages_of(items: Iterable[r.Item], style: ChatStyle) -> list[JsonObject]:
    """`items` as Chat Completions messages; raises `NoChatForm` that names an item or part."""
    fold = _Fold(style)
    for item in items:
        fold.add(item)
    fold.end_turn()
    return fold.messages


class _Turn:
    """An assistant message in the making."""

    __slots__ = ("calls", "extra", "in_parts", "parts", "reached", "reasoning")

    def __init__(self) -> None:
        self.reached = -1
        self.reasoning: list[str] = []
        self.parts: list[JsonObject] = []
        self.in_parts = False
        """Whether even a single text is sent as a list."""
        self.calls: list[JsonObject] = []
        self.extra: JsonObject = {}

    def keep(self, extra: JsonObject | None, style: ChatStyle) -> None:
        """Keeps further fields of an item on the message."""
        for name, value in (extra or {}).items():
            if self.extra.setdefault(name, value) != value:
                leave_out(name, "two items that are one message of the assistant differ in it", style)

    def message(self, style: ChatStyle) -> JsonObject:
        """The message, without what is empty."""
        parts, said = self.parts, self.reasoning
        message: JsonObject = {"role": "assistant"}
        if said and style.reasoning_style == "think_tags":
            parts = _in_front(reasoning.tagged(said), parts)
        elif thought := reasoning.SEPARATOR.join(said):
            message[style.reasoning_style] = thought
        if len(parts) == 1 and not self.in_parts and parts[0]["type"] == "text":
            (part,) = parts
            message["content"] = part["text"]
            self.keep({name: value for name, value in part.items() if name not in ("type", "text")}, style)
        elif parts:
            message["content"] = parts
        if not message.get("content"):
            message.pop("content", None)
            if not self.calls:  # a turn without any text was a turn, and a message without calls must have a content
                message["content"] = ""
        if self.calls:
            message["tool_calls"] = self.calls
        for name, value in self.extra.items():
            if name in message:
                raise NoChatForm(name, f"an assistant message says {name} twice: as a field of its own and by an item")
            message[name] = value
        return message


def _in_front(text: str, parts: Sequence[JsonObject]) -> list[JsonObject]:
    if parts and parts[0]["type"] == "text":
        return [{**parts[0], "text": text + parts[0]["text"]}, *parts[1:]]
    return [{"type": "text", "text": text}, *parts]


class _Fold:
    """Takes items one by one and holds the messages so far."""

    def __init__(self, style: ChatStyle) -> None:
        self.messages: list[JsonObject] = []
        self._style = style
        self._turn: _Turn | None = None

    def end_turn(self) -> None:
        """Closes the assistant message in the making, if there is one."""
        if self._turn is not None:
            self.messages.append(self._turn.message(self._style))
            self._turn = None

    def _open(self, limit: int) -> _Turn:
        """The turn in the making, or a new one if it has something at or after `limit`."""
        if self._turn is not None and self._turn.reached >= limit and not self._turn.calls:
            self.end_turn()
        if self._turn is None:
            self._turn = _Turn()
        return self._turn

    def _put(self, message: JsonObject) -> None:
        self.end_turn()
        self.messages.append(message)

    def add(self, item: r.Item) -> None:
        """Takes the next item."""
        match item:
            case r.InputMessage(role="assistant") | r.OutputMessage():
                self._assistant(item)
            case r.InputMessage():
                self._put(self._input(item))
            case r.FunctionCall():
                function = {"name": item.name, "arguments": item.arguments}
                self._call(item, {"function": function})
            case r.CustomToolCall():
                self._call(item, {"custom": {"name": item.name, "input": item.input}})
            case r.FunctionCallOutput() | r.CustomToolCallOutput():
                self._put(_output(item))
            case r.ReasoningItem():
                self._reasoning(item)
            case _:
                kind = item.type or "item_reference"
                leave_out(
                    kind, "of items, messages, reasoning and calls of functions and custom tools have one", self._style
                )

    def _input(self, item: r.InputMessage) -> JsonObject:
        role = self._style.developer_role if item.role == "developer" else item.role
        content = item.content if isinstance(item.content, str) else parts_to_chat(item.content) or ""
        return {"role": role, "content": content, **given(item, "phase")}

    def _reasoning(self, item: r.ReasoningItem) -> None:
        texts = reasoning.texts_of(item, self._style)
        turn = self._open(_REASONING if texts else _TEXT)
        turn.reasoning += texts
        if texts:
            turn.reached = max(turn.reached, _REASONING)
        turn.keep(item.model_extra, self._style)

    def _assistant(self, item: r.InputMessage | r.OutputMessage) -> None:
        turn = self._open(_TEXT)
        turn.reached = max(turn.reached, _TEXT)
        if isinstance(item.content, str):
            turn.parts.append({"type": "text", "text": item.content})
        else:
            turn.parts += parts_to_chat(item.content)
            turn.in_parts = turn.in_parts or isinstance(item, r.InputMessage)
        extra = given(item, "phase")
        if inline := extra.pop("tool_calls", None):  # an assistant message as Chat Completions has it
            turn.calls += inline
            turn.reached = _CALL
        turn.keep(extra, self._style)

    def _call(self, item: r.FunctionCall | r.CustomToolCall, what: dict[str, Any]) -> None:
        turn = self._open(_CALL + 1)
        turn.reached = _CALL
        turn.calls.append({"id": item.call_id, "type": next(iter(what)), **what, **given(item, *_CALL_FIELDS)})


def _output(item: r.FunctionCallOutput | r.CustomToolCallOutput) -> JsonObject:
    if item.call_id is None:
        raise NoChatForm(
            item.type, f"a {item.type} has no call_id: a tool message has to name the call that it answers"
        )
    content = item.output if isinstance(item.output, str) else parts_to_chat(item.output) or ""
    fields = _OUTPUT_FIELDS if isinstance(item, r.FunctionCallOutput) else _OUTPUT_FIELDS[2:]
    return {"role": "tool", "tool_call_id": item.call_id, "content": content, **given(item, *fields)}
