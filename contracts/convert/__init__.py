"""Responses ↔ Chat Completions, both ways, for requests and replies. Pure: no I/O, no clock, no randomness.

What the other API can say is said; what it cannot is refused by name (`NoChatForm`, `NoResponsesForm`), never lost
without a word. `ChatStyle` holds what differs between engines.
"""

from contracts.convert.from_chat import request_from_chat
from contracts.convert.reply_from_chat import TOKEN_FIELDS, response_from_chat
from contracts.convert.reply_to_chat import response_to_chat
from contracts.convert.style import ChatStyle
from contracts.convert.to_chat import request_to_chat

__all__ = [
    "TOKEN_FIELDS",
    "ChatStyle",
    "request_from_chat",
    "request_to_chat",
    "response_from_chat",
    "response_to_chat",
]
