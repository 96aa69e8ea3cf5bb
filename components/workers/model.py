"""Serves model calls: a Responses request in, a Responses reply out.

Decodes the request for the component, with what it cites, and encodes its reply; the deadline is the config's. What
the engine says of tokens goes beside the reply (`captures`).
"""

import asyncio

import msgspec
import structlog
from pydantic import ValidationError

from bus import Bus, Delivery
from components.models.base import Model, ModelCall, ModelConfig
from components.models.errors import ModelError
from components.workers.callee import Callee, CallRefused, Reply
from components.workers.captures import Captures
from components.workers.contexts import Contexts
from components.workers.policies import Policies
from components.workers.spec import WorkerSpec
from contracts.contexts import SHORT, Context, asked, read_request
from contracts.events import CallError, Event
from contracts.responses import ResponseCreateParams


class ModelWorker:
    """One worker of a model's pool."""

    def __init__(self, bus: Bus, model: Model[ModelConfig], spec: WorkerSpec) -> None:
        self._model, self._spec = model, spec
        self._contexts = Contexts(bus)
        self._policies = Policies(bus, spec.instance)
        self._captures = Captures(bus, spec.instance, self._policies)
        self._log = structlog.get_logger()
        self._callee = Callee(bus, self._answer, concurrency=model.config.pool.concurrency)

    @property
    def in_progress(self) -> int:
        """Calls taken and not yet acknowledged."""
        return self._callee.in_progress

    async def start(self) -> None:
        """Starts the component and joins its pool."""
        try:
            await self._model.start()
            await self._policies.start()
            await self._callee.join(self._spec, ("model.requested",))
        except BaseException:
            await self._model.stop()
            raise

    async def serve(self) -> None:
        """Answers calls until `drain`."""
        following = asyncio.create_task(self._policies.follow())
        try:
            await self._callee.serve()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def drain(self, seconds: float) -> None:
        """Finishes the calls in progress within `seconds`, gives the others back, and stops the component."""
        await self._callee.drain(seconds)
        await self._model.stop()

    async def _answer(self, delivery: Delivery, data: bytes) -> Reply:
        request, deadline_s = delivery.event, self._model.config.deadline_s
        try:
            context, whole = await self._whole(request, data)
            params = ResponseCreateParams.model_validate_json(whole)
        except (ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CallRefused(CallError(kind="bad_request", message=f"not a Responses request: {error}")) from error
        capturing = self._captures.begin(request, whole)
        call = ModelCall(
            rollout_id=request.rolloutid,
            call_key=request.callkey,
            wait=self._callee.wait,
            capture=capturing.take,
            prefix=capturing.prefix,
        )
        try:
            async with asyncio.timeout(deadline_s) as deadline:
                response = await self._model.responses(params, call)
        except ModelError as error:
            if error.kind == "deadline":
                self._struck()
            raise CallRefused(error.call_error()) from error
        except TimeoutError as error:
            if not deadline.expired():
                raise  # the component's own
            self._struck()
            message = f"model {self._spec.instance} did not answer within its deadline_s of {deadline_s:g} seconds"
            raise CallRefused(CallError(kind="deadline", message=message)) from error
        reply = response.to_json()
        capture, captured = await capturing.finished(reply, response.usage)

        def stored() -> None:
            if context is not None:
                size = len(data) + len(reply)
                self._contexts.keep(request.rolloutid, request.callkey, context.and_reply(reply), size)
            if captured is not None:
                captured()

        return Reply(reply, capture, stored, capturing.versions, capturing.generated)

    def _struck(self) -> None:
        seconds = self._model.config.deadline_s
        self._log.warning("deadline.struck", key="deadline_s", seconds=seconds, error="deadline")

    async def _whole(self, request: Event, data: bytes) -> tuple[Context | None, bytes]:
        """The Responses request, and what to remember of it: nothing where the next one will hardly cite it."""
        asks = read_request(data)
        if asks.cited is None:
            return (asked(asks, None) if len(data) > SHORT // 2 else None), bytes(asks.request)
        context = asked(asks, await self._contexts.of(request.rolloutid, asks.cited))
        if context is None:
            raise msgspec.ValidationError("it cites a call, and its input is no list of items")
        return context, context.whole()
