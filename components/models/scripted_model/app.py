"""A model whose replies are written in its config: for tests of environments, for load, and for faults.

A reply follows from the request alone: which rule fits the task's text, how many turns were made, and for chances and
latencies a digest of the request and a seed. So the same request gets the same reply on any worker, at any time.
"""

import asyncio
import re
from hashlib import blake2b
from random import Random
from typing import Any

from components.models.base import Model, ModelCall
from components.models.errors import ModelError
from components.models.scripted_model.script import Fault, Latency, ScriptedModelConfig, Turn
from components.models.scripted_model.tokens import scripted_tokens
from components.models.tokens import EngineTokens
from contracts.responses import (
    FunctionCall,
    InputMessage,
    InputTokensDetails,
    Item,
    OutputMessage,
    OutputTokensDetails,
    ReasoningItem,
    Response,
    ResponseCreateParams,
    ResponseUsage,
)

_TURN_OF_ID = re.compile(r"turn(\d+)_")
_CHARACTERS_A_TOKEN = 4


class ScriptedModel(Model[ScriptedModelConfig]):
    """Says what its script says."""

    def __init__(self, config: ScriptedModelConfig) -> None:
        super().__init__(config)
        self._rules = [(re.compile(rule.when, re.DOTALL), rule.turns) for rule in config.rules]
        self._chances = bool(config.faults) or config.latency.is_random
        self._made: dict[tuple[int, int, str], Response] = {}
        """Replies by turn of the script, number and model, without usage: under load they are made once."""

    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        """The reply of the turn that the request asks for."""
        chance = self._chance(request, call) if self._chances else None
        turn, number, match = planned, _, _ = self._turn(request)
        if chance is not None:
            for fault in self.config.faults:
                if chance.random() < fault.rate:
                    turn = await _suffer(fault, turn, call)
        await _wait(self.config.latency, chance)
        if turn.error is not None:
            raise ModelError(turn.error, f"the script fails turn {number} with {turn.error}")
        key = (id(planned), number, request.model or "scripted")
        reply = self._made.get(key) if turn is planned and match is None else None
        if reply is None:
            reply = _reply(turn, number, match, key[-1])
            if turn is planned and match is None:
                self._made[key] = reply
        tokens = None
        if self.config.tokens is not None:
            made = self.config.tokens
            tokens = scripted_tokens(_text(request), number, made.prompt, made.generated)
            call.capture(tokens)
        return reply.model_copy(update={"usage": self._usage(request, turn, tokens)})

    def _chance(self, request: ResponseCreateParams, call: ModelCall) -> Random:
        """A generator whose seed follows from the request, or from the call where repeats are to differ."""
        asked = request.to_json() if self.config.vary == "request" else f"{call.rollout_id}/{call.call_key}".encode()
        digest = blake2b(asked, digest_size=8, salt=self.config.seed.to_bytes(8, "big")).digest()
        return Random(digest)  # noqa: S311 - chance, not secrecy

    def _turn(self, request: ResponseCreateParams) -> tuple[Turn, int, re.Match[str] | None]:
        text = _text(request) if self._rules else ""
        turns, match = self.config.turns, None
        for pattern, answers in self._rules:
            if (match := pattern.search(text)) is not None:
                turns = answers
                break
        number = 0 if isinstance(request.input, str) else _turns_made(request.input)
        return turns[min(number, len(turns) - 1)], number, match

    def _usage(self, request: ResponseCreateParams, turn: Turn, tokens: EngineTokens | None) -> ResponseUsage:
        read, written = self.config.input_tokens, self.config.output_tokens
        if tokens is not None:
            read, written = len(tokens.prompt) // 4, len(tokens.generated) // 4
        if read is None:
            read = _length(request.input) // _CHARACTERS_A_TOKEN
        if written is None:
            written = turn.length // _CHARACTERS_A_TOKEN
        return ResponseUsage(
            input_tokens=read,
            input_tokens_details=_NOTHING_CACHED,
            output_tokens=written,
            output_tokens_details=_NOTHING_THOUGHT,
            total_tokens=read + written,
        )


