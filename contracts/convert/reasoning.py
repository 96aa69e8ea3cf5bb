"""Reasoning: as items, as a field of a message, or between `<think>` tags. Used by the rest of `contracts.convert`.

Tags are read and written exactly: what is between them is one part of one reasoning item, nothing is stripped, and a
tag that is not opened, not closed or not at the very start of the text stays in the text.
"""

import re
from collections.abc import Iterable, Sequence

from contracts import chat
from contracts import responses as r
from contracts.base import JsonObject
from contracts.convert.style import ChatStyle, leave_out
from contracts.errors import NoChatForm

_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)

SEPARATOR = "\n\n"
"""Stands between the parts of reasoning where only one string can hold them."""


def texts_of(item: r.ReasoningItem, style: ChatStyle) -> list[str]:
    """What the model thought: the item's content, or where it has none its summary.

    Raises `NoChatForm` on encrypted content.
    """
    if style.reasoning_style == "omit":
        return []
    if item.encrypted_content:
        leave_out("encrypted_content", "only the vendor that encrypted this reasoning can read it", style)
    return [_text(part) for part in item.content or item.summary]


def _text(part: r.SummaryText | r.ReasoningText | r.UnknownPart) -> str:
    if isinstance(part, r.ReasoningText | r.SummaryText):
        return part.text
    raise NoChatForm(
        part.type, f"a reasoning item has a part of type {part.type}: Chat Completions has reasoning as text"
    )


def tagged(texts: Iterable[str]) -> str:
    """`texts` between tags, to stand in front of a message's text."""
    return "".join(f"<think>{text}</think>" for text in texts)


def split_tags(text: str) -> tuple[list[str], str]:
    """The reasoning at the start of `text`, and the rest."""
    texts, end = [], 0
    while found := _THINK.match(text, end):
        texts.append(found[1])
        end = found.end()
    return texts, text[end:]


def fields_of(message: chat.AssistantMessage) -> list[str]:
    """The reasoning in the fields of `message`; one text where both fields say the same."""
    texts = [text for text in (message.reasoning_content, message.reasoning) if text]
    return texts[:1] if len(set(texts)) == 1 else texts


def reasoning_item(texts: Sequence[str]) -> JsonObject:
    """An item that holds `texts` as its content."""
    content = [{"type": "reasoning_text", "text": text} for text in texts]
    return {"type": "reasoning", "summary": [], "content": content}
