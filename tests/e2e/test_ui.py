"""The web app in a real browser: headless Chromium, driven by Playwright. Skipped where either is not installed."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from components.durable import Call
from contracts.events import CallError
from contracts.responses import function_call, output_message
from replay.file_source import export_lines
from tests.unit.replay.examples import CALC, calculator, refusing, task
from tests.unit.replay.recorder import Recorder, model_reply

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

MANY = 5_000
HOSTILE = (
    "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script><svg onload='hacked=1'>"
    '</textarea>\'"><a href="javascript:hacked=1">x</a>{{hacked=1}}${hacked=1}'
)


def _hostile(call: Call) -> bytes | CallError:
    """Everything that a model, a tool or a verifier can write is an attack."""
    if call.type == "model.requested":
        if b"function_call_output" in call.data:
            return model_reply(output_message(HOSTILE, item_id="msg_1"))
        return model_reply(function_call("c1", HOSTILE, json.dumps({HOSTILE: HOSTILE})))
    if call.type == "tool.requested":
        return msgspec.json.encode({"output": HOSTILE})
    if call.type == "verify.requested":
        return json.dumps({"reward": 1.0, "extra": {HOSTILE: HOSTILE, "reward_components": {HOSTILE: 1.0}}}).encode()
    return calculator(call)


def _write(folder: Path) -> Path:
    recorder = Recorder(CALC, calculator)
    recorder.deployment({"calc": "simple_agent"}, {"calc": ""})
    for index in range(3):
        recorder.rollout(f"r1-{index:05d}-00", "calc", task(), index=index)
    recorder._answer = refusing
    recorder.rollout("r1-00003-00", "calc", task(), index=3)
    recorder._answer = _hostile
    recorder.rollout("r1-00004-00", "calc", task(HOSTILE), index=4)
    request = next(line for line in recorder.log if line.event.rolloutid == "r1-00001-00")
    end = next(
        line
        for line in recorder.log
        if line.event.type == "rollout.completed" and line.event.rolloutid == "r1-00001-00"
    )
    file = folder / "events.jsonl"
    with file.open("wb") as out:
        out.writelines(line + b"\n" for line in export_lines(recorder.log, {}))
        for index in range(MANY):  # a run of many, of which each is that one again
            for line in (request, end):
                raw = line.raw.replace(b"r1-00001-00", b"r2-%05d-00" % index).replace(b'"r1"', b'"r2"')
                out.write(raw.replace(b'"task_index":1', b'"task_index":%d' % index) + b"\n")
    return file


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where `replay ui` serves a recording."""
    file = _write(tmp_path_factory.mktemp("ui"))
    command = [sys.executable, "-P", "-m", "replay", "ui", str(file), "--port", "0", "--no-open", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield str(json.loads(process.stdout.readline())["url"])
        process.terminate()
        assert process.wait(20) == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """A page that fails the test with its first error, its first dialog, and its first request to anywhere else."""
    wrong: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    opened = context.new_page()
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    refused = "Failed to load resource: the server responded with a status of 400 (Bad Request)"  # a filter is wrong
    opened.on("dialog", lambda dialog: wrong.append(dialog.message))
    opened.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(url) else None)
    yield opened
    assert [text for text in wrong if text != refused] == []
    context.close()


