"""An engine that accepts connections and never answers: calls fail in time, and every place is given back."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus import LogConfig
from contracts.responses import Response, output_message
from orchestrator.collect import collect
from orchestrator.results import Outcome
from orchestrator.tasks import MaterializedTask
from tests.e2e.engines import listening, respond
from tests.e2e.workers import PATIENCE_S, Deployment, Instance

ROLLOUTS = 8
KINDS = ("chat_model", "openai_model")


class Engine:
    """A real socket. It says which models it has, and answers calls only once it is told to."""

    def __init__(self) -> None:
        self.answers = False
        self.asked = self.open = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        self.open += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            call = head.startswith("POST")
            self.asked += call
            if call and not self.answers:
                await reader.read()  # until the other side gives up
            else:
                await respond(writer, _chat() if "/chat/completions" in head else _response())
        finally:
            self.open -= 1
            writer.close()


def _chat() -> dict[str, Any]:
    message = {"role": "assistant", "content": "at last"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


def _response() -> Any:
    said = output_message("at last", item_id="msg")
    found = Response(id="r", object="response", created_at=0, model="m", status="completed", output=[said])
    return json.loads(found.to_json())


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    async with listening(made.serve) as made.url:
        yield made


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_of_an_engine_that_never_answers_fail_in_time_and_hold_no_place(
    server: str, config: LogConfig, tmp_path: Path, engine: Engine, kind: str
) -> None:
    """E8, E14: a whole run of them, two at a time; when the engine answers again, the same worker serves the next."""
    model = {"base_url": engine.url, "model": "m", "deadline_s": 0.5, "pool": {"concurrency": 2}}
    found = {
        "policy": Instance("models", kind, model),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", {"model": "policy", "resources": "stage"}),
    }

    async def run(deployment: Deployment, name: str) -> list[Outcome]:
        line = {"responses_create_params": {"input": "Go."}, "plan": [["model"], ["add", 1]], "expected": 1}
        tasks = [
            MaterializedTask(agent="puppet", task_index=number, rollout_index=0, line=json.dumps(line).encode())
            for number in range(ROLLOUTS)
        ]
        outcomes: list[Outcome] = []
        async with asyncio.timeout(PATIENCE_S):
            await collect(
                deployment.bus, tasks, run_id=name, output=tmp_path, concurrency=100, on_outcome=outcomes.append
            )
        return outcomes

    async with Deployment(server, config, found) as deployment:
        await deployment.start("stage", "puppet")
        worker = (await deployment.start_one("policy")).served
        silent = await run(deployment, "silent")
        assert [(outcome.error, outcome.reward) for outcome in silent] == [("deadline", None)] * ROLLOUTS
        assert engine.asked == ROLLOUTS
        async with asyncio.timeout(PATIENCE_S):
            while worker.in_progress or engine.open:  # noqa: ASYNC110 - neither tells
                await asyncio.sleep(0.01)
        engine.answers = True
        answering = await run(deployment, "answering")
        assert [(outcome.error, outcome.reward) for outcome in answering] == [(None, 1.0)] * ROLLOUTS
        await worker.drain(1.0)
