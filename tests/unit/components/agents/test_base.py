"""What an author of an agent is told where a value has the wrong type."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from components.agents.base import Agent, AgentConfig
from components.agents.errors import WrongType
from components.agents.trial import run_agent
from components.durable import Call
from contracts.responses import Response, ResponseCreateParams
from contracts.rollouts import RolloutResult
from contracts.tasks import Task

CONFIG = AgentConfig(model="policy", resources="tools")
TASK = b'{"responses_create_params": {"input": "hello"}}'
RESPONSE = Response(id="r", object="response", created_at=0, model="m", output=[])


def _no_answer(call: Call) -> None:
    assert call.type == "session.requested"


@pytest.mark.parametrize("returned", [None, "hello", {"output": []}, RESPONSE.output])
def test_responses_that_returns_no_response_is_told_so(returned: Any) -> None:
    class Careless(Agent):
        async def responses(self, request: ResponseCreateParams) -> Response:
            return returned  # type: ignore[no-any-return]

    with pytest.raises(WrongType) as raised:
        run_agent(Careless, CONFIG, TASK, _no_answer)
    assert str(raised.value) == f"responses() must return a Response, it returned {type(returned).__name__}"


USES: dict[str, Callable[[Any, Any], Awaitable[object]]] = {
    "result() takes a Response": lambda agent, wrong: agent.result(wrong, 1.0),
    "model.responses() takes a ResponseCreateParams": lambda agent, wrong: agent.model.responses(wrong),
    "resources.seed_session() takes a Task": lambda agent, wrong: agent.resources.seed_session(wrong),
    "resources.call_tool() takes a FunctionCall": lambda agent, wrong: agent.resources.call_tool(wrong),
    "resources.verify() takes a Task first": lambda agent, wrong: agent.resources.verify(wrong, RESPONSE),
    "resources.verify() takes a Response second": lambda agent, wrong: agent.resources.verify(Task(TASK), wrong),
    "an agent's run() takes a Task": lambda agent, wrong: agent.agent_named("other").run(wrong),
}


@pytest.mark.parametrize("told", USES)
def test_what_a_handle_is_given_must_be_of_its_type(told: str) -> None:
    class Careless(Agent):
        async def run(self, task: Task) -> RolloutResult:
            await USES[told](self, "hello")
            raise AssertionError("no call is made")

    with pytest.raises(WrongType) as raised:
        run_agent(Careless, CONFIG, TASK, _no_answer)
    assert str(raised.value) == f"{told}, it was given str"
