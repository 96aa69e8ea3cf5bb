"""How a process of a deployment is scheduled beside others; `tests/bus/test_server.py` looks at the server itself."""

import os
import subprocess
import sys

import pytest

from bus.processes import not_outliving
from tests.batch import needs_batch

ASKS = """
import os, threading
from bus.processes import run_as_batch
{before}
run_as_batch()
found = []
thread = threading.Thread(target=lambda: found.append(os.sched_getscheduler(0)))
thread.start()
thread.join()
print(os.sched_getscheduler(0), *found, os.getpriority(os.PRIO_PROCESS, 0))
"""


def scheduled(before: str) -> list[int]:
    """The scheduling of a process that runs as batch, that of a thread it starts, and its nice value."""
    command = [sys.executable, "-c", ASKS.format(before=before)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(number) for number in said.split()]


@needs_batch
def test_a_process_runs_as_batch_with_its_nice_value_unless_it_was_told_otherwise() -> None:
    assert scheduled("os.nice(3)") == [os.SCHED_BATCH, os.SCHED_BATCH, os.getpriority(os.PRIO_PROCESS, 0) + 3]
    idle = scheduled("os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))")
    assert idle[:2] == [os.SCHED_IDLE] * 2


@needs_batch
def test_a_system_that_does_not_grant_it_is_no_error() -> None:
    refused = "def refuse(*_): raise PermissionError\nos.sched_setscheduler = refuse"
    assert scheduled(refused)[:2] == [os.SCHED_OTHER] * 2


@needs_batch
@pytest.mark.parametrize("as_batch", [False, True])
def test_only_what_is_to_run_as_batch_does_so_among_what_does_not_outlive_its_parent(as_batch: bool) -> None:
    """`jetgym up` for a fork is a command as any other, and what it starts decides for itself."""
    asks = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"]
    said = subprocess.run(not_outliving(asks, as_batch=as_batch), capture_output=True, text=True, check=True).stdout
    assert int(said) == (os.SCHED_BATCH if as_batch else os.sched_getscheduler(0))
