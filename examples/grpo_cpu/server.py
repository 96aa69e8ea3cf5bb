"""Who answers Chat Completions? This server: the policy behind the OpenAI API, with vLLM's token fields.

A process of its own, with one thread for the engine's arithmetic. Beside what the API asks for, a completion has what a
trainer wants, under the names that vLLM gives it, where the request asks for it in vLLM's words:

    return_token_ids            prompt_token_ids, choices[0].token_ids
    return_tokens_as_token_ids  tokens in the log-probabilities are called token_id:N
    required_prefix_token_ids   the prompt begins with these, and not with what the template makes of the messages

and, of its own accord, `policy_spans`: which version generated how many of the tokens, in order. `POST /weights` with
`{"version": N, "path": FILE}` changes the weights between two tokens of whatever is being generated. `GET /load` says
what the engine is doing.

    python -m examples.grpo_cpu.server --weights FILE --version N --tokenizer FILE --port PORT
"""

import argparse
import asyncio
import os
import signal
import time
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import torch
from aiohttp import web
from pydantic import ValidationError

from contracts import chat
from contracts.base import JsonObject
from examples.grpo_cpu.engine import Engine, Generation
from examples.grpo_cpu.model import Policy, Shape
from examples.grpo_cpu.serving import EngineThread
from examples.grpo_cpu.tokens import Tokenizer
from examples.grpo_cpu.weights import read_weights

MODEL: Final = "grpo_cpu"
"""The model's name at this endpoint."""
PARENT_LOOK_S: Final = 1.0
"""Seconds between two looks whether whoever started the server lives."""


class Refused(Exception):
    """A request that this server does not answer."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        """As the API names it, where it does."""


class Server:
    """The endpoints of one engine."""

    def __init__(self, engine: EngineThread, tokenizer: Tokenizer, context: int) -> None:
        self._engine, self._tokenizer, self._context = engine, tokenizer, context

    def app(self) -> web.Application:
        """All of them."""
        app = web.Application()
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_post("/weights", self.swap)
        app.router.add_get("/load", self.load)
        return app

    async def models(self, _: web.Request) -> web.Response:
        """The one model."""
        entry = {"id": MODEL, "object": "model", "created": 0, "owned_by": "examples", "max_model_len": self._context}
        return web.json_response({"object": "list", "data": [entry]})

    async def load(self, _: web.Request) -> web.Response:
        """What the engine is doing."""
        return web.json_response(self._engine.load._asdict())

    async def swap(self, request: web.Request) -> web.Response:
        """Answers when the weights are in use."""
        body = await request.json()
        try:
            await self._engine.swap(Path(body["path"]), int(body["version"]))
        except (KeyError, TypeError, ValueError) as error:
            return _refusal(Refused(f"these weights cannot be used: {error!r}"))
        return web.json_response({"version": self._engine.load.version})

    async def complete(self, request: web.Request) -> web.Response:
        """A chat completion."""
        body = await request.read()
        try:
            params = chat.ChatCompletionParams.model_validate_json(body)
            generation = self._generation(params)
            await self._engine.generate(generation)
        except ValidationError as error:
            return _refusal(Refused(str(error)))
        except Refused as error:
            return _refusal(error)
        return web.json_response(self._completion(params, generation))

    def _generation(self, params: chat.ChatCompletionParams) -> Generation:
        """What the engine is to do; raises `Refused`."""
        if params.stream:
            raise Refused("this server does not stream")
        if params.n not in (None, 1):
            raise Refused("this server gives one choice")
        if params.top_p not in (None, 1):
            raise Refused("this server samples from all tokens: leave top_p out")
        prefix = _extra(params).get("required_prefix_token_ids")
        try:
            if prefix:
                prompt = self._tokenizer.continued(prefix, params.messages)
            else:
                prompt = self._tokenizer.prompt(params.messages, params.tools)
        except ValueError as error:
            raise Refused(str(error)) from error
        if len(prompt) >= self._context:
            message = f"This model's maximum context length is {self._context} tokens, and the prompt has {len(prompt)}"
            raise Refused(message, "context_length_exceeded")
        return Generation(
            prompt=prompt,
            limit=params.max_completion_tokens or params.max_tokens or self._context,
            temperature=1.0 if params.temperature is None else float(params.temperature),
        )

    def _completion(self, params: chat.ChatCompletionParams, generation: Generation) -> JsonObject:
        name = token_hex(12)
        message = self._tokenizer.read(generation.tokens, name)
        finish = "tool_calls" if message.tool_calls and generation.finish == "stop" else generation.finish
        choice: JsonObject = {
            "index": 0,
            "message": message.to_dict() | {"tool_calls": [call.to_dict() for call in message.tool_calls or ()]},
            "logprobs": self._logprobs(params, generation) if params.logprobs else None,
            "finish_reason": finish,
            "stop_reason": None,
        }
        completion: JsonObject = {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": MODEL,
            "choices": [choice],
            "usage": {
                "prompt_tokens": len(generation.prompt),
                "completion_tokens": len(generation.tokens),
                "total_tokens": len(generation.prompt) + len(generation.tokens),
            },
            "policy_spans": generation.spans,
        }
        if _extra(params).get("return_token_ids"):
            choice["token_ids"] = generation.tokens
            completion["prompt_token_ids"] = list(generation.prompt)
        return completion

    def _logprobs(self, params: chat.ChatCompletionParams, generation: Generation) -> JsonObject:
        by_id = _extra(params).get("return_tokens_as_token_ids")
        entries = []
        for token, logprob in zip(generation.tokens, generation.logprobs, strict=True):
            text = self._tokenizer.decode([token])
            shown = f"token_id:{token}" if by_id else text
            entries.append({"token": shown, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []})
        return {"content": entries}


def _extra(params: chat.ChatCompletionParams) -> JsonObject:
    return params.model_extra or {}


def _refusal(error: Refused) -> web.Response:
    detail = {"message": str(error), "type": "BadRequestError", "param": None, "code": error.code or 400}
    return web.json_response({"error": detail}, status=400)


def load_engine(weights: Path, version: int, tokenizer: Tokenizer, seed: int) -> tuple[Engine, Shape]:
    """An engine with the weights of a file."""
    policy = Policy(Shape(vocabulary=tokenizer.size))
    policy.load_state_dict(read_weights(weights))
    return Engine(policy, version, end=tokenizer.end, seed=seed), policy.shape


async def serve(engine: Engine, tokenizer: Tokenizer, context: int, port: int) -> None:
    """Answers until the process is told to stop, or until the one that started it is gone."""
    stop, parent = asyncio.Event(), os.getppid()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with EngineThread(engine) as thread:
        runner = web.AppRunner(Server(thread, tokenizer, context).app(), access_log=None)
        await runner.setup()
        site: Any = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        while not stop.is_set() and os.getppid() == parent:
            try:
                async with asyncio.timeout(PARENT_LOOK_S):
                    await stop.wait()
            except TimeoutError:
                continue
        await runner.cleanup()


def main() -> None:
    """Serves the weights of a file; the first line on standard output is the port."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--version", type=int, default=0)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = Tokenizer.load(args.tokenizer)
    engine, shape = load_engine(args.weights, args.version, tokenizer, args.seed)
    asyncio.run(serve(engine, tokenizer, shape.context, args.port))


if __name__ == "__main__":
    main()
