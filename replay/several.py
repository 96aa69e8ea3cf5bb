"""Verifies rollouts in processes of their own, several at once for many.

Called by `replay verify`. Each process opens the source for itself and takes rollouts in chunks; so what goes between
them is IDs and verdicts, not events. Which rollout is verified where has no effect on any verdict, and one whose code
brings its process down takes no other with it.
"""

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bus import BusError, LogConfig
from components.loading import add_roots
from replay.apart import Apart, Channel, serving
from replay.bulk import Bulk
from replay.errors import CannotVerify, ReplayError
from replay.facts import facts_of
from replay.file_source import FileSource
from replay.log_source import LogSource, open_log
from replay.source import Source
from replay.verify import Resolved, Verdict

CHUNK: Final = 256
WORTH: Final = 4 * CHUNK
"""Rollouts from which on more processes are faster than one: each takes about a second to start."""
_BOOT: Final = "from replay.several import serve; serve()"


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
    deadline_s: float


class _Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line that a process answers: one verdict, or why there are none."""

    verdict: Verdict | None = None
    problem: str = ""


def reopening(source: Source) -> Reopen:
    """How another process opens this source."""
    if isinstance(source, FileSource):
        return Reopen(files=tuple(map(str, source.paths)))
    assert isinstance(source, LogSource)
    return Reopen(url=source.url, namespace=source.namespace, name=source.name)


def processes() -> int:
    """How many there are by default: one for each processor that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def verify_in(
    jobs: int,
    reopen: Reopen,
    ids: Sequence[str],
    override: Resolved | None,
    roots: list[str],
    *,
    loose: bool,
    deadline_s: float,
) -> AsyncIterator[Verdict]:
    """The verdicts of `ids`, in their order.

    A rollout whose code ends its process or runs longer than `deadline_s` could not run; another process goes on with
    the next one. Raises what a process raises that is no doing of the code.
    """
    setup = msgspec.json.encode(_Setup(reopen, override, roots, loose, deadline_s))
    size = max(1, min(CHUNK, len(ids) // jobs))
    chunks = [_Chunk(ids[start : start + size]) for start in range(0, len(ids), size)]
    left = deque(chunks)
    working = [asyncio.create_task(_work(left, setup)) for _ in range(jobs)]
    try:
        for chunk in chunks:
            for _ in chunk.ids:
                found = await chunk.found.get()
                if not isinstance(found, Verdict):
                    raise found
                yield found
    finally:
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)


class _Chunk:
    """Rollouts for one process, and what it finds."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = ids
        self.found: asyncio.Queue[Verdict | Exception] = asyncio.Queue()


async def _work(left: deque[_Chunk], setup: bytes) -> None:
    """Has processes verify chunks, one after the other, until none are left."""
    process: Apart | None = None
    try:
        while left:
            chunk, done = left.popleft(), 0
            try:
                while done < len(chunk.ids):
                    process = process or await _started(setup)
                    await process.send(msgspec.json.encode(chunk.ids[done:]))
                    while done < len(chunk.ids) and process is not None:
                        if line := await process.answer():
                            found = _verdict(line)
                        else:
                            found = Verdict(rollout_id=chunk.ids[done], verdict="could not run", reason=process.lost())
                            await process.stop()
                            process = None
                        chunk.found.put_nowait(found)
                        done += 1
            except Exception as error:  # noqa: BLE001 - raised where the verdict is waited for
                chunk.found.put_nowait(error)
    except asyncio.CancelledError:
        if process is not None:
            process.kill()
        raise
    finally:
        if process is not None:
            await process.stop()


async def _started(setup: bytes) -> Apart:
    process = await Apart.start([sys.executable, "-P", "-c", _BOOT])
    await process.send(setup)
    if not await process.answer():
        await process.stop()
        raise CannotVerify("a process that verifies did not start; what it said stands above")
    return process


def _verdict(line: bytes) -> Verdict:
    told = msgspec.json.decode(line, type=_Told)
    if told.verdict is None:
        raise CannotVerify(told.problem)
    return told.verdict


def serve() -> None:
    """The other side: reads IDs of rollouts until there are no more, and tells each verdict."""
    channel = serving()
    setup = msgspec.json.decode(channel.given.readline(), type=_Setup)
    add_roots(setup.roots)
    channel.say(b"{}")
    with asyncio.Runner() as runner:
        for line in channel.given:
            try:
                runner.run(_verify(channel, setup, msgspec.json.decode(line, type=list[str])))
            except (ReplayError, BusError) as error:
                channel.say(msgspec.json.encode(_Told(problem=str(error))))


async def _verify(channel: Channel, setup: _Setup, ids: Sequence[str]) -> None:
    async with _opened(setup.reopen) as source:
        facts = await facts_of(source)
        async with Bulk(
            source,
            facts,
            setup.override,
            setup.roots,
            loose=setup.loose,
            deadline_s=setup.deadline_s,
            channel=channel,
        ) as bulk:
            async for verdict in bulk.verify(ids):
                channel.say(msgspec.json.encode(_Told(verdict=verdict)))


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
