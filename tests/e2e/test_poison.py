"""A foreign client writes into the subjects of a deployment: each of its messages is buried, the run ends."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from bus import Bus, LogConfig
from bus.connection import connect
from bus.deadletter import DeadLetterData
from bus.letters import letters
from bus.overview import slot_states
from bus.reboot import begin_anew_after_reboot
from contracts.codec import encode
from contracts.events import Event, Kind
from orchestrator.audit import audit
from orchestrator.collect import collect, outcomes_in_log, request_of
from orchestrator.results import Outcome
from orchestrator.tasks import MaterializedTask
from tests.e2e.workers import PATIENCE_S, Deployment, Instance

ROLLOUTS = 12
POOLS: dict[str, tuple[Kind, str]] = {
    "puppet": ("agents", "rollout.requested"),
    "policy": ("models", "model.requested"),
    "stage": ("resources", "tool.requested"),
}
REASONS = {
    "bytes": "undecodable",
    "no event": "undecodable",
    "version": "newer_version",
    "type": "unknown_type",
    "subject": "subject_mismatch",
    "rollout": "subject_mismatch",
}


def bad(event: Event, case: str) -> bytes:
    """Something that is no event of this event's subject."""
    changed = msgspec.structs.replace
    return {
        "bytes": b"\xff\x00 not json",
        "no event": b'{"hello": 1}',
        "data": encode(event),  # which is {} in these tests
        "version": encode(changed(event, dataschema="99")),
        "type": encode(changed(event, type="weather.requested")),
        "subject": encode(changed(event, subject=event.subject + "x")),
        "rollout": encode(changed(event, rolloutid="another")),
    }[case]


def poison(deployment: Deployment) -> dict[str, tuple[str, bytes]]:
    """By subject: the reason that it has to be buried for, and the bytes. Of every kind, for every pool."""
    found = {}
    subjects = deployment.bus.subjects
    for instance, (kind, what) in POOLS.items():
        for number, (case, reason) in enumerate(REASONS.items()):
            rollout, key = f"foreign-{instance}-{number}", "run" if kind == "agents" else "m_0"
            event = deployment.bus.event(
                what,
                subjects.request(kind, instance, 1, rollout, key),
                b"{}",
                rolloutid=rollout,
                callkey=key,
                replyto=subjects.ended("foreign", rollout) if key == "run" else subjects.reply("nobody", rollout, key),
            )
            found[event.subject] = reason, bad(event, case)
    for number, case in enumerate(("bytes", "no event", "version", "subject", "rollout")):
        rollout = f"foreign-reply-{number}"
        subject = subjects.reply("puppet-0", rollout, "m_0")
        event = deployment.bus.event("model.replied", subject, b"{}", rolloutid=rollout, callkey="m_0")
        found[event.subject] = REASONS[case], bad(event, case)
    return found


