"""The component with its real engine in its own venv, and what it says where the engine cannot start."""

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from components.loading import INSTALLED
from components.models.errors import ModelError
from components.models.local_llm.app import LocalLLM, LocalLLMConfig

LIVE = Path(__file__).with_name("live.py")


@pytest.fixture(scope="module")
def venv_python() -> str:
    """The Python of the component's own venv, which is built as a first run builds it."""
    validate = [sys.executable, "-P", "-m", "orchestrator", "validate", "configs/demo.yaml"]
    built = subprocess.run(validate, cwd=INSTALLED, capture_output=True, text=True, timeout=280, check=False)
    assert built.returncode == 0, built.stderr
    packages = (INSTALLED / ".jetgym" / "venvs").glob("*/lib/python*/site-packages/xllamacpp")
    return str(max(packages, key=lambda package: package.stat().st_ctime).parents[3] / "bin" / "python")


@pytest.mark.parametrize(
    ("given", "concurrency"),
    [
        ({}, 4),
        ({"parallel": 8}, 8),
        ({"parallel": 8, "pool": {"workers": 2}}, 8),
        ({"parallel": 8, "pool": {"concurrency": 16}}, 16),
    ],
)
def test_a_worker_takes_on_as_many_calls_as_its_engine_decodes_together(
    given: dict[str, object], concurrency: int
) -> None:
    config = LocalLLMConfig.model_validate(given)
    assert config.pool.concurrency == concurrency
    assert LocalLLMConfig.model_validate(config.model_dump(mode="json")) == config


def test_a_wrong_parallel_is_refused_by_its_own_name() -> None:
    with pytest.raises(ValidationError, match="parallel") as raised:
        LocalLLMConfig.model_validate({"parallel": "many"})
    assert [error["loc"] for error in raised.value.errors()] == [("parallel",)]


@pytest.mark.llm
def test_the_engine_answers_calls_functions_and_survives_being_killed(venv_python: str) -> None:
    done = subprocess.run([venv_python, LIVE], cwd=INSTALLED, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["text"]["output"][0]["content"][0]["text"]
    assert found["text"]["usage"]["output_tokens"] > 0
    assert found["text"]["model"] == "SmolLM2-135M-Instruct.Q4_1"
    (call,) = found["call"]["output"]
    assert (call["type"], call["name"], type(json.loads(call["arguments"])["count"])) == ("function_call", "add", int)
    assert found["together"] == 6
    assert found["too_long"][0] == "context_length"
    assert found["after_kill"]["output"]
    assert found["restarted"]
    assert found["stopped"]
    _check_tokens(found)


def _check_tokens(found: dict[str, Any]) -> None:
    """T1, T3, T7, T13, T14, T18, on what the engine really read and wrote."""
    first, cut, last = found["turns"]
    for turn in (first, cut, last):
        assert turn["flaw"] == ""
        assert all(turn["digests"])
        assert len(turn["generated"]) == len(turn["logprobs"])
        assert max(turn["logprobs"]) <= 0
        counted = turn["reply"]["usage"]
        assert (counted["input_tokens"], counted["output_tokens"]) == (len(turn["prompt"]), len(turn["generated"]))
        assert "logprob" not in json.dumps(turn["reply"])
    for before, after in itertools.pairwise((first, cut, last)):
        whole = before["prompt"] + before["generated"]
        assert after["prompt"][: len(whole)] == whole, "T1"
    assert all("<|im_start|>user\n" in text for text in found["between"]), "T13: the template's own words between turns"
    assert cut["reply"]["status"] == "incomplete"
    assert found["between"][1].startswith("<|im_end|>"), "T14: what was cut off has no end token, the template ends it"
    again = [(said, now) for said, now in zip(first["logprobs"], found["scored"], strict=False) if now is not None]
    assert len(again) >= 3
    assert all(said == pytest.approx(now, abs=0.05) for said, now in again), "they are those of the weights alone"
    (part,) = found["logprobs"]["output"][0]["content"]
    assert {frozenset(entry) for entry in part["logprobs"]} == {
        frozenset(("token", "logprob", "bytes", "top_logprobs"))
    }


@pytest.mark.llm
def test_the_engine_dies_with_a_worker_that_is_killed(venv_python: str) -> None:
    with subprocess.Popen([venv_python, LIVE, "wait"], cwd=INSTALLED, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        engine = Path("/proc", next(line for line in worker.stdout if line.strip().isdigit()).strip())
        assert engine.exists()
        worker.kill()
    deadline = time.monotonic() + 60
    while engine.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not engine.exists()


async def test_an_engine_that_cannot_start_is_told_with_its_last_words() -> None:
    model = LocalLLM(LocalLLMConfig(model_path=str(LIVE)))
    with pytest.raises(ModelError, match=r"the local engine did not start: \w") as raised:
        await model.start()
    await model.stop()
    assert raised.value.kind == "unavailable"
