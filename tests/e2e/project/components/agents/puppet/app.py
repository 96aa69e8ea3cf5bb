"""Does what its task's `plan` says: the tests of workers write agents as lists."""

import asyncio
import os
import time
from typing import Any

import msgspec

from components.agents.base import Agent, AgentConfig
from components.config import AgentRef
from contracts.responses import Response, ResponseCreateParams, function_call, output_message
from contracts.rollouts import RolloutResult
from contracts.tasks import Task


class PuppetConfig(AgentConfig):
    """Whom it may ask."""

    helper: AgentRef | None = None


class PuppetAgent(Agent[PuppetConfig]):
    """Each step is a list: what to do, and with what."""

    async def run(self, task: Task) -> RolloutResult:
        """Seeds, follows the plan, verifies. A plan that ends in `return` is not verified."""
        self._task = task
        self._response = _said("Nothing was said.")
        if "bare" not in task.fields:
            await self.resources.seed_session(task)
        self._result: Any = None
        await self._follow(task.fields["plan"])
        if self._result is None:
            self._result = await self.resources.verify(task, self._response)
        return self._result  # type: ignore[no-any-return]  # some plans return what is no result

    async def _follow(self, plan: list[Any]) -> None:
        for what, *given in plan:
            await getattr(self, f"_{what}")(*given)

    async def _model(self, instance: str | None = None) -> None:
        handle = self.model if instance is None else self.model_named(instance)
        self._response = await handle.responses(self._task.responses_create_params)

    async def _tool(self, name: str, arguments: dict[str, Any]) -> None:
        await self.resources.call_tool(function_call("call", name, msgspec.json.encode(arguments).decode()))

    async def _seed(self) -> None:
        await self.resources.seed_session(self._task)

    async def _add(self, count: int) -> None:
        await self._tool("add", {"count": count})

    async def _adds(self, *counts: int) -> None:
        await asyncio.gather(*(self._add(count) for count in counts))

    async def _appends(self, *digits: int) -> None:
        await asyncio.gather(*(self._tool("append", {"digit": digit}) for digit in digits))

    async def _read(self, size: int) -> None:
        call = function_call("call", "fill", f'{{"size": {size}}}')
        first, second = await asyncio.gather(self.resources.call_tool(call), self.resources.call_tool(call))
        self._response = _said(f"{len(str(first.output))} {len(str(second.output))}")

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _timeout(self, seconds: float, plan: list[Any]) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._follow(plan)
        except TimeoutError:
            await self._add(100)

    async def _parallel(self, *plans: list[Any]) -> None:
        async with asyncio.TaskGroup() as group:
            for plan in plans:
                group.create_task(self._follow(plan))

    async def _catch(self, plan: list[Any]) -> None:
        try:
            await self._follow(plan)
        except Exception as error:  # noqa: BLE001
            self._response = _said(f"{type(error).__name__}: {error}")

    async def _ask(self, task: dict[str, Any]) -> None:
        assert self.config.helper is not None
        line = {"responses_create_params": {"input": "Go."}, **task}
        result = await self.agent_named(self.config.helper).run(Task(msgspec.json.encode(line)))
        await self._add(int(result.reward))

    async def _stick(self) -> None:
        await asyncio.Event().wait()

    async def _raise(self, message: str) -> None:
        raise ValueError(message)

    async def _exit(self) -> None:
        os._exit(3)

    async def _spin(self) -> None:
        while True:
            pass

    async def _block(self) -> None:
        time.sleep(600)  # noqa: ASYNC251 - that is the fault

    async def _return(self, what: str) -> None:
        results: dict[str, Any] = {
            "nothing": "this is no result",
            "nan": self.result(self._response, float("nan")),
            "true": self.result(self._response, True),
            "broken": RolloutResult(response=msgspec.Raw(b"{"), reward=1.0),
            "much": self.result(_said("x" * 1_500_000), 1.0),
        }
        self._result = results[what]

    async def responses(self, request: ResponseCreateParams) -> Response:
        """Not used: `run` is its own."""
        raise NotImplementedError


def _said(text: str) -> Response:
    said = output_message(text, item_id="msg")
    return Response(id="r", object="response", created_at=0, model="none", status="completed", output=[said])
