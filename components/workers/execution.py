"""How does a request to an agent become an execution of its code?

Called by the agent worker for live and adopted rollouts and by replay for recorded ones, so that both run the same
code in the same way. It starts nothing and does no I/O.
"""

from components.agents.base import Agent, AgentConfig, RolloutInfo
from components.durable import Context, Execution
from contracts.events import Event
from contracts.rollouts import RolloutRequest, RolloutResult
from contracts.tasks import Task


def execution_of(
    agent: type[Agent[AgentConfig]],
    config: AgentConfig,
    event: Event,
    request: RolloutRequest,
    *,
    prefix: str = "",
    seed: str = "",
) -> Execution[RolloutResult]:
    """A fresh execution; `event` is the request's event, `request` its data, and call keys begin with `prefix`.

    `seed` is that of an agent's call which a fork has from its parent.
    """
    info = RolloutInfo(
        rollout_id=event.rolloutid,
        run_id=request.run_id,
        task_index=request.task_index,
        rollout_index=request.rollout_index,
        attempt=request.attempt,
        sessionless=request.sessionless,
    )

    async def main(context: Context) -> RolloutResult:
        running = agent(config, context, info)
        result = await running.run(Task(request.task))
        return result if prefix else running.cited(result)  # who called a nested agent reads its result as it stands

    fork = request.fork
    return Execution(
        event.rolloutid,
        main,
        time=fork.started if fork is not None else event.time,
        prefix=prefix,
        cause=event.id,
        seeds=fork.seeds if fork is not None else ((0, seed),) if seed else (),
    )
