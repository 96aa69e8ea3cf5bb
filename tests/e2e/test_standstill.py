"""A model worker that stood still while another took over looks into the log before it asks its engine again."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest

from bus import LogConfig
from tests.e2e.engines import listening, respond
from tests.e2e.workers import PATIENCE_S, Deployment, Instance, start_process

CHAT = {
    "id": "c",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Done."}}],
}


class Engine:
    """A real socket, which counts what it is asked, and may refuse the first call."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.refuses = False
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = "200 OK"
        if head.startswith("post"):
            length = int(head.partition("content-length:")[2].split()[0])
            self.asked[json.loads(await reader.readexactly(length))["messages"][0]["content"]] += 1
            if self.refuses:
                self.refuses = False
                status = "503 Service Unavailable\r\nRetry-After: 1"
        await respond(writer, CHAT, status)
        writer.close()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    async with listening(made.serve) as made.url:
        yield made


@pytest.mark.parametrize("tried", [False, True], ids=["sent to it", "tried by it"])
async def test_a_worker_that_was_stopped_makes_no_call_that_was_answered_meanwhile(
    server: str, config: LogConfig, engine: Engine, tried: bool
) -> None:
    """E6: neither one that lies in its socket, nor one that it had begun and waits to try again."""
    log = config.model_copy(update={"ack_wait_s": 1.5})
    found = {
        "policy": Instance("models", "chat_model", {"base_url": engine.url, "model": "m"}),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", {"model": "policy", "resources": "stage"}),
    }

    async def ask(rollout: str) -> None:
        task = {"responses_create_params": {"input": rollout}, "plan": [["model"], ["add", 1]], "expected": 1}
        await deployment.ask(rollout, task)

    async with Deployment(server, log, found) as deployment:
        await deployment.start("stage", "puppet")
        process = start_process(server, log, "policy", found["policy"])
        try:
            assert process.stdout is not None
            with process.stdout:
                assert msgspec.json.decode(await asyncio.to_thread(process.stdout.readline))["ready"]
            if tried:
                engine.refuses = True
                await ask("r1")
                async with asyncio.timeout(PATIENCE_S):
                    while engine.refuses or not engine.asked:  # noqa: ASYNC110 - a counter
                        await asyncio.sleep(0.01)
            os.kill(process.pid, signal.SIGSTOP)
            if not tried:
                await ask("r1")
                await deployment.until(deployment.bus.subjects.request("models", "policy", 1, "r1", "m_1"))
            other = await deployment.start_one("policy", worker="other")
            assert await deployment.reward("r1") == 1.0
            async with asyncio.timeout(PATIENCE_S):
                await other.served.drain(PATIENCE_S)
            os.kill(process.pid, signal.SIGCONT)
            await ask("r2")  # which the worker that stood still answers after all that it had before
            assert await deployment.reward("r2") == 1.0
        finally:
            process.kill()
            process.wait()
        assert engine.asked == {"r1": 1 + tried, "r2": 1}
