"""A deployment in which the test itself is the agents: it decides when each rollout ends, and how."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from bus import Bus, LogConfig
from contracts.contexts import ModelRequest
from contracts.deployments import Description, ResolvedDeployment
from contracts.events import Event
from contracts.rollouts import (
    ModelStats,
    RolloutFailure,
    RolloutRequest,
    RolloutResult,
    RolloutStats,
    Timings,
    Usage,
)
from contracts.tokens import Capture
from orchestrator import Trainer

AGENT = Description(kind="agents", implementation="simple_agent", config={"pool": {"workers": 1, "slots": 1}})
MODEL = Description(kind="models", implementation="scripted_model", config={"pool": {"workers": 1, "slots": 1}})
RESPONSE = b'{"id":"r","object":"response","created_at":0,"model":"m","output":[],"status":"completed"}'
PATIENCE_S = 30.0
REQUEST = msgspec.json.Decoder(RolloutRequest)


def tasks(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"responses_create_params": {"input": f"task {n}"}} for n in range(first, first + count)]


def number(request: RolloutRequest) -> int:
    """Which of `tasks` it is."""
    asked: str = msgspec.json.decode(request.task)["responses_create_params"]["input"]
    return int(asked.removeprefix("task "))


class Agents:
    """Ends the rollouts that are asked for."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.requests: list[tuple[Event, RolloutRequest]] = []
        """Those that came, in order."""
        self.behave: Callable[[Event, RolloutRequest], Awaitable[None]] = self.complete
        self._doing: set[asyncio.Future[None]] = set()

    @property
    def numbers(self) -> dict[str, int]:
        """Which of `tasks` the groups are that came."""
        return {request.group: number(request) for _, request in self.requests}

    async def call(self, event: Event, request: RolloutRequest, capture: Capture) -> None:
        """One model call of a rollout, with what was captured of it."""
        bus, rollout = self.bus, event.rolloutid
        reply = bus.subjects.reply("agents", rollout, "m_0")
        asked = bus.subjects.request("models", "policy", 1, rollout, "m_0")
        data = msgspec.json.encode(ModelRequest(request=msgspec.Raw(b'{"input": "Go."}')))
        await bus.publish(bus.event("model.requested", asked, data, rolloutid=rollout, callkey="m_0", replyto=reply))
        replied = bus.event(
            "model.replied",
            reply,
            RESPONSE,
            rolloutid=rollout,
            callkey="m_0",
            capture=msgspec.Raw(msgspec.json.encode(capture)),
            policy=capture.policy,
        )
        await bus.publish(msgspec.structs.replace(replied, source="models/policy/w"))

    async def complete(
        self,
        event: Event,
        request: RolloutRequest,
        reward: float | None = None,
        *,
        tokens: int = 0,
        policy: tuple[int, int] | None = None,
        captured: int = 0,
        flawed: int = 0,
        models: tuple[str, ...] = ("policy",),
        by_model: dict[str, ModelStats] | msgspec.UnsetType = msgspec.UNSET,
    ) -> None:
        """The end of a rollout that did well, to a reward that its index says."""
        result = RolloutResult(
            response=msgspec.Raw(RESPONSE),
            reward=float(request.rollout_index if reward is None else reward),
            stats=RolloutStats(
                usage=Usage(output_tokens=tokens),
                timings=Timings(queue_s=0.0, total_s=0.0),
                models=models,
                policy=policy or msgspec.UNSET,
                captured=captured,
                flawed=flawed,
                by_model=by_model,
            ),
        )
        await self.end(event, "completed", msgspec.json.encode(result))

    async def fail(self, event: Event, kind: str = "agent_error") -> None:
        await self.end(event, "failed", msgspec.json.encode(RolloutFailure(kind=kind, message="it failed")))

    async def end(self, event: Event, how: str, data: bytes) -> None:
        ended = self.bus.event(f"rollout.{how}", event.replyto, data, rolloutid=event.rolloutid, causationid=event.id)
        await self.bus.publish(ended)

    async def work(self) -> None:
        """Takes what is asked for, for ever."""
        async for delivery in await self.bus.pool("agents", "solver", (0,), types=("rollout.requested",)):
            request = REQUEST.decode(delivery.event.data)
            self.requests.append((delivery.event, request))
            delivery.ack()
            task = asyncio.ensure_future(self.behave(delivery.event, request))
            self._doing.add(task)
            task.add_done_callback(self._doing.discard)

    async def stop(self) -> None:
        for task in self._doing:
            task.cancel()
        await asyncio.gather(*self._doing, return_exceptions=True)


async def describe(bus: Bus, descriptions: Mapping[str, Description]) -> None:
    """Says in the log what is deployed."""
    resolved = ResolvedDeployment(config={}, descriptions=dict(descriptions), log=bus.config.model_dump(mode="json"))
    subject = bus.subjects.deployment("resolved", "d1")
    await bus.publish(bus.event("deployment.resolved", subject, msgspec.json.encode(resolved)))


@asynccontextmanager
async def deployed(server: str, config: LogConfig, models: Sequence[str] = ("policy",)) -> AsyncIterator[Agents]:
    """A log that says what is deployed, and its agents."""
    async with await Bus.connect(server, config, name="orchestrator/test", writer="agents") as bus:
        await bus.ensure_log()
        await describe(bus, {"solver": AGENT, **dict.fromkeys(models, MODEL)})
        agents = Agents(bus)
        working = asyncio.create_task(agents.work())
        try:
            yield agents
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await agents.stop()


def connected(server: str, config: LogConfig, **options: Any) -> Any:
    return Trainer.connect(server, run="grpo", namespace=config.namespace, **options)


async def take(trainer: Trainer, **options: Any) -> Any:
    """The next batch."""
    async with asyncio.timeout(PATIENCE_S):
        return await anext(trainer.feed(**options))


def ids(*batches: Any) -> list[str]:
    return sorted(group.id for batch in batches for group in batch.groups)


async def held(agents: Agents) -> asyncio.Event:
    """Nothing ends until the event that is returned is set."""
    go = asyncio.Event()

    async def behave(event: Event, request: RolloutRequest) -> None:
        await go.wait()
        await agents.complete(event, request)

    agents.behave = behave
    return go


async def until_asked(agents: Agents, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(agents.requests) < count:  # noqa: ASYNC110 - the pool tells nobody
            await asyncio.sleep(0.01)


async def until_ended(trainer: Trainer) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while trainer.state().unfinished:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
