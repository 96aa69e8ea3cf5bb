"""A server that speaks vLLM's Chat Completions, its token fields as documented, with a real tokenizer and template.

Its model says what its script says, one entry a turn of the assistant, as tokens with log-probabilities that follow
from them. What can go wrong with tokens between an engine and a trainer can be switched on.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.engines.tokenizer import END, END_ID, decode, encode, render, spelled_out

_CALL = re.compile(r"<call>(\w+) (.*?)</call>", re.DOTALL)


@dataclass
class Vllm:
    """The server's behaviour; it may change while it serves."""

    script: Sequence[str] = ("Done.",)
    """What the model writes, turn by turn; the last entry is repeated. `written_call` gives a function call."""
    spells: bool = False
    """The model samples other tokens than the tokenizer chooses for the same text."""
    retemplates: bool = False
    """The template says in front how many messages there are, as one that cuts reasoning changes earlier text."""
    takes_prefix: bool = False
    """As NeMo RL's server: `required_prefix_token_ids` replaces what the template gives for it."""
    bundles: bool = False
    """As NeMo RL's server: the tokens are on the message too."""
    versions: Callable[[int], list[list[int]]] | None = None
    """Given the number of generated tokens, which policy version generated how many of them."""
    spoil: Callable[[dict[str, Any]], None] | None = None
    """Changes the answer before it goes out."""
    gate: asyncio.Event | None = None
    """Answers wait for it."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    said: list[tuple[list[int], list[int], list[float]]] = field(default_factory=list)
    """Prompt, generated tokens and log-probabilities of each answer: what must be found in the log."""
    url: str = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Vllm"]:
        """Serves on a free port."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        async with TestServer(app) as server:
            self.url = str(server.make_url("/v1"))
            yield self

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        prompt = self._prompt(body)
        generated, ended = self._generate(body)
        logprobs = [logprob(token, place) for place, token in enumerate(generated)]
        self.said.append((prompt, generated, logprobs))
        if self.gate is not None:
            await self.gate.wait()
        if body.get("stream"):
            return await self._stream(request, body, prompt, generated, ended)
        answer = self._answer(body, prompt, generated, ended)
        if self.spoil is not None:
            self.spoil(answer)
        return web.Response(text=json.dumps(answer), content_type="application/json")

    def _prompt(self, body: dict[str, Any]) -> list[int]:
        messages, tools = body["messages"], body.get("tools")
        before = f"{len(messages)} messages. " if self.retemplates else ""
        prompt = encode(before + render(messages, tools))
        prefix = body.get("required_prefix_token_ids")
        said = [number for number, message in enumerate(messages, start=1) if message["role"] == "assistant"]
        if not self.takes_prefix or prefix is None or not said:
            return prompt
        templated = encode(before + render(messages[: said[-1]], tools, reply=False))
        last_end = len(templated) - 1 - templated[::-1].index(END_ID)
        return [*(prefix[:-1] if prefix[-1] == END_ID else prefix), *prompt[last_end:]]

    def _generate(self, body: dict[str, Any]) -> tuple[list[int], bool]:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        text = self.script[min(turn, len(self.script) - 1)]
        generated = [*(spelled_out if self.spells else encode)(text), END_ID]
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or len(generated)
        return generated[:limit], limit >= len(generated)

    def _answer(self, body: dict[str, Any], prompt: list[int], generated: list[int], ended: bool) -> dict[str, Any]:
        message, finish = _message(decode(generated), ended)
        ids = bool(body.get("return_token_ids"))
        entries = self._entries(body, generated)
        if self.bundles:
            logprobs = [entry["logprob"] for entry in entries]
            message |= {"prompt_token_ids": prompt, "generation_token_ids": generated, "generation_log_probs": logprobs}
        answer = {
            "id": f"chatcmpl-{len(self.said)}",
            "object": "chat.completion",
            "created": 1,
            "model": "tiny",
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "logprobs": {"content": entries} if entries else None,
                    "finish_reason": finish,
                    "stop_reason": None,
                    "token_ids": generated if ids else None,
                }
            ],
            "usage": _usage(prompt, generated),
            "prompt_logprobs": None,
            "prompt_token_ids": prompt if ids else None,
            "kv_transfer_params": None,
        }
        if self.versions is not None:
            answer["policy_spans"] = self.versions(len(generated))
        return answer

    async def _stream(
        self, request: web.Request, body: dict[str, Any], prompt: list[int], generated: list[int], ended: bool
    ) -> web.StreamResponse:
        """One chunk a token, the prompt's IDs in the first; calls come in parts, as vLLM's parsers send them."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        message, finish = _message(decode(generated), ended)
        ids = bool(body.get("return_token_ids"))
        entries = self._entries(body, generated)
        deltas = [*_deltas(message)]
        deltas = [{"role": "assistant", "content": ""}, *deltas, *[{}] * (len(generated) - len(deltas))]
        base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
        for number, delta in enumerate(deltas):
            tokens = slice(number - 1, number) if 0 < number < len(deltas) - 1 else slice(max(0, number - 1), None)
            tokens = slice(0, 0) if number == 0 else tokens
            choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            if entries[tokens]:
                choice["logprobs"] = {"content": entries[tokens]}
            choice["token_ids"] = generated[tokens] if ids else None
            chunk: dict[str, Any] = base | {"choices": [choice]}
            if number == 0 and ids:
                chunk["prompt_token_ids"] = prompt
            if number == len(deltas) - 1:
                choice["finish_reason"] = finish
                if self.versions is not None:
                    chunk["policy_spans"] = self.versions(len(generated))
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = base | {"choices": [], "usage": _usage(prompt, generated)}
            await response.write(f"data: {json.dumps(usage)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    def _entries(self, body: dict[str, Any], generated: list[int]) -> list[dict[str, Any]]:
        if not body.get("logprobs"):
            return []
        named = bool(body.get("return_tokens_as_token_ids"))
        entries = []
        for place, token in enumerate(generated):
            text = f"token_id:{token}" if named else decode([token]) or END
            found = {"token": text, "logprob": logprob(token, place), "bytes": list(text.encode())}
            entries.append(found | {"top_logprobs": []})
        return entries


def logprob(token: int, place: int) -> float:
    """Of a token at its place among the generated ones; never twice the same within an answer's reach."""
    return -((token * 31 + place * 17) % 997) / 256


def _usage(prompt: list[int], generated: list[int]) -> dict[str, Any]:
    total = len(prompt) + len(generated)
    return {"prompt_tokens": len(prompt), "completion_tokens": len(generated), "total_tokens": total}


def _message(text: str, ended: bool) -> tuple[dict[str, Any], str]:
    calls = [
        {"id": f"call-{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(_CALL.findall(text))
    ]
    content = _CALL.sub("", text)
    message: dict[str, Any] = {"role": "assistant", "content": content or None, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    return message, ("length" if not ended else "tool_calls" if calls else "stop")


def _deltas(message: dict[str, Any]) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"content": word} for word in re.findall(r"\S+\s*|\s+", message["content"] or "")]
    for index, call in enumerate(message.get("tool_calls") or ()):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        begun = {"index": index, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        parts = ({"index": index, "function": {"arguments": part}} for part in (arguments[:3], arguments[3:]))
        deltas.extend({"tool_calls": [part]} for part in parts)
    return deltas
