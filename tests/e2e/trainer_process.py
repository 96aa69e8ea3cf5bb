"""A trainer as a process of its own, to be killed: python -m tests.e2e.trainer_process OUT NOTES [URL].

It notes what it trains on, each step on a line: `trained <group>…` before it commits, `committed <group>…` after.
With a URL it connects to a deployment; without one it launches its own in OUT.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from orchestrator import Trainer
from tests.e2e.runs import TASK
from tests.e2e.workers import PROJECT

GROUPS = 24
STEP = 2
SIZE = 3


def tasks() -> list[dict[str, Any]]:
    return [{**TASK, "number": number} for number in range(GROUPS)]


async def main(out: Path, notes: Path, url: str | None) -> None:
    # Less is under way than the bound allows: a model worker that hears late of a version makes nothing too stale.
    options: Any = {"run": "grpo", "groups": 1, "max_lag": 4}
    calls = f"policy.models.noting.notes={out.with_name('calls')}"
    connection = (
        Trainer.connect(url, **options) if url else Trainer.launch("main.yaml", calls, output=str(out), **options)
    )
    async with connection as trainer, asyncio.TaskGroup() as beside:
        submitting = beside.create_task(trainer.submit(tasks(), agent="puppet", group_size=SIZE))
        submitting.add_done_callback(lambda _: trainer.no_more_tasks())
        async for batch in trainer.feed(groups=STEP):
            assert all(rollout.reward == 1.0 for rollout in batch.rollouts), batch
            groups = " ".join(group.id for group in batch.groups)
            with notes.open("a") as file:
                print("trained", groups, file=file, flush=True)
                await batch.commit()
                print("committed", groups, file=file, flush=True)
            await trainer.policy_updated(trainer.version + 1)


if __name__ == "__main__":
    sys.path.insert(0, str(PROJECT))
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
