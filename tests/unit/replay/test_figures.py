"""`replay stats`: what a run comes to."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from components.agents.base import AgentConfig
from replay.charts import draw_figures
from replay.facts import facts_of
from replay.figures import NAMES, RunFigures, figures_of
from replay.file_source import FileSource, export_lines
from replay.spread import Spread
from tests.unit.replay.examples import (
    CALC,
    CALCULATOR,
    Clumsy,
    Delegating,
    calculator,
    recorded_run,
    task,
    trajectory_of,
)
from tests.unit.replay.recorder import Recorder


def source(path: Path, recorder: Recorder) -> FileSource:
    path.write_bytes(b"".join(line + b"\n" for line in export_lines(recorder.log, {})))
    return FileSource([path])


async def figures(path: Path, recorder: Recorder, run: str | None = None) -> RunFigures:
    found = source(path, recorder)
    return await figures_of(found, await facts_of(found), run)


def mixed() -> Recorder:
    """Three that are completed, one that failed, one in flight."""
    recorder = Recorder({**CALC, "clumsy": (Clumsy, AgentConfig(model="policy", resources="calc_env"))}, calculator)
    for index in range(3):
        recorder.rollout(f"r1-{index:05d}-00", "calc", task(), index=index)
    recorder.rollout("r1-00003-00", "clumsy", task(), index=3)
    recorder.rollout("r1-00004-00", "calc", task(), index=4, stop_after=1)
    return recorder


async def test_every_rollout_is_counted_by_its_end(tmp_path: Path) -> None:
    found = await figures(tmp_path / "log.jsonl", mixed())
    assert found.outcomes == {"completed": 3, "failed": 1, "in flight": 1}
    assert found.agents == {"calc": 4, "clumsy": 1}
    assert (found.reward.count, found.reward.mean) == (3, 1.0)
    assert list(found.failures) == ["agent_error"]
    assert found.failures["agent_error"].examples == ["r1-00003-00"]
    assert (found.turns.count, found.turns.maximum) == (4, 2)


async def test_calls_are_counted_with_the_times_of_callee_and_queue(tmp_path: Path) -> None:
    found = await figures(tmp_path / "log.jsonl", mixed())
    assert found.calls is not None
    assert found.tools is not None
    assert found.calls["model"].calls == 3 * 2 + 1 + 1
    assert found.calls["tool"].unanswered == 2
    assert {name: tool.calls for name, tool in found.tools.items()} == {"add": 4, "multiply": 4}
    assert found.calls["verify"].worked.p50 == 0.25
    assert found.calls["verify"].waited.count == 3


async def test_a_called_agent_is_counted_with_all_of_its_time(tmp_path: Path) -> None:
    """How much of that it waited for a worker, no event says."""
    recorder = Recorder({**CALC, "delegating": (Delegating, CALCULATOR)}, calculator)
    recorder.rollout("r1-00000-00", "delegating", task())
    found = await figures(tmp_path / "log.jsonl", recorder)
    assert found.calls is not None
    (call,) = [call for call in trajectory_of(recorder).calls.values() if call.what == "agent"]
    assert call.replied is not None
    took = (call.replied.event.time - call.requested.event.time).total_seconds()
    assert found.calls["agent"].worked.mean == pytest.approx(took)
    assert found.calls["agent"].waited.count == 0


async def test_a_run_of_several_is_counted_alone(tmp_path: Path) -> None:
    recorder = recorded_run(2, runs=("r1", "r2"))
    assert (await figures(tmp_path / "log.jsonl", recorder, "r2")).rollouts == 2
    assert (await figures(tmp_path / "log.jsonl", recorder)).rollouts == 4


async def test_tools_without_end_are_counted_together(tmp_path: Path) -> None:
    """A model may make up names."""
    recorder = recorded_run(1)
    many = b"".join(
        line.replace(b'"name":"add"', b'"name":"t%d"' % number) + b"\n"
        for number in range(NAMES + 10)
        for line in export_lines(recorder.log, {})
        for line in [line.replace(b"r1-00000-00", b"r1-00000-%d" % number)]
    )
    (tmp_path / "log.jsonl").write_bytes(many)
    found = FileSource([tmp_path / "log.jsonl"])
    told = await figures_of(found, await facts_of(found), None)
    assert told.tools is not None
    assert len(told.tools) == NAMES + 1
    assert sum(tool.calls for tool in told.tools.values()) == 2 * (NAMES + 10)


async def test_the_page_fits_80_columns(tmp_path: Path) -> None:
    output = io.StringIO()
    draw_figures(await figures(tmp_path / "log.jsonl", mixed()), Console(file=output, width=80))
    told = output.getvalue()
    assert max(map(len, told.splitlines())) <= 80
    assert "1 agent_error, such as r1-00003-00" in told
    assert "multiply" in told


@pytest.mark.parametrize("milliseconds", [(64.1, 64.2, 64.3, 70.0), tuple(64 + place / 100 for place in range(200))])
async def test_each_bar_of_a_histogram_has_a_name_of_its_own(tmp_path: Path, milliseconds: tuple[float, ...]) -> None:
    """Whether it is of one value or of a range."""
    spread = Spread()
    for value in milliseconds:
        spread.add(value / 1000)
    found = msgspec.structs.replace(await figures(tmp_path / "log.jsonl", mixed()), duration_s=spread.figures())
    output = io.StringIO()
    draw_figures(found, Console(file=output, width=80))
    _, _, told = output.getvalue().partition("\nduration")
    bars = [line.split("  █")[0].split("  ▏")[0].strip() for line in told.splitlines()[1:] if " ms  " in line]
    assert len(bars) > 1
    assert len(set(bars)) == len(bars)
