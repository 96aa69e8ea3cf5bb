"""What a run came to: `metrics.json`, the table on the terminal, and the commands to go on with.

Counts each outcome as it comes, per agent and per environment (the resources instance that an agent names); at the
end it asks each resources component for its own metrics. Called by the `run` command,
and by `rebuild` for what the log says.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from bus.run_folder import FAILURES, METRICS, RESULTS, ROLLOUTS
from components.workers.aggregate import Aggregated, AggregateRequest, aggregate
from contracts.deployments import Description
from orchestrator.grid import grid
from orchestrator.hints import counted, typed
from orchestrator.instances import Instance
from orchestrator.metrics import Metrics
from orchestrator.results import Outcome
from orchestrator.run_files import naming
from orchestrator.venvs import Python

EXAMPLE = 400
"""Characters shown of one failure's message; the file has all of it."""
AGGREGATE_S = 600.0
"""Seconds that a component's own metrics may take."""


class RunReport:
    """Counts the outcomes of one run."""

    def __init__(self, run_id: str, descriptions: Mapping[str, Description], *, skipped_lines: int = 0) -> None:
        self.run_id = run_id
        self._skipped_lines = skipped_lines
        self._descriptions = descriptions
        self._environments = {name: _environment(d) for name, d in descriptions.items() if d.kind == "agents"}
        self._all = Metrics()
        self._by_agent: dict[str, Metrics] = {}
        self._by_environment: dict[str, Metrics] = {}
        self._started = time.monotonic()
        self._began = datetime.now(UTC)
        self._own: dict[str, Any] = {}
        self._examples: dict[str, str] = {}
        self._earlier = 0
        self._wall_s = 0.0
        self._last: datetime | None = None
        self._before: dict[str, Any] = {}
        """When and how long the run went, from the command before this one, where nothing has ended since."""

    @property
    def completed(self) -> int:
        """Rollouts with a reward."""
        return self._all.completed

    def start(self) -> None:
        """The clock of the run starts now: everything is ready, nothing is submitted."""
        self._started = time.monotonic()
        self._began = datetime.now(UTC)

    def add(self, ended: Outcome) -> None:
        """Counts one ended rollout."""
        if ended.time < self._began:
            self._earlier += 1
        else:
            self._wall_s = time.monotonic() - self._started
        self._count(ended)

    def add_recorded(self, ended: Outcome) -> None:
        """Counts one of a run that is read from its log: its times are those of its rollouts."""
        took = ended.stats.timings.total_s if ended.stats is not None else 0.0
        self._began = min(self._began, ended.time - timedelta(seconds=took))
        self._last = max(self._last or ended.time, ended.time)
        self._wall_s = (self._last - self._began).total_seconds()
        self._count(ended)

    def _count(self, ended: Outcome) -> None:
        if ended.error is not None and ended.error != "cancelled":
            self._examples.setdefault(ended.error, ended.message)
        self._all.add(ended)
        self._by_agent.setdefault(ended.agent, Metrics()).add(ended)
        environment = self._environments.get(ended.agent)
        if environment is not None:
            self._by_environment.setdefault(environment, Metrics()).add(ended)

    async def ask_components(
        self, folder: Path, instances: Mapping[str, Instance], pythons: Mapping[str, Python], roots: tuple[str, ...]
    ) -> None:
        """Adds what each component's `aggregate_metrics` returns for its rollouts."""
        for name, description in self._descriptions.items():
            if not description.aggregates or name not in self._by_environment or name not in instances:
                continue
            request = AggregateRequest(
                implementation=description.implementation,
                config=instances[name].content,
                path=str(folder / ROLLOUTS),
                agents=tuple(agent for agent, environment in self._environments.items() if environment == name),
                roots=roots,
            )
            found = await _aggregate(request, pythons[name])
            self._own[name] = found.metrics if not found.error else {"error": found.error}

    def document(self) -> dict[str, Any]:
        """What `metrics.json` says."""
        environments = {name: metrics.summary() for name, metrics in self._by_environment.items()}
        for name, own in self._own.items():
            environments[name]["component"] = own
        ended = self._all.completed + self._all.failed + self._all.cancelled - self._earlier
        return {
            "run": {
                "run_id": self.run_id,
                "started": self._began.isoformat(),
                "wall_s": round(self._wall_s, 3),
                "ended_earlier": self._earlier,
                "rollouts_per_s": round(ended / self._wall_s, 3) if self._wall_s else None,
                "skipped_lines": self._skipped_lines,
                **self._before,
                **self._all.summary(),
            },
            "agents": {name: metrics.summary() for name, metrics in self._by_agent.items()},
            "environments": environments,
        }

    def write(self, folder: Path) -> None:
        """Writes `metrics.json`; if nothing has ended since the run was resumed, its times stay as they were."""
        folder.mkdir(parents=True, exist_ok=True)
        if not self._wall_s:
            with suppress(OSError, ValueError, KeyError, TypeError):  # there is none, or it is damaged
                before = json.loads((folder / METRICS).read_bytes())["run"]
                if before["run_id"] == self.run_id:
                    self._before = {name: before[name] for name in _TIMES}
        with naming(folder / METRICS):
            (folder / METRICS).write_text(json.dumps(self.document(), indent=2) + "\n")

    def show(self, console: Console, folder: Path, log: Sequence[str] = ()) -> None:
        """Prints the table, the paths and what to type next; `log` are options that say where the log is."""
        run = self.document()["run"]
        console.print()
        console.print(f"run {self.run_id}", style="italic", markup=False)
        console.print(grid(("environment\nagent", *_NUMBERS), list(self._rows()), console.width), soft_wrap=True)
        console.print()
        earlier = f" ({self._earlier} of them before this command)" if self._earlier else ""
        rate = f", {run['rollouts_per_s']:.1f} rollouts/s" if self._wall_s and run["rollouts_per_s"] else ""
        time_taken = f" in {run['wall_s']:.1f} s" if self._wall_s else ""
        off = f", {run['cancelled']} cancelled" if run["cancelled"] else ""
        console.print(f"{run['completed']} completed, {run['failed']} failed{off}{earlier}{time_taken}{rate}")
        if run["retries"]:
            console.print(f"{counted(run['retries'], 'further attempt')} of rollouts that had failed")
        if self._skipped_lines:
            console.print(f"{counted(self._skipped_lines, 'bad line')} of the input skipped")
        for kind, times in run["failures"].items():
            example = " ".join(self._examples[kind].split())
            console.print(f"{times} failed with {kind}, one of them:", style="red")
            shown = example if len(example) <= EXAMPLE else f"{example[:EXAMPLE]}…"
            console.print(f"  {shown}", markup=False, soft_wrap=True)
        if run.get("tokenless_calls"):
            calls = run["captured_calls"] + run["tokenless_calls"]
            without = f"; {counted(run['tokenless_rollouts'], 'completed rollout')} without any to train on"
            told = f"tokens of {run['tokenless_calls']:,} of {counted(calls, 'model call')} were refused{without}"
            console.print(told, style="red")
        elif "captured_calls" in run:
            console.print(f"tokens captured of {counted(run['captured_calls'], 'model call')}")
        console.print("\nWritten:")
        for name in (ROLLOUTS, *([FAILURES] if run["failed"] or run["cancelled"] else []), METRICS):
            console.print(f"  {folder / name}", markup=False, soft_wrap=True)
        console.print("\nNext:")
        elsewhere = folder != RESULTS / self.run_id
        which = [*log, "--run", self.run_id] if log else ["--run", str(folder)] if elsewhere else []
        for meaning, words in (
            ("the rollouts of this run", ["list", *(which or ["--run", self.run_id])]),
            ("the story of the latest one", ["show", "last", *which]),
            ("its agent's code again, on the recorded replies", ["verify", "last", *which]),
        ):
            console.print(f"  [dim]# {meaning}[/dim]")
            console.print(f"  {typed('replay', *words)}", markup=False, soft_wrap=True)

    def _rows(self) -> Iterator[list[str | Text]]:
        for agent, metrics in self._by_agent.items():
            found = metrics.summary()
            reward, passed = found["reward"], found["pass@k"]
            mean = "-" if reward["mean"] is None else f"{reward['mean']:.3f}"
            error = "" if reward["standard_error"] is None else f"\n± {reward['standard_error']:.3f}"
            k = list(passed)[-1] if passed else None
            yield [
                Text.assemble(f"{self._environments.get(agent) or '-'}\n", (agent, "dim")),
                str(found["completed"]),
                str(found["failed"]),
                mean + error,
                f"{passed[k]:.3f}\n@{k}" if k else "-",
                *(f"{found[name]['mean']:.1f}" if name in found else "-" for name in _MEANS),
            ]


