import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import components.agents
from components.agents.base import AgentConfig
from components.loading import add_roots, digest
from contracts.codec import encode
from replay.bulk import Bulk, Summary
from replay.facts import facts_of
from replay.file_source import FileSource, export_lines
from replay.verify import Resolved, Verdict, Verifier
from tests.unit.replay.examples import OneTurn, calculator, facts, recorded_run, task, trajectory_of
from tests.unit.replay.recorder import Recorder

AGENT = '''"""An agent of a user's own."""
{imports}
from components.agents.base import Agent, AgentConfig
from contracts.responses import Response, ResponseCreateParams


class OwnAgent(Agent[AgentConfig]):
    """Asks once."""
    {settings}

    async def responses(self, request: ResponseCreateParams) -> Response:
        print("asking")
        return await self.model.responses({request})
'''
OTHER = 'request.model_copy(update={"temperature": 0.5})'
CHANCE = 'request.model_copy(update={"temperature": random.random()})'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory whose components come before ours; none of its modules stays imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(components.agents, "__path__", list(components.agents.__path__))
    add_roots([tmp_path])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("components.agents.own")]:
        del sys.modules[name]


def write_agent(
    project: Path, *, request: str = "request", imports: str = "", settings: str = "", requires: str = ""
) -> None:
    folder = project / "components" / "agents" / "own"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "app.py").write_text(AGENT.format(imports=imports, request=request, settings=settings))
    (folder / "requirements.txt").write_text(requires)


def recorded_own(code: str = "", python: str = "3.11") -> Recorder:
    """A run of one rollout of an agent that does what the one above does; `code` is its recorded digest."""
    recorder = Recorder({"mine": (OneTurn, AgentConfig(model="policy", resources="calc_env"))}, calculator)
    recorder.deployment({"mine": "own"}, {"mine": code or digest("agents", "own")}, python=python)
    recorder.rollout("r1-00000-00", "mine", task())
    return recorder


def verdict(recorder: Recorder, override: Resolved | None = None) -> Verdict:
    return Verifier(facts(recorder), override).verify(trajectory_of(recorder))


def test_the_recorded_code_and_config_give_the_same() -> None:
    found = verdict(recorded_run(1))
    assert (found.verdict, found.code, found.calls, found.ended, found.reward) == ("same", "same", 5, "completed", 1.0)
    assert (found.agent, found.implementation) == ("calc", "simple_agent")


def test_a_rollout_with_tokens_gives_the_same_without_them_being_fetched() -> None:
    """T18: what is in a capture, here or elsewhere, no code reads."""
    recorder = recorded_run(1)
    for place, recorded in enumerate(recorder.log):
        if recorded.event.type == "model.replied":
            here = {"capture": msgspec.Raw(b'{"generated":"AQAAAA=="}')} if place % 2 else {"captureref": "sha256:ab"}
            event = msgspec.structs.replace(recorded.event, **here)
            recorder.log[place] = msgspec.structs.replace(recorded, event=event, raw=encode(event))
    assert verdict(recorder).verdict == "same"


def test_changed_code_that_departs_is_told_from_code_that_is_not_deterministic(project: Path) -> None:
    write_agent(project, request=OTHER)
    changed = verdict(recorded_own(code="another"))
    assert (changed.verdict, changed.code) == ("differs", "changed")
    assert changed.departure is not None
    assert changed.departure.file == str(project / "components" / "agents" / "own" / "app.py")


def test_code_that_departs_and_has_not_changed_is_not_deterministic(project: Path) -> None:
    write_agent(project, request=CHANCE, imports="import random")
    found = verdict(recorded_own())
    assert (found.verdict, found.code) == ("differs", "same")


def test_changed_code_that_does_the_same_is_the_same(project: Path) -> None:
    write_agent(project)
    found = verdict(recorded_own(code="another"))
    assert (found.verdict, found.code) == ("same", "changed")


def test_another_python_than_the_recorded_one_is_named(project: Path) -> None:
    write_agent(project)
    now = ".".join(map(str, sys.version_info[:2]))
    assert verdict(recorded_own(python="3.7")).versions[0] == f"Python 3.7, now {now}"


