"""reasoning_gym in a whole run, in its own venv: right answers earn 1, wrong ones less."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = [
    ROOT / "datasets" / "reasoning_gym" / "example.jsonl",
    ROOT.parent / "shared" / "data" / "nemo_gym" / "reasoning_gym.jsonl",
]


def config(tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """A model that knows the answers to all tasks but the last."""
    rules = [
        {"when": re.escape(question(task)) + r"\Z", "turns": [{"text": str(task["answer"])}]} for task in tasks[:-1]
    ]
    return {
        "solver": {"agents": {"simple_agent": {"model": "policy", "resources": "puzzles"}}},
        "puzzles": {"resources": {"reasoning_gym": {}}},
        "policy": {"models": {"scripted_model": {"rules": rules, "turns": [{"text": "I would rather not say."}]}}},
    }


def question(task: dict[str, Any]) -> str:
    text: str = task["responses_create_params"]["input"][0]["content"]
    return text


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.parent.name)
def test_right_answers_earn_1_and_a_wrong_one_less(file: Path, tmp_path: Path) -> None:
    if not file.exists():
        pytest.skip(f"{file.name} of the reference is not beside this checkout")
    tasks = [json.loads(line) for line in file.read_text().splitlines()]
    # below the repository, so that the component's venv is the one that the demo uses
    (tmp_path / "main.yaml").write_text(yaml.safe_dump(config(tasks)))
    run = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "orchestrator",
            "run",
            str(tmp_path / "main.yaml"),
            "--input",
            str(file),
            "--output",
            str(tmp_path / "out"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [json.loads(line) for line in (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()]
    rewards = {line["task_index"]: line["reward"] for line in lines}
    assert len(rewards) == len(tasks)
    assert all(rewards[index] == 1.0 for index in range(len(tasks) - 1)), rewards
    assert rewards[len(tasks) - 1] < 0.5
