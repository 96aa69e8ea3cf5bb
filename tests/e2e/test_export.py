"""`jetgym export samples`: what an engine sampled, in files, and what is not in them is told."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bus import LogConfig
from orchestrator.policy_versions import announce
from tests.e2e.test_capture import SCRIPT, TASK, instances
from tests.e2e.workers import RUN, Deployment
from tests.engines.vllm import Vllm

ROLLOUTS = 5


async def export(server: str, config: LogConfig, out: Path, *flags: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command."""
    where = ["--url", server, "--namespace", config.namespace, "--run", RUN, "--out", str(out)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "orchestrator",
        "export",
        "samples",
        *where,
        *flags,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode(), errors.decode()


async def test_a_run_is_exported_with_every_token_once(server: str, config: LogConfig, tmp_path: Path) -> None:
    async with (
        Vllm(SCRIPT).serving() as engine,
        Deployment(server, config, instances(engine)) as deployment,
    ):
        await deployment.start("policy", "quiz", "solver")
        for number in range(ROLLOUTS):
            await deployment.ask(f"r-{number}", TASK, agent="solver")
        for number in range(ROLLOUTS):
            await deployment.end(f"r-{number}")
        generated = sum(len(tokens) for _, tokens, _ in engine.said)
        longest = max(len(prompt) + len(tokens) for prompt, tokens, _ in engine.said)

        code, said, errors = await export(server, config, tmp_path / "npz", "--json")
        assert (code, errors) == (0, "")
        told: dict[str, Any] = json.loads(said)
        assert (told["rollouts"], told["samples"], told["trained"]) == (ROLLOUTS, ROLLOUTS, generated)
        assert (told["breaks"], told["tokenless_calls"], told["not_completed"]) == ({}, 0, 0)
        with np.load(told["files"][0], allow_pickle=False) as columns:
            assert int(columns["mask"].sum()) == generated
            assert columns["reward"].tolist() == [1.0] * ROLLOUTS
            assert sorted(columns["rollout_id"].tolist()) == [f"r-{number}" for number in range(ROLLOUTS)]

        code, said, _ = await export(
            server, config, tmp_path / "packed", "--pack", str(2 * longest), "--format", "jsonl"
        )
        assert code == 0
        assert f"{ROLLOUTS} samples in 3 rows of {ROLLOUTS} rollouts" in said
        rows = [json.loads(line) for line in (tmp_path / "packed" / "samples.jsonl").read_text().splitlines()]
        assert sum(sum(row["mask"]) for row in rows) == generated

        empty = tmp_path / "empty"
        empty.mkdir()
        for flags, why in (
            (["--tokenizer", "sha256:other"], "its token IDs mean other text"),
            (["--model", "polic"], "called model 'polic'; did you mean 'policy'?"),
            (["--model", "policy", "--model", "quiz"], "called model 'quiz'; there are: policy"),
            (["--pack", "3"], f"each of its {ROLLOUTS} samples is longer than a row of 3 tokens: give a larger --pack"),
        ):
            for out in (empty, tmp_path / "new"):
                code, said, errors = await export(server, config, out, "--json", *flags)
                assert (code, said, why in " ".join(errors.split())) == (2, "", True), errors
                assert "Traceback" not in errors
            assert not (tmp_path / "new").exists()
            assert not list(empty.iterdir())

        code, _, errors = await export(server, config, tmp_path / "npz")
        assert (code, "is there already" in errors) == (2, True)


async def test_an_export_of_what_has_no_tokens_says_so(server: str, config: LogConfig, tmp_path: Path) -> None:
    async with (
        Vllm(SCRIPT).serving() as engine,
        Deployment(server, config, instances(engine, token_ids=False)) as deployment,
    ):
        await deployment.ask("r-0", TASK, agent="solver")
        code, _, errors = await export(server, config, tmp_path / "out")
        assert (code, "none of its rollouts completed" in errors) == (2, True)
        await announce(deployment.bus, ["policy"], 3)  # what is recorded of a call are its versions then
        await deployment.start("policy", "quiz", "solver")
        await deployment.end("r-0")
        code, _, errors = await export(server, config, tmp_path / "out")
        assert (code, "no token to train on was captured of those that completed" in errors) == (2, True)
        assert not (tmp_path / "out").exists()
