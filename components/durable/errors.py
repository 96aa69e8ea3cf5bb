"""The errors of executing agents, drawn here and raised by every module of the package.

DurableError
├── CallFailed            a call was answered with an error: agent code sees it and may catch it
├── NotInAgents           agent code used a socket, a thread, a process, …: it may not
├── AgentFailed           the agent's code ended, but not with a result or an ordinary exception
│   ├── AgentStuck        it waits for something that can never come
│   ├── AgentSpins        it never gets to wait for a call
│   ├── AgentCancelled    it ended with a cancellation of its own
│   └── AgentExited       it raised SystemExit, KeyboardInterrupt or another signal
├── UnknownReply          a reply to a call that is not outstanding
├── InvalidHistory        recorded events that are no history of one rollout
└── NondeterminismError   re-execution departed from the recorded history

`Departure` is no error but a signal: it unwinds agent code whose re-execution has departed, and derives from
BaseException so that `except Exception` in an agent does not swallow it. It never leaves this package.
"""

from contracts.events import CallError

__all__ = [
    "AgentCancelled",
    "AgentExited",
    "AgentFailed",
    "AgentSpins",
    "AgentStuck",
    "CallFailed",
    "Departure",
    "DurableError",
    "InvalidHistory",
    "NondeterminismError",
    "NotInAgents",
    "UnknownReply",
]


class DurableError(Exception):
    """Executing an agent went wrong."""


class CallFailed(DurableError):
    """The callee answered with an error; `error` says which, `call_key` names the call."""

    def __init__(self, error: CallError, call_key: str) -> None:
        self.error, self.call_key = error, call_key
        super().__init__(f"{error.kind}: {error.message}")


class NotInAgents(DurableError, RuntimeError):
    """Agent code reached for something that is not a call; `operation` names it."""

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(
            f"{operation} cannot be used in an agent: what an agent does must follow from the log of its calls. Put "
            f"it into a tool and use self.resources, or wrap the whole program as an opaque agent; "
            f"see docs/environments.md"
        )


class AgentFailed(DurableError):
    """The agent's code ended, but with neither a result nor an ordinary exception."""


class AgentStuck(AgentFailed):
    """Every branch waits and no call is outstanding, so nothing can ever wake one."""


class AgentSpins(AgentFailed):
    """After one reply the agent took more steps than any real agent needs, without waiting for a call."""


class AgentCancelled(AgentFailed):
    """The agent ended with a `CancelledError` that nothing outside had asked for."""


class AgentExited(AgentFailed):
    """The agent raised `SystemExit`, `KeyboardInterrupt`, or another exception that is no `Exception`."""


class UnknownReply(DurableError):
    """A reply to a call that was never made, or that has its reply already; `call_key` names it."""

    def __init__(self, call_key: str) -> None:
        self.call_key = call_key
        super().__init__(f"a reply came for call {call_key!r}, which is not outstanding")


class InvalidHistory(DurableError):
    """Recorded events that cannot all be of one rollout's log, or that lack a blob."""


class NondeterminismError(DurableError):
    """The agent's code does not do what the recorded history says that it did.

    Either the code has changed since, or it is not a function of its calls (the clock, `random`, a set of strings,
    a global variable, …).
    """

    def __init__(
        self,
        reason: str,
        *,
        rollout_id: str,
        call_key: str,
        seq: int,
        file: str,
        line: int,
        recorded: str = "",
        made: str = "",
        field: str = "",
    ) -> None:
        self.reason = reason
        self.rollout_id = rollout_id
        self.call_key = call_key
        self.seq = seq
        """Sequence in the log of the event at which the departure showed; 0 where no event is to blame."""
        self.file = file
        self.line = line
        """Where the agent's code makes the call, or where it waits instead."""
        self.recorded = recorded
        self.made = made
        """Both values; long ones are cut."""
        self.field = field
        """Path of the first field that differs, such as `data.input[2].content`."""
        where = f" (event {seq})" if seq else ""
        lines = [f"rollout {rollout_id}, call {call_key}{where}: {reason}", f"  at {file}:{line}"]
        if field:
            lines.append(f"  first difference at {field}")
        if recorded or made:
            lines += [f"  recorded: {recorded or 'nothing'}", f"  now:      {made or 'nothing'}"]
        super().__init__("\n".join(lines))


class Departure(BaseException):
    """Unwinds agent code that has departed from its history."""
