"""A worker may have as many connections as the system allows, not as few as it allows at first."""

import resource
import subprocess
import sys

ASKS = """
import resource
from components.workers.files import allow_most
allow_most()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_worker_asks_for_as_many_open_files_as_the_system_allows() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 4_096 if most == resource.RLIM_INFINITY else min(most, 4_096)
    limits = f"ulimit -Sn 256; ulimit -Hn {most}; exec {sys.executable} -c '{ASKS}'"
    said = subprocess.run(["/bin/sh", "-c", limits], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [str(most)] * 2
