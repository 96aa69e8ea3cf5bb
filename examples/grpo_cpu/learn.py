"""Trains a small model with GRPO on this machine's CPU, from nothing, through JetGym.

`make learn` trains asynchronously, up to 4 versions off-policy, then some steps synchronously for comparison, and
checks every log-probability that it recorded. `make learn ARGS="--steps 40 --json"` prints one line of figures.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import torch
from rich.console import Console

from contracts.errors import InvalidName
from contracts.ids import check_name
from examples.grpo_cpu import plot
from examples.grpo_cpu.curves import Curves
from examples.grpo_cpu.engine_process import EngineProcess
from examples.grpo_cpu.exactness import Exactness, exactness
from examples.grpo_cpu.learner import Learner
from examples.grpo_cpu.model import Policy, Shape
from examples.grpo_cpu.tasks import tasks
from examples.grpo_cpu.tokens import Tokenizer
from examples.grpo_cpu.training import Training
from examples.grpo_cpu.warmup import make_tokenizer, warm_up
from examples.grpo_cpu.weights import State, Weights
from orchestrator.launch import new_id
from orchestrator.samples import read_samples
from orchestrator.trainer import Trainer

PROJECT: Final = Path(__file__).parent
RESULTS: Final = PROJECT.parent.parent / "results" / "grpo_cpu"
GROUPS: Final = 8
"""Of a batch, and so between two policy versions."""
MAX_LAG: Final = 4
UNFINISHED: Final = 96
"""Rollouts in progress at once, at most. Some more than the engine's batch, since tools keep some of them waiting; with
many more, the weights would change once or twice within each, and its tokens be read again every time."""
OPEN_MS: Final = 100.0
"""Milliseconds that the tool takes, unless something else is asked for."""
COMPARED: Final = 16
"""Steps of the synchronous stretch, and of the asynchronous one that it is compared with."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a training came to."""

    curves: Curves
    exactness: Exactness


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What trainings of one seed begin with."""

    tokenizer: Tokenizer
    weights: State
    seed: int
    open_s: float
    """Seconds that the tool takes."""

    @classmethod
    def make(cls, seed: int, open_s: float) -> "Start":
        """The tokenizer, and the policy after its warm-up."""
        tokenizer = make_tokenizer(seed)
        weights = warm_up(tokenizer, seed).state_dict()
        return cls(tokenizer=tokenizer, weights=weights, seed=seed, open_s=open_s)

    def policy(self) -> Policy:
        """The policy with these weights."""
        policy = Policy(Shape(vocabulary=self.tokenizer.size))
        policy.load_state_dict(self.weights)
        return policy


async def train(start: Start, folder: Path, *, steps: int, max_lag: int, say: Say) -> Outcome:
    """One training in a folder of its own, and the check of all that it learned from."""
    weights, tokenizer = Weights(folder / "weights"), folder / "tokenizer.json"
    first = weights.save(0, start.weights)
    start.tokenizer.save(tokenizer)
    learner = Learner(start.policy())
    async with EngineProcess.start(first, 0, tokenizer, seed=start.seed) as engine:
        launched = Trainer.launch(
            PROJECT / "main.yaml",
            f"policy.models.chat_model.base_url={engine.base_url}",
            f"policy.models.chat_model.tokenizer={start.tokenizer.digest}",
            f"boxes.resources.boxes.open_s={start.open_s}",
            run=folder.name,
            output=folder / "run",
            groups=GROUPS,
            max_lag=max_lag,
            unfinished=UNFINISHED,
            report=say,
        )
        async with launched as trainer:
            training = Training(trainer, learner, engine, weights)
            await training.run(islice(tasks(start.seed), steps * GROUPS), lambda curves: say(_step(curves)))
            say("checking every log-probability")
            checked = await check(start, trainer, weights)
    for version in range(steps + 1):
        weights.drop(version)
    training.curves.save(folder / "curves.json")
    return Outcome(curves=training.curves, exactness=checked)


async def check(start: Start, trainer: Trainer, weights: Weights) -> Exactness:
    """Compares everything that was recorded in the run with what its weights give."""
    bus, digest = trainer.bus, start.tokenizer.digest
    rollouts = [
        recorded.event.rolloutid
        for partition in range(bus.config.partitions)
        async for recorded in bus.scan(bus.subjects.ended_of(partition, trainer.run), partition=partition)
    ]
    read = [await read_samples(bus, rollout, tokenizer=digest) for rollout in rollouts]
    samples = [sample for found in read for sample in found.samples]
    return await asyncio.to_thread(exactness, samples, start.policy(), weights.load)


def _step(curves: Curves) -> str:
    step = curves.steps[-1]
    lags = " ".join(f"{lag}:{count}" for lag, count in sorted(step.lags.items()))
    return (
        f"step {step.step:3d}  {step.at_s:6.1f} s  reward {step.reward:.3f}  staleness {lags:<24} "
        f"clipped {step.clipped:.3f}  drift {step.drift:.4f}  train {step.train_s:.2f} s"
    )


async def learn(start: Start, folder: Path, *, steps: int, sync: bool, say: Say) -> tuple[Outcome, Outcome | None]:
    """The training, and the synchronous one that it is compared with, if it is not synchronous itself."""
    main = await train(start, folder, steps=steps, max_lag=0 if sync else MAX_LAG, say=say)
    compared = min(COMPARED, steps)
    if sync or compared < 2:  # noqa: PLR2004 - a rate takes two steps
        return main, None
    say(f"{compared} synchronous steps from the same start, for comparison")
    return main, await train(start, compared_in(folder), steps=compared, max_lag=0, say=say)


def compared_in(folder: Path) -> Path:
    """Where the synchronous training is that is compared with the one in `folder`."""
    return folder.with_name(f"{folder.name}-sync")


def figures(outcome: Outcome, sync: Outcome | None) -> dict[str, float | int | None]:
    """What `--json` prints."""
    curves, checked = outcome.curves, outcome.exactness
    shown: dict[str, float | int | None] = {
        "reward_start": round(curves.reward_start, 3),
        "reward_end": round(curves.reward_end, 3),
        "async_speedup": None,
        "max_logprob_error": checked.max_error,
        "max_lag": curves.max_lag,
        "tokens": checked.tokens,
        "samples_of_several_versions": checked.straddling,
        "engine_busy": round(curves.engine_busy, 2),
        "trainer_busy": round(curves.trainer_busy, 2),
        "failed": sum(step.without_reward for step in curves.steps),
        "seconds": round(curves.steps[-1].at_s, 1),
    }
    if sync is not None:
        steps = len(sync.curves.steps)
        shown |= {
            "async_speedup": round(curves.rate(steps) / sync.curves.rate(steps), 2),
            "max_logprob_error": max(checked.max_error, sync.exactness.max_error),
            "sync_engine_busy": round(sync.curves.engine_busy, 2),
            "sync_trainer_busy": round(sync.curves.trainer_busy, 2),
        }
    return shown


def main() -> None:
    """Trains, draws and prints."""
    parser = argparse.ArgumentParser(
        prog="make learn", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40, help="batches to train on")
    parser.add_argument("--seed", type=int, default=0, help="of the tasks, the weights and the sampling")
    parser.add_argument("--sync", action="store_true", help="wait for all rollouts before each step")
    parser.add_argument("--open-ms", type=float, default=OPEN_MS, help="what a tool call takes, computing nothing")
    parser.add_argument("--json", action="store_true", help="print one line of figures, and nothing else")
    parser.add_argument("--output", type=Path, help="folder for curves, picture, log; default: results/grpo_cpu/…")
    args = parser.parse_args()
    if args.steps < 1 or args.open_ms < 0:
        parser.error("--steps is 1 or more, --open-ms 0 or more")
    folder = (args.output or RESULTS / new_id("g")).absolute()
    for each in (folder, compared_in(folder)):
        if each.exists() and (not each.is_dir() or any(each.iterdir())):
            parser.error(f"{each} is there already: name a new folder with --output; no training is gone on with")
        try:
            check_name(each.name, "run")  # which is called as its folder
        except InvalidName as error:
            parser.error(f"--output: {error}")
    os.chdir(PROJECT)  # a project's components are looked for in the working directory
    torch.set_num_threads(1)  # the engine has the other core
    console, began = Console(stderr=args.json, quiet=args.json), time.perf_counter()
    console.print("warming up: imitation of a clumsy agent, so that there is something to reward")
    start = Start.make(args.seed, args.open_ms / 1000)
    outcome, other = asyncio.run(learn(start, folder, steps=args.steps, sync=args.sync, say=console.print))
    how = "synchronous" if args.sync else f"up to {MAX_LAG} versions off-policy"
    plot.save_picture(outcome.curves, folder / "curves.png", f"GRPO on the CPU, seed {args.seed}, {how}")
    shown = figures(outcome, other)
    console.print(plot.in_terminal(outcome.curves))
    console.print_json(data=shown)
    console.print(f"{time.perf_counter() - began:.0f} s in all; {folder / 'curves.png'}, {folder / 'curves.json'}")
    if args.json:
        print(json.dumps(shown))


if __name__ == "__main__":
    main()
