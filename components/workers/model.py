"""Serves model calls: a Responses request in, a Responses reply out.

Decodes the request for the component and encodes its reply; the deadline is the config's. It never looks into items.
"""

import asyncio

from pydantic import ValidationError

from bus import Bus, Delivery
from components.models.base import Model, ModelCall, ModelConfig
from components.models.errors import ModelError
from components.workers.callee import Callee, CallRefused
from components.workers.spec import WorkerSpec
from contracts.events import CallError
from contracts.responses import ResponseCreateParams


class ModelWorker:
    """One worker of a model's pool."""

    def __init__(self, bus: Bus, model: Model[ModelConfig], spec: WorkerSpec) -> None:
        self._model, self._spec = model, spec
        self._callee = Callee(bus, self._answer, concurrency=model.config.pool.concurrency)

    @property
    def in_progress(self) -> int:
        """Calls taken and not yet acknowledged."""
        return self._callee.in_progress

    async def start(self) -> None:
        """Starts the component and joins its pool."""
        try:
            await self._model.start()
            await self._callee.join(self._spec, ("model.requested",))
        except BaseException:
            await self._model.stop()
            raise

    async def serve(self) -> None:
        """Answers calls until `drain`."""
        await self._callee.serve()

    async def drain(self, seconds: float) -> None:
        """Finishes the calls in progress within `seconds`, gives the others back, and stops the component."""
        await self._callee.drain(seconds)
        await self._model.stop()

    async def _answer(self, delivery: Delivery, data: bytes) -> bytes:
        try:
            params = ResponseCreateParams.model_validate_json(data)
        except ValidationError as error:
            raise CallRefused(CallError(kind="bad_request", message=f"not a Responses request: {error}")) from error
        request, deadline_s = delivery.event, self._model.config.deadline_s
        call = ModelCall(rollout_id=request.rolloutid, call_key=request.callkey, wait=self._callee.wait)
        try:
            async with asyncio.timeout(deadline_s) as deadline:
                response = await self._model.responses(params, call)
        except ModelError as error:
            raise CallRefused(error.call_error()) from error
        except TimeoutError as error:
            if not deadline.expired():
                raise  # the component's own
            message = f"model {self._spec.instance} did not answer within its deadline_s of {deadline_s:g} seconds"
            raise CallRefused(CallError(kind="deadline", message=message)) from error
        return response.to_json()