@pytest.mark.parametrize("signal", ["KeyboardInterrupt", "SystemExit"])
def test_an_agent_that_raises_what_ends_a_process_ends_with_a_verdict(project: Path, signal: str) -> None:
    write_agent(project, settings=f"async def run(self, task):\n        raise {signal}")
    found = verdict(recorded_own())
    assert (found.verdict, found.code) == ("differs", "same")


@pytest.mark.parametrize("signal", ["KeyboardInterrupt", "SystemExit"])
def test_an_agent_whose_import_raises_what_ends_a_process_could_not_run(project: Path, signal: str) -> None:
    write_agent(project, imports=f"raise {signal}")
    found = verdict(recorded_own(code="another"))
    assert (found.verdict, found.reason) == ("could not run", f"the code of agent 'mine' cannot be imported: {signal}")


def test_what_an_agent_prints_is_not_on_standard_output(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_agent(project)
    assert verdict(recorded_own()).verdict == "same"
    assert capsys.readouterr() == ("", "asking\n")


def test_a_config_of_the_users_replaces_the_recorded_one() -> None:
    config = {"calc": {"agents": {"simple_agent": {"model": "other", "resources": "calc_env"}}}}
    found = verdict(recorded_run(1), config)
    assert found.departure is not None
    assert (found.verdict, found.departure.made) == ("differs", "other")
    assert found.code == "same"


def test_code_of_another_implementation_has_no_recorded_source(project: Path) -> None:
    write_agent(project)
    found = verdict(recorded_run(1), {"calc": {"agents": {"own": {"model": "policy", "resources": "calc_env"}}}})
    assert (found.verdict, found.code) == ("differs", "unknown")


def test_without_a_recorded_config_it_could_not_run_and_says_what_to_give() -> None:
    recorder = Recorder({"mine": (OneTurn, AgentConfig(model="policy"))}, calculator)
    recorder.rollout("r1-00000-00", "mine", task())
    found = verdict(recorder)
    assert found.verdict == "could not run"
    assert found.reason == (
        "the log does not say how the agent 'mine' was configured: give its run's config.yaml, or what `jetgym "
        "validate CONFIG --yaml` prints, with --config FILE"
    )


def test_code_that_is_not_here_could_not_run() -> None:
    found = verdict(recorded_own(code="x"))
    assert found.verdict == "could not run"
    assert found.reason.startswith("the code of agent 'mine' is not here: there is no agents implementation 'own'")


def test_code_that_cannot_be_imported_could_not_run(project: Path) -> None:
    write_agent(project, imports="import nothing_of_that_name")
    found = verdict(recorded_own(code="x"))
    assert found.reason == (
        "the code of agent 'mine' cannot be imported: ModuleNotFoundError: No module named 'nothing_of_that_name'"
    )


def test_a_config_that_the_code_does_not_take_any_more_could_not_run() -> None:
    found = verdict(
        recorded_run(1),
        {"calc": {"agents": {"simple_agent": {"model": "policy", "resources": "calc_env", "maximum": 3}}}},
    )
    assert found.reason.startswith("agent 'calc' does not take its config any more: maximum: Extra inputs")


@pytest.mark.parametrize("given", [{"models": {}}, "text", {"agents": {"one": {}, "two": {}}}])
def test_a_given_config_of_another_shape_is_refused(given: object) -> None:
    found = verdict(recorded_run(1), {"calc": given})
    assert found.reason == "--config: 'calc' must hold `agents:` with one implementation and its config"


def test_an_opaque_agents_rollouts_are_recordings(project: Path) -> None:
    write_agent(project, settings='replay = "recording"')
    found = verdict(recorded_own())
    assert "is an opaque program: its rollouts are recordings" in found.reason


# --- many ------------------------------------------------------------------------------------------------------


async def verified(recorder: Recorder, folder: Path) -> tuple[list[Verdict], Summary]:
    """All rollouts of a recording, by way of a file."""
    path = folder / "log.jsonl"
    path.write_bytes(b"\n".join(export_lines(recorder.log, {})))
    source, summary = FileSource([path]), Summary()
    ids = dict.fromkeys(event.event.rolloutid for event in recorder.log if event.event.rolloutid)
    async with Bulk(source, await facts_of(source), None, [str(folder)]) as bulk:
        verdicts = [verdict async for verdict in bulk.verify(ids)]
    for found in verdicts:
        summary.add(found)
    return verdicts, summary


async def test_a_file_gives_the_verdict_that_the_recording_gives(tmp_path: Path) -> None:
    """R3."""
    verdicts, summary = await verified(recorded_run(3), tmp_path)
    assert [found.verdict for found in verdicts] == ["same"] * 3
    assert verdicts[0] == verdict(recorded_run(3))
    assert (summary.exit_code, summary.groups) == (0, [])


async def test_rollouts_that_depart_at_one_place_are_one_group(project: Path) -> None:
    write_agent(project, request=OTHER)
    recorder = recorded_own(code="another")
    for index in range(1, 6):
        recorder.rollout(f"r1-{index:05d}-00", "mine", task(), index=index)
    _, summary = await verified(recorder, project)
    (group,) = summary.groups
    assert (group.count, len(group.examples), group.code) == (6, 3, "changed")
    assert group.where.endswith("own/app.py:13")
    assert summary.exit_code == 1


async def test_a_rollout_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    recorder = recorded_run(3)
    lost = [event for event in recorder.log if event.event.rolloutid == "r1-00001-00"]
    recorder.log = [event for event in recorder.log if event not in lost or event.event.type != "rollout.requested"]
    verdicts, summary = await verified(recorder, tmp_path)
    assert [found.verdict for found in verdicts] == ["same", "could not run", "same"]
    assert summary.exit_code == 2


# --- in a venv -------------------------------------------------------------------------------------------------


def write_venv(project: Path, component: str = "agents/own") -> None:
    """A venv as jetgym builds it, as far as replay looks at it: this interpreter stands in for the built one."""
    venv = project / ".jetgym" / "venvs" / "0123456789abcdef"
    (venv / "bin").mkdir(parents=True)
    (venv / "jetgym.json").write_text(f'{{"component": "{component}", "core": []}}')
    python = venv / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)


