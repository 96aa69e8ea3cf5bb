"""Acts one rollout out on a component, without a model and without a deployment: for the tests of environments.

What a model would say and call is said and called by the test; tools and verifier are the real ones, through the
same runtime as in a worker.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from components.resources.base import Resources, ResourcesConfig
from components.resources.runtime import History, Runtime
from contracts.responses import Item, Response, function_call, function_call_output, output_message
from contracts.rollouts import SessionSnapshot, ToolCall, ToolOutput, Verdict, VerifyRequest

_SESSION = "trial"


class Trial:
    """One rollout on `resources`, whose task is a line of a dataset or the task's fields."""

    def __init__(self, resources: Resources[ResourcesConfig], task: Mapping[str, Any] | str | bytes) -> None:
        line = task if isinstance(task, (str, bytes)) else msgspec.json.encode({"responses_create_params": {}, **task})
        self._task = msgspec.Raw(line)
        self._runtime = Runtime(resources)
        self._seeded = False
        self._calls: list[ToolCall] = []
        self._outputs: list[ToolOutput] = []
        self._snapshot: SessionSnapshot | None = None
        self._output: list[Item] = []

    async def call(self, tool: str, text: str | None = None, /, **arguments: Any) -> Any:
        """Calls a tool as a model would, with `arguments` or with the JSON text of them; returns the output."""
        await self._seed()
        said = json.dumps(arguments) if text is None else text
        call = ToolCall(name=tool, arguments=said, call_id=f"call_{len(self._calls)}")
        answered = await self._runtime.call(_SESSION, call, recover=self._history)
        output: Any = msgspec.json.decode(answered.output)
        self._calls.append(call)
        self._outputs.append(answered)
        self._snapshot = answered.snapshot or self._snapshot
        self._output.append(function_call(call.call_id, tool, said))
        self._output.append(function_call_output(call.call_id, output))
        return output

    def say(self, text: str) -> None:
        """Writes a message as a model would."""
        self._output.append(output_message(text, item_id=f"msg_{len(self._output)}"))

    async def rebuild(self) -> None:
        """Makes the session again from its calls or from its last snapshot, as another worker would."""
        await self._seed()
        self._runtime.drop(_SESSION)
        await self._runtime.rebuild(_SESSION, await self._history())

    async def verify(self) -> Verdict:
        """The verdict on what was said and called so far."""
        await self._seed()
        response = Response(
            id="resp_trial", object="response", created_at=0, model="trial", output=self._output, status="completed"
        )
        request = VerifyRequest(task=self._task, response=msgspec.Raw(response.to_json()))
        return await self._runtime.verify(_SESSION, request, recover=self._history)

    async def _seed(self) -> None:
        if not self._seeded:
            self._snapshot = await self._runtime.seed(_SESSION, self._task)
            self._seeded = True

    async def _history(self) -> History:
        return History(self._task, self._calls, self._snapshot, outputs=self._outputs)
