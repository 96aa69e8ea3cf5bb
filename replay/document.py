"""A rollout as one JSON document: what `show --json` prints. The web app's page has its head too.

Pure. The data of requests and replies stands in it as it was recorded.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from contracts.deployments import WorkerStarted
from contracts.rollouts import RolloutFailure, RolloutResult, RolloutStats
from replay.facts import Facts
from replay.parts import json_parts
from replay.timeline import Step, timeline, walk
from replay.trajectory import Trajectory, is_fork_point


class CallDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    key: str
    what: str
    kind: str
    instance: str
    caller: str
    """The worker that asked."""
    worker: str
    """The worker that answered; empty where none has."""
    requested_seq: int
    replied_seq: int | None
    at_s: float
    """Seconds since the rollout was requested."""
    took_s: float | None
    worked_s: float
    waited_s: float
    parallel: int
    """Calls in the stretch of parallel calls that it belongs to; 1 where it is alone."""
    failed: bool
    request: msgspec.Raw
    reply: msgspec.Raw | None


class AdoptionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Another worker took over."""

    at_s: float
    epoch: int
    worker: str


class RolloutHead(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout, without its story."""

    rollout_id: str
    run_id: str
    task_index: int
    rollout_index: int
    agent: str
    environment: str
    outcome: str
    reward: float | None
    """Of the latest revision."""
    first_reward: float | None
    """That it ended with."""
    extra: Mapping[str, msgspec.Raw]
    """What the verifier said beside the reward."""
    error: RolloutFailure | None
    stats: RolloutStats | None
    started: datetime
    duration_s: float | None
    workers: list[str]
    agent_workers: list[WorkerStarted]
    """What is known of those that ran the agent, the latest first."""


class RolloutDocument(RolloutHead, frozen=True, kw_only=True):
    """One rollout."""

    adoptions: list[AdoptionDocument]
    task: msgspec.Raw
    response: msgspec.Raw | None
    calls: list[CallDocument]
    """In the order in which they were asked for; calls under a call follow it."""


def document(trajectory: Trajectory, facts: Facts) -> Iterator[bytes]:
    """The document of a rollout as JSON, in parts: one call at a time is in memory."""
    steps = walk(timeline(trajectory))
    calls = (msgspec.json.encode(found) for step in steps if (found := _call(trajectory, step)) is not None)
    return json_parts(_without_calls(trajectory, facts), "calls", calls)


def head(trajectory: Trajectory, facts: Facts) -> RolloutHead:
    """What stands above the story. Raises `BrokenHistory`."""
    request, outcome = trajectory.request, trajectory.outcome
    ran = trajectory.agent_workers(next(trajectory.executions()))
    return RolloutHead(
        rollout_id=trajectory.rollout_id,
        run_id=request.run_id,
        task_index=request.task_index,
        rollout_index=request.rollout_index,
        agent=request.agent,
        environment=facts.environment(request.agent),
        outcome=trajectory.state,
        reward=trajectory.reward,
        first_reward=trajectory.first_reward,
        extra=trajectory.extra,
        error=outcome if isinstance(outcome, RolloutFailure) else None,
        stats=outcome.stats if outcome is not None else None,
        started=trajectory.started,
        duration_s=trajectory.offset(trajectory.ended) if trajectory.ended is not None else None,
        workers=trajectory.workers,
        agent_workers=[facts.workers[worker] for worker in ran if worker in facts.workers],
    )


def _without_calls(trajectory: Trajectory, facts: Facts) -> RolloutDocument:
    outcome = trajectory.outcome
    result = outcome if isinstance(outcome, RolloutResult) else None
    return RolloutDocument(
        **msgspec.structs.asdict(head(trajectory, facts)),
        adoptions=[
            AdoptionDocument(at_s=trajectory.offset(adoption.recorded), epoch=adoption.epoch, worker=adoption.worker)
            for adoption in trajectory.adoptions
            if not is_fork_point(trajectory, adoption)
        ],
        task=trajectory.request.task,
        response=msgspec.Raw(trajectory.whole_response(result)) if result is not None else None,
        calls=[],
    )


def _call(trajectory: Trajectory, step: Step) -> CallDocument | None:
    if (call := step.call) is None:
        return None
    replied = call.replied
    return CallDocument(
        key=call.key,
        what=call.what,
        kind=call.kind,
        instance=call.instance,
        caller=call.caller,
        worker=call.worker,
        requested_seq=call.requested.seq,
        replied_seq=replied.seq if replied is not None else None,
        at_s=step.at,
        took_s=step.took,
        worked_s=step.worked,
        waited_s=step.waited,
        parallel=step.together,
        failed=call.failed,
        request=msgspec.Raw(trajectory.asked(call)),
        reply=msgspec.Raw(trajectory.data(replied.event)) if replied is not None else None,
    )
