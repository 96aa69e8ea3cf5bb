"""Records rollouts for the tests of replay: real agent code on its private loop, the callees played by the test.

What comes out is what a log would hold: events with the subjects, sources, causes and times that workers write.
"""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from bus import Subjects
from components.agents.base import Agent, AgentConfig
from components.durable import Call, Reply
from components.durable.history import SUB_CALL
from components.workers.ending import failure, outcome_of
from components.workers.execution import execution_of
from components.workers.tally import Tally
from contracts.codec import decode, encode
from contracts.deployments import Description, Reference, ResolvedDeployment, WorkerStarted
from contracts.events import CallError, Event, Recorded
from contracts.ids import ROOT_CALL
from contracts.responses import Item, Response, ResponseUsage
from contracts.rollouts import RolloutRequest

Answer = Callable[[Call], bytes | CallError]
START = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
SUBJECTS = Subjects("jetgym", 1)


class Recorder:
    """A log in memory; each `rollout` appends one rollout to it."""

    def __init__(
        self, agents: Mapping[str, tuple[type[Agent[Any]], AgentConfig]], answer: Answer, subjects: Subjects = SUBJECTS
    ) -> None:
        self.subjects = subjects
        self.log: list[Recorded] = []
        self._agents, self._answer = agents, answer
        self._now = START
        self._ids = 0

    def deployment(self, implementations: Mapping[str, str], digests: Mapping[str, str], python: str = "3.11") -> None:
        """Records what is deployed, and that a worker of each agent started."""
        descriptions = {
            name: Description(
                kind="agents",
                implementation=implementations[name],
                config=config.model_dump(mode="json"),
                references=(Reference(path="resources", kind="resources", name=config.resources or ""),),
            )
            for name, (_, config) in self._agents.items()
        }
        resolved = ResolvedDeployment(
            config={},
            descriptions=descriptions,
            log={"namespace": self.subjects.namespace, "partitions": self.subjects.partitions},
        )
        self.write("deployment.resolved", self.subjects.deployment("resolved", "d1"), msgspec.json.encode(resolved))
        for name, (agent, _) in self._agents.items():
            started = WorkerStarted(
                worker=f"{name}-0-aaa",
                kind="agents",
                instance=name,
                implementation=implementations[name],
                version=agent.version,
                digest=digests[name],
                python=python,
                jetgym="0.1.0",
                host="here",
                pid=1,
            )
            subject = self.subjects.deployment("worker", started.worker)
            self.write("deployment.worker", subject, msgspec.json.encode(started))

    def rollout(
        self,
        rollout_id: str,
        agent: str,
        task: Mapping[str, Any],
        *,
        index: int = 0,
        order: random.Random | None = None,
        stop_after: int | None = None,
    ) -> None:
        """Records one rollout; `order` answers waiting calls in a random order, `stop_after` ends it after replies."""
        run = rollout_id.partition("-")[0]
        request = RolloutRequest(
            task=msgspec.Raw(msgspec.json.encode(task)),
            agent=agent,
            run_id=run,
            task_index=index,
            sessionless=("calc_env",),
        )
        event = self.write(
            "rollout.requested",
            self.subjects.request("agents", agent, 1, rollout_id, "run"),
            msgspec.json.encode(request),
            rolloutid=rollout_id,
            callkey="run",
            replyto=self.subjects.ended(run, rollout_id),
            source="orchestrator/r1",
        )
        running = _Running(self, agent, event, request)
        waiting: list[tuple[_Running, Call, Event]] = [(running, *made) for made in running.begin()]
        replies = 0
        while waiting and replies != stop_after:
            ready = [index for index, (_, call, _) in enumerate(waiting) if call.kind != "timers"] or [0]
            caller, call, asked = waiting.pop(order.choice(ready) if order else ready[0])
            if call.kind == "timers" and caller.over:
                continue
            if call.kind == "agents":
                nested = _Running(self, call.instance, asked, msgspec.json.decode(call.data, type=RolloutRequest))
                nested.caller = caller
                waiting += [(nested, *made) for made in nested.begin()]
                continue
            answer = self._answer(call) if call.kind != "timers" else b"null"
            replies += 1
            waiting += self._replied(caller, call, asked, answer)

    def _replied(
        self, caller: "_Running", call: Call, asked: Event, answer: bytes | CallError
    ) -> list[tuple["_Running", Call, Event]]:
        failed = isinstance(answer, CallError)
        data = msgspec.json.encode(answer) if isinstance(answer, CallError) else answer
        what = f"{call.type.partition('.')[0]}.{'failed' if failed else 'replied'}"
        worker = f"{call.instance}-0-bbb"
        reply = self.write(
            what,
            asked.replyto,
            data,
            rolloutid=asked.rolloutid,
            callkey=call.key,
            source=f"{call.kind}/{call.instance}/{worker}",
            causationid=asked.id,
            elapsed=0.25,
        )
        return self._heard(caller, reply, data)

    def _heard(self, caller: "_Running", reply: Event, data: bytes) -> list[tuple["_Running", Call, Event]]:
        """What a reply makes an execution do: further calls, and its end, which may be a reply in turn."""
        if caller.over:
            return []
        made = [(caller, *new) for new in caller.hear(reply, data)]
        if caller.execution.done:
            caller.over = True
            what, data = caller.ended()
            over = self.write(
                what,
                caller.event.replyto,
                data,
                rolloutid=caller.event.rolloutid,
                callkey=caller.event.callkey,
                source=caller.source,
                causationid=caller.event.id,
            )
            if caller.caller is not None:
                made += self._heard(caller.caller, over, data)
        return made

    def write(
        self,
        what: str,
        subject: str,
        data: bytes,
        *,
        rolloutid: str = "",
        callkey: str = "",
        replyto: str = "",
        source: str = "orchestrator/o1",
        causationid: str = "",
        elapsed: float = 0.0,
    ) -> Event:
        """Appends one event, a third of a second after the one before."""
        self._now += timedelta(seconds=1 / 3)
        self._ids += 1
        event = Event(
            id=f"{source.rpartition('/')[2]}-{self._ids}",
            source=source,
            type=what,
            time=self._now,
            subject=subject,
            rolloutid=rolloutid,
            callkey=callkey,
            replyto=replyto,
            causationid=causationid,
            elapsed=elapsed,
            data=msgspec.Raw(data),
        )
        raw = encode(event)
        self.log.append(Recorded(seq=len(self.log) + 1, subject=subject, event=decode(raw), raw=raw))
        return event


