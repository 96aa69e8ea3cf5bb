"""What does a clumsy agent do with a task? Conversations for the warm-up to imitate.

The agent writes well-formed calls and answers, and chooses what is in them half by chance: it opens the right box, or
any; it says the code, or any colour; now and then it gives up early. It acts in the environment itself. Pure but for
that.
"""

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Final

from components.resources.trial import Trial
from contracts import chat
from contracts.base import JsonObject
from contracts.convert import request_to_chat
from contracts.responses import ResponseCreateParams
from examples.grpo_cpu.components.resources.boxes.app import Boxes
from examples.grpo_cpu.tasks import COLOURS, tasks
from examples.grpo_cpu.tokens import Tokenizer

RIGHT: Final = 0.5
"""Share of the agent's choices that are not left to chance."""
EARLY: Final = 0.1
"""Share of its turns before it knows the code in which it answers all the same."""
TURNS: Final = 6

Conversation = list[chat.Message]


class Example:
    """A conversation in tokens."""

    def __init__(self, tokenizer: Tokenizer, conversation: Conversation, tools: list[chat.Tool]) -> None:
        first = next(index for index, said in enumerate(conversation) if isinstance(said, chat.AssistantMessage))
        self.tokens = tokenizer.prompt(conversation[:first], tools)
        self.mask = [False] * len(self.tokens)
        """Which tokens the agent said."""
        for index in range(first, len(conversation)):
            said = conversation[index]
            if isinstance(said, chat.AssistantMessage):
                self._add(tokenizer.reply(said), said=True)
            else:
                self._add(tokenizer.continued([tokenizer.end], conversation[index - 1 : index + 1])[1:], said=False)

    def _add(self, tokens: list[int], *, said: bool) -> None:
        self.tokens += tokens
        self.mask += [said] * len(tokens)


def offered() -> list[chat.Tool]:
    """The environment's tools, as a model hears of them."""
    request = {"input": "", "tools": [*Boxes.describe().tools]}
    return request_to_chat(ResponseCreateParams.model_validate(request)).tools or []


def conversations(seed: int) -> Iterator[Conversation]:
    """Conversations without end. Their tasks are none of those of the training with the same seed."""
    random_ = random.Random(f"clumsy-{seed}")  # noqa: S311 - no secret
    with asyncio.Runner() as runner:
        for task in tasks(f"clumsy-{seed}"):
            yield runner.run(_act(task, random_))


async def _act(task: JsonObject, random_: random.Random) -> Conversation:
    room, path, code = Trial(Boxes(), task), task["path"], task["code"]
    said: Conversation = [chat.UserMessage(role="user", content=task["responses_create_params"]["input"][0]["content"])]
    right, found = path[0], False
    for turn in range(TURNS):
        if found or random_.random() < EARLY:
            named = code if found and random_.random() < RIGHT else random_.choice(COLOURS)
            said.append(chat.AssistantMessage(role="assistant", content=f'It is "{named}".'))
            break
        box = right if random_.random() < RIGHT else random_.choice(COLOURS)
        arguments = json.dumps({"box": box})
        called = chat.CalledFunction(name="open", arguments=arguments)
        call = chat.FunctionToolCall(id=f"call_{turn}", type="function", function=called)
        said.append(chat.AssistantMessage(role="assistant", tool_calls=[call]))
        answer = await room.call("open", arguments)
        said.append(chat.ToolMessage(role="tool", content=answer, tool_call_id=call.id or ""))
        found = answer.startswith("The code")
        if box in path[:-1]:
            right = path[path.index(box) + 1]
    return said
