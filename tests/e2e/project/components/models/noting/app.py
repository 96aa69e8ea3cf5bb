"""A scripted model that notes every call that it gets, so that tests can count them where they are paid for."""

import asyncio
import os
from pathlib import Path

from components.models.base import ModelCall
from components.models.scripted_model.app import ScriptedModel
from components.models.scripted_model.script import ScriptedModelConfig
from contracts.responses import Response, ResponseCreateParams


class NotingConfig(ScriptedModelConfig):
    """Where it notes, and what goes wrong."""

    notes: str
    raises: str = ""
    """Name of an exception that each call raises."""
    starts_in_s: float = 0.0
    """How long it loads its weights."""
    stops_in_s: float = 0.0
    """How long it takes to give back what it took."""
    dies_of: str = ""
    """The rollout whose calls end the process."""
    hangs_for: str = ""
    """The rollout whose calls are never answered."""
    engine: bool = False
    """Whether it starts a process of its own, which ends when its standard input does."""


class NotingModel(ScriptedModel):
    """Says what its script says, after it has noted that it was asked."""

    config: NotingConfig

    async def start(self) -> None:
        """Takes its time."""
        if self.config.engine:
            self._engine = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
        if self.config.starts_in_s:
            self._note("starting")
            await asyncio.sleep(self.config.starts_in_s)

    async def stop(self) -> None:
        """Says that it gives back what it took."""
        await asyncio.sleep(self.config.stops_in_s)
        if self.config.engine and self._engine.stdin is not None:
            self._engine.stdin.close()
            await self._engine.wait()
        if self.config.starts_in_s:
            self._note("stopped")

    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        """The scripted reply."""
        self._note(f"{call.rollout_id}/{call.call_key}")
        if call.rollout_id == self.config.dies_of:
            os._exit(7)
        if call.rollout_id == self.config.hangs_for:
            await asyncio.Event().wait()
        if self.config.raises:
            raise {"TimeoutError": TimeoutError, "SystemExit": SystemExit, "KeyError": KeyError}[self.config.raises]
        return await super().responses(request, call)

    def _note(self, line: str) -> None:
        with Path(self.config.notes).open("a") as file:
            file.write(line + "\n")

    @classmethod
    def config_class(cls) -> type[NotingConfig]:
        """Its own."""
        return NotingConfig
