"""How is llama.cpp asked with token IDs, so that each prompt begins with the very tokens of the call before?

The engine renders the chat template, and the text becomes tokens once: what an earlier call of the rollout read and
wrote is sent again as the tokens that it was, and only the text that follows it is tokenized. Used by `local_llm`.
"""

import json
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from components.models.base import ModelCall
from components.models.engine import Engine, EngineConfig
from components.models.errors import ModelError
from components.models.sampling import Sampling, sampled
from components.models.tokens import EngineTokens, packed_tokens
from contracts.base import JsonObject
from contracts.chat import ChatCompletion
from contracts.convert import ChatStyle, request_to_chat, response_from_chat
from contracts.errors import NoChatForm
from contracts.responses import Response, ResponseCreateParams

_ASKED: Final = ChatStyle(developer_role="system", merge_system=True, max_tokens_field="max_tokens")
_READ: Final = ChatStyle(reasoning_style="think_tags")
_THINK: Final = "<think>"
_NOT_SENT: Final = (
    "messages", "model", "tools", "tool_choice", "parallel_tool_calls", "response_format", "max_tokens", "logprobs",
    "top_logprobs", "stream", "stream_options", "stop", "n",
)  # fmt: skip
"""What `/completion` has no need of, or another name for. Every other field passes."""
_PROBE: Final = 'Tokens differ: 3.14159 == "π", naïve\t{"a": [1, 22, 333]}\n\n  日本語 🙂 <|im_end|> </s> <end_of_turn>'


class TokenEngine:
    """The connection to one engine."""

    def __init__(self, url: str, api_key: str, deadline_s: float, defaults: Sampling, overrides: Sampling) -> None:
        config = EngineConfig.model_validate({"base_url": url, "api_key": api_key, "deadline_s": deadline_s})
        self._engine = Engine(config)
        self._defaults, self._overrides = defaults, overrides
        self._model = self._tokenizer = self._template = ""

    async def start(self) -> None:
        """Connects, and learns what model this is. Raises `ModelError`."""
        await self._engine.start()
        call = ModelCall(rollout_id="", call_key="")
        props = await self._engine.get("/props", msgspec.json.decode)
        self._model = str(props.get("model_alias", ""))
        self._template = _digest(props.get("chat_template"))
        self._tokenizer = _digest([props.get("bos_token"), props.get("eos_token"), await self._tokens(_PROBE, call)])

    async def stop(self) -> None:
        """Disconnects."""
        await self._engine.stop()

    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        """One completion of the rendered request. Raises `ModelError`."""
        request = sampled(request, self._defaults, self._overrides)
        body = _chat(request)
        text = await self._rendered(body["messages"], call)
        prompt = await self._continued(request, text, call)
        if prompt is None:
            prompt = await self._tokens(text, call)
        asked = _completion(body, prompt)
        answer = await self._post("/completion", asked, call)
        call.capture(self._said(prompt, answer))
        if text.rstrip().endswith(_THINK):
            answer["content"] = _THINK + answer["content"]
        document = _document(answer, self._model, len(prompt), call)
        if body.get("logprobs"):
            document["choices"][0]["logprobs"] = {"content": _logprobs(answer)}
        return response_from_chat(ChatCompletion.model_validate(document), _READ)

    async def _continued(self, request: ResponseCreateParams, text: str, call: ModelCall) -> list[int] | None:
        """The prompt as the tokens of an earlier call and those of what follows; None where none is continued.

        The template ends the turn that the earlier call wrote. Where that one wrote the end itself, it is not said
        twice; where it was cut off, the end is the template's.
        """
        prefix = await call.prefix()
        if prefix is None or isinstance(request.input, str):
            return None
        messages = _chat(request.model_copy(update={"input": request.input[: prefix.items]}))["messages"]
        last = messages[-1] if messages else {"role": ""}
        if last["role"] != "assistant" or not isinstance(last.get("content"), str) or last.get("tool_calls"):
            return None
        follows = _after(text, await self._rendered(messages[:-1], call), last["content"])
        if follows is None:
            return None
        ids, more = prefix.unpacked(), await self._tokens(follows, call)
        if ids[-1] in more[:2]:  # a template may put white space before the end
            del more[: more.index(ids[-1]) + 1]
        return ids + more

    async def _rendered(self, messages: Sequence[JsonObject], call: ModelCall) -> str:
        return str((await self._post("/apply-template", {"messages": messages}, call))["prompt"])

    async def _tokens(self, text: str, call: ModelCall) -> list[int]:
        asked = {"content": text, "add_special": False, "parse_special": True}
        return list((await self._post("/tokenize", asked, call))["tokens"])

    async def _post(self, path: str, body: JsonObject, call: ModelCall) -> JsonObject:
        return await self._engine.post(path, msgspec.json.encode(body), _object, call)

    def _said(self, prompt: Sequence[int], answer: JsonObject) -> EngineTokens:
        sampled_ids, entries = answer["tokens"], answer.get("completion_probabilities") or []
        if [entry["id"] for entry in entries] != sampled_ids:
            flaw = f"the engine sampled {len(sampled_ids)} tokens and gave probabilities of {len(entries)} or of others"
            return EngineTokens(tokenizer=self._tokenizer, template=self._template, flaw=flaw)
        logprobs = [entry["logprob"] for entry in entries]
        return packed_tokens(prompt, sampled_ids, logprobs, tokenizer=self._tokenizer, template=self._template)


