"""How many bytes a long rollout takes in the log, for each byte of its items.

Collects rollouts of 50 and of 200 turns with `jetgym run`. In each turn the model says something and calls a tool, and
the tool answers: three items, about 1 kB together, of random text that no compression makes smaller. Reported is what
the stream's files take on disk, and beside it what NATS counts before compression, both over the bytes of the items.

    python benchmarks/log_growth.py --json
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from bus import Bus, EmbeddedServer, LogConfig
from bus.overview import overview

PROJECT = Path(__file__).parent / "project"
TURNS = (50, 200)
ROLLOUTS = {50: 160, 200: 40}
"""By turns: as many events each, and some blocks of the store, of which the last one is not compressed yet."""


def config(turns: int) -> dict[str, Any]:
    """The deployment: a model that says and calls something else in each turn, and a tool that answers."""
    return {
        "solver": {"agents": {"simple_agent": {"model": "policy", "resources": "world", "max_turns": turns + 1}}},
        "policy": {"models": {"talker": {"turns": turns}}},
        "world": {"resources": {"echo": {}}},
    }


def measure(turns: int, overrides: list[str]) -> dict[str, float]:
    """Bytes on disk and bytes counted, for each byte of the items."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.yaml").write_text(yaml.safe_dump(config(turns)))
        task = {"responses_create_params": {"input": [{"role": "user", "content": "Look around."}]}}
        (folder / "tasks.jsonl").write_text(f"{json.dumps(task)}\n" * ROLLOUTS[turns])
        command = [sys.executable, "-P", "-m", "orchestrator", "run", str(folder / "main.yaml"), "--input"]
        command += [str(folder / "tasks.jsonl"), "--output", str(folder / "out"), *overrides]
        subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
        items = 0
        for line in (folder / "out" / "rollouts.jsonl").read_bytes().splitlines():
            done = json.loads(line)
            for item in [*done["responses_create_params"]["input"], *done["response"]["output"]]:
                items += len(json.dumps(item, separators=(",", ":")))
        blocks = (folder / "out" / "log" / "store").rglob("*.blk")
        disk = sum(path.stat().st_size for path in blocks)
        counted = asyncio.run(stored(folder / "out" / "log"))
    return {"disk": disk / items, "counted": counted / items, "items_a_rollout": items / ROLLOUTS[turns]}


async def stored(directory: Path) -> int:
    """The bytes of a log at rest, as NATS counts them."""
    server = await EmbeddedServer.start(directory, LogConfig())
    try:
        async with await Bus.connect(server.url, LogConfig(), name="orchestrator/bench", writer="bench") as bus:
            return (await overview(bus)).bytes
    finally:
        await server.stop()


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    parser.add_argument("overrides", nargs="*", help="of the config, like ++log.compression=false")
    args = parser.parse_args()
    found = {turns: measure(turns, args.overrides) for turns in TURNS}
    if args.json:
        report = {f"turns_{turns}": round(each["disk"], 3) for turns, each in found.items()}
        report |= {f"counted_{turns}": round(each["counted"], 3) for turns, each in found.items()}
        print(json.dumps(report))
        return
    for turns, each in found.items():
        print(
            f"{turns} turns, {each['items_a_rollout'] / 1000:.0f} kB of items: {each['disk']:.2f} bytes on disk "
            f"for each byte of items, {each['counted']:.2f} before compression"
        )


if __name__ == "__main__":
    main()
