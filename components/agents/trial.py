"""Runs an agent without a deployment: for the tests of agents.

The code runs on the same private loop as in a worker; a plain function answers its calls, one after another in the
order in which they are made. Nothing is published and no time passes: a timer fires at once.
"""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
from pydantic import BaseModel

from components.agents.base import Agent, AgentConfig, RolloutInfo
from components.durable import Call, Context, Execution, Reply
from contracts.contexts import ModelCalls
from contracts.events import CallError
from contracts.rollouts import RolloutResult
from contracts.tasks import Task

Answer = Callable[[Call], BaseModel | msgspec.Struct | bytes | None]
"""Turns a call (its `kind`, `type`, `instance`, `data`) into the reply's data; a `CallError` makes the call fail."""


def run_agent(
    agent: type[Agent[AgentConfig]], config: AgentConfig, task: bytes, answer: Answer, *, rollout_id: str = "trial"
) -> RolloutResult:
    """The result of one rollout of `agent` on one task line; raises what the agent raises."""
    info = RolloutInfo(rollout_id=rollout_id, run_id="trial", task_index=0, rollout_index=0, attempt=0)
    now = datetime.now(UTC)

    async def main(context: Context) -> RolloutResult:
        return await agent(config, context, info).run(Task(task))

    said = _Said()
    execution = Execution(rollout_id, main, time=now)
    calls = deque(execution.start())
    while calls and not execution.done:
        call = calls.popleft()
        now += timedelta(seconds=call.delay)
        outcome, data = ("replied", b"null") if call.kind == "timers" else _encoded(answer(said.heard(call)))
        said.answered(call, outcome, data)
        reply = Reply(key=call.key, type=f"{call.type.partition('.')[0]}.{outcome}", data=data, time=now)
        calls.extend(execution.deliver(reply))
    return execution.result()


class _Said:
    """What the model calls were about, so that each is answered as a whole Responses request."""

    def __init__(self) -> None:
        self._requests: dict[str, bytes] = {}
        self._replies: dict[str, bytes] = {}
        self._calls = ModelCalls(self._requests, self._replies)

    def heard(self, call: Call) -> Call:
        if call.type != "model.requested":
            return call
        self._requests[call.key] = call.data
        return msgspec.structs.replace(call, data=self._calls.whole_request(call.data))

    def answered(self, call: Call, outcome: str, data: bytes) -> None:
        if outcome == "replied":
            self._replies[call.key] = data


def _encoded(answer: BaseModel | msgspec.Struct | bytes | None) -> tuple[str, bytes]:
    if isinstance(answer, CallError):
        return "failed", msgspec.json.encode(answer)
    if isinstance(answer, BaseModel):
        return "replied", answer.model_dump_json(exclude_unset=True, by_alias=True).encode()
    return "replied", answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
