"""What an author of an agent writes against: `Agent`, and the handles through which it reaches the outside.

An agent is ordinary asyncio. What it awaits from outside goes through `self.model`, `self.resources`, `self.agent(…)`
or `self.now()` and the like; each is a call in the log. There is one agent object a rollout. It never sees a
token ID, an event or a subject.
"""

import random
from collections.abc import Awaitable
from datetime import datetime
from typing import Any, ClassVar, Generic, Literal, get_args
from uuid import UUID

import msgspec
from pydantic import Field
from typing_extensions import TypeVar

from components.agents.errors import AgentMisused, WrongType
from components.config import AgentRef, ComponentConfig, DatasetConfig, ModelRef, PoolConfig, ResourcesRef
from components.durable import Context
from contracts.contexts import Speaker
from contracts.responses import FunctionCall, FunctionCallOutput, Response, ResponseCreateParams
from contracts.rollouts import RolloutRequest, RolloutResult, SessionSeed, ToolCall, ToolOutput, Verdict, VerifyRequest
from contracts.tasks import Task


class AgentConfig(ComponentConfig):
    """The config that every agent takes."""

    model: ModelRef | None = None
    """Name of the model instance behind `self.model`."""
    resources: ResourcesRef | None = None
    """Name of the resources instance behind `self.resources`."""
    datasets: tuple[DatasetConfig, ...] = ()
    """The tasks that this agent attempts by default."""
    pool: PoolConfig = PoolConfig(concurrency=65_536)
    deadline_s: float = Field(default=3600.0, gt=0)
    """Seconds from when a worker takes a rollout until it fails with `deadline`."""


C_co = TypeVar("C_co", bound=AgentConfig, default=AgentConfig, covariant=True)


class RolloutInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Which rollout an agent object serves."""

    rollout_id: str
    run_id: str
    task_index: int
    rollout_index: int
    attempt: int
    sessionless: tuple[str, ...] = ()


class Agent(Generic[C_co]):
    """One attempt at one task. Subclass it and write `responses`, or `run`, or both."""

    replay: ClassVar[Literal["execute", "recording"]] = "execute"
    version: ClassVar[str] = "1"
    """Raise it when a change makes old trajectories depart; it is recorded with every worker."""

    def __init__(self, config: C_co, context: Context, rollout: RolloutInfo) -> None:
        self.config = config
        self.rollout = rollout
        self._context = context
        self._speaker = Speaker()

    async def run(self, task: Task) -> RolloutResult:
        """The whole rollout: seed the session, `responses`, verify. Override it to wrap a foreign gym."""
        await self.resources.seed_session(task)
        return await self.resources.verify(task, _returned(await self.responses(task.responses_create_params)))

    async def responses(self, request: ResponseCreateParams) -> Response:
        """The loop of model and tool calls: returns a response whose output is all new items, in order."""
        raise NotImplementedError(f"{type(self).__name__} defines neither `responses` nor `run`")

    @property
    def model(self) -> "ModelHandle":
        """The model named by the config's `model`."""
        return self.model_named(_configured(self.config.model, "model"))

    @property
    def resources(self) -> "ResourcesHandle":
        """The resources named by the config's `resources`."""
        return self.resources_named(_configured(self.config.resources, "resources"))

    def model_named(self, instance: str) -> "ModelHandle":
        """Another model; give its name a config field of type `ModelRef`, so that it is checked before the start."""
        return ModelHandle(self._context, instance, self._speaker)

    def resources_named(self, instance: str) -> "ResourcesHandle":
        """Another resources instance; its config field has the type `ResourcesRef`."""
        sessionless = instance in self.rollout.sessionless
        return ResourcesHandle(self._context, instance, self._speaker, sessionless=sessionless)

    def agent_named(self, instance: AgentRef) -> "AgentHandle":
        """An agent to hand a task to; its config field has the type `AgentRef`."""
        return AgentHandle(self._context, instance, self.rollout)

    def result(self, response: Response, reward: float, **extra: Any) -> RolloutResult:
        """What a `run` of your own returns where no resources component verifies; `extra` goes into the result line."""
        _expect(response, Response, "result() takes a {expected}, it was given {found}")
        fields = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in extra.items()}
        return RolloutResult(response=_dump(response), reward=reward, extra=fields)

    def cited(self, result: RolloutResult) -> RolloutResult:
        """A result as it is stored: items that stand in the log already are cited. For the worker, not for authors."""
        if not isinstance(result, RolloutResult):
            return result  # whoever checks results says what is wrong with it
        response, cited = self._speaker.cite(result.response)
        return msgspec.structs.replace(result, response=response, cited=cited)

    def now(self) -> datetime:
        """The time of the latest event of this rollout: use it where you would use the clock."""
        return self._context.now()

    def random(self) -> random.Random:
        """A generator whose seed follows from the rollout and the place of this call."""
        return self._context.random()

    def uuid(self) -> UUID:
        """A UUID that is the same when the rollout is re-executed."""
        return self._context.uuid()

    @classmethod
    def config_class(cls) -> type[AgentConfig]:
        """The config type, taken from `Agent[...]`."""
        for base in cls.__mro__:
            for origin in getattr(base, "__orig_bases__", ()):
                for argument in get_args(origin):
                    if isinstance(argument, type) and issubclass(argument, AgentConfig):
                        return argument
        return AgentConfig


