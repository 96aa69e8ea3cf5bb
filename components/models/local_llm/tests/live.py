"""Runs the real engine and prints what it did as one JSON line; started by `test_local_llm` in the component's venv.

With the argument `wait` it prints the engine's process ID and waits to be killed.
"""

import asyncio
import json
import os
import signal
import sys
from typing import Any

from components.models.base import ModelCall
from components.models.errors import ModelError
from components.models.local_llm.app import LocalLLM, LocalLLMConfig
from contracts.responses import ResponseCreateParams

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


async def tour(model: LocalLLM) -> dict[str, Any]:
    found: dict[str, Any] = {"text": await ask(model, "m_0")}
    found["call"] = await ask(model, "m_1", tools=[ADD], tool_choice="required")
    found["together"] = len(await asyncio.gather(*(ask(model, f"m_{number}") for number in range(2, 8))))
    try:
        await ask(model, "m_8", input="word " * 5_000)
    except ModelError as error:
        found["too_long"] = [error.kind, error.message]
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
