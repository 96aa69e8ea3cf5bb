"""`request`: an engine's answer, whatever goes wrong on the way."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import pytest

from components.models.base import ModelCall
from components.models.endpoints import Endpoints
from components.models.errors import ModelError
from components.models.request import Limits, open_session, request
from contracts.responses import Response
from tests.unit.components.models.conftest import (
    Behaviour,
    StartEngine,
    answer,
    disconnect,
    half_body,
    hang,
    slow_headers,
)

QUICK = Limits(total_s=20.0, connect_s=5.0, read_s=None, tries=4, first_wait_s=0.001, longest_wait_s=0.01)
IMPATIENT = Limits(total_s=20.0, connect_s=5.0, read_s=0.05, tries=20, first_wait_s=0.001, longest_wait_s=0.01)
OK = answer(200, '{"fine": true}')


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with open_session() as opened:
        yield opened


async def ask(
    session: aiohttp.ClientSession,
    *urls: str,
    limits: Limits = QUICK,
    affinity: str = "",
    call: ModelCall | None = None,
    secrets: tuple[str, ...] = (),
    endpoints: Endpoints | None = None,
) -> object:
    answer: object = await request(
        session,
        "POST",
        endpoints or Endpoints(urls),
        "/responses",
        parse=json.loads,
        body=b'{"input": "hello"}',
        limits=limits,
        affinity=affinity,
        sleep=call.wait if call else asyncio.sleep,
        secrets=secrets,
    )
    return answer


async def test_an_answer_is_returned_as_parsed(session: aiohttp.ClientSession, start_engine: StartEngine) -> None:
    engine = await start_engine(OK)
    assert await ask(session, engine.url) == {"fine": True}
    assert engine.requests[0].startswith("POST /v1/responses HTTP/1.1")
    assert engine.bodies == [b'{"input": "hello"}']


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_passing_trouble_of_the_engine_is_asked_again(
    session: aiohttp.ClientSession, start_engine: StartEngine, status: int
) -> None:
    engine = await start_engine(answer(status), answer(status), OK)
    assert await ask(session, engine.url) == {"fine": True}
    assert len(engine.requests) == 3


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 413, 422, 451])
async def test_another_4xx_and_a_redirect_are_never_asked_again(
    session: aiohttp.ClientSession, start_engine: StartEngine, status: int
) -> None:
    """E14."""
    engine = await start_engine(answer(status, '{"error": {"message": "no such thing", "type": "invalid"}}'))
    with pytest.raises(ModelError) as raised:
        await ask(session, engine.url)
    assert len(engine.requests) == 1
    assert raised.value.kind == "bad_request"
    assert raised.value.details["status"] == str(status)
    assert not raised.value.transient
    assert f"{engine.url}/responses" in raised.value.message


@pytest.mark.parametrize("broken", [half_body, disconnect], ids=["half a body", "no answer at all"])
async def test_a_connection_that_breaks_is_made_again(
    session: aiohttp.ClientSession, start_engine: StartEngine, broken: Behaviour
) -> None:
    engine = await start_engine(broken, broken, OK)
    assert await ask(session, engine.url) == {"fine": True}
    assert len(engine.requests) == 3


@pytest.mark.parametrize("silent", [hang, slow_headers])
async def test_an_engine_that_stays_silent_longer_than_read_s_is_asked_again(
    session: aiohttp.ClientSession, start_engine: StartEngine, silent: Behaviour
) -> None:
    engine = await start_engine(silent, OK)
    assert await ask(session, engine.url, limits=IMPATIENT) == {"fine": True}
    assert len(engine.requests) >= 2


@pytest.mark.parametrize("silent", [hang, slow_headers])
async def test_an_engine_that_never_answers_fails_the_call_within_its_total_time(
    session: aiohttp.ClientSession, start_engine: StartEngine, silent: Behaviour
) -> None:
    """E8."""
    engine = await start_engine(silent)
    async with asyncio.timeout(10):
        with pytest.raises(ModelError, match="no answer came in time") as raised:
            await ask(session, engine.url, limits=Limits(total_s=0.1))
    assert raised.value.kind == "deadline"
    assert raised.value.transient


async def test_an_engine_that_refuses_gives_up_with_a_message_that_says_what_to_do(
    session: aiohttp.ClientSession, dead_url: str
) -> None:
    with pytest.raises(ModelError) as raised:
        await ask(session, dead_url)
    assert raised.value.kind == "unavailable"
    assert raised.value.details == {"request": f"POST {dead_url}/responses", "tries": "4"}
    assert "no connection (Connection refused); gave up after 4 tries" in raised.value.message
    assert "check that the engine runs" in raised.value.message


async def test_trouble_that_does_not_pass_ends_with_the_engines_own_words(
    session: aiohttp.ClientSession, start_engine: StartEngine
) -> None:
    engine = await start_engine(answer(503, '{"error": {"message": "loading the model"}}'))
    with pytest.raises(ModelError, match="answered 503: loading the model; gave up after 4 tries") as raised:
        await ask(session, engine.url)
    assert (raised.value.kind, len(engine.requests)) == ("unavailable", 4)


async def test_an_engine_is_left_alone_as_long_as_it_asks(
    session: aiohttp.ClientSession, start_engine: StartEngine
) -> None:
    engine = await start_engine(answer(429, Retry_After="0.3"), OK)
    began = asyncio.get_running_loop().time()
    assert await ask(session, engine.url) == {"fine": True}
    assert asyncio.get_running_loop().time() - began >= 0.3


async def test_a_wait_that_leads_past_the_deadline_is_not_begun(
    session: aiohttp.ClientSession, start_engine: StartEngine
) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    engine = await start_engine(answer(429, Retry_After=later))
    async with asyncio.timeout(10):
        with pytest.raises(ModelError, match="answered 429") as raised:
            await ask(session, engine.url)
    assert (raised.value.kind, len(engine.requests)) == ("unavailable", 1)


async def test_an_unreachable_engine_is_replaced_by_the_next_at_once_and_then_left_alone(
    session: aiohttp.ClientSession, start_engine: StartEngine, dead_url: str
) -> None:
    engine = await start_engine(OK)
    endpoints = Endpoints((dead_url, engine.url))
    unhurried = Limits(total_s=60.0, first_wait_s=30.0, longest_wait_s=30.0)
    async with asyncio.timeout(10):
        for number in range(20):
            await ask(session, limits=unhurried, endpoints=endpoints, affinity=f"rollout-{number}")
    assert endpoints.rests(dead_url)
    assert len(engine.requests) == 20


async def test_an_engine_that_answers_5xx_hands_over_to_the_next(
    session: aiohttp.ClientSession, start_engine: StartEngine
) -> None:
    broken, fine = await start_engine(answer(500)), await start_engine(OK)
    for number in range(10):
        assert await ask(session, broken.url, fine.url, affinity=f"rollout-{number}") == {"fine": True}
    assert len(fine.requests) == 10


async def test_calls_of_one_rollout_go_to_one_engine(session: aiohttp.ClientSession, start_engine: StartEngine) -> None:
    engines = [await start_engine(OK) for _ in range(3)]
    endpoints = Endpoints([engine.url for engine in engines])
    for _ in range(5):
        await ask(session, endpoints=endpoints, affinity="the-rollout")
    assert sorted(len(engine.requests) for engine in engines) == [0, 0, 5]


async def test_a_call_waits_to_try_again_in_the_way_of_its_worker(
    session: aiohttp.ClientSession, start_engine: StartEngine
) -> None:
    engine = await start_engine(answer(503, Retry_After="60"), OK)
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    call = ModelCall(rollout_id="r", call_key="m_0", wait=wait)
    assert await ask(session, engine.url, limits=Limits(total_s=600.0), call=call) == {"fine": True}
    assert [seconds >= 60 for seconds in waited] == [True]


@pytest.mark.parametrize(
    ("body", "content_type", "said"),
    [
        ("<html>welcome</html>", "text/html", "text/html that cannot be read"),
        ("", "application/json", "an empty body"),
        ("{broken", "application/json", "application/json that cannot be read"),
    ],
)
async def test_an_answer_that_is_not_json_is_told_with_its_type_and_start(
    session: aiohttp.ClientSession, start_engine: StartEngine, body: str, content_type: str, said: str
) -> None:
    engine = await start_engine(answer(200, body, Content_Type=content_type))
    with pytest.raises(ModelError) as raised:
        await ask(session, engine.url)
    assert said in raised.value.message
    assert len(engine.requests) == 1


DEEP = '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}"


@pytest.mark.parametrize("parse", [json.loads, Response.model_validate_json])
async def test_an_answer_that_is_nested_too_deeply_is_the_engines_fault(
    session: aiohttp.ClientSession, start_engine: StartEngine, parse: Callable[[bytes], object]
) -> None:
    engine = await start_engine(answer(200, DEEP))
    with pytest.raises(ModelError, match="nested too deeply") as raised:
        await request(session, "GET", Endpoints([engine.url]), "/models", parse=parse, limits=Limits())
    assert raised.value.kind == "unavailable"
    assert len(engine.requests) == 1


async def test_a_refusal_that_is_nested_too_deeply_is_told_with_its_start(
    session: aiohttp.ClientSession, start_engine: StartEngine
) -> None:
    engine = await start_engine(answer(400, DEEP))
    with pytest.raises(ModelError, match=r'answered 400: \{"x": \[\[') as raised:
        await ask(session, engine.url)
    assert raised.value.kind == "bad_request"


async def test_no_error_holds_a_key_or_the_credentials_of_a_url(
    session: aiohttp.ClientSession, start_engine: StartEngine
) -> None:
    engine = await start_engine(answer(401, '{"error": {"message": "key sk-secret is wrong"}}'))
    url = engine.url.replace("http://", "http://user:hunter2@")
    with pytest.raises(ModelError) as raised:
        await ask(session, url, secrets=("sk-secret",))
    told = raised.value.message + str(raised.value.details)
    assert "sk-secret" not in told
    assert "hunter2" not in told
    assert "key *** is wrong" in told
    assert "check api_key" in told


async def test_a_cancelled_call_lets_go_of_the_engine(
    session: aiohttp.ClientSession, start_engine: StartEngine
) -> None:
    arrived = asyncio.Event()

    async def arrive_and_hang(writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await hang(writer)

    engine = await start_engine(arrive_and_hang)
    call = asyncio.create_task(ask(session, engine.url))
    await arrived.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_two_thousand_calls_are_in_progress_at_once(
    session: aiohttp.ClientSession, start_engine: StartEngine
) -> None:
    calls, everyone = 2_000, asyncio.Event()

    async def together(writer: asyncio.StreamWriter) -> None:
        if engine.at_once == calls:
            everyone.set()
        await everyone.wait()
        await OK(writer)

    engine = await start_engine(together)
    answers = await asyncio.gather(*(ask(session, engine.url, limits=Limits(total_s=60.0)) for _ in range(calls)))
    assert answers == [{"fine": True}] * calls
    assert engine.most_at_once == calls
