"""What was a run going to ask for, by its log alone?

Called by `rebuild`, where `materialized_inputs.jsonl` is gone. The log has each task as it was sent, and the digest of
the file; so what is written is the very file, or nothing. It only reads.
"""

from hashlib import sha256

import msgspec

from bus import Bus
from contracts.deployments import RunStarted
from contracts.ids import ROOT_CALL
from contracts.rollouts import RolloutRequest
from orchestrator.errors import UsageError
from orchestrator.tasks import MaterializedTask, input_line

_REQUEST = msgspec.json.Decoder(RolloutRequest)
_STARTED = msgspec.json.Decoder(RunStarted)


async def inputs_in_log(bus: Bus, run: str) -> bytes:
    """The content of `materialized_inputs.jsonl`; raises `UsageError` where the log does not have all of it."""
    began = await bus.last(bus.subjects.deployment("run", run))
    if began is None:
        raise UsageError(f"the log does not say what {run} began with: it is a trainer's, or not of this log")
    started = _STARTED.decode(await bus.fetch_data(began.event))
    lines: dict[tuple[int, int], bytes] = {}
    for partition in range(bus.config.partitions):
        asked = f"{bus.config.namespace}.{partition}.agents.*.*.request.*.{ROOT_CALL}"
        async for recorded in bus.scan(asked, partition=partition):
            event = recorded.event
            if event.replyto != bus.subjects.ended(run, event.rolloutid):
                continue
            request = _REQUEST.decode(await bus.fetch_data(event))
            if request.attempt == 0:
                task = MaterializedTask(
                    agent=request.agent,
                    task_index=request.task_index,
                    rollout_index=request.rollout_index,
                    line=bytes(request.task),
                )
                lines[task.task_index, task.rollout_index] = input_line(task, event.rolloutid)
    content = b"".join(lines[place] for place in sorted(lines))
    if sha256(content).hexdigest() != started.inputs_sha256:
        raise UsageError(f"the log has {len(lines)} of the {started.rollouts} tasks that {run} was going to ask for")
    return content
