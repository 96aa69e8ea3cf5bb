"""How do messages become tokens, and generated tokens a message? The tokenizer and the chat template.

The tokenizer is a byte-level BPE, trained on the words of the example's own tasks. The tokens that the template sets
between the texts are no part of it and get the IDs behind its own, so that no text of a message, whatever it says, can
become one of them. Used by the server and the warm-up. It knows nothing of weights.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

from tokenizers import Tokenizer as Bpe
from tokenizers import decoders, models, pre_tokenizers, trainers

from contracts import chat

MARKS: Final = ("end", "system", "user", "assistant", "tool", "tools", "call")
"""What the template sets between texts; their IDs are the vocabulary's last ones, in this order."""
VOCABULARY: Final = 512


class Tokenizer:
    """A vocabulary with a template."""

    def __init__(self, bpe: Bpe) -> None:
        self._bpe = bpe
        texts = bpe.get_vocab_size()
        self._marks = {name: texts + index for index, name in enumerate(MARKS)}
        self.size = texts + len(MARKS)
        """Tokens that there are."""
        self.end = self._marks["end"]
        """Ends every message; a model that generates it has finished."""
        self.digest = sha256(bpe.to_str().encode()).hexdigest()

    @classmethod
    def train(cls, texts: Iterable[str]) -> Self:
        """A tokenizer for texts like these; the same texts give the same one."""
        bpe = Bpe(models.BPE())
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        bpe.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY - len(MARKS), initial_alphabet=alphabet, show_progress=False
        )
        bpe.train_from_iterator(texts, trainer)
        return cls(bpe)

    @classmethod
    def load(cls, path: Path) -> Self:
        """The tokenizer that `save` wrote."""
        return cls(Bpe.from_file(str(path)))

    def save(self, path: Path) -> None:
        """Writes it in the format of the `tokenizers` package."""
        self._bpe.save(str(path))

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; never one of the template's."""
        ids: list[int] = self._bpe.encode(text).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens; the template's own are left out."""
        text: str = self._bpe.decode([token for token in ids if token < self.end])
        return text

    def prompt(self, messages: Sequence[chat.Message], tools: Sequence[chat.Tool] | None = None) -> list[int]:
        """What the model is to continue: the tools, the messages, and the beginning of its own next one."""
        return [*self._tools(tools or ()), *self._messages(messages), self._marks["assistant"]]

    def continued(self, prefix: Sequence[int], messages: Sequence[chat.Message]) -> list[int]:
        """The prompt that begins with exactly `prefix`: the prompt and the tokens of the latest reply in `messages`.

        What follows the reply is tokenized alone. So the prompt holds what the model generated, even where its text
        would be tokenized in another way. Raises `ValueError` where there is no such reply.
        """
        replies = [index for index, message in enumerate(messages) if isinstance(message, chat.AssistantMessage)]
        if not replies:
            raise ValueError("a prefix was given, and no message of the assistant that it ends with")
        ended = [] if prefix[-1] == self.end else [self.end]  # a reply that was cut off has no end of its own
        return [*prefix, *ended, *self._messages(messages[replies[-1] + 1 :]), self._marks["assistant"]]

    def reply(self, message: chat.AssistantMessage) -> list[int]:
        """The tokens with which a model would say this message, its end included."""
        ids = self.encode(_text(message.content or ""))
        for call in message.tool_calls or ():
            if isinstance(call, chat.FunctionToolCall):
                said = f"{call.function.name or ''} {call.function.arguments or ''}"
                ids += [self._marks["call"], *self.encode(said)]
        return [*ids, self.end]

    def read(self, ids: Sequence[int], name: str) -> chat.AssistantMessage:
        """What the generated tokens say. The call's ID is made from `name`; broken arguments pass as they are."""
        call = self._marks["call"]
        starts = [index for index, token in enumerate(ids) if token == call]
        bounds = [*starts, len(ids)]
        calls: list[chat.ToolCall] = []
        for number, (start, stop) in enumerate(pairwise(bounds)):
            function, _, arguments = self.decode(ids[start + 1 : stop]).partition(" ")
            called = chat.CalledFunction(name=function, arguments=arguments)
            calls.append(chat.FunctionToolCall(id=f"call_{name}_{number}", type="function", function=called))
        said = self.decode(ids[: bounds[0]])
        return chat.AssistantMessage(role="assistant", content=said or None, tool_calls=calls or None)

    def _tools(self, tools: Sequence[chat.Tool]) -> list[int]:
        said = [_signature(tool.function) for tool in tools if isinstance(tool, chat.FunctionTool)]
        return [self._marks["tools"], *self.encode(" ".join(said)), self.end] if said else []

    def _messages(self, messages: Sequence[chat.Message]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            if isinstance(message, chat.AssistantMessage):
                ids += [self._marks["assistant"], *self.reply(message)]
            elif message.role in self._marks:
                ids += [self._marks[message.role], *self.encode(_text(message.content or "")), self.end]
            else:
                raise ValueError(f"the template has no role {message.role!r}")
        return ids


def _text(content: chat.Content) -> str:
    if isinstance(content, str):
        return content
    if unread := [part.type for part in content if not isinstance(part, chat.TextPart)]:
        raise ValueError(f"this model reads text alone, and no {unread[0]}")
    return "".join(part.text for part in content if isinstance(part, chat.TextPart))


def _signature(function: chat.FunctionDefinition) -> str:
    """`name(parameter, …)`."""
    parameters = (function.parameters or {}).get("properties") or {}
    return f"{function.name}({', '.join(parameters)})"
