import fcntl
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.run_files import RunFiles
from replay.errors import AmbiguousName, NoSource, UnknownName
from replay.opening import Where, choose, url_options
from replay.places import find_place, live_at, live_deployments, live_url, log_of, place, places, read_config
from replay.rows import Row
from replay.runs import local_runs, note_forks


def make_run(results: Path, name: str, run_id: str, age: int) -> Path:
    folder = results / name
    (folder / "log").mkdir(parents=True)
    inputs = folder / "materialized_inputs.jsonl"
    inputs.write_text(json.dumps({"responses_create_params": {}, "rollout_id": f"{run_id}-00000-00"}) + "\n")
    os.utime(inputs, (1_700_000_000 - age,) * 2)
    return folder


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three runs; the second was given a name of the user's own."""
    results = tmp_path / "results"
    make_run(results, "r1129-1000-aaaa", "r1129-1000-aaaa", age=300)
    make_run(results, "first", "r1129-1100-bbbb", age=200)
    make_run(results, "r1129-1200-cccc", "r1129-1200-cccc", age=100)
    (results / "unrelated").mkdir()
    return results


def test_runs_are_found_newest_first_by_when_their_inputs_were_written(results: Path) -> None:
    assert [run.run_id for run in places(results)] == ["r1129-1200-cccc", "r1129-1100-bbbb", "r1129-1000-aaaa"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        (None, "r1129-1200-cccc"),
        ("last", "r1129-1200-cccc"),
        ("r1129-1000-aaaa", "r1129-1000-aaaa"),
        ("r1129-10", "r1129-1000-aaaa"),
        ("r1129-1100-bbbb", "first"),
        ("first", "first"),
    ],
)
def test_a_run_is_named_by_its_id_its_beginning_its_folder_or_last(
    results: Path, name: str | None, folder: str
) -> None:
    assert find_place(results, name).path == results / folder


def test_a_start_that_came_to_no_run_hides_none(results: Path) -> None:
    """What a start leaves that failed before its inputs were written: nothing, a log, a log and a config."""
    for number, names in enumerate([(), ("log",), ("log", "logs", "config.yaml"), ("deployment.json",)]):
        for name in names:
            (results / f"r1129-1300-ddd{number}" / name).mkdir(parents=True)
    assert [run.run_id for run in places(results)] == ["r1129-1200-cccc", "r1129-1100-bbbb", "r1129-1000-aaaa"]
    assert find_place(results, "last").run_id == "r1129-1200-cccc"
    assert len(local_runs(results)) == 3


def test_a_trainers_run_with_a_deployment_of_its_own_is_a_run(results: Path) -> None:
    """Found by its ID too where its directory has another name; what it came to, its log tells alone."""
    folder = results / "tuning"
    (folder / "log").mkdir(parents=True)
    (folder / "config.yaml").touch()
    (folder / "metrics.json").write_text('{"run": {"run_id": "grpo-1", "version": 3}}')
    assert find_place(results, None).path == find_place(results, "grpo").path == folder
    assert choose(Where(results=results), "grpo-1-e0-3118859c6d535cbc-00").path == folder
    assert find_place(results, "grpo-1").only == "grpo-1"
    row = local_runs(results)[0]
    assert (row.run_id, row.state, row.asked, row.ended, row.where) == ("grpo-1", "ended", None, None, str(folder))
    with RunFiles(folder) as files:
        files.live({"url": "nats://127.0.0.1:4222"})
        assert local_runs(results)[0].state == "running"


def test_the_log_of_a_deployment_is_read_where_its_directory_is_named(results: Path) -> None:
    (results / "d1129-1300-eeee" / "log").mkdir(parents=True)
    assert find_place(results, "d1129-1300-eeee").store == results / "d1129-1300-eeee" / "log"
    assert find_place(results, str(results / "d1129-1300-eeee")).store is not None


def test_a_run_elsewhere_is_named_by_its_directory(results: Path, tmp_path: Path) -> None:
    elsewhere = make_run(tmp_path, "elsewhere", "r1129-0900-dddd", age=0)
    assert find_place(results, str(elsewhere)).run_id == "r1129-0900-dddd"


def test_a_name_that_means_no_run_or_several_names_the_candidates(results: Path) -> None:
    with pytest.raises(AmbiguousName, match=r"'r1129' begins 3 runs: r1129-1200-cccc, "):
        find_place(results, "r1129")
    with pytest.raises(UnknownName, match=r"there is no run 'nope'; there are: "):
        find_place(results, "nope")
    with pytest.raises(NoSource, match=r"no/such is no run's directory"):
        find_place(results, "no/such")


def test_without_any_run_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(NoSource, match=r"there is no run in .*: start one with `jetgym run`"):
        find_place(tmp_path / "results", None)


