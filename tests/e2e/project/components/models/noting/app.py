"""A scripted model that notes every call that it gets, so that tests can count them where they are paid for."""

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


class NotingModel(ScriptedModel):
    """Says what its script says, after it has noted that it was asked."""

    config: NotingConfig

    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        """The scripted reply."""
        with Path(self.config.notes).open("a") as file:  # noqa: ASYNC230 - a line in a test
            file.write(f"{call.rollout_id}/{call.call_key}\n")
        if self.config.raises:
            raise {"TimeoutError": TimeoutError, "SystemExit": SystemExit, "KeyError": KeyError}[self.config.raises]
        return await super().responses(request, call)

    @classmethod
    def config_class(cls) -> type[NotingConfig]:
        """Its own."""
        return NotingConfig
