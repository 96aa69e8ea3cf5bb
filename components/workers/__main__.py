"""One worker process: `python -m components.workers`, with a `WorkerSpec` as JSON on standard input.

Prints one JSON line on standard output when it serves, logs JSON lines on standard error, and drains on SIGTERM. What
its exit codes mean, and what it says before it ends with one, is in `exits`. Started by the orchestrator, or by `jetgym
worker`.
"""

import asyncio
import sys

import msgspec
import structlog

from bus import BusError, Unreachable
from bus.processes import run_as_batch
from components.errors import ComponentError
from components.models.errors import ModelError
from components.workers.exits import LOG_AWAY, REFUSED, SAID
from components.workers.files import allow_most
from components.workers.frame import Frame
from components.workers.spec import WorkerSpec


def main() -> int:
    """Runs the worker; returns the exit code."""
    allow_most()
    run_as_batch()
    try:
        spec = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerSpec)
    except msgspec.DecodeError as error:
        print(f"standard input must hold one worker spec as JSON: {error}", file=sys.stderr)  # noqa: T201
        return REFUSED
    frame = Frame(spec)
    try:
        return _run(frame)
    except Unreachable as error:  # the server may be back at the next try
        structlog.get_logger().error(SAID[LOG_AWAY], message=str(error))
        return LOG_AWAY
    except (BusError, ComponentError, ModelError) as error:  # no use in starting it again as it is
        structlog.get_logger().error(SAID[REFUSED], message=str(error))
        return REFUSED


def _run(frame: Frame) -> int:
    try:
        import uvloop  # noqa: PLC0415 - absent on platforms that it does not support
    except ImportError:
        return asyncio.run(frame.run())
    return uvloop.run(frame.run())


if __name__ == "__main__":
    sys.exit(main())
