"""Records the golden histories in tests/golden anew: `python scripts/record_golden.py`.

Runs the project in tests/golden/project with real workers and a real server, and writes each rollout with what the
deployment said of itself into a file of exported events. A golden history is recorded anew when what agents send is
meant to change, never to make a test pass.
"""

import asyncio
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from contracts.codec import decode
from contracts.events import Recorded
from replay.facts import facts_of
from replay.file_source import export_lines
from replay.opening import Where, open_source
from replay.rows import rows
from replay.source import load, with_captures

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
PROJECT = GOLDEN / "project"


async def record(run: Path) -> None:
    """Writes one file an agent, named after it."""
    async with open_source(Where(run=str(run))) as source:
        facts = await facts_of(source)
        deployment = [event for event in await source.deployment() if event.event.type != "deployment.run"]
        async for row in rows(source, facts):
            trajectory = await with_captures(source, await load(source, row.rollout_id))
            events = [scrubbed(event, run) for event in (*deployment, *trajectory.events)]
            path = GOLDEN / f"{row.agent}.jsonl"
            path.write_bytes(b"".join(line + b"\n" for line in export_lines(events, trajectory.blobs)))
            print(f"{path.relative_to(ROOT)}: {len(trajectory.events)} events, {row.outcome}")


def scrubbed(recorded: Recorded, run: Path) -> Recorded:
    """The event without the names of this machine and its folders."""
    raw = recorded.raw.replace(f"{ROOT}/".encode(), b"").replace(str(run).encode(), b"results/golden")
    raw = raw.replace(f'"{socket.gethostname()}"'.encode(), b'"host"')
    return Recorded(seq=recorded.seq, subject=recorded.subject, event=decode(raw), raw=raw)


def main() -> None:
    """Runs the project and records it."""
    jetgym = str(Path(sys.executable).with_name("jetgym"))
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [jetgym, "run", "config.yaml", "--input", "tasks.jsonl", "--output", str(run)]
        subprocess.run(command, cwd=PROJECT, check=True)  # noqa: S603
        asyncio.run(record(run))


if __name__ == "__main__":
    main()
