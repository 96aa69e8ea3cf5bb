"""A process whose code never lets the loop turn is ended with the place; one that works, or is stopped, is not."""

import signal
import subprocess
import sys
import time

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
    for code in (
        "while True: pass",
        "import re; re.match('(a+)+b', 'a' * 60)",
        "time.sleep(600)",
        "import os; os.read(os.pipe()[0], 1)",
        "import threading; threading.Lock().acquire(); threading.Event().wait()",
    ):
        ended = run(code)
        assert ended.returncode == -signal.SIGVTALRM, code
        assert 'File "<string>", line 8 in main' in ended.stderr


def test_work_in_pieces_and_short_waits_go_on() -> None:
    pieces = "for _ in range(40): sum(range(500_000)); await asyncio.sleep(0.01)"
    waits = "for _ in range(20): time.sleep(0.05); await asyncio.sleep(0)"
    for code in (pieces, waits, "await asyncio.sleep(1.0)"):
        ended = run(code)
        assert (ended.returncode, ended.stdout) == (0, "done\n")


def test_a_process_that_was_stopped_goes_on() -> None:
    code = "print('begun', flush=True); await asyncio.sleep(0.5)"
    command = [sys.executable, "-P", "-c", PROGRAM.format(code=code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.0)  # three times as long as it may go without a turn
        process.send_signal(signal.SIGCONT)
        assert process.stdout.read() == "done\n"
    assert process.returncode == 0
