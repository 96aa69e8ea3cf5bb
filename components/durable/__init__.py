"""Durable execution of agents: ordinary asyncio code as a function of the log of its calls.

Pure: it imports nothing of ours but `contracts`, and does no I/O.
"""

from components.durable.calls import Call, Reply
from components.durable.context import Context
from components.durable.difference import first_difference
from components.durable.errors import (
    AgentFailed,
    CallFailed,
    DurableError,
    InvalidHistory,
    NondeterminismError,
    NotInAgents,
    UnknownReply,
)
from components.durable.execution import Execution
from components.durable.history import History, from_recorded
from components.durable.matching import reexecute

__all__ = [
    "AgentFailed",
    "Call",
    "CallFailed",
    "Context",
    "DurableError",
    "Execution",
    "History",
    "InvalidHistory",
    "NondeterminismError",
    "NotInAgents",
    "Reply",
    "UnknownReply",
    "first_difference",
    "from_recorded",
    "reexecute",
]
