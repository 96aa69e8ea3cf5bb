"""What the web app answers, asked without a browser."""

import json
from pathlib import Path

import pytest

from contracts.responses import output_message
from tests.unit.replay.examples import CALC, calculator, recorded_run, refusing, task
from tests.unit.replay.recorder import Recorder, model_reply
from tests.unit.replay.ui.pages import Pages, serving

R = "runs/r1/rollouts"


async def test_runs_are_told_from_their_rollouts(tmp_path: Path) -> None:
    async with serving(tmp_path, recorded_run(runs=("r1", "r2")).log) as pages:
        runs = await pages.get("runs")
    assert [run["run_id"] for run in runs] == ["r2", "r1"]
    assert runs[0] | {"started": "", "wall_s": 0} == {
        "run_id": "r2",
        "state": "ended",
        "asked": 3,
        "completed": 3,
        "failed": 0,
        "cancelled": 0,
        "mean_reward": 1.0,
        "wall_s": 0,
        "started": "",
        "where": "",
    }


async def test_a_window_of_the_table_is_filtered_sorted_and_cut(tmp_path: Path) -> None:
    async with serving(tmp_path, recorded_run(rollouts=8, runs=("r1", "r2")).log) as pages:
        found = await pages.get(R, filter="task>=3 reward:1", sort="-task", offset="1", limit="2")
        assert (found["total"], found["matched"]) == (8, 5)
        assert [row["task_index"] for row in found["rows"]] == [6, 5]
        assert found["rows"][0]["task"] == "What are 5 + 7 and 5 * 7?"
        around = await pages.get(f"{R}/r1-00006-00/around", filter="task>=3", sort="-task")
        assert around == {"position": 1, "matched": 5, "before": "r1-00007-00", "after": "r1-00005-00"}
        outside = await pages.get(f"{R}/r1-00001-00/around", filter="task>=3")
        assert outside["position"] is None


async def test_what_makes_no_sense_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with serving(tmp_path, recorded_run().log) as pages:
        wrong = await pages.get(R, 400, filter="rewards<1")
        assert wrong["error"].startswith("nothing is called 'rewards'; there are: task, index")
        assert (await pages.get(R, 400, sort="colour"))["error"].startswith("no column is called 'colour'")
        assert (await pages.get(R, 400, offset="-1"))["error"] == "offset is a number, and '-1' is none"
        assert "error" in await pages.get(f"{R}/a.b", 404)
        assert await pages.get("nothing", 404) == {"error": "Not Found"}


@pytest.mark.parametrize("what", ["", "/around", "/steps/m_0", "/tokens", "/events", "/events/1", "/diff"])
async def test_a_rollout_that_is_not_there_is_not_found(tmp_path: Path, what: str) -> None:
    async with serving(tmp_path, recorded_run().log) as pages:
        found = await pages.get(f"{R}/r1-00000-07{what}", 404, **{"with": "r1-00000-00"})
        assert found == {"error": "run r1 has no rollout 'r1-00000-07'"}


async def test_whatever_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with serving(tmp_path, recorded_run().log) as pages:
        for what in ("charts", "pools", "changes", "rollouts", "rollouts/r1-00000-00"):
            assert await pages.get(f"runs/r7/{what}", 404) == {"error": "there is no run 'r7' here"}
        for what in ("steps/m_77", "events/99999"):
            assert "error" in await pages.get(f"{R}/r1-00000-00/{what}", 404)
        for other in ("r1-00000-07", "r7-00000-00"):
            assert other in (await pages.get(f"{R}/r1-00000-00/diff", 404, **{"with": other}))["error"]
        assert "error" in await pages.get("jobs/77", 404)


async def test_a_rollouts_page_has_its_facts_its_story_and_its_lanes(tmp_path: Path) -> None:
    async with serving(tmp_path, recorded_run().log) as pages:
        page = await pages.get(f"{R}/r1-00001-00")
    assert (page["outcome"], page["reward"], page["components"]) == ("completed", 1.0, {"right": 0.75, "short": 0.25})
    assert [step["what"] for step in page["steps"]] == ["model", "tool", "tool", "model", "verify"]
    first = page["steps"][0]
    assert [(part["label"], part["text"]) for part in first["asked"]] == [
        ("tools", "add, multiply"),
        ("user", "What are 5 + 7 and 5 * 7?"),
    ]
    assert [part["text"] for part in first["answered"]] == ["add(a=5, b=7)", "multiply(a=5, b=7)"]
    assert [lane["kind"] for lane in page["timeline"]["lanes"]] == ["agents", "models", "tools", "verifier"]
    assert [sibling["rollout_id"] for sibling in page["group_of"]] == ["r1-00001-00"]
    assert page["agent_workers"][0]["implementation"] == "simple_agent"


async def test_the_events_are_given_as_they_are_stored(tmp_path: Path) -> None:
    log = recorded_run().log
    async with serving(tmp_path, log) as pages:
        lines = await pages.get(f"{R}/r1-00000-00/events")
        found = await pages.get(f"{R}/r1-00000-00/events/{lines[1]['seq']}")
        assert "error" in await pages.get(f"{R}/r1-00000-00/events/1", 404)
    assert [line["type"] for line in lines][:2] == ["rollout.requested", "model.requested"]
    assert found["event"] == json.loads(log[lines[1]["seq"] - 1].raw)


