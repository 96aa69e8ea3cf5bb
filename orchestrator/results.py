"""The result files of a run: how an ended rollout becomes one line of `rollouts.jsonl` or `failures.jsonl`.

A line is a function of the rollout's request, its terminal event and what was captured of its model calls, and lines
stand in the order of the terminal events in the log; so the files can be rebuilt from the log, equal line for line.
Used by `collect`, `rebuild` and `run --resume`.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec
import structlog

from bus import Bus
from bus.errors import BlobLost
from bus.run_folder import FAILURES, ROLLOUTS
from components.workers.contexts import response_of
from contracts.errors import TwoPayloads
from contracts.events import Event
from contracts.rollouts import RolloutFailure, RolloutRequest, RolloutResult, RolloutStats
from orchestrator.histories import ended_history, fetch_spoken
from orchestrator.run_files import naming

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RESULT = msgspec.json.Decoder(RolloutResult)
_FAILURE = msgspec.json.Decoder(RolloutFailure)
_ENCODER = msgspec.json.Encoder()
_log = structlog.get_logger("results")


Ending = RolloutResult | RolloutFailure


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """An ended rollout, as the files and the metrics take it."""

    rollout_id: str
    agent: str
    task_index: int
    rollout_index: int
    attempt: int
    """How often it was asked for before."""
    line: bytes
    """The result line, without its newline."""
    reward: float | None
    """None where it failed: a failure is never a reward."""
    error: str | None
    message: str
    """Of the error."""
    stats: RolloutStats | None
    time: datetime
    """When it ended, by the clock of the worker that ended it."""


async def read_outcome(bus: Bus, request: RolloutRequest, event: Event) -> Outcome:
    """The outcome of a rollout, from its request and its terminal event, with what that refers to in the log."""
    return outcome(request, event, await read_ending(bus, event))


async def read_ending(bus: Bus, event: Event) -> Ending:
    """What a terminal event says, with what it refers to in the log: the whole response, with its tokens if it has any.

    What cannot be read, as where a power cut took it, is a failure: it has to come to something. Raises `BusError`.
    """
    try:
        return await _read_ending(bus, event)
    except (msgspec.DecodeError, UnicodeDecodeError, BlobLost) as error:
        return RolloutFailure(kind="poison", message=f"its end cannot be read: {error}")


async def _read_ending(bus: Bus, event: Event) -> Ending:
    data = await bus.fetch_data(event)
    if event.type != "rollout.completed":
        return _FAILURE.decode(data)
    result = _RESULT.decode(data)
    if result.stats is not None and result.stats.captured:
        from orchestrator.token_fields import with_tokens  # noqa: PLC0415 - numpy is loaded where tokens are

        recorded = await ended_history(bus, event.rolloutid)
        try:
            response = with_tokens(result, recorded, await fetch_spoken(bus, recorded))
        except TwoPayloads as error:
            _log.warning("no_tokens", rollout=event.rolloutid, error=str(error))
            response = await response_of(bus, event.rolloutid, result)
    else:
        response = await response_of(bus, event.rolloutid, result)
    return msgspec.structs.replace(result, response=response, cited=None)


def outcome(request: RolloutRequest, event: Event, ending: Ending) -> Outcome:
    """The outcome of a rollout, from its request, its terminal event and what that says."""
    line: dict[str, Any] = dict(_FIELDS.decode(request.task))
    reward, error, message = None, None, ""
    stats = ending.stats
    if isinstance(ending, RolloutResult):
        reward = float(ending.reward)
        line |= ending.extra
        line["response"] = ending.response
        line["reward"] = reward
    else:
        error, message = ending.kind, ending.message
        line.pop("reward", None)
        line["error"] = {"kind": ending.kind, "message": ending.message, "details": ending.details}
        line["outcome"] = "failed" if event.type == "rollout.completed" else event.type.partition(".")[2]
    line["rollout_id"] = event.rolloutid
    line["run_id"] = request.run_id
    line["task_index"] = request.task_index
    line["rollout_index"] = request.rollout_index
    line["attempt"] = request.attempt
    line["agent"] = request.agent
    if request.group:
        line["group"] = request.group
    for name, value in _counted(request, stats):
        while name in line:  # a field of the task, or of the verifier, stays as it is
            name = f"rollout_{name}"  # noqa: PLW2901
        line[name] = value
    return Outcome(
        rollout_id=event.rolloutid,
        agent=request.agent,
        task_index=request.task_index,
        rollout_index=request.rollout_index,
        attempt=request.attempt,
        line=_ENCODER.encode(line),
        reward=reward,
        error=error,
        message=message,
        stats=stats,
        time=event.time,
    )


def _counted(request: RolloutRequest, stats: RolloutStats | None) -> Iterator[tuple[str, Any]]:
    """What a line says of the way of a rollout, beside what names it and how it ended."""
    if (versions := policy_versions(request, stats)) is not None:
        yield "policy_versions", versions
    if stats is None:
        return
    for name in ("models", "usage", "turns", "tool_calls", "timings"):
        yield name, getattr(stats, name)
    if stats.captured or stats.flawed:
        yield "captured_calls", stats.captured
        yield "tokenless_calls", stats.flawed


def policy_versions(request: RolloutRequest, stats: RolloutStats | None) -> tuple[int, int] | None:
    """The oldest and the newest policy version that generated a rollout; else the one when it was asked for, if any."""
    if stats is not None and not isinstance(stats.policy, msgspec.UnsetType):
        return stats.policy
    return None if request.policy_version is None else (request.policy_version, request.policy_version)


class ResultFiles:
    """The two files of a run, written from the start of the run on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[bool, IO[bytes]] = {}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files = {True: (self._folder / ROLLOUTS).open("wb"), False: (self._folder / FAILURES).open("wb")}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with naming(self._folder):
            for file in self._files.values():
                file.close()

    def add(self, ended: Outcome) -> None:
        """Appends one line."""
        with naming(self._folder):
            self._files[ended.reward is not None].write(ended.line + b"\n")

    def flush(self) -> None:
        """Hands what was written to the operating system, so that a reader sees whole lines."""
        with naming(self._folder):
            for file in self._files.values():
                file.flush()