def test_what_models_and_tools_wrote_stays_text_in_every_tab(page: Any, url: str) -> None:
    page.goto(f"{url}#/r1")
    page.locator(".row", has_text="<img src=x").click()
    page.locator(".part.says .text", has_text="</textarea>").wait_for()
    assert page.locator(".part.user .text").first.text_content() == HOSTILE
    for tab in ("timeline", "tokens", "events", "diff", "conversation"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_url(f"**{'' if tab == 'conversation' else '/' + tab}*")
    page.goto(f"{url}#/r1/r1-00004-00/diff?with=r1-00000-00")
    page.locator(".change ins, .change del").first.wait_for()
    page.keyboard.press("f")
    page.get_by_role("dialog").get_by_role("button", name="the whole reply").click()
    page.locator("textarea").wait_for()
    page.get_by_role("dialog").get_by_text("replay fork r1-00004-00").wait_for()
    page.goto(f"{url}#/r1?filter={HOSTILE}")
    page.locator(".filter").wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main a[href^='javascript']").count() == 0


def test_a_filter_that_is_refused_is_asked_once_and_said(page: Any, url: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/rollouts?" in request.url else None)
    page.goto(f"{url}#/r1?filter=reward<")
    page.get_by_text("reward< compares nothing").wait_for()
    page.locator(".filter").fill("reward<2")
    page.get_by_text("4 of 5 rollouts").wait_for()
    assert len([each for each in asked if each.endswith("reward%3C") or "reward%3C&" in each]) <= 2


def test_on_a_narrow_screen_nothing_is_beside_it(page: Any, url: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{url}#/r1")
    page.locator(".row[data-rollout='r1-00000-00']").wait_for()
    right = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.table .cell')].map((cell) => cell.getBoundingClientRect().right))"
    )
    assert right <= 390


def test_each_moment_on_the_axis_of_time_has_a_name_of_its_own(page: Any, url: str) -> None:
    page.goto(f"{url}#/r1/r1-00000-00/timeline")
    page.locator(".lanes .bar").first.wait_for()
    named = [name for name in page.locator(".lanes .tick").all_text_contents() if name != "⋯"]
    assert len(named) > 2
    assert len(set(named)) == len(named)


def test_a_table_of_thousands_holds_only_the_rows_in_sight(page: Any, url: str) -> None:
    page.goto(f"{url}#/r2")
    page.get_by_text(f"{MANY:,} rollouts").wait_for()
    page.locator(".row[data-rollout='r2-00000-00']").wait_for()
    assert page.locator(".list .row").count() < 60
    page.keyboard.press("End")
    page.locator(f".row[data-rollout='r2-{MANY - 1:05d}-00']").wait_for()
    assert page.locator(".list .row").count() < 60
    page.get_by_role("button", name="task", exact=True).click()
    page.wait_for_url("**sort=-task*")
    page.locator(f".row[data-rollout='r2-{MANY - 1:05d}-00']").wait_for()
    page.locator(".filter").fill("task<10 task>6")
    page.get_by_text(f"3 of {MANY:,} rollouts").wait_for()
    page.locator(".filter").fill("tusk<10")
    page.get_by_text("nothing is called 'tusk'").wait_for()


def test_everything_can_be_done_with_the_keyboard(page: Any, url: str) -> None:
    page.goto(url)
    page.locator(".run .name").first.wait_for()
    runs = page.locator(".run .name").all_text_contents()
    for _ in range(runs.index("r1")):
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.locator(".row[data-rollout='r1-00001-00']").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("reward:1")
    page.wait_for_url("**filter=reward*")
    page.get_by_text("4 of 5 rollouts").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/r1-00001-00*")
    page.locator(".step").first.wait_for()
    page.keyboard.press("j")
    page.locator(".step.at").wait_for()
    page.keyboard.press("2")
    page.wait_for_url("**/timeline*")
    page.locator(".lanes .bar").first.wait_for()
    page.keyboard.press("]")
    page.wait_for_url("**/r1-00002-00/timeline*")
    page.locator(".rollout-head").get_by_text("Task 2").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("next rollout of the table").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    page.keyboard.press("Escape")
    page.wait_for_url("**/r1?filter=reward*at=r1-00002-00")
    page.locator(".row.at[data-rollout='r1-00002-00']").wait_for()
    for keys in ("xkd", "xkxd"):  # one is marked, and then both
        for key in keys:
            page.keyboard.press(key)
        page.wait_for_url("**/r1-00002-00/diff?*with=r1-0000*")
        page.locator(".rollout-head").get_by_text("Task 2").wait_for()  # the address changes before the page does
        page.keyboard.press("Escape")
        page.locator(".row.at[data-rollout='r1-00002-00']").wait_for()


def test_a_url_leads_to_the_same_place_again(page: Any, url: str) -> None:
    page.goto(f"{url}#/r1/r1-00003-00/events?filter=outcome%3Afailed")
    page.locator(".event-data pre").wait_for()
    page.keyboard.press("j")
    page.locator(".event-data b", has_text="model.requested").wait_for()
    again = page.context.new_page()
    again.goto(page.url)
    again.locator(".event-data b", has_text="model.requested").wait_for()
    assert again.locator(".rollout-head").get_by_text("1 of 1").count() == 1
    assert "failed: unavailable" in again.locator(".rollout-head").inner_text()


def test_times_are_those_of_the_filter_wherever_the_browser_is(browser: Any, url: str) -> None:
    """In UTC, as the terminal tells them."""
    for zone in ("America/Los_Angeles", "Asia/Tokyo"):
        context = browser.new_context(timezone_id=zone, viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.goto(f"{url}#/r1?filter=started:2025-01-02T03:04")
        page.locator(".row", has_text="2 Jan 03:04").first.wait_for()
        context.close()


def test_dark_follows_the_system_until_it_is_switched_here(browser: Any, url: str) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(url)
    root = page.locator("html")
    page.locator(".run .name").first.wait_for()
    assert root.get_attribute("data-theme") == "dark"
    page.get_by_role("button", name="Dark or light").click()
    assert root.get_attribute("data-theme") == "light"
    page.reload()
    page.locator(".run .name").first.wait_for()
    assert root.get_attribute("data-theme") == "light"
    context.close()
