"""A model behind any Chat Completions endpoint: vLLM, SGLang, llama.cpp, or a hosted one."""

import msgspec

from components.models.base import Model, ModelCall
from components.models.engine import Engine, EngineConfig
from components.models.errors import ModelError
from components.models.sampling import sampled
from contracts.chat import ChatCompletion
from contracts.convert import ChatStyle, request_to_chat, response_from_chat
from contracts.errors import NoChatForm
from contracts.responses import Response, ResponseCreateParams

_NOT_SENT = ("stream", "stream_options")
"""A call has one reply."""


class ChatModelConfig(EngineConfig):
    """The config of a model behind a Chat Completions endpoint."""

    style: ChatStyle = ChatStyle()
    """What the engine wants said its own way."""


class ChatModel(Model[ChatModelConfig]):
    """Says the request in Chat Completions, and the reply in Responses."""

    def __init__(self, config: ChatModelConfig) -> None:
        super().__init__(config)
        self._engine = Engine(config)

    async def start(self) -> None:
        """Connects."""
        await self._engine.start()

    async def stop(self) -> None:
        """Disconnects."""
        await self._engine.stop()

    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        """One call of `{base_url}/chat/completions`. What has no form there is refused by name."""
        config = self.config
        try:
            params = request_to_chat(sampled(request, config.defaults, config.overrides), config.style)
        except NoChatForm as error:
            raise ModelError("bad_request", str(error), details={"name": error.name}) from error
        body = params.to_dict()
        for name in _NOT_SENT:
            body.pop(name, None)
        if config.model is not None:
            body["model"] = config.model
        body.update(config.extra_body)

        def read(answer: bytes) -> Response:
            completion = ChatCompletion.model_validate_json(answer)
            name = "" if completion.id else f"{call.rollout_id}-{call.call_key}"
            return response_from_chat(completion, config.style, name=name)

        return await self._engine.post("/chat/completions", msgspec.json.encode(body), read, call)
