"""Runs one resources component: seeds its sessions, calls its tools, has it verify. Knows no bus.

The resources worker puts it on the bus; tests and replay drive it directly. Calls that touch a session run one at a
time in the order in which they came, and one whose `place` says that another is missing before it asks for the history;
calls that do not touch it, and those of other sessions, run beside them. Whatever an
author's code does ends here as an output for the model or as a typed `ResourcesError`; it never ends the worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any, Final, Literal

import msgspec
import structlog
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from components.resources import results
from components.resources.base import Resources, ResourcesConfig
from components.resources.errors import (
    DeadlineExceeded,
    MetricsFailed,
    ResourcesError,
    ResponseMisfit,
    SeedFailed,
    SnapshotFailed,
    TaskMisfit,
    ToolError,
    VerifyFailed,
)
from components.resources.plan import Method, TaskFields
from components.resources.sessions import FREE, History, Place, Recover, Session, Sessions
from components.resources.threads import Overdue, Threads
from components.resources.tools import SESSION, BadArguments, Tool
from contracts.base import JsonObject
from contracts.responses import Response
from contracts.rollouts import SessionSnapshot, ToolCall, ToolOutput, Verdict, VerifyRequest

__all__ = ["History", "Place", "Recover", "Runtime"]

_Deadline = Literal["seed_deadline_s", "tool_deadline_s", "verify_deadline_s"]
"""The key of the config that says it."""

SHOWN: Final = 300
"""Bytes of an output that an error quotes."""


class _Raised(Exception):
    """The author's code raised `error`."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(error)

    @property
    def details(self) -> dict[str, str]:
        """For machines."""
        return {"exception": type(self.error).__name__}


