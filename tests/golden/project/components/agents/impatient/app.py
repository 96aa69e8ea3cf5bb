"""Uses all that an agent may: parallel branches, timers, a timeout, the clock, chance and IDs."""

import asyncio

from components.agents.base import Agent, AgentConfig
from components.agents.conversation import Conversation
from contracts.responses import Response, ResponseCreateParams, function_call


class ImpatientAgent(Agent[AgentConfig]):
    """Asks the model twice at once, waits for neither longer than it must, and notes what it used."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        """Two calls of the model in a task group, one of them late, then a tool that is called in parallel."""
        started = self.now()
        conversation = Conversation(request)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(self.model.responses(conversation.request()))
            second = group.create_task(self._late(conversation.request()))
        conversation.hear(first.result())
        call = function_call(str(self.uuid()), "increment_counter", f'{{"count": {self.random().randrange(100)}}}')
        async with asyncio.timeout(30):
            outputs = await asyncio.gather(self.resources.call_tool(call), self.resources.call_tool(call))
        conversation.tell(outputs)
        response = conversation.response()
        took = (self.now() - started).total_seconds()
        return response.model_copy(update={"metadata": {"took": f"{took:.3f}", "second": second.result().id}})

    async def _late(self, request: ResponseCreateParams) -> Response:
        await asyncio.sleep(0.05)
        return await self.model.responses(request)
