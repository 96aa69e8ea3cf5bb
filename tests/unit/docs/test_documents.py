"""What the documents tell a reader to type, open or copy is there and works."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

import orchestrator.cli
import replay.cli
from components.agents.base import Agent, AgentConfig
from components.agents.trial import run_agent
from components.durable import Call
from contracts.responses import Response, output_message
from contracts.rollouts import Verdict

ROOT = Path(__file__).parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS += sorted((ROOT / "components").glob("*/*/README.md"))
DOCUMENTS += sorted((ROOT / "examples").glob("*/README.md"))
PROGRAMS = {"jetgym": orchestrator.cli.build, "replay": replay.cli.build}


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


def typed(path: Path) -> list[list[str]]:
    """Each command line in the document's shell blocks, without its comment."""
    lines = [line for block in blocks(path, "sh") for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


COMMANDS = [
    pytest.param(words, id=f"{path.relative_to(ROOT)}: {' '.join(words)}")
    for path in DOCUMENTS
    for words in typed(path)
]


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_in_the_documents_is_one(words: list[str]) -> None:
    program, arguments = Path(words[0]).name, words[1:]
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert next(word for word in arguments if "=" not in word) in targets
    elif program in PROGRAMS:
        command: Any = typer.main.get_command(PROGRAMS[program]())
        while hasattr(command, "commands") and arguments:
            assert arguments[0] in command.commands
            command, arguments = command.commands[arguments[0]], arguments[1:]
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        used = {word.partition("=")[0] for word in arguments if word.startswith("--")}
        assert used <= known | {"--help"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_agent_of_the_readme_asks_twice_and_keeps_the_second_answer() -> None:
    (source,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in source.splitlines() if line.strip()]) <= 12
    namespace: dict[str, type[Agent[AgentConfig]]] = {}
    exec(source, namespace)
    asked: list[list[dict[str, object]]] = []

    def answer(call: Call) -> Response | Verdict | None:
        if call.type == "model.requested":
            asked.append(json.loads(call.data)["input"])
            said = output_message(f"answer {len(asked)}", item_id=f"msg{len(asked)}")
            return Response(id="r", object="response", created_at=0, model="m", output=[said])
        return Verdict(reward=1.0) if call.type == "verify.requested" else None

    task = b'{"responses_create_params": {"input": "What is 2 + 3?"}}'
    config = AgentConfig(model="policy", resources="quiz")
    result = run_agent(namespace["SecondThought"], config, task, answer)
    assert [len(items) for items in asked] == [1, 3]
    assert Response.model_validate_json(bytes(result.response)).output_text.endswith("answer 2")
