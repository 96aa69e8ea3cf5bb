"""A real tokenizer and chat template for test engines: a byte-level BPE trained on this repository's text, ChatML."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

START, END = "<|im_start|>", "<|im_end|>"
_TEXTS = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))


@cache
def tokenizer() -> Tokenizer:
    """Knows every byte, the commonest pairs of the documents, and the two special tokens of ChatML."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=[START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    found.train_from_iterator((path.read_text(encoding="utf-8") for path in _TEXTS), trainer)
    return found


def encode(text: str) -> list[int]:
    """As an engine reads a prompt: special tokens too."""
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


def spelled_out(text: str) -> list[int]:
    """Tokens of `text` that a tokenizer would not choose: a model may write a word letter by letter."""
    return [token for character in text for token in encode(character)]


def decode(ids: list[int]) -> str:
    """The text of tokens, without the special ones."""
    return str(tokenizer().decode(ids, skip_special_tokens=True))


END_ID = encode(END)[0]


def render(messages: list[dict[str, Any]], tools: list[Any] | None, *, reply: bool = True) -> str:
    """ChatML as many models have it; `reply`: up to where the model goes on."""
    text = f"{START}system\nTools: {json.dumps(tools)}{END}\n" if tools else ""
    for message in messages:
        said = message.get("content") or ""
        said = said if isinstance(said, str) else "".join(part.get("text", "") for part in said)
        for call in message.get("tool_calls") or ():
            said += written_call(call["function"]["name"], call["function"]["arguments"])
        text += f"{START}{message['role']}\n{said}{END}\n"
    return text + (f"{START}assistant\n" if reply else "")


def written_call(name: str, arguments: str) -> str:
    """A function call as the model writes it."""
    return f"<call>{name} {arguments}</call>"