def test_a_rollouts_id_names_its_run_where_none_is_named(results: Path) -> None:
    where = Where(results=results)
    assert choose(where, "r1129-1000-aaaa-00003-01").run_id == "r1129-1000-aaaa"
    assert choose(where, "r1129-1100-bbbb-00003").path.name == "first"
    assert choose(where, "r1129-10").run_id == "r1129-1000-aaaa"
    assert choose(where, "last").run_id == "r1129-1200-cccc"
    assert choose(where, "something else").run_id == "r1129-1200-cccc"
    assert choose(Where(results=results, run="first"), "r1129-1000-aaaa-00003-01").path.name == "first"


def test_the_beginning_of_a_rollouts_id_that_begins_several_runs_is_refused(results: Path) -> None:
    with pytest.raises(AmbiguousName, match=r"'r1129' begins 3 runs"):
        choose(Where(results=results), "r1129")


def test_a_run_is_live_only_while_its_process_holds_its_directory(results: Path) -> None:
    run = find_place(results, "first")
    assert live_url(run) is None
    with (run.path / "deployment.json").open("w") as file:
        file.write('{"url": "nats://127.0.0.1:4222"}')
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert live_url(run) == "nats://127.0.0.1:4222"
        assert [row.state for row in local_runs(results)] == ["interrupted", "running", "interrupted"]
    assert live_url(run) is None


def test_forks_are_runs_of_their_own_beside_the_run_in_whose_log_they_are(results: Path) -> None:
    """What is damaged of their notes hides neither the others nor the run."""
    started = datetime.fromtimestamp(1_700_000_000, UTC)
    note_forks(results / "first", "f1129-1130-aaaa", started, 2)
    with (results / "first" / "forks.jsonl").open("ab") as file:
        file.write(b'{"run_id": "f11\n')
    note_forks(results / "first", "f1129-1140-bbbb", started, 1)
    asked = Row(rollout_id="f1129-1130-aaaa-00000-00", run_id="f1129-1130-aaaa", started=started)
    note_forks(results / "first", "f1129-1130-aaaa", started, 2, [asked])
    assert {run.run_id for run in places(results) if run.path.name == "first"} == {
        "r1129-1100-bbbb",
        "f1129-1130-aaaa",
        "f1129-1140-bbbb",
    }
    assert find_place(results, "first").only == "r1129-1100-bbbb"
    fork = choose(Where(results=results), "f1129-1130-aaaa-00000-01")
    assert (fork.path.name, fork.only) == ("first", "f1129-1130-aaaa")
    states = {row.run_id: (row.state, row.asked) for row in local_runs(results)}
    assert (states["f1129-1130-aaaa"], states["f1129-1140-bbbb"]) == (("unfinished", 2), ("unfinished", 1))
    imported = {"run_id": "f1129-1130-aaaa", "state": "ended", "started": "2025-01-01T00:00:00Z"}
    (results / "an_import").mkdir()
    (results / "an_import" / "imported.json").write_text(json.dumps([imported]))
    assert find_place(results, "f1129-1130-aaaa").path.name == "first"
    with RunFiles(results / "first") as files:
        files.live({"url": "nats://127.0.0.1:4222"})
        assert live_at(results, "nats://127.0.0.1:4222") == results / "first"
        assert {row.state for row in local_runs(results) if row.where.endswith("first")} == {"running"}
    assert live_at(results, "nats://127.0.0.1:4222") is None


def test_a_deployment_that_is_live_is_no_run_and_is_told_of(results: Path) -> None:
    with RunFiles(results / "d1129-1300-eeee") as up, RunFiles(results / "first") as run:
        assert live_deployments(results) == []
        for files in (up, run):
            files.live({"url": "nats://127.0.0.1:4222"})
        assert live_deployments(results) == [results / "d1129-1300-eeee"]
        assert find_place(results, None).run_id == "r1129-1200-cccc"
    assert live_deployments(results) == []


def came_to(run: Path, completed: int, failed: int) -> None:
    """Writes what a run came to, as `jetgym run` does whenever it stops."""
    metrics = {"run": {"completed": completed, "failed": failed, "reward": {"mean": 0.25}, "wall_s": 12.5}}
    (run / "metrics.json").write_text(json.dumps(metrics))


def ask(run: Path, rollouts: int) -> None:
    line = json.dumps({"rollout_id": "r1129-1100-bbbb-00000-00"}) + "\n"
    (run / "materialized_inputs.jsonl").write_text(line * rollouts)


def test_a_deployment_that_others_ran_on_is_listed_by_its_directory_and_never_the_last_run(results: Path) -> None:
    """A trainer that connected to it has no directory of its own; its log has what it did."""
    folder = results / "d1129-1300-eeee"
    (folder / "log").mkdir(parents=True)
    row = next(row for row in local_runs(results) if row.run_id == "d1129-1300-eeee")
    assert (row.state, row.asked, row.ended, row.where) == ("ended", None, None, str(folder))
    assert find_place(results, "d1129").only is None
    assert find_place(results, "last").run_id == "r1129-1200-cccc"
    (results / "none" / "d1129-1400-ffff" / "log").mkdir(parents=True)
    with pytest.raises(NoSource, match=r"there is no run in .*: --run .*d1129-1400-ffff has what ran there, or name"):
        find_place(results / "none", None)


