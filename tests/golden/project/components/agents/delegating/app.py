"""Hands its task to another agent and passes on what comes back."""

from components.agents.base import Agent, AgentConfig
from components.config import AgentRef
from contracts.rollouts import RolloutResult
from contracts.tasks import Task


class DelegatingConfig(AgentConfig):
    """Whom it asks."""

    helper: AgentRef


class DelegatingAgent(Agent[DelegatingConfig]):
    """Asks its helper, and says in the result whom it asked."""

    async def run(self, task: Task) -> RolloutResult:
        """One call to the helper, which has a session of its own."""
        found = await self.agent_named(self.config.helper).run(task)
        return RolloutResult(response=found.response, reward=found.reward, extra=found.extra)