_NOTHING_CACHED = InputTokensDetails.model_validate({"cached_tokens": 0, "cache_write_tokens": 0})
_NOTHING_THOUGHT = OutputTokensDetails(reasoning_tokens=0)


def _reply(turn: Turn, number: int, match: re.Match[str] | None, model: str) -> Response:
    reply: dict[str, Any] = {
        "id": f"resp_turn{number}",
        "object": "response",
        "created_at": 0,
        "model": model,
        "output": _items(turn, number, match),
        "status": "completed" if turn.incomplete is None else "incomplete",
    }
    if turn.incomplete is not None:
        reply["incomplete_details"] = {"reason": turn.incomplete}
    return Response.model_validate(reply)


def _text(request: ResponseCreateParams) -> str:
    """The text of the first user message: it stays the same from turn to turn."""
    if isinstance(request.input, str):
        return request.input
    return next((item.text for item in request.input if isinstance(item, InputMessage) and item.role == "user"), "")


def _turns_made(items: list[Item]) -> int:
    """How many turns of this model the request holds already, by the IDs that it gave to their items."""
    made = 0
    for item in reversed(items):
        if (found := _TURN_OF_ID.match(getattr(item, "id", None) or "")) is not None:
            made = int(found[1]) + 1
            break
    return made


def _items(turn: Turn, number: int, match: re.Match[str] | None) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []

    def named() -> str:
        return f"turn{number}_{len(items)}"

    if turn.reasoning is not None:
        summary = [{"type": "summary_text", "text": _filled(turn.reasoning, match)}]
        items.append({"type": "reasoning", "id": named(), "summary": summary})
    if turn.text is not None or turn.refusal is not None:
        parts: list[dict[str, Any]] = []
        if turn.text is not None:
            parts.append({"type": "output_text", "text": _filled(turn.text, match), "annotations": []})
        if turn.refusal is not None:
            parts.append({"type": "refusal", "refusal": _filled(turn.refusal, match)})
        items.append({"type": "message", "role": "assistant", "id": named(), "status": "completed", "content": parts})
    for call in turn.calls:
        items.append(
            {
                "type": "function_call",
                "id": named(),
                "call_id": f"call_{number}_{len(items)}",
                "name": call.name,
                "arguments": _filled(call.json_arguments, match),
                "status": "completed",
            }
        )
    return items


def _filled(text: str, match: re.Match[str] | None) -> str:
    r"""The text with `{1}`, `{2}`, … replaced by the groups that the rule's pattern caught."""
    if match is None:
        return text
    for number, group in enumerate(match.groups(), start=1):
        text = text.replace(f"{{{number}}}", group or "")
    return text


def _length(items: str | list[Item]) -> int:
    if isinstance(items, str):
        return len(items)
    return sum(_characters(item) for item in items)


def _characters(item: Item) -> int:
    match item:
        case InputMessage() | OutputMessage() | ReasoningItem():
            return len(item.text)
        case FunctionCall():
            return len(item.arguments)
    return 0


async def _suffer(fault: Fault, turn: Turn, call: ModelCall) -> Turn:
    match fault.kind:
        case "hang":
            await asyncio.Event().wait()
        case "transient":
            await call.wait(fault.retry_after_s)
        case "unavailable" | "context_length":
            return Turn(error=fault.kind)
        case "broken_call":
            return turn.model_copy(
                update={"calls": [call.model_copy(update={"arguments": "{"}) for call in turn.calls]}
            )
        case "only_reasoning":
            return Turn(reasoning="Hm.")
        case "cut":
            return turn.model_copy(update={"incomplete": "max_output_tokens"})
    return turn


async def _wait(latency: Latency, chance: Random | None) -> None:
    if (seconds := latency.draw(chance)) > 0:
        await asyncio.sleep(seconds)
