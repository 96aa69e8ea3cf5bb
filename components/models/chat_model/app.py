"""A model behind any Chat Completions endpoint: vLLM, SGLang, llama.cpp, or a hosted one."""

from dataclasses import replace
from typing import Self

import msgspec
from pydantic import model_validator

from components.models.base import Model, ModelCall
from components.models.chat_model.answers import read_answer
from components.models.chat_model.tokens import take_tokens
from components.models.engine import Engine, EngineConfig
from components.models.errors import ModelError
from components.models.sampling import sampled
from contracts.base import JsonObject
from contracts.chat import ChatCompletion
from contracts.convert import TOKEN_FIELDS, ChatStyle, request_to_chat, response_from_chat
from contracts.errors import NoChatForm
from contracts.responses import Response, ResponseCreateParams

_NOT_SENT = ("stream", "stream_options")
"""A call has one reply."""
_NOT_A_REQUESTERS = TOKEN_FIELDS | {"required_prefix_token_ids", "input_ids", "prompt_embeds"}
"""Fields of a request and of its messages with which one could change tokens."""


class ChatModelConfig(EngineConfig):
    """The config of a model behind a Chat Completions endpoint."""

    style: ChatStyle = ChatStyle()
    """What the engine wants said its own way."""
    stream: bool = False
    """Has the engine stream its answer, so that `http.read_timeout_s` notices one that has fallen silent."""
    token_ids: bool = False
    """Has the engine say the token IDs and log-probabilities of each call, for training."""
    required_prefix: bool = False
    """Sends the tokens of the rollout so far as `required_prefix_token_ids`, which NeMo RL's vLLM server puts in place
    of those that its template gives."""
    tokenizer: str = ""
    """Digest or name of the engine's tokenizer, recorded with the tokens."""
    template: str = ""
    """Digest or name of its chat template, recorded with the tokens."""

    @model_validator(mode="after")
    def _tokens_to_send(self) -> Self:
        if self.required_prefix and not self.token_ids:
            raise ValueError("required_prefix sends recorded tokens, and without token_ids none are recorded")
        return self


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
        if config.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        wants_logprobs = bool((body | config.extra_body).get("logprobs"))
        if config.token_ids:
            await self._ask_for_tokens(body, call, wants_logprobs=wants_logprobs)
        body.update(config.extra_body)

        def read(answer: bytes) -> Response:
            if config.token_ids or config.stream:
                document = read_answer(answer)
                if config.token_ids:
                    tokens = take_tokens(document, keep_logprobs=wants_logprobs, streamed=config.stream)
                    call.capture(replace(tokens, tokenizer=config.tokenizer, template=config.template))
                answer = msgspec.json.encode(document)
            completion = ChatCompletion.model_validate_json(answer)
            name = "" if completion.id else f"{call.rollout_id}-{call.call_key}"
            return response_from_chat(completion, config.style, name=name)

        return await self._engine.post("/chat/completions", msgspec.json.encode(body), read, call)

    async def _ask_for_tokens(self, body: JsonObject, call: ModelCall, *, wants_logprobs: bool) -> None:
        """Adds to a request what makes the engine say its tokens, and takes out what a requester may not say of them.

        Where the requester wants log-probabilities, the text of each token must stay in them: `token_id:N` would tell
        the ID.
        """
        for part in (body, *body["messages"]):
            for name in part.keys() & _NOT_A_REQUESTERS:
                del part[name]
        body |= {"logprobs": True, "return_token_ids": True}
        if not wants_logprobs:
            body["return_tokens_as_token_ids"] = True
            body.pop("top_logprobs", None)
        if self.config.required_prefix:
            prefix = await call.prefix()
            if prefix is not None and prefix.is_latest:
                body["required_prefix_token_ids"] = prefix.unpacked()
