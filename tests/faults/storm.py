"""Whole runs in a storm of random faults: whatever is killed or stopped, and however often, each run balances.

    python -m tests.faults.storm --minutes 30
    python -m tests.faults.storm --seed 1234567      # one round, with the faults of that seed

A round is one `jetgym run`. While it goes on, workers are killed, ended politely or stopped for a while, the server is
killed, the command is killed and resumed, or all of it at once. In the end each rollout has completed once with the
right reward, the audit balances from the log alone, and `replay verify` finds that the agent's code does all of it.
The seed of each round is printed before it begins; what a failed round left is kept.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.e2e.runs import TASK, TURNS, Run, descendants, runs
from tests.e2e.workers import PROJECT

ROLLOUTS = 150
STORM_S = 25.0
"""Seconds in which faults happen; then the run is left alone."""
CALM_S = 120.0
"""Seconds that it may take then."""
EVERY_S = 0.7
"""Mean seconds between two faults."""
FAULTS = {
    "kill a worker": 10,
    "end a worker": 3,
    "stop a worker for a while": 4,
    "kill the server": 3,
    "kill the command": 0.5,
    "kill everything": 0.5,
}
"""With their weights."""
OVERRIDES = ("++log.max_deliver=100", "++launch.failed_starts=100", "++launch.drain_s=2", "++concurrency=40")
PARTITIONS = (1, 3)


class Broken(Exception):
    """A promise does not hold."""


class Storm:
    """One round."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self._run = Run(folder, *OVERRIDES, f"++log.partitions={self._chance.choice(PARTITIONS)}")
        (folder / "tasks.jsonl").write_text(ROLLOUTS * (json.dumps(TASK) + "\n"))
        self._said = (folder / "said").open("w+")
        self._process = self._begin()
        self._stopped: dict[int, float] = {}
        """Process IDs, and when each is to go on."""
        self.faults: Counter[str] = Counter()

    def pass_over(self) -> None:
        """Lets the faults happen, waits for the run, and checks it; raises `Broken`."""
        try:
            self._rage()
            self._wait()
            self._check()
        finally:
            for pid in [self._process.pid, *descendants(self._process.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._said.close()

    @property
    def repeated(self) -> int:
        """Model calls that were made again: a worker was killed before their reply was in the log."""
        return sum(times - 1 for times in Counter(self._run.calls()).values())

    def _begin(self, *flags: str) -> subprocess.Popen[str]:
        tasks = ["--agent", "puppet", "--input", str(self._run.folder / "tasks.jsonl"), "--output", str(self._run.out)]
        command = [sys.executable, "-P", "-m", "orchestrator", "run", *self._run.config, *tasks, *flags]
        return subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said, text=True
        )

    def _rage(self) -> None:
        end = time.monotonic() + STORM_S
        while time.monotonic() < end and self._process.poll() is None:
            time.sleep(min(self._chance.expovariate(1 / EVERY_S), 5.0))
            self._go_on()
            (fault,) = self._chance.choices(list(FAULTS), list(FAULTS.values()))
            if self._strike(fault):
                self.faults[fault] += 1
        self._go_on(everybody=True)

    def _strike(self, fault: str) -> bool:
        """Does it, if there is something to do it to."""
        server = self._run.server()
        workers = sorted(pid for pid in descendants(self._process.pid) if pid != server and _is_worker(pid))
        if fault.endswith("a worker") or fault.startswith("stop"):
            if not workers:
                return False
            victim = self._chance.choice(workers)
            if fault.startswith("stop"):
                self._stopped[victim] = time.monotonic() + self._chance.uniform(0.2, 5.0)
            number = {"kill": signal.SIGKILL, "end ": signal.SIGTERM, "stop": signal.SIGSTOP}[fault[:4]]
            return _signal(victim, number)
        if fault == "kill the server":
            return server in descendants(self._process.pid) and _signal(server, signal.SIGKILL)
        started = descendants(self._process.pid)
        victims = [self._process.pid, *(started if fault == "kill everything" else ())]
        for pid in victims:
            _signal(pid, signal.SIGKILL)
        self._process.wait()
        self._go_on(everybody=True)  # what is stopped cannot end
        self._until_gone(started)
        self._process = (
            self._begin("--resume") if (self._run.out / "materialized_inputs.jsonl").exists() else (self._begin())
        )
        return True

    def _go_on(self, *, everybody: bool = False) -> None:
        for pid, when in list(self._stopped.items()):
            if everybody or when < time.monotonic():
                _signal(pid, signal.SIGCONT)
                del self._stopped[pid]

    def _until_gone(self, pids: set[int]) -> None:
        deadline = time.monotonic() + 60
        while left := [pid for pid in pids if runs(pid)]:
            if time.monotonic() > deadline:
                raise Broken(f"{len(left)} processes outlive the command that started them: {left}")
            time.sleep(0.05)

    def _wait(self) -> None:
        try:
            code = self._process.wait(CALM_S)
        except subprocess.TimeoutExpired:
            raise Broken(f"the run has not ended {CALM_S:g} s after the last fault") from None
        if code != 0:
            raise Broken(f"the run ended with exit code {code}")

    def _check(self) -> None:
        out = self._run.out
        lines = [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]
        if len({line["task_index"] for line in lines}) != len(lines) or len(lines) != ROLLOUTS:
            raise Broken(f"{len(lines)} lines of results for {ROLLOUTS} rollouts")
        wrong = [line["rollout_id"] for line in lines if (line["reward"], line["turns"]) != (1.0, TURNS)]
        if wrong:
            raise Broken(f"these rollouts ended otherwise than without faults: {wrong}")
        audited = _done("orchestrator", "audit", str(out), "--json")
        if not audited.stdout:
            raise Broken(f"jetgym audit: {audited.stderr}")
        audit = json.loads(audited.stdout)
        counts = {"requested": ROLLOUTS, "completed": ROLLOUTS, "failed": 0, "cancelled": 0, "in_flight": 0}
        if not audit["balanced"] or {name: audit[name] for name in counts} != counts:
            raise Broken(f"the audit does not balance: {audit}")
        verified = _done("replay", "verify", "--run", str(out))
        if verified.returncode != 0:
            raise Broken(f"replay verify: {verified.stdout}{verified.stderr}")


def _done(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", *arguments]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)


def _is_worker(pid: int) -> bool:
    with suppress(OSError):
        return b"components.workers" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _signal(pid: int, number: signal.Signals) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def one_round(folder: Path, seed: int) -> str:
    """Runs one round; returns what it was like. Raises `Broken`."""
    began = time.monotonic()
    storm = Storm(folder, seed)
    storm.pass_over()
    faults = ", ".join(f"{fault} {times}" for fault, times in storm.faults.most_common())
    return f"{time.monotonic() - began:.0f} s, balanced; {storm.repeated} model calls made again; {faults}"


def main() -> None:
    """Runs rounds until the time is up; ends with 1 at the first one that breaks a promise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="begin no round after so many")
    parser.add_argument("--seed", type=int, help="run this round alone")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(10**9)
    while True:
        folder = Path(tempfile.mkdtemp(prefix="storm-"))
        sys.stdout.write(f"seed {seed}: ")
        sys.stdout.flush()
        try:
            sys.stdout.write(f"{one_round(folder, seed)}\n")
        except Broken as broken:
            again = f"again: python -m tests.faults.storm --seed {seed}"
            sys.exit(f"BROKEN: {broken}\nwhat it left is in {folder}; {again}")
        shutil.rmtree(folder)
        seed += 1
        if args.seed is not None or time.monotonic() > end:
            return


if __name__ == "__main__":
    main()
