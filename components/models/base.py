"""What an author of a model writes against: `Model`, which turns a Responses request into a Responses reply.

A model only infers: it runs no tool and keeps nothing of a rollout. One object serves all calls of a worker,
concurrently, on the worker's event loop. Called by `components.workers.model`; it never sees an event.
"""

import asyncio
from dataclasses import dataclass
from typing import Generic, get_args

from pydantic import Field
from typing_extensions import TypeVar

from components.config import ComponentConfig
from contracts.responses import Response, ResponseCreateParams

__all__ = ["Model", "ModelCall", "ModelConfig"]


class ModelConfig(ComponentConfig):
    """The config that every model takes."""

    deadline_s: float = Field(default=600.0, gt=0)
    """Seconds for one call, retries included; after it the call fails with `deadline`."""


C_co = TypeVar("C_co", bound=ModelConfig, default=ModelConfig, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """Which call a request belongs to."""

    rollout_id: str
    """Calls of one rollout go to the same engine while it lives, for its prefix cache."""
    call_key: str
    place: asyncio.Semaphore | None = None
    """The semaphore of which this call holds a place."""

    async def wait(self, seconds: float) -> None:
        """Waits to try again, without the place; it is taken back also when cancelled, since its owner releases it."""
        if self.place is None:
            await asyncio.sleep(seconds)
            return
        self.place.release()
        try:
            await asyncio.sleep(seconds)
        finally:
            await self.place.acquire()


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
