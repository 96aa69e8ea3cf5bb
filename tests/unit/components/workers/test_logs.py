"""What a worker says of itself."""

import json
import subprocess
import sys

CLOSES_ITS_OUTPUT = """
import logging, os, structlog, sys
from components.workers.logs import configure
configure("w", "resources", "game")
os.close(1)
os.close(2)
structlog.get_logger().warning("by structlog")
sys.stderr = None
logging.getLogger("x").warning("by logging")
os._exit(0)
"""


def test_an_author_who_closes_the_output_of_a_worker_closes_not_its_log() -> None:
    """E10: each line that could not be written would break the call that it tells of."""
    done = subprocess.run([sys.executable, "-c", CLOSES_ITS_OUTPUT], capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["by structlog", "by logging"]
