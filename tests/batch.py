"""Is what the tests start scheduled as batch?

Not on other systems than Linux, not in a sandbox that refuses it, and not where the tests run under another policy
themselves (`chrt`).
"""

import os
import subprocess
import sys

import pytest

_ASKS = "import os; os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))"


def _grants_batch() -> bool:
    """Asked in a process of its own, since it could not be taken back."""
    if sys.platform != "linux" or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    return subprocess.run([sys.executable, "-I", "-S", "-c", _ASKS], capture_output=True, check=False).returncode == 0


GRANTS_BATCH = _grants_batch()
needs_batch = pytest.mark.skipif(not GRANTS_BATCH, reason="nothing is scheduled as batch here")
