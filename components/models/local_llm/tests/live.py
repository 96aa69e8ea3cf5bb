"""Runs the real engine and prints what it did as one JSON line; started by `test_local_llm` in the component's venv.

With the argument `wait` it prints the engine's process ID and waits to be killed.
"""

import asyncio
import itertools
import json
import os
import signal
import sys
from typing import Any

from components.models.base import ModelCall
from components.models.errors import ModelError
from components.models.local_llm.app import LocalLLM, LocalLLMConfig
from components.models.tokens import EngineTokens, Prefix
from contracts.responses import ResponseCreateParams
from contracts.tokens import unpack_ids, unpack_logprobs

ADD = {
    "type": "function",
    "name": "add",
    "description": "Adds to the counter.",
    "parameters": {
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "required": ["count"],
        "additionalProperties": False,
    },
}


def engine_pid(model: LocalLLM) -> int:
    process = model._process._process
    assert process is not None
    return process.pid


async def ask(model: LocalLLM, key: str, **fields: Any) -> dict[str, Any]:
    request = ResponseCreateParams.model_validate({"input": "Add 3 to the counter.", "max_output_tokens": 48, **fields})
    return (await model.responses(request, ModelCall(rollout_id="a-rollout", call_key=key))).to_dict()


async def converse(model: LocalLLM) -> list[dict[str, Any]]:
    """Three turns, the second one cut off, each with the tokens of the one before as a worker gives them."""
    said: list[EngineTokens] = []
    items: list[dict[str, Any]] = [{"role": "user", "content": "Add 3 to the counter."}]
    turns: list[dict[str, Any]] = []
    for number, limit in enumerate((48, 4, 48)):
        before = Prefix(said[-1].prompt + said[-1].generated, turns[-1]["items"], is_latest=True) if said else None

        async def prefix(before: Prefix | None = before) -> Prefix | None:
            return before

        fields = {"input": items, "tools": [ADD], "max_output_tokens": limit}
        call = ModelCall(rollout_id="talk", call_key=f"m_{number}", capture=said.append, prefix=prefix)
        reply = (await model.responses(ResponseCreateParams.model_validate(fields), call)).to_dict()
        items = [*items, *reply["output"]]
        turn = {"items": len(items), "reply": reply, "logprobs": list(unpack_logprobs(said[-1].logprobs))}
        turn |= {"prompt": list(unpack_ids(said[-1].prompt)), "generated": list(unpack_ids(said[-1].generated))}
        turns.append(turn | {"flaw": said[-1].flaw, "digests": [said[-1].tokenizer, said[-1].template]})
        items.extend(
            {"type": "function_call_output", "call_id": item["call_id"], "output": "the counter is at 3"}
            for item in reply["output"]
            if item["type"] == "function_call"
        )
        if reply["output"][-1]["type"] == "message":
            items.append({"role": "user", "content": "Go on."})
    return turns


async def scored(model: LocalLLM, turn: dict[str, Any]) -> list[float | None]:
    """The log-probabilities of a turn's first tokens, read again one by one; None where a token is not among 100."""
    assert model._tokens is not None
    found: list[float | None] = []
    for place in range(min(6, len(turn["generated"]))):
        asked = {"prompt": turn["prompt"] + turn["generated"][:place], "n_predict": 1, "n_probs": 100}
        answer = await model._tokens._post("/completion", asked, ModelCall(rollout_id="score", call_key="m_0"))
        known = {entry["id"]: entry["logprob"] for entry in answer["completion_probabilities"][0]["top_logprobs"]}
        found.append(known.get(turn["generated"][place]))
    return found


async def text_of(model: LocalLLM, ids: list[int]) -> str:
    assert model._tokens is not None
    answer = await model._tokens._post("/detokenize", {"tokens": ids}, ModelCall(rollout_id="read", call_key="m_0"))
    return str(answer["content"])


async def tour(model: LocalLLM) -> dict[str, Any]:
    found: dict[str, Any] = {"text": await ask(model, "m_0")}
    found["call"] = await ask(model, "m_1", tools=[ADD], tool_choice="required")
    found["together"] = len(await asyncio.gather(*(ask(model, f"m_{number}") for number in range(2, 8))))
    try:
        await ask(model, "m_8", input="word " * 5_000)
    except ModelError as error:
        found["too_long"] = [error.kind, error.message]
    turns = found["turns"] = await converse(model)
    found["scored"] = await scored(model, turns[0])
    between = [
        await text_of(model, after["prompt"][len(before["prompt"] + before["generated"]) :])
        for before, after in itertools.pairwise(turns)
    ]
    found["between"] = between
    found["logprobs"] = await ask(model, "m_10", include=["message.output_text.logprobs"], top_logprobs=2)
    before = engine_pid(model)
    os.kill(before, signal.SIGKILL)
    found["after_kill"] = await ask(model, "m_9")
    found["restarted"] = engine_pid(model) != before
    return found


async def main() -> None:
    model = LocalLLM(LocalLLMConfig.model_validate({"context_size": 1024, "parallel": 2}))
    await model.start()
    if sys.argv[1:] == ["wait"]:
        print(engine_pid(model), flush=True)  # noqa: T201
        await asyncio.Event().wait()
    found = await tour(model)
    pid = engine_pid(model)
    await model.stop()
    found["stopped"] = not os.path.exists(f"/proc/{pid}")  # noqa: ASYNC240, PTH110
    print(json.dumps(found))  # noqa: T201


asyncio.run(main())
