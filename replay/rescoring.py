"""What do the verifier and the tools that are here now say to a recorded rollout?

Finds for each resources instance the code and the config that the rollout ran with, and drives it as a worker does, on
a session made again from the recorded seed and calls. Called by `reverify` and `retool`, here or in the component's
own venv (`isolated`). It writes nothing; what the component itself does beyond its session, it does again.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from pydantic import ValidationError
from structlog.testing import capture_logs

from components.durable.location import raising
from components.durable.order import in_order
from components.errors import ComponentError
from components.loading import digest, load, requirements
from components.resources.base import Resources, ResourcesConfig
from components.resources.errors import ResourcesError
from components.resources.runtime import History, Runtime
from components.workers.rollout import prefix_of
from contracts.events import CallError, Event
from contracts.rollouts import (
    RolloutResult,
    SessionSeed,
    SessionSnapshot,
    ToolCall,
    ToolOutput,
    Verdict,
    VerifyRequest,
)
from replay.errors import CannotVerify
from replay.facts import Facts
from replay.trajectory import Call, Trajectory
from replay.verify import Resolved, implementation_in

_SEED: Final = msgspec.json.Decoder(SessionSeed)
_CALL: Final = msgspec.json.Decoder(ToolCall)
_OUTPUT: Final = msgspec.json.Decoder(ToolOutput)
_SEEDED: Final = msgspec.json.Decoder(SessionSnapshot | None)
_VERIFY: Final = msgspec.json.Decoder(VerifyRequest)
_ERROR: Final = msgspec.json.Decoder(CallError)
_NOBODYS: Final = frozenset({"cancelled", "unavailable", "poison", "internal"})
"""Kinds of errors that say nothing of the component: it was not reached, or not heard to the end."""
_VERDICT: Final = msgspec.json.Decoder(Verdict)


class Rescored(msgspec.Struct, frozen=True, kw_only=True):
    """One verify call, made again."""

    rollout_id: str
    call: str = ""
    """Its key; empty where there is none."""
    instance: str = ""
    implementation: str = ""
    digest: str = ""
    """Of the verifier's source now."""
    was: Verdict | None = None
    """What is recorded; None where it failed."""
    now: Verdict | None = None
    error: CallError | None = None
    """Why it scores no more."""
    raised: tuple[str, ...] = ()
    """What tools raised while its session was made again, with the line."""
    reason: str = ""
    """Why it could not be run."""


