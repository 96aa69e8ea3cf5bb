"""A worker dies, or loses the log, just before or just after each of its publishes: the rollout goes on.

Real workers in this process; death is that of the worker's connection, and nothing the dead one does has any effect.
Real processes die in `test_kills`.
"""

import asyncio
from collections import Counter
from math import inf
from pathlib import Path

import msgspec
import pytest

from bus import LogConfig
from contracts.rollouts import RolloutResult
from tests.e2e.workers import PATIENCE_S, Deployment, Instance, Mortal

ALONE = {
    "plan": [["model"], ["adds", 1, 2], ["sleep", 0.05], ["timeout", 0.05, [["sleep", 60]]], ["model"]],
    "expected": 103,
}
TASK = {"plan": [["parallel", [["ask", ALONE]], [["model"], ["adds", 20, 30]]], ["model"]], "verdict": "value"}
MOST = 16


def own(mortal: str) -> set[str]:
    """The instances that each rollout has for itself: the one that dies, and those that call it."""
    return {"caller", mortal} | ({"helper"} if mortal != "caller" else set())


def instances(folder: Path, mortal: str) -> dict[str, Instance]:
    """Those of all rollouts; what is not a rollout's own is shared."""
    found: dict[str, Instance] = {}
    for number in range(2 * MOST + 1):
        policy, stage, helper, caller = (
            f"{name}{number}" if name in own(mortal) else name for name in ("policy", "stage", "helper", "caller")
        )
        uses = {"model": policy, "resources": stage}
        found[policy] = Instance("models", "noting", {"notes": str(folder / "notes"), "turns": [{"text": "y" * 3_000}]})
        found[stage] = Instance("resources", "stage")
        found[helper] = Instance("agents", "puppet", uses)
        found[caller] = Instance("agents", "puppet", {**uses, "helper": helper})
    return found


def told(result: object) -> RolloutResult:
    """The result without what differs from run to run."""
    assert isinstance(result, RolloutResult), result
    return msgspec.structs.replace(result, stats=None)


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "loses the log"])
@pytest.mark.parametrize("mortal", ["caller", "helper", "policy", "stage"])
async def test_a_rollout_goes_on_whatever_befalls_a_worker_at_whichever_publish(
    server: str, config: LogConfig, tmp_path: Path, mortal: str, dies: bool
) -> None:
    """E5, B4: the result is as if nothing had been, and no model call is made twice but one whose reply was not stored.

    A worker that only loses the log gives back what it cannot finish, and goes on with it itself.
    """
    log = config.model_copy(update={"ack_wait_s": 1.0, "inline_limit": 1_024})
    async with Deployment(server, log, instances(tmp_path, mortal)) as deployment:
        await deployment.start(*{"policy", "stage", "helper"} - own(mortal))

        async def live(number: int, fails_at: float) -> tuple[RolloutResult, Mortal]:
            rollout, name = f"r{number}", f"{mortal}{number}"
            first = await deployment.start_one(name, worker=f"first{number}", fails_at=fails_at, dies=dies)
            await deployment.start(*(f"{other}{number}" for other in own(mortal) - {mortal}))
            await deployment.ask(rollout, TASK, agent=f"caller{number}")
            if number:
                async with asyncio.timeout(PATIENCE_S):
                    await first.failed.wait()
                if dies:
                    await deployment.start_one(name, worker=f"second{number}")
            return told(await deployment.end(rollout)), first

        undisturbed, whole = await live(0, inf)
        assert undisturbed.reward == 51.0
        assert whole.published <= MOST
        lives = await asyncio.gather(*(live(number, number / 2) for number in range(1, 2 * whole.published + 1)))
        assert [result for result, _ in lives] == [undisturbed] * len(lives)
        await deployment.check(f"r{number}" for number in range(len(lives) + 1))
    made = Counter((tmp_path / "notes").read_text().split())
    assert len(made) == 4 * (1 + len(lives))
    twice = {call for call, count in made.items() if count > 1}
    answered = {call for _, first in lives for call in first.stored}
    assert not twice & answered if mortal == "policy" else not twice
