"""The connection that models behind HTTP endpoints share."""

import asyncio

import pytest
from pydantic import ValidationError

from components.models.base import ModelCall
from components.models.engine import Engine, EngineConfig
from components.models.errors import ModelError
from tests.unit.components.models.conftest import StartEngine, answer

CALL = ModelCall(rollout_id="a-rollout", call_key="m_0")
OK = answer(200)


def test_base_urls_are_one_or_a_list_and_lose_their_last_slash() -> None:
    assert EngineConfig.model_validate({"base_url": "http://h:1/v1/"}).base_url == ("http://h:1/v1",)
    assert EngineConfig.model_validate({"base_url": ["http://h", "https://i"]}).base_url == ("http://h", "https://i")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:8000", "is no base URL"),
        ("ftp://host/v1", "is no base URL"),
        ("http://host/v1/chat/completions", "ends before /chat/completions"),
        ("http://host/v1/responses/", "ends before /responses"),
        ("http://host/v1?api_key=X", "a key goes into api_key"),
        ("http://host/v1?", "a key goes into api_key"),
        ("http://host/v1#part", "a key goes into api_key"),
        ([], "at least 1 item"),
    ],
)
def test_what_is_no_base_url_is_refused_in_the_config(url: object, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        EngineConfig.model_validate({"base_url": url})


@pytest.mark.parametrize("url", ["http://host/v1?api_key=word", "ftp://me:word@host", "me:word@host/v1", "x?key=word"])
def test_the_refusal_of_a_base_url_holds_no_secret(url: str) -> None:
    with pytest.raises(ValidationError) as raised:
        EngineConfig.model_validate({"base_url": url})
    assert "word" not in " ".join(error["msg"] for error in raised.value.errors())


@pytest.mark.parametrize("further", [{"api_key": "sk-1"}, {"headers": {"authorization": "Bearer sk-1"}}])
@pytest.mark.parametrize("user", ["me:word@", ":word@", "me@"])
def test_a_user_in_a_base_url_and_another_authorization_exclude_each_other(
    user: str, further: dict[str, object]
) -> None:
    urls = ["http://host/v1", f"http://{user}host/v1"]
    with pytest.raises(ValidationError, match="exclude each other: leave one of them out") as raised:
        EngineConfig.model_validate({"base_url": urls, **further})
    assert not {"sk-1", "word"} & set(raised.value.errors()[0]["msg"].split())


async def test_a_user_in_a_base_url_is_sent(start_engine: StartEngine) -> None:
    engine = await start_engine(OK)
    config = {"base_url": engine.url.replace("//", "//me:word@"), "headers": {"X-Org": "we"}}
    client = Engine(EngineConfig.model_validate(config))
    await client.start()
    await client.stop()
    assert "Authorization: Basic bWU6d29yZA==" in engine.requests[0]


def test_keys_do_not_show_in_a_config_that_is_printed_or_dumped() -> None:
    config = EngineConfig.model_validate({"base_url": "http://h", "api_key": "sk-1", "headers": {"X-Key": "sk-2"}})
    assert "sk-" not in f"{config!r} {config.model_dump_json()}"


async def test_the_key_and_the_headers_go_along(start_engine: StartEngine) -> None:
    engine = await start_engine(OK)
    config = {"base_url": engine.url, "api_key": "sk-1", "headers": {"X-Org": "we"}}
    client = Engine(EngineConfig.model_validate(config))
    await client.start()
    await client.post("/responses", b"{}", bytes, CALL)
    await client.stop()
    for head in engine.requests:
        assert "Authorization: Bearer sk-1" in head
        assert "X-Org: we" in head
    assert engine.requests[0].startswith("GET /v1/models ")


async def test_a_start_waits_for_an_engine_that_still_loads(start_engine: StartEngine) -> None:
    engine = await start_engine(answer(503), answer(503), OK)
    client = Engine(EngineConfig.model_validate({"base_url": engine.url}))
    await client.start()
    await client.stop()
    assert len(engine.requests) == 3


@pytest.mark.parametrize("status", [200, 404, 405])
async def test_any_answer_shows_that_an_engine_is_there(start_engine: StartEngine, status: int) -> None:
    client = Engine(EngineConfig.model_validate({"base_url": (await start_engine(answer(status))).url}))
    await client.start()
    await client.stop()


async def test_a_start_against_a_url_that_refuses_says_so(dead_url: str, start_engine: StartEngine) -> None:
    engine = await start_engine(OK)
    config = {"base_url": [engine.url, dead_url], "http": {"ready_timeout_s": 0.2}}
    client = Engine(EngineConfig.model_validate(config))
    async with asyncio.timeout(10):
        with pytest.raises(ModelError, match="check that the engine runs and that base_url is right") as raised:
            await client.start()
    await client.stop()
    assert dead_url in raised.value.message


async def test_a_start_with_a_refused_key_says_so_without_the_key(start_engine: StartEngine) -> None:
    engine = await start_engine(answer(401, '{"error": {"message": "wrong key sk-1"}}'))
    client = Engine(EngineConfig.model_validate({"base_url": engine.url, "api_key": "sk-1"}))
    with pytest.raises(ModelError, match="check api_key") as raised:
        await client.start()
    await client.stop()
    assert "sk-1" not in raised.value.message


async def test_a_call_ends_before_the_workers_deadline_with_the_engines_story(start_engine: StartEngine) -> None:
    engine = await start_engine(OK, answer(503, '{"error": {"message": "still loading"}}'))
    config = {"base_url": engine.url, "deadline_s": 5.0, "http": {"first_wait_s": 0.01, "tries": 3}}
    client = Engine(EngineConfig.model_validate(config))
    await client.start()
    async with asyncio.timeout(5.0):
        with pytest.raises(ModelError, match="still loading; gave up after 3 tries"):
            await client.post("/responses", b"{}", bytes, CALL)
    await client.stop()