class Retooled(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call, made again."""

    rollout_id: str
    call: str
    """Its key; empty where none of the rollout's calls could be made."""
    seq: int
    instance: str
    tool: str
    verdict: Literal["same", "differs", "could not run"]
    was: msgspec.Raw = msgspec.Raw(b"null")
    now: msgspec.Raw = msgspec.Raw(b"null")
    reason: str = ""


class Rescorer:
    """The components of one source's rollouts, in this process."""

    def __init__(self, facts: Facts, override: Resolved | None = None) -> None:
        """`override` is a config that is used in place of the recorded ones for the instances that it names."""
        self._facts, self._override = facts, override or {}
        self._runtimes: dict[tuple[str, str], Runtime] = {}

    def implementation(self, instance: str) -> str:
        """The component behind an instance. Raises `CannotVerify`."""
        return self._code(instance)[0]

    async def reverify(self, trajectory: Trajectory) -> Rescored:
        """The rollout's own verify call, the last one, made again."""
        call = verify_call(trajectory)
        if call is None:
            return Rescored(rollout_id=trajectory.rollout_id, reason="it has no answered call of a verifier")
        assert call.replied is not None
        found = Rescored(rollout_id=trajectory.rollout_id, call=call.key, instance=call.instance)
        if not call.failed:
            found = msgspec.structs.replace(found, was=trajectory.decoded(call.replied, _VERDICT))
        try:
            implementation, _ = self._code(call.instance)
            runtime = self._runtime(call.instance)
        except CannotVerify as error:
            return msgspec.structs.replace(found, reason=str(error))
        found = msgspec.structs.replace(
            found, implementation=implementation, digest=digest("resources", implementation)
        )
        asked = _VERIFY.decode(trajectory.asked(call))
        session = trajectory.rollout_id

        async def recover() -> History:
            return _history(trajectory, call)

        with capture_logs() as logged:  # a worker's lines: what is in them is told in the answer
            try:
                found = msgspec.structs.replace(found, now=await runtime.verify(session, asked, recover=recover))
            except ResourcesError as error:
                failed = msgspec.structs.replace(error.call_error(), message=_told(error))
                found = msgspec.structs.replace(found, error=failed)
            finally:
                runtime.drop(session)
        raised = [entry for entry in logged if entry["event"] == "resources.raised" and entry["method"] != "verify"]
        told = (f"{entry['method']} raised {_said(entry['exc_info'])}" for entry in raised)
        return msgspec.structs.replace(found, raised=tuple(dict.fromkeys(told)))

    async def retool(self, trajectory: Trajectory) -> list[Retooled]:
        """The tool calls of the rollout's sessions, each from its seed on, in the order in which they were asked.

        Not those that no tool answered: in flight, cancelled, or dropped in a fork.
        """
        found = []
        sessions: dict[tuple[str, str], list[Call]] = {}
        for call in trajectory.calls.values():
            if call.what in ("session", "tool") and _answered(trajectory, call):
                sessions.setdefault((prefix_of(call.key), call.instance), []).append(call)
        with capture_logs():  # as above: what a tool raised is its output
            for (prefix, instance), calls in sessions.items():
                session = f"{trajectory.rollout_id}/{prefix}"
                found += await self._tools(trajectory, session, instance, in_order(calls, _request))
        return found

    async def _tools(
        self, trajectory: Trajectory, session: str, instance: str, calls: Sequence[Call]
    ) -> list[Retooled]:
        reason = ""
        try:
            runtime = self._runtime(instance)
            for seeding in (call for call in calls if call.what == "session" and not call.failed):
                task = _SEED.decode(trajectory.data(seeding.requested.event)).task
                await runtime.seed(session, task)
        except CannotVerify as error:
            reason = str(error)
        except ResourcesError as error:
            reason = _told(error)
        found = []
        for call in (call for call in calls if call.what == "tool"):
            asked = trajectory.decoded(call.requested, _CALL)
            assert call.replied is not None
            was = _output(trajectory.data(call.replied.event), failed=call.failed)
            base = Retooled(
                rollout_id=trajectory.rollout_id,
                call=call.key,
                seq=call.requested.seq,
                instance=instance,
                tool=asked.name,
                verdict="could not run",
                was=was,
                reason=reason,
            )
            if not reason:
                try:
                    now = (await runtime.call(session, asked)).output
                except ResourcesError as error:
                    now = msgspec.Raw(msgspec.json.encode(error.call_error()))
                same = msgspec.json.decode(now) == msgspec.json.decode(was)
                base = msgspec.structs.replace(base, verdict="same" if same else "differs", now=now)
            found.append(base)
        if not reason:
            runtime.drop(session)
        return found

    def _runtime(self, instance: str) -> Runtime:
        implementation, content = self._code(instance)
        key = instance, implementation
        if key not in self._runtimes:
            try:
                component: type[Resources[ResourcesConfig]] = load("resources", implementation)
                config = component.config_class().model_validate(content)
            except ComponentError as error:
                raise CannotVerify(f"the code of {instance!r} is not here: {error}") from error
            except ValidationError as error:
                fault = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(str(part) for part in fault["loc"])
                raise CannotVerify(
                    f"{instance!r} does not take its config any more: {where}: {fault['msg']}; give one with --config"
                ) from error
            except Exception as error:
                raise CannotVerify(
                    f"the code of {instance!r} cannot be imported: {type(error).__name__}: {error}"
                ) from error
            self._runtimes[key] = Runtime(component(config))
        return self._runtimes[key]

    def _code(self, instance: str) -> tuple[str, dict[str, Any]]:
        if (given := self._override.get(instance)) is not None:
            return implementation_in(given, instance, "resources")
        description = self._facts.description(instance)
        if description is None:
            raise CannotVerify(
                f"the log does not say how {instance!r} was configured: give its run's config.yaml with --config FILE"
            )
        return description.implementation, description.config


def verify_call(trajectory: Trajectory) -> Call | None:
    """The rollout's last answered call of a verifier, not one of an agent that was called."""
    calls = [call for call in trajectory.calls.values() if call.what == "verify" and prefix_of(call.key) == ""]
    return next((call for call in reversed(calls) if call.replied is not None), None)


def resources_of(trajectory: Trajectory) -> list[str]:
    """The resources instances that a rollout called."""
    return list(dict.fromkeys(call.instance for call in trajectory.calls.values() if call.kind == "resources"))


def needs_own_venv(implementation: str) -> bool:
    """Whether the component asks for packages beyond the core's. Raises `CannotVerify` if it is not here."""
    try:
        return requirements("resources", implementation) is not None
    except ComponentError as error:
        raise CannotVerify(f"the code of resources/{implementation} is not here: {error}") from error


def transformed(trajectory: Trajectory, rescored: Rescored) -> bool:
    """Whether the agent's code made another reward of the verifier's."""
    outcome, was = trajectory.outcome, rescored.was
    return was is None or not isinstance(outcome, RolloutResult) or outcome.reward != was.reward


def _history(trajectory: Trajectory, verify: Call) -> History:
    """The seed and the answered calls of the session that is verified, in the order in which they were asked."""
    asked = [
        call
        for call in trajectory.calls.values()
        if call.instance == verify.instance and prefix_of(call.key) == prefix_of(verify.key)
    ]
    asked = in_order(asked, _request)
    before = [call for call in asked[: asked.index(verify)] if call.replied is not None and not call.failed]
    seeds = [place for place, call in enumerate(before) if call.what == "session"]
    if not seeds:
        raise CannotVerify(f"rollout {trajectory.rollout_id}: its session was never seeded")
    seed = before[seeds[-1]]
    asked = [call for call in before[seeds[-1] :] if call.what == "tool"]
    task = _SEED.decode(trajectory.data(seed.requested.event)).task
    calls = [trajectory.decoded(call.requested, _CALL) for call in asked]
    last = max([seed, *asked], key=lambda call: call.replied.seq if call.replied is not None else 0)
    assert last.replied is not None
    data = trajectory.data(last.replied.event)
    snapshot = _SEEDED.decode(data) if last is seed else _OUTPUT.decode(data).snapshot
    return History(task, calls, snapshot)


def _answered(trajectory: Trajectory, call: Call) -> bool:
    """Whether the component answered it, be it with an error of its own."""
    if call.replied is None or not call.failed:
        return call.replied is not None
    return trajectory.decoded(call.replied, _ERROR).kind not in _NOBODYS


def _request(call: Call) -> Event:
    return call.requested.event


def _output(data: bytes, *, failed: bool) -> msgspec.Raw:
    return msgspec.Raw(data) if failed else _OUTPUT.decode(data).output


def _told(error: ResourcesError) -> str:
    """What it says, with the line of the author's code where one raised."""
    return f"{error}{_at(error.__cause__)}" if error.__cause__ is not None else str(error)


def _said(error: BaseException) -> str:
    said = ": ".join(filter(None, (type(error).__name__, str(error))))
    return f"{said}{_at(error)}"


def _at(error: BaseException) -> str:
    file, line = raising(error)
    return f" ({file}:{line})" if line else ""
