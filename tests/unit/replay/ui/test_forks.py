"""What the form of a fork means, and that it is run as it is shown."""

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from replay.errors import Misused
from replay.opening import Where
from replay.ui.forks import ForkRequest, words_of
from tests.unit.replay.examples import recorded_run
from tests.unit.replay.ui.pages import Pages, serving

FORK = "runs/r1/rollouts/r1-00000-00/fork"


def words(**fields: Any) -> list[str]:
    return words_of(Where(run="results/first"), "r1-00000-00", ForkRequest(**{"at": "m_0", **fields}))[0]


def test_the_words_are_those_of_the_command() -> None:
    assert words() == ["fork", "r1-00000-00", "--at", "m_0", "--run", "results/first"]
    asked = words(fields={"text": "Yes."}, count=8, seed="7", model="judge", drop=True, config=("++a.b=1",))
    options = "--at m_0 --edit text=Yes. --model judge --seed 7 -n 8 --config ++a.b=1 --drop --run results/first"
    assert shlex.join(asked) == f"fork r1-00000-00 {options}"


def test_a_text_that_could_be_read_as_json_stays_a_text() -> None:
    assert words(fields={"output": "47"})[4:6] == ["--edit", 'output="47"']


def test_a_whole_reply_is_given_on_standard_input() -> None:
    asked, given = words_of(Where(url="nats://127.0.0.1:1"), "r1-00000-00", ForkRequest(at="m_0", reply='{"a": 1}'))
    assert asked[4:] == ["--set-reply", "/dev/stdin", "--url", "nats://127.0.0.1:1"]
    assert given == b'{"a": 1}'


def test_an_id_is_never_an_option() -> None:
    with pytest.raises(Misused, match="would be read as an option"):
        words_of(Where(), "--help", ForkRequest(at="m_0"))


async def _post(pages: Pages, path: str, body: dict[str, Any], *, token: bool = True) -> tuple[int, Any]:
    headers = {"X-Replay-Token": pages.guard.token} if token else {}
    async with pages.client.post(f"/api/{path}", json=body, headers=headers) as response:
        return response.status, await response.json()


async def test_a_command_is_shown_and_then_run_and_told(tmp_path: Path) -> None:
    async with serving(tmp_path, recorded_run().log) as pages:
        file = tmp_path / "events.jsonl"
        expected = f"replay fork r1-00000-00 --at m_0 --file {file}"
        assert await _post(pages, f"{FORK}/command", {"at": "m_0"}) == (200, {"command": expected})
        status, job = await _post(pages, FORK, {"at": "m_0"})
        assert (status, job["command"], job["state"]) == (200, expected, "running")
        async with asyncio.timeout(60):
            while job["state"] == "running":
                await asyncio.sleep(0.05)
                job = await pages.get(f"jobs/{job['job']}")
    assert job["state"] == "failed"
    assert "name the config of one with --config" in "".join(job["said"])
    assert job["results"] == []


async def test_nothing_is_started_without_the_token_or_with_fields_that_do_not_exist(tmp_path: Path) -> None:
    async with serving(tmp_path, recorded_run().log) as pages:
        assert (await _post(pages, FORK, {"at": "m_0"}, token=False))[0] == 403
        assert (await _post(pages, FORK, {"at": "m_0", "shell": "x"}))[0] == 400
        assert (await _post(pages, FORK, {"at": "m_0", "count": 0}))[0] == 400
        await pages.get("jobs/1", 404)


async def test_two_rollouts_are_compared(tmp_path: Path) -> None:
    async with serving(tmp_path, recorded_run(runs=("r1", "r2")).log) as pages:
        path = "runs/r1/rollouts/r1-00000-00/diff"
        same = await pages.get(f"{path}?with=r1-00001-00")
        other = await pages.get(f"{path}?with=r2-00000-00&by=turn")
        await pages.get(f"{path}?with=r1-00001-00&by=colour", 400)
        await pages.get(f"{path}?with=r9-00001-00", 404)
    assert (same["verdict"], other["verdict"], other["aligned"]) == ("same", "same", "turn")
    assert json.dumps(same["rewards"]) == "[1.0, 1.0]"
