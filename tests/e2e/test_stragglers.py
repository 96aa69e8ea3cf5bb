"""Groups of rollouts on real workers, of which some hang for ever."""

import asyncio
from pathlib import Path

from bus import LogConfig
from contracts.deployments import Description
from orchestrator import Trainer
from tests.bus.trainers import describe
from tests.e2e.workers import PATIENCE_S, Deployment, Instance

GROUPS = 8
SIZE = 4


def instances(folder: Path) -> dict[str, Instance]:
    model = {"notes": str(folder / "notes"), "vary": "call", "faults": [{"kind": "hang", "rate": 0.2}]}
    return {
        "policy": Instance("models", "noting", model),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", {"model": "policy", "resources": "stage"}),
    }


async def test_f6_what_hangs_is_cut_and_its_group_goes_out_with_the_reason(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    """F6: every group is delivered; what ended has its reward, what hung was cancelled at every pool."""
    tasks = [
        {"responses_create_params": {"input": "Go."}, "plan": [["model"], ["add", 1]], "expected": 1, "number": number}
        for number in range(GROUPS)
    ]
    async with Deployment(server, config, instances(tmp_path)) as deployment:
        await deployment.start("policy", "stage", "puppet")
        pool = {"pool": {"workers": 1, "slots": 1}}
        described = {
            name: Description(kind=each.kind, implementation=each.implementation, config=pool, stateful=name == "stage")
            for name, each in instances(tmp_path).items()
        }
        await describe(deployment.bus, described)
        async with Trainer.connect(server, run="run", namespace=config.namespace) as trainer:
            await trainer.submit(tasks, group_size=SIZE)
            trainer.no_more_tasks()
            async with asyncio.timeout(PATIENCE_S):
                batches = [batch async for batch in trainer.feed(groups=2, straggler_s=2.0)]
        rollouts = [rollout for batch in batches for rollout in batch.rollouts]
        assert len(rollouts) == GROUPS * SIZE
        late = [rollout for rollout in rollouts if rollout.reward is None]
        assert 0 < len(late) < GROUPS * SIZE / 2
        assert all(rollout.outcome == "cancelled" and rollout.message.startswith("straggler: ") for rollout in late)
        assert {rollout.reward for rollout in rollouts if rollout not in late} == {1.0}
        await deployment.check(rollout.rollout_id for rollout in rollouts)
