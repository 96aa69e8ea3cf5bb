"""A scripted model that writes down each call that it is asked to answer: what an engine would bill.

For `benchmarks/recovery.py`, which starts its runs in the folder above `components/`.
"""

import os

from components.models.base import Model, ModelCall
from components.models.scripted_model.app import ScriptedModel
from components.models.scripted_model.script import ScriptedModelConfig
from contracts.responses import Response, ResponseCreateParams


class CountedModelConfig(ScriptedModelConfig):
    """A script, and where its calls are written down."""

    record: str
    """A file that gets a line `<rollout ID> <call key>` for each call, before it is answered."""


class CountedModel(Model[CountedModelConfig]):
    """Says what its script says."""

    def __init__(self, config: CountedModelConfig) -> None:
        super().__init__(config)
        self._script = ScriptedModel(config)
        self._record = os.open(config.record, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        """Writes the call down and answers it."""
        os.write(self._record, f"{call.rollout_id} {call.call_key}\n".encode())
        return await self._script.responses(request, call)
