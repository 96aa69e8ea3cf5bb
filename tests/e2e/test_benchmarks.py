"""The benchmarks run and teach; what they measure is in docs/performance.md."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent.parent / "benchmarks"


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    "script",
    [
        "in_flight.py",
        "recovery.py",
        "flat_cost.py",
        "throughput.py",
        "durable.py",
        "samples.py",
        "tokens.py",
        "feed.py",
        "verify.py",
        "long_rollout.py",
    ],
)
def test_help_says_what_is_measured_and_how_to_call_it(script: str) -> None:
    said = run(script, "--help")
    assert said.returncode == 0, said.stderr
    assert f"python benchmarks/{script}" in said.stdout
    assert "--json" in said.stdout


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("flat_cost.py", ["--rollouts", "60", "--first", "20"]),
        ("feed.py", ["--rollouts", "16", "--tokens", "800"]),
        ("samples.py", ["--rollouts", "3"]),
        ("tokens.py", ["--rollouts", "20", "--rounds", "1"]),
        ("verify.py", ["--rollouts", "20"]),
        ("long_rollout.py", ["--megabytes", "2", "--verbs", "why,verify"]),
    ],
)
def test_a_small_run_prints_one_json_line_with_the_fields_that_help_names(script: str, arguments: list[str]) -> None:
    named = set(re.findall(r"^    (\w+)  +\S", run(script, "--help").stdout, re.MULTILINE))
    ran = run(script, *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stdout.splitlines()
    assert set(json.loads(line)) == named


@pytest.mark.parametrize(
    ("script", "arguments"), [("in_flight.py", ["--rollouts", "70000"]), ("flat_cost.py", ["--first", "0"])]
)
def test_what_cannot_be_measured_is_refused(script: str, arguments: list[str]) -> None:
    assert run(script, *arguments).returncode == 2