def _chat(request: ResponseCreateParams) -> JsonObject:
    try:
        return request_to_chat(request, _ASKED).to_dict()
    except NoChatForm as error:
        raise ModelError("bad_request", str(error), details={"name": error.name}) from error


def _completion(body: JsonObject, prompt: Sequence[int]) -> JsonObject:
    """The body of `/completion` for a Chat Completions request whose prompt is known."""
    asked: JsonObject = {name: value for name, value in body.items() if name not in _NOT_SENT}
    asked |= {"prompt": prompt, "return_tokens": True, "n_probs": max(1, body.get("top_logprobs") or 0)}
    if (limit := body.get("max_tokens")) is not None:
        asked["n_predict"] = limit
    if stop := body.get("stop"):
        asked["stop"] = [stop] if isinstance(stop, str) else stop
    match body.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            asked["json_schema"] = schema
        case {"type": "json_object"}:
            asked["json_schema"] = {"type": "object"}
    return asked


def _document(answer: JsonObject, model: str, read: int, call: ModelCall) -> JsonObject:
    """The answer as a chat completion."""
    written, timings = answer["tokens_predicted"], answer.get("timings") or {}
    message = {"role": "assistant", "content": answer["content"]}
    return {
        "id": f"chatcmpl-{call.rollout_id}-{call.call_key}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {"index": 0, "message": message, "finish_reason": "length" if answer["stop_type"] == "limit" else "stop"}
        ],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {"cached_tokens": timings.get("cache_n", 0)},
        },
        "timings": timings,
    }


def _logprobs(answer: JsonObject) -> list[JsonObject]:
    """The entries without IDs: this is for who asked for log-probabilities, and reads the reply."""
    return [
        _named(entry) | {"top_logprobs": [_named(other) for other in entry.get("top_logprobs", ())]}
        for entry in answer.get("completion_probabilities") or ()
    ]


def _named(entry: JsonObject) -> JsonObject:
    return {name: entry[name] for name in ("token", "logprob", "bytes")}


def _after(text: str, head: str, said: str) -> str | None:
    """What follows a message of the assistant in a rendered conversation that begins with `head` and the message.

    None where the template shows something else there: it may cut reasoning, or change what was said before.
    """
    said = said.strip()
    place = text.find(said, len(head)) if text.startswith(head) else -1
    return text[place + len(said) :] if place >= 0 and not text[len(head) : place].strip() else None


def _object(body: bytes) -> JsonObject:
    return msgspec.json.decode(body, type=dict[str, Any])


def _digest(document: object) -> str:
    return f"blake2b:{blake2b(json.dumps(document).encode(), digest_size=16).hexdigest()}"