class Runtime:
    """One component at work. `session` is the key of a session: the rollout's ID, of a nested rollout more than it."""

    def __init__(self, resources: Resources[ResourcesConfig]) -> None:
        config = resources.config
        self._resources = resources
        self._plan = resources.jetgym_plan
        self._config = config
        self._name = type(resources).__name__
        self._sessions = Sessions(config.max_sessions)
        self._threads = Threads(config.threads)
        self._log = structlog.get_logger()

    # --- sessions ----------------------------------------------------------------------------------------------

    @property
    def takes_snapshots(self) -> bool:
        """Whether the replies of calls that take the session have a snapshot of it, which it is restored from."""
        return self._plan.rebuild == "snapshot"

    @property
    def verifies_session(self) -> bool:
        """Whether `verify` takes the session."""
        return self._plan.verify is not None and SESSION in self._plan.verify.wants

    def takes_session(self, call: ToolCall) -> bool:
        """Whether the call is of a tool that takes the session."""
        entry = self._plan.tools.get(call.name)
        return entry is not None and entry.wants_session

    async def seed(self, session: str, task: bytes | msgspec.Raw, *, place: Place = FREE) -> SessionSnapshot | None:
        """Starts the session from the task's line, in place of an earlier one; nothing where none is kept.

        Returns its snapshot, where the component takes them. Raises `TaskMisfit`, `SeedFailed`, `SnapshotFailed` or
        `DeadlineExceeded`.
        """
        if self._plan.seed is None:
            return None
        async with self._sessions.use(session) as held:
            held.forget()
            state = await self._seeded(session, self._plan.seed, task)
            snapshot = await self._snapshot(session, state, 0)
            held.keep(state, last=place.key)
            return snapshot

    def has(self, session: str) -> bool:
        """Whether the session is in memory."""
        return self._sessions.has(session)

    def drop(self, session: str) -> None:
        """Forgets the session; a later call that needs it finds it lost, or recovers it."""
        self._sessions.drop(session)

    async def rebuild(self, session: str, history: History) -> None:
        """Makes the session again: from its snapshot, or else the seed and the calls.

        Raises what `seed` raises, and `SessionLost` where `restore` raised, where the component says
        `rebuild = "fail"`, or where a call that went well went wrong when it was made again, or the other way round.
        """
        async with self._sessions.use(session) as held:
            await self._rebuild(session, held, history)

    async def _seeded(self, session: str, seed: Method, task: bytes | msgspec.Raw) -> object:
        given = {"task": self._task(seed, task)} if seed.wants else {}
        try:
            return await self._run("seed_session", seed.is_async, given, "seed_deadline_s")
        except _Raised as raised:
            raise SeedFailed(self._told("seed_session", raised, session), **raised.details) from raised.error

    async def _rebuild(self, session: str, held: Session, history: History) -> None:
        seed = self._plan.seed
        if seed is None:
            return
        if self._plan.rebuild == "fail":
            why = f"{self._name} does not rebuild sessions (rebuild = 'fail')"
            if self._sessions.had_to_go(session):
                why += ", and this worker let it go for want of room: give it a larger max_sessions, or more workers"
            raise held.lost(why)
        held.forget()
        if self._plan.restore is not None:
            await self._restore(session, held, self._plan.restore, history)
            return
        state = await self._seeded(session, seed, history.task)
        for call, recorded in zip_longest(history.calls, history.outputs):
            entry = self._plan.tools.get(call.name)
            if entry is None:
                output = results.problem(self._no_tool(call.name))
            elif entry.wants_session:
                output = await self._called(session, entry, call, {SESSION: state})
            else:
                continue
            if recorded is not None and results.is_problem(output) != results.is_problem(recorded):
                raise held.lost(_other_end(call, recorded, output))
        held.keep(state, last=history.last)
        self._log.info("session.rebuilt", session=session, calls=len(history.calls))

    async def _restore(self, session: str, held: Session, restore: Method, history: History) -> None:
        """The session as its snapshot has it. One that lacks an answered call is no session to go on with."""
        snapshot = history.snapshot
        if snapshot is None:
            raise held.lost("the log has no snapshot of it; it was seeded by code that took none")
        answered = sum(map(self.takes_session, history.calls))
        if snapshot.calls != answered:
            reason = f"{answered} calls on it were answered, and its last snapshot has {snapshot.calls} in it"
            raise held.lost(f"{reason}; two workers served it at once, or the code was changed meanwhile")
        given: dict[str, object] = {"snapshot": msgspec.json.decode(snapshot.state)}
        if "task" in restore.wants:
            given["task"] = self._task(restore, history.task)
        try:
            state = await self._run("restore", restore.is_async, given, "seed_deadline_s")
        except _Raised as raised:
            raise held.lost(self._told("restore", raised, session)) from raised.error
        held.keep(state, snapshot.calls, history.last)
        self._log.info("session.restored", session=session, calls=snapshot.calls)

    async def _snapshot(self, session: str, state: object, calls: int) -> SessionSnapshot | None:
        """The snapshot of a session that has `calls` in it; raises `SnapshotFailed` or `DeadlineExceeded`."""
        method = self._plan.snapshot
        if method is None:
            return None
        try:
            value = await self._run("snapshot", method.is_async, {SESSION: state}, "seed_deadline_s")
        except _Raised as raised:
            raise SnapshotFailed(self._told("snapshot", raised, session), **raised.details) from raised.error
        return SessionSnapshot(calls=calls, state=results.state_of(value, f"{self._name}.snapshot"))

    async def _state(self, session: str, held: Session, recover: Recover | None, place: Place) -> object:
        if held.kept and held.due(place):
            return held.state
        if recover is None:
            raise held.lost("it was never seeded, or this worker let it go")
        history = await recover()
        if not held.kept or held.last != history.last:
            await self._rebuild(session, held, history)
        return held.state

    # --- tools -------------------------------------------------------------------------------------------------

    async def call(
        self, session: str, call: ToolCall, *, recover: Recover | None = None, place: Place = FREE
    ) -> ToolOutput:
        """Runs one tool call of the model; what was wrong with it is in the output.

        `recover` reads the session's history where the session is not here, or is not as it was after the call before
        this one; it is awaited in this call's turn, so that no other call of the session comes between, and what it
        raises is raised. The output has the session's snapshot, where the component
        takes them. Raises `SessionLost`, `SnapshotFailed`, and `DeadlineExceeded` where a thread that is still running
        could go on changing the session; the call is no part of the session then.
        """
        entry = self._plan.tools.get(call.name)
        if entry is None or not entry.wants_session:
            self._sessions.pass_by(session, place)
            return await self._called(session, entry, call, {}) if entry else results.problem(self._no_tool(call.name))
        async with self._sessions.use(session) as held:
            state = await self._state(session, held, recover, place)
            calls = held.calls + 1
            try:
                output = await self._called(session, entry, call, {SESSION: state})
                snapshot = await self._snapshot(session, state, calls)
            except ResourcesError:
                held.forget()
                raise
            held.calls, held.last = calls, place.key
            return output if snapshot is None else msgspec.structs.replace(output, snapshot=snapshot)

    async def _called(self, session: str, entry: Tool, call: ToolCall, given: dict[str, object]) -> ToolOutput:
        try:
            arguments = entry.arguments(call.arguments)
            value = await self._run(entry.method, entry.is_async, given | arguments, "tool_deadline_s")
            return results.output_of(value)
        except BadArguments as error:
            return results.problem(str(error))
        except _Raised as raised:
            if isinstance(raised.error, ToolError):
                return results.problem(str(raised.error))
            return results.problem(self._told(entry.method, raised, session))
        except PydanticSerializationError as error:
            self._log.error("tool.output_unusable", tool=entry.name, session=session, reason=str(error))
            return results.problem(f"{entry.name} returned what JSON cannot say: {error}")
        except DeadlineExceeded as error:
            if given and not entry.is_async:
                raise
            return results.problem(str(error))

    def _no_tool(self, name: str) -> str:
        known = ", ".join(self._plan.tools) or "there are none"
        wrong = f"there is no tool {name[:64]!r}" if name else "the call names no tool"
        return f"{wrong}; the tools: {known}"

    # --- scores ------------------------------------------------------------------------------------------------

    async def verify(
        self, session: str, request: VerifyRequest, *, recover: Recover | None = None, place: Place = FREE
    ) -> Verdict:
        """The reward of a response to a task; `recover` and `place` as for `call`.

        Raises `TaskMisfit`, `ResponseMisfit`, `VerifyFailed`, `DeadlineExceeded`, `SessionLost`. There is no reward
        then.
        """
        verify = self._plan.verify
        if verify is None:
            raise VerifyFailed(f"{self._name} has no `verify`")
        given: dict[str, object] = {}
        if "task" in verify.wants:
            given["task"] = self._task(verify, request.task)
        if "response" in verify.wants:
            given["response"] = _response(request.response)
        if SESSION not in verify.wants:
            return await self._verified(session, verify, given)
        async with self._sessions.use(session) as held:
            given[SESSION] = await self._state(session, held, recover, place)
            return await self._verified(session, verify, given)

    async def _verified(self, session: str, verify: Method, given: dict[str, object]) -> Verdict:
        try:
            value = await self._run("verify", verify.is_async, given, "verify_deadline_s")
        except _Raised as raised:
            raise VerifyFailed(self._told("verify", raised, session), **raised.details) from raised.error
        return results.verdict_of(value, f"{self._name}.verify")

    async def aggregate_metrics(self, lines: list[JsonObject]) -> JsonObject:
        """The component's own metrics over all result lines; raises `MetricsFailed` or `DeadlineExceeded`."""
        method = self._plan.aggregate_metrics
        if method is None:
            return {}
        given = {"lines": lines} if method.wants else {}
        try:
            value = await self._run("aggregate_metrics", method.is_async, given, "verify_deadline_s")
        except _Raised as raised:
            raise MetricsFailed(self._told("aggregate_metrics", raised, ""), **raised.details) from raised.error
        return results.metrics_of(value, f"{self._name}.aggregate_metrics")

    # --- an author's code --------------------------------------------------------------------------------------

    async def _run(self, method: str, is_async: bool, given: Mapping[str, object], deadline: _Deadline) -> object:
        """What the author's method returns; raises `_Raised` for whatever it raises, and `DeadlineExceeded`."""
        function: Callable[..., Any] = getattr(self._resources, method)
        deadline_s: float = getattr(self._config, deadline)
        caller = _branch()
        try:
            if is_async:
                return await _within(function(**given), deadline_s)
            return await self._threads.run(partial(function, **given), deadline_s)
        except Overdue as error:
            self._log.warning("deadline.struck", key=deadline, seconds=deadline_s, error="deadline", method=method)
            raise DeadlineExceeded(
                f"{self._name}.{method} did not finish within {deadline_s:g} seconds", method=method
            ) from error
        except asyncio.CancelledError as error:
            if caller is not None and caller.cancelling():
                raise
            raise _Raised(error) from error
        except GeneratorExit as error:
            if _branch() is not caller:
                raise  # nobody waits any more: this coroutine is being closed, which is no doing of the author's
            raise _Raised(error) from error
        except BaseException as error:  # SystemExit too: an author's code ends its own call only
            raise _Raised(error) from error

    def _told(self, method: str, raised: _Raised, session: str) -> str:
        """Logs what an author's method raised, with its traceback, and says it in one line without."""
        error = raised.error
        self._log.error("resources.raised", method=method, session=session, exc_info=error)
        said = str(error)
        name = type(error).__name__
        return f"{self._name}.{method} raised {name}: {said}" if said else f"{self._name}.{method} raised {name}"

    def _task(self, method: Method, task: bytes | msgspec.Raw) -> TaskFields:
        try:
            return method.task_type.model_validate_json(bytes(task))
        except ValidationError as error:
            raise TaskMisfit(
                f"the task does not fit {method.task_type.__name__} of {self._name}: {_faults(error)}"
            ) from error


def _other_end(call: ToolCall, recorded: ToolOutput, output: ToolOutput) -> str:
    """Why a session is lost of which a call, made again, went wrong or well as it had not before."""
    before, now = (bytes(each.output)[:SHOWN].decode(errors="replace") for each in (recorded, output))
    return (
        f"made again, {call.name} ({call.call_id}) was answered with {now} in place of {before}; tools that do not end "
        "alike each time need rebuild = 'snapshot'"
    )


def _branch() -> "asyncio.Task[Any] | None":
    """The task that runs now; none where a coroutine is closed after the end of its loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


async def _within(running: Awaitable[object], deadline_s: float) -> object:
    try:
        async with asyncio.timeout(deadline_s) as deadline:
            return await running
    except TimeoutError as error:
        if deadline.expired():
            raise Overdue from error
        raise


def _response(raw: bytes | msgspec.Raw) -> Response:
    try:
        return Response.model_validate_json(bytes(raw))
    except ValidationError as error:
        raise ResponseMisfit(f"what is to be scored is no Responses object: {_faults(error)}") from error


def _faults(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"`{'.'.join(str(part) for part in fault['loc'])}`: {fault['msg']}" for fault in faults[:5])
