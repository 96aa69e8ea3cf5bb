from pathlib import Path

import msgspec
import pytest

from components.agents.base import AgentConfig
from contracts.deployments import RunStarted
from replay.errors import AmbiguousName, UnknownName
from replay.facts import facts_of
from replay.file_source import FileSource, export_lines
from replay.names import find_rollout, find_run, one_of
from replay.rows import Row, rows, selection
from replay.runs import runs_in
from tests.unit.replay.examples import CALC, Clumsy, calculator, recorded_run, task
from tests.unit.replay.recorder import START, Recorder


@pytest.fixture
def source(tmp_path: Path) -> FileSource:
    """A completed, a failed and an unfinished rollout."""
    agents = {**CALC, "clumsy": (Clumsy, AgentConfig(model="policy", resources="other_env"))}
    recorder = Recorder(agents, calculator)
    recorder.deployment({"calc": "simple_agent", "clumsy": "clumsy"}, {"calc": "1", "clumsy": "2"})
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=1)
    recorder.rollout("r1-00001-00", "calc", task(), index=1)
    recorder.rollout("r1-00001-01", "clumsy", task(), index=1)
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join(export_lines(recorder.log, {})))
    return FileSource([path])


async def listed(source: FileSource, run_id: str | None = None) -> list[Row]:
    return [row async for row in rows(source, await facts_of(source), run_id)]


async def test_rollouts_stand_in_the_order_of_their_ends_and_those_in_flight_last(source: FileSource) -> None:
    found = await listed(source)
    assert [(row.rollout_id, row.outcome) for row in found] == [
        ("r1-00001-00", "completed"),
        ("r1-00001-01", "failed"),
        ("r1-00000-00", "in flight"),
    ]


async def test_a_row_says_who_where_and_how_much(source: FileSource) -> None:
    completed, failed, flying = await listed(source)
    assert (completed.agent, completed.environment, completed.run_id) == ("calc", "calc_env", "r1")
    assert (completed.turns, completed.tool_calls) == (2, 2)
    assert (completed.input_tokens, completed.output_tokens) == (20, 10)
    assert completed.reward == 1.0
    assert completed.duration_s == pytest.approx(11 / 3, abs=1e-4)
    assert (failed.reward, failed.error, failed.environment) == (None, "agent_error", "other_env")
    assert (flying.reward, flying.turns, flying.duration_s) == (None, None, None)
    assert flying.started > START


async def test_only_the_rollouts_of_the_run_are_listed(source: FileSource) -> None:
    assert len(await listed(source, "r1")) == 3
    assert await listed(source, "r2") == []


async def test_filters_leave_out_what_does_not_meet_all_of_them(source: FileSource) -> None:
    found = await listed(source)

    def kept(**conditions: object) -> list[str]:
        keep = selection(**conditions)  # type: ignore[arg-type]
        return [row.rollout_id for row in found if keep(row)]

    assert kept() == ["r1-00001-00", "r1-00001-01", "r1-00000-00"]
    assert kept(agent="calc") == ["r1-00001-00", "r1-00000-00"]
    assert kept(environment="other_env") == ["r1-00001-01"]
    assert kept(failed=True) == ["r1-00001-01"]
    assert kept(reward_above=0.5) == ["r1-00001-00"]
    assert kept(agent="clumsy", reward_above=0.5) == []


async def test_a_rollout_without_a_reward_is_neither_below_nor_above_one(source: FileSource) -> None:
    found = await listed(source)
    below = [row.rollout_id for row in found if selection(reward_below=100)(row)]
    above = [row.rollout_id for row in found if selection(reward_above=-100)(row)]
    assert below == above == ["r1-00001-00"]


async def test_a_run_is_summed_up_from_its_rollouts(source: FileSource) -> None:
    (run,) = await runs_in(source)
    assert (run.run_id, run.state) == ("r1", "unfinished")
    assert (run.asked, run.completed, run.failed, run.mean_reward) == (3, 1, 1, 1.0)


@pytest.mark.parametrize(("asked", "state"), [(2, "ended"), (5, "unfinished")])
async def test_a_run_in_a_log_has_ended_when_all_that_it_said_to_ask_for_has(
    tmp_path: Path, asked: int, state: str
) -> None:
    recorder = recorded_run(2)
    started = RunStarted(run_id="r1", config={}, rollouts=asked, skipped_lines=0, inputs_sha256="")
    recorder.write("deployment.run", recorder.subjects.deployment("run", "r1"), msgspec.json.encode(started))
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join(export_lines(recorder.log, {})))
    (run,) = await runs_in(FileSource([path]))
    assert (run.state, run.asked, run.completed) == (state, asked, 2)


async def test_a_rollout_is_named_by_its_id_its_beginning_or_last(source: FileSource) -> None:
    assert await find_rollout(source, "r1-00001-00") == "r1-00001-00"
    assert await find_rollout(source, "r1-00000") == "r1-00000-00"
    assert await find_rollout(source, "last") == "r1-00001-01"
    assert await find_run(source, "last") == await find_run(source, "r") == "r1"


async def test_a_name_that_means_several_or_nothing_names_the_candidates(source: FileSource) -> None:
    with pytest.raises(AmbiguousName, match=r"begins 2 rollouts: r1-00001-00, r1-00001-01"):
        await find_rollout(source, "r1-00001")
    with pytest.raises(UnknownName, match=r"there is no rollout 'r1-00001-07'; there are: r1-00001-0"):
        await find_rollout(source, "r1-00001-07")
    with pytest.raises(UnknownName, match=r"there is no run 'x'; there are: r1"):
        await find_run(source, "x")


def test_a_whole_name_wins_over_what_it_begins() -> None:
    assert one_of(["r1", "r10"], "r1", "run") == "r1"


def test_many_candidates_are_counted() -> None:
    with pytest.raises(AmbiguousName, match=r"and 4 more$"):
        one_of([f"a{number}" for number in range(10)], "a", "run")
