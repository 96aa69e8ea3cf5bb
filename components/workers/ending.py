"""How a rollout ends: the type and data of its terminal event, or of a nested rollout's reply. Pure.

A failure is never a reward: what raised, what has no finite reward, and what ran out of time all end as failures.
"""

import math
import traceback
from datetime import UTC, datetime

import msgspec

from components.durable import CallFailed, Execution, NondeterminismError
from components.workers.rollout import Rollout
from contracts.events import CallError, Event
from contracts.ids import ROOT_CALL
from contracts.rollouts import RolloutFailure, RolloutResult, RolloutStats


def ending(rollout: Rollout, execution: Execution[RolloutResult]) -> tuple[str, bytes]:
    """Type and data of the event that ends this rollout, from its finished execution."""
    stats = rollout.tally.stats(rollout.event.time, datetime.now(UTC))
    found = outcome_of(execution)
    if isinstance(found, CallError):
        return failure(rollout.event, found, stats)
    what = "rollout.completed" if rollout.event.callkey == ROOT_CALL else "agent.replied"
    return what, msgspec.json.encode(msgspec.structs.replace(found, stats=stats))


def outcome_of(execution: Execution[RolloutResult]) -> RolloutResult | CallError:
    """What a finished execution came to: its result, which has a finite reward, or why it failed."""
    try:
        result = execution.result()
        _check(result)
    except CallFailed as failed:
        return failed.error
    except NondeterminismError as error:
        return CallError(kind="nondeterminism", message=str(error))
    except Exception as error:  # noqa: BLE001 - whatever an author's code raises is data of its own rollout
        return _agent_error(error)
    return result


def failure(request: Event, error: CallError, stats: RolloutStats | None) -> tuple[str, bytes]:
    """Type and data of the event that ends a rollout with an error."""
    if request.callkey != ROOT_CALL:
        return "agent.failed", msgspec.json.encode(error)
    what = "rollout.cancelled" if error.kind == "cancelled" else "rollout.failed"
    found = RolloutFailure(kind=error.kind, message=error.message, details=error.details, stats=stats)
    return what, msgspec.json.encode(found)


def _check(result: object) -> None:
    if not isinstance(result, RolloutResult):
        raise TypeError(f"`run` must return a RolloutResult (see Agent.result), it returned {type(result).__name__}")
    if not isinstance(result.reward, int | float) or not math.isfinite(result.reward):
        raise ValueError(f"the reward must be a finite number, it is {result.reward!r}")


def _agent_error(error: BaseException) -> CallError:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    details = {"exception": type(error).__name__, "traceback": "".join(traceback.format_exception(error))[-4000:]}
    return CallError(kind="agent_error", message=f"{type(error).__name__}: {error}{where}", details=details)
