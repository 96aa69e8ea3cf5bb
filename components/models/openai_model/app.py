"""A model behind any Responses endpoint: OpenAI's own, vLLM's, llama.cpp's, or a gateway's."""

import msgspec

from components.models.base import Model, ModelCall
from components.models.engine import Engine, EngineConfig
from components.models.errors import ModelError
from components.models.sampling import sampled
from contracts.events import ErrorKind
from contracts.responses import Response, ResponseCreateParams

_NOT_SENT = ("stream", "stream_options")
"""A call has one reply."""


class OpenAIModel(Model[EngineConfig]):
    """Sends the request as it is, and returns the reply as it is."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._engine = Engine(config)

    async def start(self) -> None:
        """Connects."""
        await self._engine.start()

    async def stop(self) -> None:
        """Disconnects."""
        await self._engine.stop()

    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        """One call of `{base_url}/responses`."""
        if request.background:
            raise ModelError("bad_request", "background responses have no reply to wait for: leave `background` out")
        config = self.config
        body = sampled(request, config.defaults, config.overrides).to_dict()
        for name in _NOT_SENT:
            body.pop(name, None)
        if config.model is not None:
            body["model"] = config.model
        body.update(config.extra_body)
        response = await self._engine.post("/responses", msgspec.json.encode(body), Response.model_validate_json, call)
        _refuse_unfinished(response)
        return response


def _refuse_unfinished(response: Response) -> None:
    """Raises `ModelError` for a response that is not the model's answer; an engine that says no status has finished."""
    match response.status:
        case None | "completed" | "incomplete":
            return
        case "queued" | "in_progress":
            kind: ErrorKind = "bad_request"
            why = "a background response has no reply to wait for. Next: leave `background` out of extra_body"
        case "failed" | "cancelled":
            kind = "unavailable"
            error = response.error
            why = f"{error.code}: {error.message}" if error else "it does not say why"
        case _:
            kind = "unavailable"
            why = "no reply has that status. Next: check that base_url leads to a Responses endpoint"
    raise ModelError(kind, f"the engine's response {response.id} has status `{response.status}`: {why}")