@pytest.mark.parametrize("when", ["before the workers come", "while they work"])
async def test_whatever_a_foreign_client_writes_is_buried_and_the_run_completes(
    server: str, config: LogConfig, tmp_path: Path, when: str
) -> None:
    """B5, B13: with the reason and the original bytes, one letter each."""
    shared = {"model": "policy", "resources": "stage"}
    found = {
        "policy": Instance("models", "noting", {"notes": str(tmp_path / "notes")}),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", shared),
    }
    line = {"responses_create_params": {"input": "Go."}, "plan": [["model"], ["add", 1], ["model"]], "expected": 1}
    tasks = [
        MaterializedTask(agent="puppet", task_index=number, rollout_index=0, line=json.dumps(line).encode())
        for number in range(ROLLOUTS)
    ]
    early = when.startswith("before")
    outcomes: list[Outcome] = []
    async with AsyncExitStack() as stack:
        deployment = await stack.enter_async_context(Deployment(server, config, found))
        foreign = await connect(server, name="foreign")
        stack.push_async_callback(foreign.close)
        written = poison(deployment)
        if early:  # a reply before its worker comes is nobody's
            written = {subject: entry for subject, entry in written.items() if ".reply." not in subject}
        unwritten = [(subject, raw) for subject, (_, raw) in written.items()]

        def write(count: int) -> None:
            for subject, raw in unwritten[:count]:
                foreign.send(subject.encode(), b"", raw)
            del unwritten[:count]

        def hear(outcome: Outcome) -> None:
            outcomes.append(outcome)
            write(len(written) // ROLLOUTS + 1)

        write(len(written) if early else 1)
        await deployment.start(*found)
        await collect(deployment.bus, tasks, run_id="r", output=tmp_path, concurrency=4, on_outcome=hear)
        assert [outcome.reward for outcome in outcomes] == [1.0] * ROLLOUTS
        assert not unwritten
        letters: list[DeadLetterData] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(letters) < len(written):
                letters = [
                    msgspec.json.decode(recorded.event.data, type=DeadLetterData)
                    async for recorded in deployment.bus.scan(f"{config.namespace}.0.dead.>")
                ]
        assert len(letters) == len(written)
        assert {letter.subject: (letter.reason, letter.raw) for letter in letters} == written
        await deployment.check(f"r-{number:05d}-00" for number in range(ROLLOUTS))


async def test_a_rollout_that_has_ended_is_not_buried_when_its_request_cannot_be_read_any_more(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    """B5: after a power cut that took its data, its request comes once more."""
    found = {
        "stage": Instance("resources", "stage", {}),
        "puppet": Instance("agents", "puppet", {"resources": "stage"}),
    }
    async with Deployment(server, config.model_copy(update={"inline_limit": 1_024}), found) as deployment:
        await deployment.start("puppet", "stage")
        task = {"plan": [["add", 1]], "expected": 1, "fill": "x" * 2_000}
        await deployment.ask("ended", task)
        assert await deployment.reward("ended") == 1.0
        bus = deployment.bus
        await bus._connection.api(f"STREAM.PURGE.{bus.subjects.blob_stream}", None, dict[str, object])
        assert await begin_anew_after_reboot(bus, tmp_path)
        await deployment.ask("later", {"plan": [["add", 1]], "expected": 1})
        assert await deployment.reward("later") == 1.0
        await nothing_is_held(deployment)
        assert [each async for each in letters(bus)] == []


STAGED = {
    "stage": Instance("resources", "stage"),
    "puppet": Instance("agents", "puppet", {"resources": "stage"}),
}
LINE = json.dumps({"responses_create_params": {"input": "Go."}, "plan": [["add", 1]], "expected": 1}).encode()
TASKS = [MaterializedTask(agent="puppet", task_index=number, rollout_index=0, line=LINE) for number in range(3)]


async def collected(bus: Bus, spoilt: str, output: Path) -> list[Outcome]:
    """What a run comes to in which one rollout is poison, and all others complete."""
    outcomes: list[Outcome] = []
    async with asyncio.timeout(PATIENCE_S):
        await collect(bus, TASKS, run_id="r", output=output, concurrency=2, on_outcome=outcomes.append)
    failed = {each.rollout_id: each.error for each in outcomes if each.reward is None}
    assert (failed, len(outcomes)) == ({spoilt: "poison"}, len(TASKS))
    return outcomes


@pytest.mark.parametrize("case", ["bytes", "no event", "version", "type", "subject", "rollout"])
async def test_a_rollout_whose_end_cannot_be_read_has_failed(
    server: str, config: LogConfig, tmp_path: Path, case: str
) -> None:
    """B5, B6, E7: for the run, when it is resumed, from the log alone and in the audit; its worker lets it go."""
    async with Deployment(server, config, STAGED) as deployment:
        bus, spoilt = deployment.bus, "r-00001-00"
        await deployment.ask_with(spoilt, msgspec.json.encode(request_of("r", TASKS[1])), run="r")
        subject = bus.subjects.ended("r", spoilt)
        raw = bad(bus.event("rollout.completed", subject, b"{}", rolloutid=spoilt, callkey="run"), case)
        bus._connection.send(subject.encode(), b"", raw)
        await deployment.start(*STAGED)
        lines = []
        for _ in ("run", "resumed"):
            outcomes = await collected(bus, spoilt, tmp_path)
            lines.append({each.line for each in outcomes})
        lines.append({each.line async for each in outcomes_in_log(bus, "r")})
        assert lines[0] == lines[1] == lines[2]
        failure = msgspec.json.decode((tmp_path / "failures.jsonl").read_bytes())
        assert failure["error"]["details"] == {"reason": REASONS[case]}
        await nothing_is_held(deployment)
        assert [(each.pool.kind, each.data.reason, each.data.raw) async for each in letters(bus)] == [
            ("agents", REASONS[case], raw)
        ]
        balance = await audit(bus, "r")
        assert (balance.balanced, balance.completed, balance.failed, balance.in_flight) == (True, 2, 1, 0)


@pytest.mark.parametrize("case", ["bytes", "data", "version", "subject", "rollout"])
async def test_a_rollout_whose_request_cannot_be_read_has_failed(
    server: str, config: LogConfig, tmp_path: Path, case: str
) -> None:
    """B5, B6, E7: nobody takes it, so who asks for it ends it."""
    async with Deployment(server, config, STAGED) as deployment:
        bus, spoilt = deployment.bus, "r-00001-00"
        subject = bus.subjects.request("agents", "puppet", 1, spoilt, "run")
        ended = bus.subjects.ended("r", spoilt)
        raw = bad(bus.event("rollout.requested", subject, b"{}", rolloutid=spoilt, callkey="run", replyto=ended), case)
        bus._connection.send(subject.encode(), b"", raw)
        await deployment.start(*STAGED)
        for _ in ("run", "resumed"):
            await collected(bus, spoilt, tmp_path)
        await nothing_is_held(deployment)
        reason = REASONS.get(case, "undecodable")
        assert [(each.pool.kind, each.data.reason, each.data.raw) async for each in letters(bus)] == [
            ("agents", reason, raw)
        ]
        balance = await audit(bus, "r")
        assert (balance.balanced, balance.completed, balance.failed, balance.in_flight) == (True, 2, 1, 0)
        assert [each.rollout_id async for each in outcomes_in_log(bus, "r")] == ["r-00000-00", "r-00002-00"]


@pytest.mark.parametrize("case", ["bytes", "version", "subject", "rollout"])
async def test_a_call_whose_reply_cannot_be_read_is_made_once(
    server: str, config: LogConfig, tmp_path: Path, case: str
) -> None:
    """B5, B6: its worker lets it go, and the rollout that waits for it ends by its own deadline."""
    notes = tmp_path / "notes"
    found = {
        "policy": Instance("models", "noting", {"notes": str(notes)}),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", {"model": "policy", "resources": "stage", "deadline_s": 3.0}),
    }
    async with Deployment(server, config, found) as deployment:
        bus = deployment.bus
        await deployment.start("puppet")
        subject = bus.subjects.reply("puppet-0", "r", "m_1")
        raw = bad(bus.event("model.replied", subject, b"{}", rolloutid="r", callkey="m_1"), case)
        bus._connection.send(subject.encode(), b"", raw)
        await deployment.start("policy", "stage")
        await deployment.ask("r", {"plan": [["model"]], "expected": 0})
        assert (await deployment.failure("r")).kind == "deadline"
        await nothing_is_held(deployment)
        assert notes.read_text().splitlines() == ["r/m_1"]
        assert [(each.pool.kind, each.data.reason, each.data.raw) async for each in letters(bus)] == [
            ("reply", REASONS[case], raw)
        ]


async def nothing_is_held(deployment: Deployment) -> None:
    """Returns when all that was asked for is acknowledged."""
    async with asyncio.timeout(PATIENCE_S):
        while any(slot.held for slot in await slot_states(deployment.bus, 0)):  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(0.02)
