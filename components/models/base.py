"""What an author of a model writes against: `Model`, which turns a Responses request into a Responses reply.

A model only infers: it runs no tool and keeps nothing of a rollout. One object serves all calls of a worker,
concurrently, on the worker's event loop. Called by `components.workers.model`; it never sees an event.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, get_args

from pydantic import Field
from typing_extensions import TypeVar

from components.config import ComponentConfig
from components.models.tokens import EngineTokens, Prefix
from contracts.responses import Response, ResponseCreateParams

__all__ = ["Model", "ModelCall", "ModelConfig"]


class ModelConfig(ComponentConfig):
    """The config that every model takes."""

    deadline_s: float = Field(default=600.0, gt=0)
    """Seconds for one call, retries included; after it the call fails with `deadline`."""


C_co = TypeVar("C_co", bound=ModelConfig, default=ModelConfig, covariant=True)


def _leave(_tokens: EngineTokens) -> None:
    """Nobody wants the tokens of this call."""


async def _nothing_before() -> Prefix | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """Which call a request belongs to, and what its worker does for it."""

    rollout_id: str
    """Calls of one rollout go to the same engine while it lives, for its prefix cache."""
    call_key: str
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits so many seconds to try again. In a worker, without the call's place among those in progress, and a worker
    that stops gives the call back instead."""
    capture: Callable[[EngineTokens], None] = _leave
    """Takes what the engine said of the call's tokens; they go into the log beside the reply, never in it."""
    prefix: Callable[[], Awaitable[Prefix | None]] = _nothing_before
    """The tokens with which the prompt has to begin: those of the longest earlier call of the rollout whose request and
    reply this request's input begins with, under the same instructions and tools. None if there is no such call."""


class Model(Generic[C_co]):
    """An engine behind a name. Subclass it and write `responses`."""

    def __init__(self, config: C_co) -> None:
        self.config = config

    async def start(self) -> None:
        """Makes the model ready: connects, loads weights. Raises `ModelError` if it cannot."""

    async def stop(self) -> None:
        """Gives back what `start` took. Called once, also after a `start` that failed."""

    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        """One model call. Raises `ModelError`; it is cancelled when its deadline passes."""
        raise NotImplementedError(f"{type(self).__name__} defines no `responses`")

    @classmethod
    def config_class(cls) -> type[ModelConfig]:
        """The config type, taken from `Model[...]`."""
        for base in cls.__mro__:
            for origin in getattr(base, "__orig_bases__", ()):
                for argument in get_args(origin):
                    if isinstance(argument, type) and issubclass(argument, ModelConfig):
                        return argument
        return ModelConfig
