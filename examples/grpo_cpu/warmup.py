"""How does the policy come to speak at all? By imitating a clumsy agent, before any reinforcement.

A policy of random weights never makes a call that the environment understands: no rollout would differ from another in
its reward, and there would be nothing to learn from. The warm-up teaches the format, and that names can be copied; it
leaves it to the rewards to say which. Called once by `learn.py`.
"""

import random
from collections.abc import Iterator
from itertools import islice
from typing import Final

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from contracts import chat
from examples.grpo_cpu.demonstrations import Conversation, Example, conversations, offered
from examples.grpo_cpu.model import Policy, Shape
from examples.grpo_cpu.tokens import Tokenizer

WORDS: Final = 2_000
"""Conversations that the tokenizer is made from."""
STEPS: Final = 300
BATCH: Final = 8
RATE: Final = 3e-3
"""Learning rate, reached after `RISE` steps; from there on it falls to 0."""
RISE: Final = 20
BATCHES_AT_ONCE: Final = 8


def make_tokenizer(seed: int) -> Tokenizer:
    """A tokenizer for what is said in such conversations."""
    return Tokenizer.train(text for said in islice(conversations(seed), WORDS) for text in _texts(said))


def _texts(conversation: Conversation) -> list[str]:
    texts: list[str] = []
    for message in conversation:
        if isinstance(message.content, str):
            texts.append(message.content)
        if isinstance(message, chat.AssistantMessage):
            calls = message.tool_calls or ()
            texts += [
                f"{c.function.name} {c.function.arguments}" for c in calls if isinstance(c, chat.FunctionToolCall)
            ]
    return texts


def warm_up(tokenizer: Tokenizer, seed: int, *, steps: int = STEPS) -> Policy:
    """A policy that talks like the clumsy agent."""
    torch.manual_seed(seed)
    policy = Policy(Shape(vocabulary=tokenizer.size))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=RATE, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / RISE, 1 - step / steps))
    batches = _batches(tokenizer, seed)
    for tokens, mask in islice(batches, steps):
        loss = -(policy.logprobs(tokens) * mask[:, 1:]).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return policy


def _batches(tokenizer: Tokenizer, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens and what of them the agent said, without end; conversations of like length are together."""
    said, tools, random_ = conversations(seed), offered(), random.Random(seed)  # noqa: S311 - no secret
    while True:
        examples = [Example(tokenizer, conversation, tools) for conversation in islice(said, BATCH * BATCHES_AT_ONCE)]
        examples.sort(key=lambda example: len(example.tokens))
        starts = list(range(0, len(examples), BATCH))
        random_.shuffle(starts)
        for start in starts:
            some = examples[start : start + BATCH]
            yield (
                pad_sequence([torch.tensor(example.tokens) for example in some], batch_first=True),
                pad_sequence([torch.tensor(example.mask) for example in some], batch_first=True),
            )