async def test_a_long_text_is_cut_and_its_call_is_given_whole(tmp_path: Path) -> None:
    recorder = Recorder(
        CALC,
        lambda call: (
            model_reply(output_message("long " * 5000, item_id="msg_1")) if "model" in call.type else calculator(call)
        ),
    )
    recorder.deployment({"calc": "simple_agent"}, {"calc": ""})
    recorder.rollout("r1-00000-00", "calc", task())
    async with serving(tmp_path, recorder.log) as pages:
        page = await pages.get(f"{R}/r1-00000-00")
        part = page["steps"][0]["answered"][0]
        whole = await pages.get(f"{R}/r1-00000-00/steps/{page['steps'][0]['key']}")
    assert (len(part["text"]), part["left"]) == (6000, 19000)
    assert whole["answered"][0]["text"] == "long " * 5000
    assert "left" not in whole["answered"][0]


async def test_a_failure_is_shown_and_is_no_reward(tmp_path: Path) -> None:
    recorder = Recorder(CALC, refusing)
    recorder.deployment({"calc": "simple_agent"}, {"calc": ""})
    recorder.rollout("r1-00000-00", "calc", task())
    async with serving(tmp_path, recorder.log) as pages:
        page = await pages.get(f"{R}/r1-00000-00")
        charts = (await pages.get("runs/r1/charts"))["charts"]
    assert (page["outcome"], page["reward"], page["error"]["kind"]) == ("failed", None, "unavailable")
    assert page["steps"][0]["state"] == "failed"
    assert (charts["outcomes"], charts["errors"], charts["mean_reward"]) == ({"failed": 1}, {"unavailable": 1}, None)


async def test_tokens_are_absent_where_none_were_captured(tmp_path: Path) -> None:
    async with serving(tmp_path, recorded_run().log) as pages:
        tokens = await pages.get(f"{R}/r1-00000-00/tokens")
    assert tokens["samples"] == []
    assert [found["why"] for found in tokens["tokenless"]] == ["its tokens were not captured"] * 2


async def test_news_come_as_server_sent_events(tmp_path: Path) -> None:
    async with serving(tmp_path, recorded_run().log) as pages, pages.client.get("/api/runs/r1/changes") as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        line = await response.content.readline()
    assert json.loads(line.removeprefix(b"data: "))["state"] == "at rest"


@pytest.mark.parametrize("path", ["/", "/static/js/main.js", "/static/base.css", "/api/about", "/api/runs/r1/changes"])
async def test_every_answer_says_that_nothing_foreign_may_run_in_it(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, recorded_run().log) as pages, pages.client.get(path) as response:
        assert response.status == 200
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_the_page_and_its_files_name_nothing_outside_and_hold_no_script_of_their_own(tmp_path: Path) -> None:
    async with serving(tmp_path, recorded_run().log) as pages, pages.client.get("/") as response:
        page = await response.text()
    assert "://" not in page
    assert "<script>" not in page
    assert "style=" not in page


HOSTS = [
    "evil.example",
    "evil.example:8327",
    "127.0.0.1.evil.example",
    "localhost@evil.example",
    "[::2]",
    "",
    "a b",
    "127.0.0.1:x",
]


@pytest.mark.parametrize("host", HOSTS)
async def test_a_name_that_only_leads_here_gets_no_answer(tmp_path: Path, host: str) -> None:
    async with serving(tmp_path, recorded_run().log) as pages:
        for path in ("/", "/api/runs"):
            async with pages.client.get(path, headers={"Host": host}) as response:
                assert response.status in (400, 403)
                assert "r1" not in await response.text()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8327", "[::1]:8327"])
async def test_names_of_this_machine_are_answered(tmp_path: Path, host: str) -> None:
    async with (
        serving(tmp_path, recorded_run().log) as pages,
        pages.client.get("/api/about", headers={"Host": host}) as response,
    ):
        assert response.status == 200


async def test_a_page_from_elsewhere_gets_no_answer(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, recorded_run().log) as pages,
        pages.client.get("/api/about", headers={"Sec-Fetch-Site": "cross-site"}) as response,
    ):
        assert response.status == 403


async def test_what_changes_something_takes_the_token_of_this_start_from_the_same_origin(tmp_path: Path) -> None:
    async def status(pages: Pages, headers: dict[str, str]) -> int:
        async with pages.client.post("/api/runs", headers=headers) as response:
            return response.status

    async with serving(tmp_path, recorded_run().log) as pages:
        token = {"X-Replay-Token": (await pages.get("about"))["token"]}
        own = {"Origin": str(pages.client.make_url("/")).rstrip("/")}
        assert await status(pages, {}) == 403
        assert await status(pages, {"X-Replay-Token": "guessed"}) == 403
        assert await status(pages, {**token, "Origin": "http://evil.example"}) == 403
        assert await status(pages, {**token, "Origin": "null"}) == 403
        assert await status(pages, {**token, **own}) == 405  # nothing changes there, so the guard let it pass
