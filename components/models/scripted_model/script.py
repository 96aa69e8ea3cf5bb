"""What a scripted model's config can say: turns, rules, latency, token counts and faults."""

import json
from functools import cached_property
from math import log, sqrt
from random import Random
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from components.models.base import ModelConfig
from contracts.events import ErrorKind


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedCall(_Part):
    """One function call."""

    name: str
    arguments: dict[str, object] | str = {}
    """A mapping, or text as the model writes it, which may be broken."""

    @cached_property
    def json_arguments(self) -> str:
        """The arguments as the model writes them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class Turn(_Part):
    """What the model says in one turn. An empty turn is a reply without any item."""

    reasoning: str | None = None
    text: str | None = None
    refusal: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    incomplete: str | None = None
    """The reason for which the reply is cut: `max_output_tokens`, `content_filter`."""
    error: ErrorKind | None = None
    """The call fails with this kind of error instead."""

    @cached_property
    def length(self) -> int:
        """Characters that the model writes in it."""
        said = (self.reasoning, self.text, self.refusal, *(call.json_arguments for call in self.calls))
        return sum(len(text) for text in said if text is not None)


class Rule(_Part):
    """Turns for tasks whose text fits."""

    when: str
    """A regular expression searched in the first user message. Its groups fill `{1}`, `{2}`, … in the turns."""
    turns: Annotated[tuple[Turn, ...], Field(min_length=1)]


class Latency(_Part):
    """How long a reply takes."""

    distribution: Literal["constant", "uniform", "exponential", "lognormal"] = "constant"
    mean_s: float = Field(default=0.0, ge=0)
    """The mean of the distribution, in seconds. `uniform` goes from 0 to twice the mean."""
    spread: float = Field(default=1.0, gt=0)
    """`lognormal` only: the standard deviation in units of the mean."""

    @property
    def is_random(self) -> bool:
        """Whether two requests may take different times."""
        return self.distribution != "constant" and self.mean_s > 0

    def draw(self, chance: Random | None) -> float:
        """Seconds for one reply."""
        if chance is None or not self.is_random:
            return self.mean_s
        if self.distribution == "uniform":
            return chance.uniform(0, 2 * self.mean_s)
        if self.distribution == "exponential":
            return chance.expovariate(1 / self.mean_s)
        variance = log(1 + self.spread**2)
        return chance.lognormvariate(log(self.mean_s) - variance / 2, sqrt(variance))


class Fault(_Part):
    """Something that goes wrong in a part of the calls."""

    kind: Literal[
        "transient",  # a refused try: the call waits `retry_after_s` without holding a place, then goes on
        "unavailable",  # the call fails with this error
        "context_length",  # likewise
        "hang",  # the call is never answered: its deadline ends it
        "broken_call",  # the arguments of function calls are broken JSON
        "only_reasoning",  # the turn holds nothing but reasoning
        "cut",  # the reply is incomplete: max_output_tokens
    ]
    rate: float = Field(ge=0, le=1)
    retry_after_s: float = Field(default=0.05, ge=0)


class Tokens(_Part):
    """How many tokens each call has; which ones follows from the task and the turn."""

    prompt: int = Field(ge=1)
    """Of the first prompt. Each later one begins with all tokens of the turn before."""
    generated: int = Field(ge=1)


class ScriptedModelConfig(ModelConfig):
    """The script."""

    turns: tuple[Turn, ...] = (Turn(text="Done."),)
    """The replies of a rollout's turns in order; the last one is repeated."""
    rules: tuple[Rule, ...] = ()
    """Other turns for some tasks; the first rule that fits counts."""
    latency: Latency = Latency()
    input_tokens: int | None = Field(default=None, ge=0)
    """Tokens of each prompt in `usage`; without it a quarter of its characters."""
    output_tokens: int | None = Field(default=None, ge=0)
    """Tokens of each reply in `usage`; without it a quarter of its characters."""
    tokens: Tokens | None = None
    """Has each call carry token IDs and log-probabilities, as an engine's that is trained on; `usage` counts them."""
    faults: tuple[Fault, ...] = ()
    seed: int = Field(default=0, ge=0)
    """Changes every chance and latency."""
    vary: Literal["request", "call"] = "request"
    """What chances follow from: the request, so that equal requests fare alike, or the call, so that repeats differ."""

    @model_validator(mode="after")
    def _some_turn(self) -> Self:
        if not self.turns:
            raise ValueError("turns must hold at least one turn")
        return self
