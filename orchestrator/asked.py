"""What was a run going to ask for, by its log alone?

The log has the digest of `materialized_inputs.jsonl`, and each task as it was sent; so it tells whether the file is
damaged, and what is written in its place is the very file, or nothing. Called by `rebuild`, and by `run --resume`. It
only reads.
"""

from collections.abc import Iterable
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path

import msgspec

from bus import Bus
from contracts.deployments import RunStarted
from contracts.ids import ROOT_CALL
from orchestrator.errors import UsageError
from orchestrator.requests import request_if_readable
from orchestrator.tasks import MaterializedTask, input_line

_STARTED = msgspec.json.Decoder(RunStarted)


async def beginning(bus: Bus, run: str) -> RunStarted | None:
    """What the log says of the beginning of a run; None of one that did not begin in it, or is a trainer's."""
    began = await bus.last(bus.subjects.deployment("run", run))
    return None if began is None else _STARTED.decode(await bus.fetch_data(began.event))


def is_of(started: RunStarted, lines: Iterable[bytes]) -> bool:
    """Whether these lines of inputs are what the run began with."""
    digest = sha256()
    for line in lines:
        digest.update(line)
    return digest.hexdigest() == started.inputs_sha256


def digest_of(path: Path) -> str | None:
    """Of a file, as `RunStarted` has that of its inputs; None where it is not there."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
    return None


async def inputs_in_log(bus: Bus, started: RunStarted) -> list[bytes]:
    """The lines of `materialized_inputs.jsonl`; raises `UsageError` where the log does not have all of them."""
    run = started.run_id
    lines: dict[tuple[int, int], bytes] = {}
    for partition in range(bus.config.partitions):
        asked = f"{bus.config.namespace}.{partition}.agents.*.*.request.*.{ROOT_CALL}"
        async for recorded in bus.scan(asked, partition=partition):
            event = recorded.event
            if event.replyto != bus.subjects.ended(run, event.rolloutid):
                continue
            request = await request_if_readable(bus, event)
            if request is not None and request.attempt == 0:
                task = MaterializedTask(
                    agent=request.agent,
                    task_index=request.task_index,
                    rollout_index=request.rollout_index,
                    line=bytes(request.task),
                )
                lines[task.task_index, task.rollout_index] = input_line(task, event.rolloutid)
    found = [lines[place] for place in sorted(lines)]
    if not is_of(started, found):
        raise UsageError(
            f"the log has {len(found)} of the {started.rollouts} tasks that {run} was going to ask for; "
            f"`jetgym run … --resume` writes it from the tasks themselves"
        )
    return found
