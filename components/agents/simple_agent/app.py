"""The tool loop: call the model, run the tools that it asks for, until it answers without one.

The calls of one turn run in parallel. The loop always ends, and where the model did not end it itself the response
says why: `incomplete_details.reason` is `max_turns`, `only_reasoning` or `repeated`.
"""

import asyncio

from pydantic import Field

from components.agents.base import Agent, AgentConfig
from components.agents.conversation import Conversation, exchange, only_reasoning
from components.config import ModelRef, ResourcesRef
from contracts.responses import Response, ResponseCreateParams


class SimpleAgentConfig(AgentConfig):
    """Whom the loop calls, and its limits."""

    model: ModelRef
    resources: ResourcesRef
    max_turns: int = Field(default=32, ge=1)
    """Model calls in one rollout."""
    max_reasoning_turns: int = Field(default=3, ge=1)
    """Turns in a row that may hold nothing but reasoning."""
    max_repeats: int = Field(default=5, ge=2)
    """Turns in a row that may make the very same calls and get the very same outputs."""


class SimpleAgent(Agent[SimpleAgentConfig]):
    """Calls tools until the model stops asking for them."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        """Runs the loop from the request's input, with the request's tools."""
        conversation = Conversation(request)
        thinking, repeats, last = 0, 1, None
        while conversation.turns < self.config.max_turns:
            reply = await self.model.responses(conversation.request())
            conversation.hear(reply)
            if only_reasoning(reply):
                thinking += 1
                if thinking == self.config.max_reasoning_turns:
                    return conversation.response("only_reasoning")
                continue
            thinking = 0
            calls = reply.function_calls
            if not calls or reply.incomplete_details is not None:
                return conversation.response()
            outputs = await asyncio.gather(*(self.resources.call_tool(call) for call in calls))
            conversation.tell(outputs)
            said = exchange(calls, outputs)
            repeats = repeats + 1 if said == last else 1
            last = said
            if repeats == self.config.max_repeats:
                return conversation.response("repeated")
        return conversation.response("max_turns")
