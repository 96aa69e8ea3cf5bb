"""What durable execution costs: memory of a suspended rollout, time of a delivered reply, time of a re-execution.

    python benchmarks/durable.py [--rollouts 65536] [--json]

No bus and no model: replies are made up. Run it from the project's root; times are CPU times, each the best of
several rounds. `audit_ns` is what the hook that catches sockets and threads adds to an audited operation anywhere in
the process (there are none in asyncio's own work), `floor_us` a bare task that waits for one future after another.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from components.durable import Call, Context, Execution, History, Reply, reexecute
from components.durable.history import RecordedCall

START = datetime(2025, 1, 1, tzinfo=UTC)
REQUEST = json.dumps({"input": [{"role": "user", "content": "x" * 600}]}).encode()
TURNS = 20
"""Calls of a rollout: a history of 40 events."""


async def agent(context: Context) -> int:
    async def turn() -> bytes:
        return await context.call("models", "policy", "model.requested", REQUEST)

    for _ in range(TURNS):
        await turn()
    return TURNS


def execution(number: int) -> Execution[int]:
    return Execution(f"r-{number:05d}-00", agent, time=START)


def reply(number: int) -> Reply:
    return Reply(key=f"m_{number}", type="model.replied", data=b"{}", time=START, id="e", seq=2 * number + 2)


def recorded(call: Call, seq: int) -> RecordedCall:
    return RecordedCall(
        key=call.key, kind=call.kind, instance=call.instance, type=call.type, data=call.data, cause=call.cause, seq=seq
    )


def best(work: Callable[[], float], rounds: int = 15) -> float:
    """The least of several measurements, with the garbage collector off while each runs."""
    found = []
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        found.append(work())
        gc.enable()
    return min(found)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def bytes_suspended(rollouts: int) -> float:
    """Resident memory of one rollout that waits for its first reply."""
    gc.collect()
    before = resident()
    waiting = [execution(number) for number in range(rollouts)]
    for each in waiting:
        each.start()
    after = resident()
    for each in waiting:
        each.close()
    return (after - before) / rollouts


def seconds_per_start() -> float:
    waiting = [execution(number) for number in range(500)]
    start = time.process_time()
    for each in waiting:
        each.start()
    taken = time.process_time() - start
    for each in waiting:
        each.close()
    return taken / 500


def seconds_per_reply() -> float:
    """As in a worker: many rollouts in turn, stepped from inside another loop."""

    async def worker() -> float:
        running = [execution(number) for number in range(200)]
        for each in running:
            each.start()
        replies = [reply(number) for number in range(TURNS)]
        start = time.process_time()
        for one in replies:
            for each in running:
                each.deliver(one)
        return (time.process_time() - start) / (200 * TURNS)

    return asyncio.run(worker())


def history() -> History:
    calls, replies = {}, []
    running = execution(0)
    (call,) = running.start()
    for number in range(TURNS):
        calls[call.key] = recorded(call, 2 * number + 1)
        replies.append(reply(number))
        made = running.deliver(replies[-1])
        call = made[0] if made else call
    return History(calls=calls, replies=tuple(replies), complete=True)


def seconds_per_reexecution(past: History) -> float:
    start = time.process_time()
    for _ in range(50):
        running = execution(0)
        assert not reexecute(running, past)
        assert running.done
    return (time.process_time() - start) / 50


class Bare(asyncio.AbstractEventLoop):
    """The least loop that runs a task: the floor that Python sets."""

    def __init__(self) -> None:
        self.ready: list[tuple[Callable[..., object], tuple[object, ...], object]] = []
        self.future: asyncio.Future[bytes] = asyncio.Future(loop=self)

    def get_debug(self) -> bool:  # noqa: D102
        return False

    def call_soon(  # type: ignore[override]  # noqa: D102
        self, callback: Callable[..., object], *args: object, context: object = None
    ) -> None:
        self.ready.append((callback, args, context))

    def run(self) -> None:  # noqa: D102
        asyncio._set_running_loop(self)  # noqa: SLF001
        while batch := self.ready:
            self.ready = []
            for callback, args, context in batch:
                context.run(callback, *args)  # type: ignore[attr-defined]
        asyncio._set_running_loop(None)  # noqa: SLF001

    async def agent(self) -> None:  # noqa: D102
        for _ in range(TURNS):
            self.future = asyncio.Future(loop=self)
            await self.future


def seconds_floor() -> float:
    loops = [Bare() for _ in range(200)]  # type: ignore[abstract]
    tasks = [asyncio.Task(loop.agent(), loop=loop) for loop in loops]
    for loop in loops:
        loop.run()
    start = time.process_time()
    for _ in range(TURNS):
        for loop in loops:
            loop.future.set_result(b"")
            loop.run()
    taken = time.process_time() - start
    assert all(task.done() for task in tasks)
    return taken / (200 * TURNS)


def seconds_per_audit() -> float:
    start = time.process_time()
    for _ in range(20_000):
        sys.audit("nothing")
    return (time.process_time() - start) / 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=65_536, help="rollouts suspended at once for the memory figure")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    options = parser.parse_args()

    without_hook = best(seconds_per_audit)
    kilobytes = bytes_suspended(options.rollouts) / 1000
    past = history()
    figures: dict[str, float | str] = {
        "python": sys.version.split()[0],
        "rollouts": options.rollouts,
        "suspended_kb": round(kilobytes, 2),
        "suspended_mb": round(kilobytes * options.rollouts / 1000, 1),
        "start_us": round(best(seconds_per_start) * 1e6, 2),
        "deliver_us": round(best(seconds_per_reply) * 1e6, 2),
        "floor_us": round(best(seconds_floor) * 1e6, 2),
        "reexecute_40_events_ms": round(best(lambda: seconds_per_reexecution(past)) * 1e3, 3),
        "audit_ns": round((best(seconds_per_audit) - without_hook) * 1e9),
    }
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
