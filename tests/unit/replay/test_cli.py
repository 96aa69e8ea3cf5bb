"""The commands as a user types them, on files; the logs of servers are in tests/bus and tests/e2e."""

import io
import json
import re
import sys
from pathlib import Path

import msgspec
import pytest

from contracts.codec import encode
from replay.cli import COMMANDS, main
from replay.file_source import export_lines
from tests.unit.contracts.conversations import capture
from tests.unit.replay.examples import recorded_run, task
from tests.unit.replay.recorder import Recorder

Ran = tuple[int, str, str]


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> "Replay":
    """Runs `replay` with arguments, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return Replay(monkeypatch, capfd)


class Replay:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd

    def __call__(self, *arguments: str | Path) -> Ran:
        """Exit code, standard output, standard error."""
        self._monkeypatch.setattr(sys, "argv", ["replay", *map(str, arguments)])
        self._monkeypatch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int | None)
        return (code or 0, *self._capfd.readouterr())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A run of three rollouts."""
    return write(tmp_path / "log.jsonl", recorded_run(3))


def write(path: Path, recorder: Recorder) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in export_lines(recorder.log, {})))
    return path


def tamper(log: Path, *rollouts: str) -> None:
    """Makes a tool's recorded answer another one than the agent went on with."""
    lines = log.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines):
        if b"tool.replied" in line and any(rollout.encode() in line for rollout in rollouts):
            lines[number] = line.replace(b'"output":"12"', b'"output":"13"')
    log.write_bytes(b"".join(lines))


def test_list_prints_a_table_that_fits_the_terminal(replay: Replay, log: Path) -> None:
    code, out, err = replay("list", "--file", log)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].split()[:3] == ["rollout", "agent", "reward"]
    assert [line.split()[0] for line in lines[1:4]] == ["r1-00000-00", "r1-00001-00", "r1-00002-00"]
    assert lines[4] == "3 rollouts, mean reward 1"
    assert max(map(len, lines)) <= 80


def test_list_counts_what_it_does_not_show(replay: Replay, log: Path) -> None:
    _, out, _ = replay("list", "--file", log, "--limit", "1")
    assert "3 rollouts, mean reward 1" in out
    assert "shown: the first 1; 2 more with --limit 0" in out