async def test_an_agent_with_requirements_of_its_own_is_verified_in_its_venv(project: Path) -> None:
    write_agent(project, requires="a-package-of-its-own\n")
    write_venv(project)
    recorder = recorded_own()
    recorder.rollout("r1-00001-00", "mine", task(), index=1)
    verdicts, _ = await verified(recorder, project)
    assert [(found.verdict, found.code) for found in verdicts] == [("same", "same")] * 2
    assert "components.agents.own.app" not in sys.modules


async def test_a_departure_in_a_venv_is_told_as_one_here(project: Path) -> None:
    write_agent(project, request=OTHER, requires="a-package-of-its-own\n")
    write_venv(project)
    ((there,), _) = await verified(recorded_own(code="another"), project)
    assert there == verdict(recorded_own(code="another"))
    assert there.verdict == "differs"


async def test_code_that_ends_its_process_could_not_run_and_the_next_rollout_is_tried(project: Path) -> None:
    write_agent(project, imports="import os\nos._exit(7)", requires="a-package-of-its-own\n")
    write_venv(project)
    recorder = recorded_own(code="x")
    recorder.rollout("r1-00001-00", "mine", task(), index=1)
    verdicts, summary = await verified(recorder, project)
    app = project / "components" / "agents" / "own" / "app.py"
    assert [found.reason for found in verdicts] == [
        f"rollout {found.rollout_id}: its code ended its process with exit code 7 at {app}:3" for found in verdicts
    ]
    assert summary.exit_code == 2


async def test_a_venv_that_is_not_built_is_told_with_the_way_to_build_it(project: Path) -> None:
    write_agent(project, requires="a-package-of-its-own\n")
    write_venv(project, component="agents/other")
    ((found,), _) = await verified(recorded_own(), project)
    assert found.verdict == "could not run"
    assert "agents/own needs a venv of its own" in found.reason
    assert "`jetgym validate CONFIG`" in found.reason
