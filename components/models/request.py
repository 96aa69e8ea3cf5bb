"""How does an HTTP call to an engine get its answer? `request`: pooled, bounded in time, tried again where that helps.

The only place of the project that talks HTTP to engines; models call it through `engine.Engine`. It takes a session
and does not own it. It never logs or raises a key, a header or a body beyond its start.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from typing import Final, TypeVar

import aiohttp
import structlog

from components.models.endpoints import Endpoints
from components.models.failures import Failure, of_content, of_exception, of_status, without_credentials

T = TypeVar("T")

LONGEST_RETRY_AFTER_S: Final = 120.0
"""More than this is not waited, whatever an engine asks for."""
_KEEPALIVE_S: Final = 60.0
_DNS_CACHE_S: Final = 300
_SHORTEST_S: Final = 0.001
"""aiohttp takes 0 and less for no limit, and a wait for a place may have used up the rest."""
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one `request`, in seconds."""

    total_s: float = 600.0
    """For everything: all tries, and the waits between them."""
    connect_s: float = 10.0
    """To a connection, name resolution included."""
    read_s: float | None = None
    """Without a byte from the engine; None: up to `total_s`, since an engine may think that long before it answers."""
    tries: int = 10
    first_wait_s: float = 0.5
    """Before the second try; it doubles from try to try."""
    longest_wait_s: float = 30.0


def open_session() -> aiohttp.ClientSession:
    """A session for tens of thousands of calls at once: no limit of connections but that of the callers.

    Ignores proxies and credentials of the environment, and keeps no cookies.
    """
    connector = aiohttp.TCPConnector(
        limit=0, limit_per_host=0, ttl_dns_cache=_DNS_CACHE_S, keepalive_timeout=_KEEPALIVE_S
    )
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)


async def request(
    session: aiohttp.ClientSession,
    method: str,
    endpoints: Endpoints,
    path: str,
    *,
    parse: Callable[[bytes], T],
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    limits: Limits,
    affinity: str = "",
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    secrets: Sequence[str] = (),
) -> T:
    """The engine's answer to `method` on `path` below one of the base URLs, as `parse` reads it.

    Tried again after connection errors, 408, 409, 429 and 5xx, with jittered waits that double and at least as long
    as a `Retry-After` asks; never after another 4xx. An unreachable URL is left alone for a while, and the next one is
    asked at once.

    Args:
        session: See `open_session`.
        method: GET or POST.
        endpoints: The base URLs, and which of them rest.
        path: What follows a base URL, with its slash.
        parse: Reads the body of a 2xx answer; raises ValueError if it is not what it should be. RecursionError
            is the fault of the body too: it is nested deeper than anything can read.
        body: JSON.
        headers: Sent with each try.
        limits: Bounds in time and tries.
        affinity: Calls with the same one go to the same URL while it lives.
        sleep: Waits between tries. A caller that holds a place of a limit gives it back meanwhile.
        secrets: Words that no message may hold.

    Raises:
        ModelError: With the last try's URL, status, start of the body, and what to do next.
    """
    loop = asyncio.get_running_loop()
    began, answered_badly = loop.time(), 0
    for tries in count(1):
        url = endpoints.pick(affinity, answered_badly)
        named = f"{method} {without_credentials(url + path)}"
        left = max(_SHORTEST_S, began + limits.total_s - loop.time())
        timeout = aiohttp.ClientTimeout(
            total=left, connect=limits.connect_s, sock_connect=limits.connect_s, sock_read=limits.read_s
        )
        outcome = await _attempt(
            session.request(method, url + path, data=body, headers=headers, timeout=timeout, allow_redirects=False),
            secrets,
        )
        if isinstance(outcome, _Answer):
            endpoints.answered(url)
            try:
                return parse(outcome.body)
            except (ValueError, RecursionError) as error:
                failure = of_content(outcome.status, outcome.content_type, outcome.body, error, secrets)
                raise failure.error(request=named, tries=tries, seconds=loop.time() - began) from error
        if outcome.unreachable:
            endpoints.unreachable(url)
        else:
            endpoints.answered(url)
            answered_badly += 1
        wait = 0.0 if outcome.unreachable and not endpoints.all_rest() else _wait_before(tries + 1, outcome, limits)
        spent = loop.time() - began
        if not outcome.retry or tries >= limits.tries or spent + wait >= limits.total_s:
            raise outcome.error(request=named, tries=tries, seconds=spent)
        _log.info("engine.retry", request=named, tries=tries, wait_s=round(wait, 2), reason=outcome.message)
        await sleep(wait)  # also for no time: the caller may hear there that nobody needs the answer any more
    raise AssertionError("count does not end")


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    content_type: str
    body: bytes


async def _attempt(
    asked: AbstractAsyncContextManager[aiohttp.ClientResponse], secrets: Sequence[str]
) -> _Answer | Failure:
    try:
        async with asked as answer:
            content = await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return of_exception(error)
    if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        return _Answer(answer.status, answer.content_type, content)
    return of_status(answer.status, answer.headers, content, secrets)


def _wait_before(tries: int, failure: Failure, limits: Limits) -> float:
    doubled = min(limits.longest_wait_s, limits.first_wait_s * 2.0 ** (tries - 2))
    asked = min(failure.wait_s or 0.0, LONGEST_RETRY_AFTER_S)
    return max(doubled * random.uniform(0.5, 1.0), asked * random.uniform(1.0, 1.1))  # noqa: S311 - spreads load