def test_list_as_json_is_one_object_a_line(replay: Replay, log: Path) -> None:
    code, out, _ = replay("list", "--file", log, "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["rollout_id"] for row in found] == ["r1-00000-00", "r1-00001-00", "r1-00002-00"]
    assert (found[0]["reward"], found[0]["turns"], found[0]["environment"]) == (1.0, 2, "calc_env")


def test_list_of_runs_in_a_file(replay: Replay, log: Path) -> None:
    _, out, _ = replay("list", "--runs", "--file", log, "--json")
    assert json.loads(out)["completed"] == 3


def test_list_filters(replay: Replay, log: Path) -> None:
    assert replay("list", "--file", log, "--failed")[1] == "no rollouts\n"
    assert replay("list", "--file", log, "--agent", "calc", "--reward-above", "0.5", "--json")[1].count("\n") == 3
    assert replay("list", "--file", log, "--run", "r1", "--json")[1].count("\n") == 3


def test_stats_sum_up_a_run(replay: Replay, log: Path) -> None:
    code, out, err = replay("stats", "--file", log)
    assert (code, err) == (0, "")
    assert out.startswith("r1  3 rollouts")
    figures = json.loads(replay("stats", "r1", "--file", log, "--json")[1])
    assert (figures["run_id"], figures["rollouts"], figures["reward"]["mean"]) == ("r1", 3, 1.0)
    assert json.loads(replay("stats", "--quick", "--file", log, "--json")[1])["calls"] is None
    assert replay("stats", "--file", log, "--agent", "nobody")[0] == 2


def test_step_goes_where_standard_input_says(replay: Replay, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R7, R1."""
    before = log.read_bytes()
    monkeypatch.setattr(sys, "stdin", io.StringIO("next\nquit\n"))
    code, out, _ = replay("step", "last", "--file", log, "--at", "m_1")
    assert (code, out.count("[5/6]"), out.count("[6/6]")) == (0, 1, 1)
    tamper(log, "r1-00001-00")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, out, _ = replay("step", "r1-00001-00", "--file", log, "--at", "end", "--json")
    assert (code, bool(json.loads(out)["departs"])) == (1, True)
    tamper(log)
    assert len(log.read_bytes()) == len(before)


def test_why_tells_the_causes_of_an_event_wherever_it_is(replay: Replay, log: Path) -> None:
    code, out, _ = replay("why", "end", "--file", log)
    assert code == 0
    assert out.splitlines()[-1].split() == ["task", "2", "of", "run", "r1,", "rollout", "0", "of", "its", "group"]
    first = json.loads(replay("why", "m_2", "r1-00000-00", "--file", log, "--json")[1])
    again = json.loads(replay("why", first["links"][0]["id"], "--file", log, "--json")[1])
    assert again == first
    assert replay("why", "nothing", "--file", log)[0] == 2


@pytest.mark.parametrize("form", ["events", "golden", "items", "chat", "otlp"])
def test_export_writes_lines_of_json(replay: Replay, log: Path, form: str) -> None:
    """R7."""
    code, out, _ = replay("export", "--file", log, "--format", form)
    assert code == 0
    assert len([json.loads(line) for line in out.splitlines()]) >= 3


def test_export_says_what_it_wrote_and_never_over_a_file(replay: Replay, log: Path, tmp_path: Path) -> None:
    code, out, _ = replay("export", "last", "--file", log, "--format", "html", "-o", tmp_path / "x.html", "--json")
    told = json.loads(out)
    assert (code, told["rollouts"], told["format"], told["left_out"]) == (0, 1, "html", {})
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")
    assert replay("export", "last", "--file", log, "-o", tmp_path / "x.html")[0] == 2
    assert replay("export", "--file", log, "--format", "chrome", "-o", tmp_path / "x.json")[0] == 0
    assert json.loads((tmp_path / "x.json").read_text())["traceEvents"]


def test_export_finds_rollouts_by_their_ids_wherever_they_are(replay: Replay, tmp_path: Path) -> None:
    """Events are of one log; lines that stand for themselves may be of several."""
    for run in ("r1", "r2"):
        write(tmp_path / "log.jsonl", recorded_run(2, runs=(run,)))
        assert replay("import", tmp_path / "log.jsonl", "--output", tmp_path / "results" / run)[0] == 0
    for older in ("r1", "r2"):
        code, out, _ = replay("export", f"{older}-00001-00", f"{older}-00000-00", "--format", "chat")
        assert (code, len(out.splitlines())) == (0, 2)
    code, out, _ = replay("export", "r1-00001-00", "r2-00000-00", "--format", "items")
    assert (code, [json.loads(line)["rollout_id"] for line in out.splitlines()]) == (0, ["r1-00001-00", "r2-00000-00"])
    code, out, err = replay("export", "r1-00001-00", "r2-00000-00")
    assert (code, out) == (2, "")
    assert "in several logs, results/r1, results/r2: name those of one" in " ".join(err.split())


def test_export_of_samples_is_a_line_for_each_where_tokens_were_captured(replay: Replay, tmp_path: Path) -> None:
    """The other rollouts are named, with what to do."""
    recorder = recorded_run(2)
    for place, recorded in enumerate(recorder.log):
        event = recorded.event
        if (event.rolloutid, event.type) == ("r1-00000-00", "model.replied"):
            tokens = capture([1, 2], [3]) if event.callkey == "m_0" else capture([1, 2, 3, 4], [5, 6])
            event = msgspec.structs.replace(event, capture=msgspec.Raw(msgspec.json.encode(tokens)))
            recorder.log[place] = msgspec.structs.replace(recorded, event=event, raw=encode(event))
    log = write(tmp_path / "log.jsonl", recorder)
    code, out, err = replay("export", "--file", log, "--format", "samples")
    assert code == 2
    (line,) = map(json.loads, out.splitlines())
    assert (line["rollout_id"], line["reward"], line["group"]) == ("r1-00000-00", 1, "r1-00000")
    assert line["tokens"] == [1, 2, 3, 4, 5, 6]
    assert line["mask"] == [False, False, True, False, True, True]
    assert "r1-00001-00 is left out" in err
    assert "`token_ids: true` in the model's config" in " ".join(err.split())


def test_what_was_exported_and_imported_is_exported_as_the_same_bytes(
    replay: Replay, log: Path, tmp_path: Path
) -> None:
    """R3."""
    assert replay("export", "--file", log, "-o", tmp_path / "1.jsonl")[0] == 0
    code, out, _ = replay("import", tmp_path / "1.jsonl", "--output", tmp_path / "old", "--json")
    assert (code, json.loads(out)["rollouts"]) == (0, 3)
    assert replay("export", "--run", tmp_path / "old", "-o", tmp_path / "2.jsonl")[0] == 0
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()
    assert replay("verify", "--run", tmp_path / "old")[1] == "3 rollouts: 3 same\n"


def test_show_tells_the_story_without_colours_where_there_is_no_terminal(replay: Replay, log: Path) -> None:
    code, out, err = replay("show", "last", "--file", log)
    assert (code, err) == (0, "")
    assert out.startswith("r1-00002-00")
    assert "┌ 2 in parallel" in out
    assert "\x1b" not in out


def test_show_raw_prints_the_stored_bytes(replay: Replay, log: Path) -> None:
    _, out, _ = replay("show", "last", "--file", log, "--raw")
    assert out == "".join(line for line in log.read_text().splitlines(keepends=True) if "r1-00002-00" in line)


def test_show_as_json_is_one_document(replay: Replay, log: Path) -> None:
    _, out, _ = replay("show", "last", "--file", log, "--json")
    found = json.loads(out)
    assert (found["rollout_id"], found["reward"]) == ("r1-00002-00", 1.0)
    assert {call["key"] for call in found["calls"]} == {"m_0", "m1_0", "m2_0", "m_1", "m_2"}
    assert [call["parallel"] for call in found["calls"]] == [1, 2, 2, 1, 1]
    assert found["calls"][0]["request"]["input"][0]["role"] == "user"


def test_verify_of_one_that_is_the_same_ends_with_0(replay: Replay, log: Path) -> None:
    """R7."""
    code, out, _ = replay("verify", "last", "--file", log)
    assert (code, out) == (0, "r1-00002-00 same  5 calls, completed with reward 1\n")


def test_verify_of_one_that_differs_ends_with_1_and_says_where(replay: Replay, log: Path) -> None:
    """R7."""
    tamper(log, "r1-00001-00")
    code, out, _ = replay("verify", "r1-00001-00", "--file", log)
    assert code == 1
    assert out.startswith("r1-00001-00 differs\n  departs at call m_1, event ")
    assert re.search(r"at +\S*simple_agent/app\.py:\d+\n", out)
    assert re.search(r'recorded +"12"\n +now +"13"\n', out)
    assert "The source of simple_agent is the same" in out


def test_verify_of_one_that_could_not_run_ends_with_2(replay: Replay, log: Path) -> None:
    """R7."""
    log.write_bytes(b"\n".join(line for line in log.read_bytes().splitlines() if b"deployment" not in line))
    code, out, _ = replay("verify", "last", "--file", log)
    assert code == 2
    assert out.startswith("r1-00002-00 could not run\n  the log does not say how the agent 'calc' was configured")
    assert json.loads(replay("verify", "last", "--file", log, "--json")[1])["agent"] == "calc", "the class in JUnit"


def test_what_show_raw_prints_is_verified_with_the_runs_config(replay: Replay, log: Path, tmp_path: Path) -> None:
    exported, config = tmp_path / "rollout.jsonl", tmp_path / "config.yaml"
    exported.write_text(replay("show", "last", "--file", log, "--raw")[1])
    config.write_text("calc: {agents: {simple_agent: {model: policy, resources: calc_env}}}")
    code, out, _ = replay("verify", "last", "--file", exported)
    assert code == 2
    told = " ".join(out.split())
    assert "give its run's config.yaml, or what `jetgym validate CONFIG --yaml` prints, with --config FILE" in told
    assert replay("verify", "last", "--file", exported, "--config", config)[0] == 0
    assert "--config" in replay("show", "--help")[1]


def test_verify_takes_a_config_in_place_of_a_recorded_one(replay: Replay, log: Path, tmp_path: Path) -> None:
    log.write_bytes(b"\n".join(line for line in log.read_bytes().splitlines() if b"deployment" not in line))
    config = tmp_path / "resolved.yaml"
    config.write_text("calc: {agents: {simple_agent: {model: policy, resources: calc_env}}}")
    assert replay("verify", "last", "--file", log, "--config", config)[0] == 0


def test_verify_of_all_sums_up_by_the_place_of_departure(replay: Replay, log: Path) -> None:
    tamper(log, "r1-00000-00", "r1-00001-00")
    code, out, err = replay("verify", "--file", log)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0] == "3 rollouts: 1 same, 2 depart"
    assert lines[1].split()[0] == "2"
    assert "r1-00000-00, r1-00001-00" in out


def test_verify_as_json_is_one_verdict_a_line(replay: Replay, log: Path) -> None:
    code, out, _ = replay("verify", "--file", log, "--json")
    assert code == 0
    assert [json.loads(line)["verdict"] for line in out.splitlines()] == ["same"] * 3


def test_verify_never_writes_to_what_it_reads(replay: Replay, log: Path, tmp_path: Path) -> None:
    """R1, on files."""
    tamper(log, "r1-00001-00")
    before = log.read_bytes()
    replay("verify", "--file", log)
    assert log.read_bytes() == before
    assert list(tmp_path.iterdir()) == [log]


def test_verify_of_a_rollout_in_flight_goes_as_far_as_it_is(replay: Replay, tmp_path: Path) -> None:
    recorder = recorded_run(0)
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=2)
    code, out, _ = replay("verify", "last", "--file", write(tmp_path / "x.jsonl", recorder))
    assert (code, out) == (0, "r1-00000-00 same  3 calls, in flight\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["list"], "there is no run in results/: start one with `jetgym run`, or name a log with --url or a file with"),
        (["show", "r1", "--file", "LOG"], "'r1' begins 3 rollouts: r1-00000-00, r1-00001-00, r1-00002-00"),
        (["show", "x", "--file", "LOG"], "there is no rollout 'x'; there are: r1-00000-00, r1-00001-00, r1-00002-00"),
        (["show", "*", "--file", "LOG"], "there is no rollout '*'; there are: r1-00000-00, r1-00001-00, r1-00002-00"),
        (["show", "", "--file", "LOG"], "an empty name means no rollout: give its ID, a beginning of it, or `last`"),
        (["verify", "", "--file", "LOG"], "an empty name means no rollout"),
        (["list", "--run", "", "--file", "LOG"], "an empty name means no run: give its ID, a beginning of it, or `las"),
        (["show", "x", "--file", "nothing.jsonl"], "nothing.jsonl cannot be read: No such file or directory"),
        (["show", "x", "--run", "no/run"], "no/run is no run's directory: it holds neither a log nor a config.yaml"),
        (["list", "--run", "r9", "--file", "LOG"], "there is no run 'r9'; there are: r1"),
        (["verify", "--json"], "name rollouts, or a run with --run (`--run last` is the newest)"),
        (["verify", "last", "--file", "LOG", "--config", "x.yaml"], "x.yaml cannot be read: No such file"),
        (["show", "x", "--file", "LOG", "--raw", "--json"], "give either --raw or --json"),
        (["list", "--url", "nats://127.0.0.1:1", "--namespace", "*"], "namespace '*' may only hold the characters"),
        (["list", "--file", "LOG", "--url", "nats://127.0.0.1:1"], "give either --url or --file"),
        (["export", "--file", "LOG", "--format", "html", "--secret", "x"], "--secret is for --format golden: html is"),
        (["export", "--file", "LOG", "--format", "chat", "--content"], "--content is for --format otlp"),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_code_2(
    replay: Replay, log: Path, arguments: list[str], error: str
) -> None:
    code, out, err = replay(*(str(log) if argument == "LOG" else argument for argument in arguments))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {error}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_shows_how_it_is_typed(replay: Replay, command: str) -> None:
    code, out, _ = replay(command, "--help")
    assert code == 0
    assert out.count(f" replay {command} ") >= 4
    assert "--json" in out
    for example in re.findall(r"^ .*replay .*", out.partition("╭")[0], re.MULTILINE):
        assert example.count('"') % 2 == example.count("'") % 2 == 0, "an example stands on one line"


def test_the_help_names_all_commands(replay: Replay) -> None:
    _, out, _ = replay("--help")
    for command in COMMANDS:
        assert f"replay {command}" in out