_VERDICT = msgspec.json.Decoder(Verdict)
_TOOL_OUTPUT = msgspec.json.Decoder(ToolOutput)


class ModelHandle:
    """A model, as an agent sees it."""

    def __init__(self, context: Context, instance: str, speaker: Speaker) -> None:
        self._context, self._instance, self._speaker = context, instance, speaker

    async def responses(self, request: ResponseCreateParams) -> Response:
        """One model call. Raises `CallFailed` with the typed error if the model could not answer."""
        _expect(request, ResponseCreateParams, "model.responses() takes a {expected}, it was given {found}")
        key = self._context.next_key
        data, asked = self._speaker.ask(request.to_json())
        answered = self._context.call("models", self._instance, "model.requested", data)
        del request, data  # as in `Context.call`
        reply = await answered
        self._speaker.hear(key, asked, reply)
        return Response.model_validate_json(reply)


class ResourcesHandle:
    """A resources component's session for this rollout, as an agent sees it."""

    def __init__(self, context: Context, instance: str, speaker: Speaker, *, sessionless: bool) -> None:
        self._context, self._instance, self._speaker, self._sessionless = context, instance, speaker, sessionless

    async def seed_session(self, task: Task) -> None:
        """Starts the session from the task; no call where the component keeps none."""
        _expect(task, Task, "resources.seed_session() takes a {expected}, it was given {found}")
        if not self._sessionless:
            await self._call("session.requested", SessionSeed(task=task.raw))

    async def call_tool(self, call: FunctionCall) -> FunctionCallOutput:
        """Runs one function call of the model; whatever went wrong with it is in the output, for the model to read."""
        _expect(call, FunctionCall, "resources.call_tool() takes a {expected}, it was given {found}")
        request = ToolCall(name=call.name, arguments=call.arguments, call_id=call.call_id)
        reply = _TOOL_OUTPUT.decode(await self._call("tool.requested", request))
        output: Any = msgspec.json.decode(reply.output)
        return FunctionCallOutput(type="function_call_output", call_id=call.call_id, output=output)

    async def verify(self, task: Task, response: Response) -> RolloutResult:
        """The response with the verifier's reward for it."""
        _expect(task, Task, "resources.verify() takes a {expected} first, it was given {found}")
        _expect(response, Response, "resources.verify() takes a {expected} second, it was given {found}")
        raw = _dump(response)
        short, cited = self._speaker.cite(raw)
        verdict = self._call("verify.requested", VerifyRequest(task=task.raw, response=short, cited=cited))
        del response, short  # as in `Context.call`
        scored = _VERDICT.decode(await verdict)
        return RolloutResult(response=raw, reward=scored.reward, extra=scored.extra)

    def _call(self, what: str, data: msgspec.Struct) -> Awaitable[bytes]:
        return self._context.call("resources", self._instance, what, msgspec.json.encode(data))


class AgentHandle:
    """Another agent, as an agent sees it: it runs under this call's key, in the same rollout."""

    def __init__(self, context: Context, instance: str, rollout: RolloutInfo) -> None:
        self._context, self._instance, self._rollout = context, instance, rollout

    async def run(self, task: Task) -> RolloutResult:
        """Hands the task over and waits for its result. Raises `CallFailed` if it failed."""
        _expect(task, Task, "an agent's run() takes a {expected}, it was given {found}")
        request = RolloutRequest(
            task=task.raw,
            agent=self._instance,
            run_id=self._rollout.run_id,
            task_index=self._rollout.task_index,
            rollout_index=self._rollout.rollout_index,
            sessionless=self._rollout.sessionless,
        )
        reply = await self._context.call("agents", self._instance, "agent.requested", msgspec.json.encode(request))
        return msgspec.json.decode(reply, type=RolloutResult)


def _returned(response: Response) -> Response:
    _expect(response, Response, "responses() must return a {expected}, it returned {found}")
    return response


def _dump(model: Response) -> msgspec.Raw:
    return msgspec.Raw(model.to_json())


def _expect(value: object, expected: type, sentence: str) -> None:
    """Authors need no type checker to be told where a value of theirs was wrong."""
    if not isinstance(value, expected):
        raise WrongType(sentence.format(expected=expected.__name__, found=type(value).__name__))


def _configured(name: str | None, field: str) -> str:
    if name is None:
        raise AgentMisused(f"this agent has no `{field}` in its config; name an instance there")
    return name
