"""Each thing that takes time has a deadline of its own, and one line of the worker's log says when it strikes."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from bus import EmbeddedServer, LogConfig
from bus.room import largest_stream, set_bound
from components.workers import deadlines
from contracts.rollouts import RolloutFailure, RolloutResult
from tests.e2e.workers import Deployment, Instance

SHORT_S = 0.2
LONG_S = 60.0

HANGS: dict[str, tuple[dict[str, Any], str]] = {
    # what hangs: the task, and the call
    "seed_deadline_s": ({"plan": [], "verdict": "slow session"}, "m_0"),
    "tool_deadline_s": ({"plan": [["tool", "add_slowly", {"count": 1, "seconds": 60}]], "expected": 1}, "m_1"),
    "verify_deadline_s": ({"plan": [], "verdict": "hang"}, "m_1"),
    "model": ({"plan": [["model", "policy"]]}, "m_1"),
    "rollout": ({"plan": [["sleep", 60]]}, "run"),
}


def instances(folder: Path, hangs: str) -> dict[str, Instance]:
    """Only what hangs has a short deadline, so that no other one can strike."""

    def seconds(what: str) -> float:
        return SHORT_S if what == hangs else LONG_S

    shared = {"model": "policy", "resources": "stage", "deadline_s": seconds("rollout")}
    engine = {"notes": str(folder / "notes"), "faults": [{"kind": "hang", "rate": 1.0}], "deadline_s": seconds("model")}
    keys = ("seed_deadline_s", "tool_deadline_s", "verify_deadline_s")
    return {
        "policy": Instance("models", "noting", engine),
        "stage": Instance("resources", "stage", {key: seconds(key) for key in keys}),
        "puppet": Instance("agents", "puppet", shared),
    }


@pytest.mark.parametrize("hangs", HANGS)
async def test_a_deadline_ends_what_hangs_and_is_logged_with_rollout_call_and_seconds(
    server: str, config: LogConfig, tmp_path: Path, hangs: str
) -> None:
    """E8: seeding, a tool, verification, a model call, and the whole rollout."""
    task, call = HANGS[hangs]
    with capture_logs(processors=[merge_contextvars]) as logged:
        async with Deployment(server, config, instances(tmp_path, hangs)) as deployment:
            await deployment.start("policy", "stage", "puppet")
            await deployment.ask("r", task)
            ended = await deployment.end("r")
            await deployment.check(["r"])
    if hangs == "tool_deadline_s":  # the model reads that it took too long, and the rollout is scored
        assert isinstance(ended, RolloutResult)
    else:
        assert isinstance(ended, RolloutFailure)
        assert ended.kind == "deadline"
    key = hangs if hangs.endswith("_s") else "deadline_s"
    struck = [line for line in logged if line["event"] == "deadline.struck"]
    said = [{name: line[name] for name in ("rollout", "call", "key", "seconds", "error")} for line in struck]
    assert said == [{"rollout": "r", "call": call, "key": key, "seconds": SHORT_S, "error": "deadline"}]


async def fill(deployment: Deployment, _server: EmbeddedServer) -> Callable[[], Awaitable[None]]:
    """Leaves no room in the log; what is returned makes some."""
    await set_bound(deployment.bus, await largest_stream(deployment.bus))
    return lambda: set_bound(deployment.bus, -1)


async def stop(_deployment: Deployment, server: EmbeddedServer) -> Callable[[], Awaitable[None]]:
    """Has the server answer nobody; what is returned has it go on."""
    os.kill(server.pid, signal.SIGSTOP)

    async def go_on() -> None:
        os.kill(server.pid, signal.SIGCONT)

    return go_on


@pytest.mark.parametrize("hinder", [fill, stop], ids=["the log is full", "the server does not answer"])
async def test_what_waits_for_the_log_longer_than_its_deadline_goes_on_afterwards(
    config: LogConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hinder: Callable[[Deployment, EmbeddedServer], Awaitable[Callable[[], Awaitable[None]]]],
) -> None:
    """B9, E8: the deadline is for the rollout, not for a log that takes nothing."""
    monkeypatch.setattr(deadlines, "LOOK_S", SHORT_S)
    deadline_s = 10 * SHORT_S
    server = await EmbeddedServer.start(tmp_path / "server", config)
    try:
        engine = {"notes": str(tmp_path / "notes"), "latency": {"mean_s": 2 * SHORT_S}}
        shared = {"model": "policy", "resources": "stage", "deadline_s": deadline_s}
        found = {
            "policy": Instance("models", "noting", engine),
            "stage": Instance("resources", "stage"),
            "puppet": Instance("agents", "puppet", shared),
        }
        async with Deployment(server.url, config, found) as deployment:
            await deployment.start("policy", "stage", "puppet")
            await deployment.ask("r", {"plan": [["model"], ["add", 1]], "expected": 1})
            await deployment.until(f"{config.namespace}.0.models.policy.*.request.r.m_1")
            go_on = await hinder(deployment, server)
            await asyncio.sleep(2 * deadline_s)
            await go_on()
            assert await deployment.reward("r") == 1.0
            await deployment.check(["r"])
    finally:
        await server.stop()
