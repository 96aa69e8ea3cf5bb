"""Fails after its first turn, as code does that expects what does not come."""

from components.agents.base import Agent, AgentConfig
from contracts.responses import Response, ResponseCreateParams


class ClumsyAgent(Agent[AgentConfig]):
    """Takes the first tool that was never asked for."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        """Raises `IndexError` once the model has answered."""
        reply = await self.model.responses(request)
        self.rollout.sessionless[len(reply.output)]
        return reply
