"""A component that adds in its sessions, and fails in every way, for the tests of the runtime."""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from components.resources import (
    Resources,
    ResourcesConfig,
    Reward,
    Runtime,
    TaskFields,
    ToolError,
    tool,
)
from contracts.responses import Response, output_message
from contracts.rollouts import ToolCall, VerifyRequest

TASK = b'{"responses_create_params": {"input": "go"}, "start": 2}'


class Task(TaskFields):
    start: int = 0
    how: str = ""


@dataclass
class Sum:
    value: int
    order: list[int] = field(default_factory=list)


class Adder(Resources):
    """Keeps a sum. Its tools do what their names say."""

    go_on: ClassVar[threading.Event]
    seeded = 0

    def seed_session(self, task: Task) -> Sum:
        type(self).seeded += 1
        if task.how == "raise":
            raise ValueError("no seed")
        return Sum(task.start)

    @tool
    async def add(self, session: Sum, number: int) -> str:
        """Adds on the loop, after others had their chance to run."""
        before = session.value
        await asyncio.sleep(0)
        session.value = before + number
        session.order.append(number)
        return str(session.value)

    @tool
    def add_in_thread(self, session: Sum, number: int) -> int:
        """Adds in a thread."""
        session.value += number
        return session.value

    @tool
    async def hang(self) -> str:
        """Waits for ever."""
        await asyncio.Event().wait()
        return "never"

    @tool
    def hang_in_thread(self) -> str:
        """Waits for ever in a thread."""
        self.go_on.wait()
        return "never"

    @tool
    def hang_on_session(self, session: Sum) -> str:
        """Waits for ever in a thread and could then change the session."""
        self.go_on.wait()
        return "never"

    @tool
    async def fail(self, how: str) -> object:
        """Fails on the loop."""
        return broken(how)

    @tool
    def fail_in_thread(self, how: str) -> object:
        """Fails in a thread."""
        return broken(how)

    async def verify(self, task: Task, session: Sum, response: Response) -> Reward:
        return Reward(reward=float(session.value == 5), said=response.output_text, order=session.order)


FAULTS: dict[str, type[BaseException] | BaseException] = {
    "tool_error": ToolError("the drawer is locked"),
    "value": ValueError("bad thing"),
    "empty": KeyError,
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
    "timeout": TimeoutError("the shop did not answer"),
    "closed": GeneratorExit,
    "stop": StopIteration,
}


def broken(how: str) -> object:
    if how in FAULTS:
        raise FAULTS[how]
    return {"x": float("nan")} if how == "nan" else object()


def call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(name=name, arguments=arguments, call_id="c")


def add(number: int) -> ToolCall:
    return call("add", f'{{"number": {number}}}')


async def said(runtime: Runtime, call: ToolCall, session: str = "r") -> Any:
    return msgspec.json.decode((await runtime.call(session, call)).output)


def request(task: bytes = TASK, text: str = "done") -> VerifyRequest:
    response = Response(
        id="resp", object="response", created_at=0, model="m", output=[output_message(text, item_id="msg")]
    )
    return VerifyRequest(task=msgspec.Raw(task), response=msgspec.Raw(response.to_json()))


async def seeded(config: ResourcesConfig | None = None) -> Runtime:
    runtime = Runtime(Adder(config))
    await runtime.seed("r", TASK)
    return runtime