class _Running:
    """One execution of an agent."""

    def __init__(self, recorder: Recorder, agent: str, event: Event, request: RolloutRequest) -> None:
        kind, config = recorder._agents[agent]
        self._recorder = recorder
        self.event = event
        self.caller: _Running | None = None
        self.over = False
        self.source = f"agents/{agent}/{agent}-0-aaa"
        self._tally = Tally(event.time)
        prefix = "" if event.callkey == ROOT_CALL else event.callkey + SUB_CALL
        self.execution = execution_of(kind, config, event, request, prefix=prefix)

    def begin(self) -> list[tuple[Call, Event]]:
        return self._publish(self.execution.start())

    def hear(self, reply: Event, data: bytes) -> list[tuple[Call, Event]]:
        self._tally.add(reply, data)
        return self._publish(
            self.execution.deliver(Reply(key=reply.callkey, type=reply.type, data=data, time=reply.time, id=reply.id))
        )

    def ended(self) -> tuple[str, bytes]:
        stats = self._tally.stats(self.event.time, self._recorder.log[-1].event.time)
        found = outcome_of(self.execution)
        if isinstance(found, CallError):
            return failure(self.event, found, stats)
        what = "rollout.completed" if self.event.callkey == ROOT_CALL else "agent.replied"
        return what, msgspec.json.encode(msgspec.structs.replace(found, stats=stats))

    def _publish(self, calls: list[Call]) -> list[tuple[Call, Event]]:
        made = []
        for call in calls:
            event = self._recorder.write(
                call.type,
                self._recorder.subjects.request(call.kind, call.instance, 1, self.event.rolloutid, call.key),
                call.data,
                rolloutid=self.event.rolloutid,
                callkey=call.key,
                replyto=self._recorder.subjects.reply(self.source.rpartition("/")[2], self.event.rolloutid, call.key),
                source=self.source,
                causationid=call.cause,
            )
            made.append((call, event))
        return made


def model_reply(*output: Item) -> bytes:
    """A model's reply of these items."""
    usage = ResponseUsage(input_tokens=10, output_tokens=5, total_tokens=15)
    return Response(
        id="resp_1", object="response", created_at=0, model="m", output=list(output), status="completed", usage=usage
    ).to_json()
