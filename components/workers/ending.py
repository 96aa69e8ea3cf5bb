"""How a rollout ends: the type and data of its terminal event, or of a nested rollout's reply. Pure.

A failure is never a reward: what raised, what has no finite reward, and what ran out of time all end as failures.
Whatever an author's code returned or raised becomes an event that everybody can read.
"""

import math
import traceback

import msgspec

from components.durable import CallFailed, Execution, NondeterminismError
from components.durable.location import UNKNOWN, raising
from contracts.events import CallError, Event
from contracts.ids import ROOT_CALL
from contracts.rollouts import RolloutFailure, RolloutResult, RolloutStats

MAX_MESSAGE = 4000
"""Characters of an error's message, and of its traceback, that go into an event."""

_RESULT = msgspec.json.Decoder(RolloutResult)


def ending(request: Event, execution: Execution[RolloutResult], stats: RolloutStats) -> tuple[str, bytes]:
    """Type and data of the event that ends the rollout of `request`, from its finished execution."""
    found = outcome_of(execution)
    if isinstance(found, CallError):
        return failure(request, found, stats)
    what = "rollout.completed" if request.callkey == ROOT_CALL else "agent.replied"
    return what, msgspec.json.encode(msgspec.structs.replace(found, stats=stats))


def outcome_of(execution: Execution[RolloutResult]) -> RolloutResult | CallError:
    """What a finished execution came to: its result, which has a finite reward, or why it failed."""
    try:
        return _checked(execution.result())
    except NondeterminismError as error:
        return CallError(kind="nondeterminism", message=str(error))
    except Exception as error:  # noqa: BLE001 - whatever an author's code raises is data of its own rollout
        failed = _call_failed(error)
        return _agent_error(error) if failed is None else failed.error


def failure(request: Event, error: CallError, stats: RolloutStats | None) -> tuple[str, bytes]:
    """Type and data of the event that ends the rollout of `request` with an error."""
    if request.callkey != ROOT_CALL:
        what = "agent.failed"
    else:
        what = "rollout.cancelled" if error.kind == "cancelled" else "rollout.failed"
    found = RolloutFailure(kind=error.kind, message=_said(error.message), details=_details(error), stats=stats)
    return what, msgspec.json.encode(found)


def error_data(error: CallError) -> bytes:
    """The error as the data of an event: cut, and without what no encoding has."""
    return msgspec.json.encode(CallError(kind=error.kind, message=_said(error.message), details=_details(error)))


def _checked(result: object) -> RolloutResult:
    if not isinstance(result, RolloutResult):
        raise TypeError(f"`run` must return a RolloutResult (see Agent.result), it returned {type(result).__name__}")
    if not isinstance(result.reward, int | float) or not math.isfinite(result.reward):
        raise ValueError(f"the reward must be a finite number, it is {result.reward!r}")
    found = msgspec.structs.replace(result, reward=float(result.reward))
    try:
        _RESULT.decode(msgspec.json.encode(found))
    except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
        raise ValueError(f"the RolloutResult is not JSON (see Agent.result): {error}") from error
    return found


def _call_failed(error: BaseException) -> CallFailed | None:
    """The failed call that an exception is, also where a task group or the groups in it hold nothing else."""
    if isinstance(error, BaseExceptionGroup):
        inner = [_call_failed(each) for each in error.exceptions]
        return inner[0] if all(inner) else None
    return error if isinstance(error, CallFailed) else None


def _agent_error(error: BaseException) -> CallError:
    file, line = raising(error)
    where = f" ({file}:{line})" if (file, line) != UNKNOWN else ""
    message = f"{type(error).__name__}: {_text(error)}"[: MAX_MESSAGE - len(where)] + where
    details = {
        "exception": type(error).__name__,
        "traceback": "".join(traceback.format_exception(error))[-MAX_MESSAGE:],
    }
    return CallError(kind="agent_error", message=message, details=details)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - an author's `__str__`
        return f"(its text cannot be had: {type(another).__name__})"


def _details(error: CallError) -> dict[str, str]:
    return {name: _said(value) for name, value in error.details.items()}


def _said(text: str) -> str:
    return text[:MAX_MESSAGE].encode("utf-8", "replace").decode()
