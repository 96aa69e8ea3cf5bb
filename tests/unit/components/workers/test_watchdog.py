"""A process whose code never lets the loop turn is ended with the place; one that works or waits is not."""

import signal
import subprocess
import sys

PROGRAM = """
import asyncio, time
from components.workers.watchdog import watch

async def main():
    watching = asyncio.create_task(watch(0.3))
    await asyncio.sleep(0)
    {code}
    watching.cancel()

asyncio.run(main())
print("done")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", PROGRAM.format(code=code)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_code_that_never_ends_is_ended_and_its_place_told() -> None:
    for code in ("while True: pass", "import re; re.match('(a+)+b', 'a' * 60)"):
        ended = run(code)
        assert ended.returncode == -signal.SIGVTALRM
        assert 'File "<string>", line 8 in main' in ended.stderr


def test_work_in_pieces_and_blocking_waits_go_on() -> None:
    pieces = "for _ in range(40): sum(range(500_000)); await asyncio.sleep(0.01)"
    for code in (pieces, "time.sleep(1.0)"):
        ended = run(code)
        assert (ended.returncode, ended.stdout) == (0, "done\n")