def test_a_directory_beside_the_results_has_its_run_and_its_forks(results: Path, tmp_path: Path) -> None:
    """As the web app is given one; one that is among the results is not counted twice."""
    beside = make_run(tmp_path, "elsewhere", "r1129-0900-dddd", age=400)
    note_forks(beside, "f1129-0930-eeee", datetime.fromtimestamp(1_700_000_000, UTC), 2)
    known = {run.run_id for run in places(results)}
    assert {run.run_id for run in places(results, beside)} == known | {"r1129-0900-dddd", "f1129-0930-eeee"}
    assert len(local_runs(results, results / "first")) == len(local_runs(results, (results / "first").resolve())) == 3
    assert Where(results=results, run=str(beside)).folder == beside
    assert Where(results=results, run="r1129-10").folder is None


def test_what_a_command_did_not_see_of_its_forks_is_not_told_as_nothing(results: Path) -> None:
    """They may have gone on when it was ended."""
    note_forks(results / "first", "f1129-1130-aaaa", datetime.fromtimestamp(1_700_000_000, UTC), 2)
    row = next(row for row in local_runs(results) if row.run_id == "f1129-1130-aaaa")
    assert (row.state, row.asked, row.completed, row.failed, row.ended) == ("unfinished", 2, None, None, None)


def test_the_time_of_a_run_that_was_resumed_is_from_its_first_request(results: Path) -> None:
    run = results / "first"
    began = datetime.fromtimestamp(1_700_000_000 - 200, UTC)
    for earlier, seconds in ((0, 2.5), (1, 62.5)):
        started = (began + timedelta(minutes=1)).isoformat()
        metrics = {"completed": 1, "wall_s": 2.5, "started": started, "ended_earlier": earlier}
        (run / "metrics.json").write_text(json.dumps({"run": metrics}))
        (row,) = (row for row in local_runs(results) if row.where == str(run))
        assert (row.state, row.wall_s) == ("ended", seconds)


def test_a_run_has_ended_when_as_many_rollouts_have_as_it_asked_for(results: Path) -> None:
    ask(results / "first", 8)
    came_to(results / "first", 7, 1)
    row = next(row for row in local_runs(results) if row.where.endswith("first"))
    assert (row.state, row.asked, row.completed, row.failed) == ("ended", 8, 7, 1)
    assert (row.mean_reward, row.wall_s) == (0.25, 12.5)


def test_a_run_that_was_stopped_before_is_interrupted(results: Path) -> None:
    ask(results / "first", 24)
    came_to(results / "first", 4, 1)
    row = next(row for row in local_runs(results) if row.where.endswith("first"))
    assert (row.state, row.asked, row.completed, row.failed) == ("interrupted", 24, 4, 1)


def test_what_has_ended_of_a_killed_run_is_counted_in_its_files(results: Path) -> None:
    """Also where it was resumed: then there are the metrics of when it was stopped before."""
    ask(results / "first", 24)
    came_to(results / "first", 4, 1)
    (results / "first" / "rollouts.jsonl").write_text("{}\n" * 9 + '{"cut of')
    (results / "first" / "metrics.json").write_bytes(b'{"run": {"state": "\xff')
    assert next(row for row in local_runs(results) if row.where.endswith("first")).failed == 0
    came_to(results / "first", 4, 1)
    row = next(row for row in local_runs(results) if row.where.endswith("first"))
    assert (row.state, row.asked, row.completed, row.failed) == ("interrupted", 24, 9, 1)


def test_a_run_on_a_deployment_elsewhere_is_running_while_its_directory_is_held(results: Path) -> None:
    with (results / "first" / "deployment.json").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert {row.state for row in local_runs(results) if row.where.endswith("first")} == {"running"}


def test_how_the_log_was_made_is_read_from_the_runs_config(results: Path) -> None:
    run = find_place(results, "first")
    assert log_of(run).namespace == "jetgym"
    (run.path / "config.yaml").write_text("log: {namespace: other, partitions: 4}")
    assert (log_of(run).namespace, log_of(run).partitions) == ("other", 4)
    (run.path / "config.yaml").write_text("log: {partitions: many}")
    with pytest.raises(NoSource, match=r"its `log` section is wrong"):
        log_of(run)


@pytest.mark.parametrize("text", ["a: [", "- a list", "\x00"])
def test_a_config_that_is_none_is_told_by_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(NoSource, match=r"config\.yaml"):
        read_config(path)


def test_a_folder_without_a_trace_of_a_run_is_none(tmp_path: Path) -> None:
    assert place(tmp_path) is None


def test_a_log_elsewhere_is_named_again_with_its_namespace() -> None:
    """What `fork` tells to type next: without it, nobody serves the streams."""
    assert url_options("nats://a:1", "jetgym") == "--url nats://a:1"
    assert url_options("nats://a:1", "lab") == "--url nats://a:1 --namespace lab"
