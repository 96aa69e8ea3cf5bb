"""One worker process: `python -m components.workers`, with a `WorkerSpec` as JSON on standard input.

Prints one JSON line on standard output when it serves, logs JSON lines on standard error, drains on SIGTERM, and
stops when its standard output's reader is gone. Started by the orchestrator, or by `jetgym worker`.
"""

import asyncio
import sys

import msgspec

from components.workers.frame import Frame
from components.workers.spec import WorkerSpec


def main() -> int:
    """Runs the worker; returns the exit code."""
    try:
        spec = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerSpec)
    except msgspec.DecodeError as error:
        print(f"standard input must hold one worker spec as JSON: {error}", file=sys.stderr)  # noqa: T201
        return 2
    try:
        import uvloop  # noqa: PLC0415 - absent on platforms that it does not support
    except ImportError:
        return asyncio.run(Frame(spec).run())
    return uvloop.run(Frame(spec).run())


if __name__ == "__main__":
    sys.exit(main())
