"""Verifies many rollouts in several processes at once.

Called by `replay verify`. Each process opens the source for itself and takes rollouts in chunks; so what goes between
them is IDs and verdicts, not events. Which rollout is verified where has no effect on any verdict.
"""

import asyncio
import multiprocessing
import os
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bus import LogConfig
from components.loading import add_roots
from replay.bulk import Bulk
from replay.errors import CannotVerify
from replay.facts import facts_of
from replay.file_source import FileSource
from replay.log_source import LogSource, open_log
from replay.source import Source
from replay.verify import Resolved, Verdict

CHUNK: Final = 256
WORTH: Final = 4 * CHUNK
"""Rollouts from which on more processes are faster than one: each takes about a second to start."""
_AHEAD: Final = 2
"""Chunks for each process that are handed out before they are asked for."""


class Reopen(NamedTuple):
    """How another process opens the same source."""

    files: tuple[str, ...] = ()
    url: str = ""
    namespace: str = ""
    name: str = ""


class _Setup(NamedTuple):
    reopen: Reopen
    override: Resolved | None
    roots: list[str]
    loose: bool


def reopening(source: Source) -> Reopen | None:
    """How another process opens this source; None where it cannot."""
    if isinstance(source, FileSource):
        return Reopen(files=tuple(map(str, source.paths)))
    if isinstance(source, LogSource) and source.url:
        return Reopen(url=source.url, namespace=source.namespace, name=source.name)
    return None


def processes() -> int:
    """How many there are by default: one for each processor that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def verify_in(
    jobs: int, reopen: Reopen, ids: Sequence[str], override: Resolved | None, roots: list[str], *, loose: bool
) -> AsyncIterator[Verdict]:
    """The verdicts of `ids`, in their order. Raises what a process raises, and `CannotVerify` where one is lost."""
    setup = _Setup(reopen, override, roots, loose)
    chunks = (ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK))
    waiting: deque[Future[list[bytes]]] = deque()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        try:
            for chunk in chunks:
                waiting.append(pool.submit(_verify, setup, chunk))
                if len(waiting) > jobs * _AHEAD:
                    for verdict in await asyncio.wrap_future(waiting.popleft()):
                        yield msgspec.json.decode(verdict, type=Verdict)
            while waiting:
                for verdict in await asyncio.wrap_future(waiting.popleft()):
                    yield msgspec.json.decode(verdict, type=Verdict)
        except BrokenProcessPool as error:
            raise CannotVerify(
                "a process that verified was ended from within: an agent's code ends its process, or memory ran out; "
                "with --jobs 1 and fewer rollouts it shows which"
            ) from error
        finally:
            for future in waiting:
                future.cancel()


def _verify(setup: _Setup, ids: Sequence[str]) -> list[bytes]:
    add_roots(setup.roots)
    return asyncio.run(_chunk(setup, ids))


async def _chunk(setup: _Setup, ids: Sequence[str]) -> list[bytes]:
    async with (
        _opened(setup.reopen) as source,
        Bulk(source, await facts_of(source), setup.override, setup.roots, loose=setup.loose) as bulk,
    ):
        return [msgspec.json.encode(verdict) async for verdict in bulk.verify(ids)]


@asynccontextmanager
async def _opened(reopen: Reopen) -> AsyncIterator[Source]:
    if reopen.files:
        yield _files(reopen.files)
    else:
        async with open_log(reopen.url, LogConfig(namespace=reopen.namespace), reopen.name) as source:
            yield source


@cache
def _files(paths: tuple[str, ...]) -> FileSource:
    return FileSource([Path(path) for path in paths])