_NUMBERS = ("done", "failed", "reward", "pass@k", "turns", "tools", "tokens", "secs")
_TIMES = ("started", "wall_s", "ended_earlier", "rollouts_per_s")
_MEANS = ("turns", "tool_calls", "output_tokens", "duration_s")


class _Run(msgspec.Struct):
    run_id: str


class _Metrics(msgspec.Struct):
    run: _Run


def has_metrics(folder: Path, run: str) -> bool:
    """Whether its `metrics.json` is there, whole, and this run's."""
    try:
        return msgspec.json.decode((folder / METRICS).read_bytes(), type=_Metrics).run.run_id == run
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return False


def _environment(description: Description) -> str | None:
    return next((ref.name for ref in description.references if ref.kind == "resources"), None)


async def _aggregate(request: AggregateRequest, python: Python) -> Aggregated:
    """The component's own metrics. What its code raises is told in their place: the rollouts are all there."""
    try:
        if python.is_own:
            return await asyncio.to_thread(aggregate, request)
        answer = await python.ask("components.workers.aggregate", msgspec.json.encode(request), AGGREGATE_S)
        return msgspec.json.decode(answer, type=Aggregated)
    except Exception as error:  # noqa: BLE001 - an author's code
        return Aggregated(error=f"{type(error).__name__}: {error}")
