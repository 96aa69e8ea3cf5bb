"""From the events of a log to the history of one execution."""

from datetime import timedelta

import msgspec
import pytest

from components.durable import Execution, InvalidHistory, Reply, from_recorded, reexecute
from components.durable.context import Context
from components.durable.history import RecordedCall
from contracts import codec
from contracts.events import Event, Recorded
from tests.unit.components.durable.world import ROLLOUT, START, ask

ROOT = f"ns.0.agents.simple.0.request.{ROLLOUT}.run"
ENDED = f"ns.0.rollout.ended.run.{ROLLOUT}"


def stored(seq: int, subject: str, type: str, data: bytes = b"null", **fields: str) -> Recorded:  # noqa: A002
    """An event as the log gives it back."""
    event = Event(
        id=f"w-{seq}",
        source="agents/simple/w",
        type=type,
        time=START + timedelta(seconds=seq),
        subject=subject,
        rolloutid=ROLLOUT,
        callkey=fields.pop("callkey", subject.rsplit(".", 1)[1]),
        data=msgspec.Raw(data),
        **fields,  # type: ignore[arg-type]
    )
    raw = codec.encode(event)
    return Recorded(seq=seq, subject=subject, event=codec.decode(raw), raw=raw)


def request(seq: int, key: str, data: bytes = b"null", target: str = "models.it", **fields: str) -> Recorded:
    call = {"models": "model", "timers": "timer", "agents": "agent", "resources": "tool"}[target.partition(".")[0]]
    return stored(seq, f"ns.0.{target}.0.request.{ROLLOUT}.{key}", f"{call}.requested", data, **fields)


def answer(seq: int, key: str, data: bytes = b"null", what: str = "model.replied", **fields: str) -> Recorded:
    return stored(seq, f"ns.0.reply.w.{ROLLOUT}.{key}", what, data, **fields)


def ended(seq: int, what: str = "rollout.completed", data: bytes = b"null") -> Recorded:
    return stored(seq, ENDED, what, data, callkey="run")


def test_requests_and_replies_keep_target_bytes_cause_and_order() -> None:
    history = from_recorded(
        [
            answer(5, "m_0", b'{"a": 1}'),
            stored(1, ROOT, "rollout.requested"),
            request(3, "m_0", b'{"b":  2}', "resources.calc", causationid="w-1"),
            stored(2, f"ns.0.rollout.adopted.run.{ROLLOUT}.1", "rollout.adopted", callkey="run"),
        ]
    )
    assert history.calls == {
        "m_0": RecordedCall(
            key="m_0",
            kind="resources",
            instance="calc",
            type="tool.requested",
            data=b'{"b":  2}',
            cause="w-1",
            seq=3,
        )
    }
    assert list(history.replies) == [
        Reply(
            key="m_0",
            type="model.replied",
            data=b'{"a": 1}',
            time=START + timedelta(seconds=5),
            id="w-5",
            seq=5,
        )
    ]
    assert not history.complete


@pytest.mark.parametrize(
    ("what", "data", "complete"),
    [
        ("rollout.completed", b'{"reward":1}', True),
        ("rollout.failed", b'{"kind":"agent_error","message":"x","stats":{}}', True),
        ("rollout.failed", b'{"kind":"deadline","message":"x"}', False),
        ("rollout.cancelled", b'{"kind":"cancelled","message":"x"}', False),
    ],
)
def test_a_history_is_complete_when_the_code_itself_ended(what: str, data: bytes, complete: bool) -> None:
    assert from_recorded([stored(1, ROOT, "rollout.requested"), ended(2, what, data)]).complete is complete


def test_each_execution_sees_its_own_calls_only() -> None:
    log = [
        stored(1, ROOT, "rollout.requested"),
        request(2, "m_0", target="agents.helper"),
        request(3, "m_0--m_0"),
        request(4, "m_0--m1_0", target="agents.helper"),
        request(5, "m_0--m1_0--m_0"),
        answer(6, "m_0--m_0"),
        answer(7, "m_0--m1_0--m_0"),
        answer(8, "m_0--m1_0", what="agent.replied"),
        answer(9, "m_0", what="agent.failed", data=b'{"kind":"deadline","message":"x"}'),
    ]
    seen = {
        prefix: (list(found.calls), [reply.key for reply in found.replies], found.complete)
        for prefix in ("", "m_0--", "m_0--m1_0--")
        for found in [from_recorded(log, prefix=prefix)]
    }
    assert seen == {
        "": (["m_0"], ["m_0"], False),
        "m_0--": (["m_0--m_0", "m_0--m1_0"], ["m_0--m_0", "m_0--m1_0"], False),
        "m_0--m1_0--": (["m_0--m1_0--m_0"], ["m_0--m1_0--m_0"], True),
    }


def test_replies_kept_outside_the_log_are_taken_from_the_blobs() -> None:
    log = [request(2, "m_0", dataref="sha256:aa"), answer(3, "m_0", dataref="sha256:bb")]
    history = from_recorded(log, blobs={"sha256:bb": b"7"})
    assert history.calls["m_0"].dataref == "sha256:aa"
    assert history.replies[0].data == b"7"
    with pytest.raises(InvalidHistory, match="event 3: its data sha256:bb was not fetched"):
        from_recorded(log)


def test_one_call_is_requested_once_and_answered_once() -> None:
    with pytest.raises(InvalidHistory, match="event 3: a second request of call 'm_0'"):
        from_recorded([request(2, "m_0"), request(3, "m_0")])
    with pytest.raises(InvalidHistory, match="event 4: a second reply to call 'm_0'"):
        from_recorded([request(2, "m_0"), answer(3, "m_0"), answer(4, "m_0")])


def test_such_a_history_reexecutes() -> None:
    async def main(context: Context) -> str:
        return (await ask(context, b'{"a": "\xc3\xa9"}')).decode()

    log = [
        stored(1, ROOT, "rollout.requested"),
        request(2, "m_0", b'{"a": "\xc3\xa9"}', causationid="w-1"),
        answer(3, "m_0", b"[ 1 ]"),
        ended(4),
    ]
    execution = Execution(ROLLOUT, main, time=log[0].event.time, cause=log[0].event.id)
    assert reexecute(execution, from_recorded(log)) == []
    assert execution.result() == "[ 1 ]"
