"""An agent for measuring long rollouts: it asks, runs a tool, and forgets all but what the tool said last.

So a rollout has no limit, and the code's own memory none of the rollout's size.
"""

from components.agents.base import Agent, AgentConfig
from components.config import ModelRef, ResourcesRef
from contracts.responses import ResponseCreateParams
from contracts.rollouts import RolloutResult
from contracts.tasks import Task


class ForgetfulConfig(AgentConfig):
    """Whom it calls."""

    model: ModelRef
    resources: ResourcesRef


class Forgetful(Agent[ForgetfulConfig]):
    """Takes as many turns as its task says."""

    async def run(self, task: Task) -> RolloutResult:
        """The loop."""
        asked = task.responses_create_params.to_dict()
        said = list(asked["input"])
        for _ in range(task.fields["turns"]):
            reply = await self.model.responses(ResponseCreateParams.model_validate({**asked, "input": said}))
            (call,) = reply.function_calls
            output = await self.resources.call_tool(call)
            said = [*asked["input"], call.to_dict(), output.to_dict()]
        return await self.resources.verify(task, reply)
