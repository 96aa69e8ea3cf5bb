"""The server of the web app: its addresses, and what each answers with.

    /                                                  the page; what it shows is said behind the # of its URL
    /static/…                                          its modules and styles
    /api/about                                         version, what is read, the token for what changes something
    /api/runs                                          one line for each run
    /api/runs/RUN/charts                               the run in numbers
    /api/runs/RUN/pools                                what waits in the pools now
    /api/runs/RUN/changes                              server-sent events: that something is new, once a second at most
    /api/runs/RUN/rollouts?filter=&sort=&offset=&limit=    a window of the table
    /api/runs/RUN/rollouts/ID                          the rollout's page
    /api/runs/RUN/rollouts/ID/around?filter=&sort=     its place in the table, and its neighbours
    /api/runs/RUN/rollouts/ID/steps/KEY                one call, uncut
    /api/runs/RUN/rollouts/ID/tokens?branch=&offset=   samples
    /api/runs/RUN/rollouts/ID/events[/SEQ]             raw events
    /api/runs/RUN/rollouts/ID/diff?with=&by=           the differences from another rollout
    /api/runs/RUN/rollouts/ID/fork[/command]           POST: starts `replay fork`, or says how it is typed
    /api/jobs/NUMBER                                   what has become of a command that was started

Answers are JSON; an error is `{"error": why}` with status 400, 404 or 503. Called by the command `ui`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, cast, get_args

import msgspec
from aiohttp import web

from bus import BusError
from contracts.errors import ContractError, InvalidName
from contracts.ids import rollout_id
from replay.diff import By, difference
from replay.errors import AmbiguousName, BrokenHistory, Misused, ReplayError, UnknownName
from replay.log_source import LogSource
from replay.source import with_captures
from replay.trajectory import Trajectory
from replay.ui.entries import Entry
from replay.ui.forks import ForkRequest, words_of
from replay.ui.guard import Guard
from replay.ui.jobs import Jobs, typed
from replay.ui.library import Library, Opened
from replay.ui.rollout import event_data, event_lines, rollout_view
from replay.ui.series import Charts, charts
from replay.ui.shelf import Shelf
from replay.ui.table import Tables, rows_of
from replay.ui.telling import whole
from replay.ui.tokens import tokens_of
from replay.ui.worked import Worked

STATIC: Final = Path(__file__).parent / "static"
_PAUSE_S: Final = 1.0
"""Between two messages about news."""
_BEAT_S: Final = 15.0
_GROUP: Final = 64

_FORK: Final = msgspec.json.Decoder(ForkRequest)

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build(library: Library, guard: Guard) -> web.Application:
    """The app. It closes the library when it ends."""
    app = web.Application(middlewares=[guard.check, _told])
    pages = _Pages(library, guard)
    run, rollout = "/api/runs/{run}", "/api/runs/{run}/rollouts/{rollout}"
    answers: dict[str, Answer] = {
        "/": pages.index,
        "/api/about": pages.about,
        "/api/runs": pages.runs,
        f"{run}/charts": pages.charts,
        f"{run}/pools": pages.pools,
        f"{run}/changes": pages.changes,
        f"{run}/rollouts": pages.window,
        rollout: pages.rollout,
        f"{rollout}/around": pages.around,
        f"{rollout}/steps/{{key}}": pages.step,
        f"{rollout}/tokens": pages.tokens,
        f"{rollout}/events": pages.events,
        f"{rollout}/events/{{seq:[0-9]+}}": pages.event,
        f"{rollout}/diff": pages.diff,
        "/api/jobs/{job:[0-9]{1,9}}": pages.job,
    }
    for path, answer in answers.items():
        app.router.add_get(path, answer)
    app.router.add_post(f"{rollout}/fork", pages.fork)
    app.router.add_post(f"{rollout}/fork/command", pages.fork_command)
    app.router.add_static("/static", STATIC)

    async def close(_: web.Application) -> None:
        await pages.jobs.stop()
        await library.close()

    app.on_response_prepare.append(guard.say)
    app.on_cleanup.append(close)
    return app


@web.middleware
async def _told(request: web.Request, handler: Answer) -> web.StreamResponse:
    """What cannot be answered is told as JSON; a fault of ours goes on to the log with its traceback."""
    try:
        return await handler(request)
    except (UnknownName, InvalidName) as error:
        status = 400 if isinstance(error, AmbiguousName) else 404
        return _json({"error": str(error)}, status)
    except (Misused, BrokenHistory, ContractError) as error:
        return _json({"error": str(error)}, 400)
    except (ReplayError, BusError) as error:
        return _json({"error": str(error)}, 503)
    except web.HTTPException as error:
        if error.status < 400:  # noqa: PLR2004 - the static files' "not modified"
            raise
        return _json({"error": error.reason}, error.status)


class _Pages:
    def __init__(self, library: Library, guard: Guard) -> None:
        self._library, self._guard = library, guard
        self._tables = Tables()
        self._charts: dict[str, Worked[Charts]] = {}
        self._drawing = asyncio.Lock()
        self.jobs = Jobs()

    async def index(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "index.html")

    async def about(self, _: web.Request) -> web.StreamResponse:
        where = self._library.where
        reads = where.url or ", ".join(map(str, where.files)) or f"{where.results}/"
        first = await asyncio.to_thread(lambda: self._library.first)
        return _json(
            {
                "version": version("jetgym"),
                "reads": reads,
                "local": where.is_local,
                "first": first,
                "token": self._guard.token,
            }
        )

    async def runs(self, _: web.Request) -> web.StreamResponse:
        return _json(await self._library.runs())

    async def charts(self, request: web.Request) -> web.StreamResponse:
        run = await self._run(request)
        async with self._drawing:
            shelf, known = run.shelf, self._charts.get(run.run_id)
            if known is None or not known.serves(shelf.version, changing=shelf.changing):
                began, version = time.monotonic(), shelf.version
                rows = list(rows_of(run))
                now = datetime.now(UTC) if shelf.state == "live" and _unfinished(rows) else None
                asked = shelf.facts.asked.get(run.run_id, 0)
                known = Worked(await asyncio.to_thread(charts, rows, version, asked, now), version, began)
                self._charts = {run.run_id: known}
        return _json({"state": shelf.state, "error": shelf.error, "charts": known.value})

    async def pools(self, request: web.Request) -> web.StreamResponse:
        run = await self._run(request)
        if run.shelf.state != "live":
            return _json([])
        async with run.shelf.source() as source:
            return _json(await source.pools() if isinstance(source, LogSource) else [])

    async def changes(self, request: web.Request) -> web.StreamResponse:
        run = await self._run(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with suppress(ConnectionResetError):  # the page was closed
            await _tell_news(run.shelf, response)
        return response

    async def window(self, request: web.Request) -> web.StreamResponse:
        run = await self._run(request)
        asked = request.query
        return _json(
            self._tables.window(
                run,
                asked.get("filter", ""),
                asked.get("sort", ""),
                _count(asked, "offset"),
                _count(asked, "limit", 100),
            )
        )

    async def around(self, request: web.Request) -> web.StreamResponse:
        run, rollout = await self._known(request)
        asked = request.query
        return _json(self._tables.around(run, asked.get("filter", ""), asked.get("sort", ""), rollout))

    async def rollout(self, request: web.Request) -> web.StreamResponse:
        run, trajectory = await self._trajectory(request)
        entry = run.shelf.entry(trajectory.rollout_id)
        group = []
        if entry is not None:
            fits = (entry.run_id, entry.agent, entry.task_index, entry.group)
            alike = (row for row in run.shelf.entries if (row.run_id, row.agent, row.task_index, row.group) == fits)
            group = [row for row, _ in zip(alike, range(_GROUP), strict=False)]
        return _json(rollout_view(trajectory, run.shelf.facts, group))

    async def step(self, request: web.Request) -> web.StreamResponse:
        _, trajectory = await self._trajectory(request)
        found = whole(trajectory, request.match_info["key"])
        return _json(found) if found is not None else _json({"error": "there is no such call"}, 404)

    async def tokens(self, request: web.Request) -> web.StreamResponse:
        run, trajectory = await self._trajectory(request)
        async with run.shelf.source() as source:
            await with_captures(source, trajectory)
        return _json(tokens_of(trajectory, _count(request.query, "branch"), _count(request.query, "offset")))

    async def events(self, request: web.Request) -> web.StreamResponse:
        _, trajectory = await self._trajectory(request)
        return _json(event_lines(trajectory))

    async def event(self, request: web.Request) -> web.StreamResponse:
        run, rollout = await self._known(request)
        async with run.shelf.source() as source:
            found = await event_data(source, rollout, int(request.match_info["seq"]))
        return _json(found) if found is not None else _json({"error": "there is no such event"}, 404)

    async def diff(self, request: web.Request) -> web.StreamResponse:
        run, one = await self._trajectory(request)
        name, by = rollout_id(request.query.get("with", "")), request.query.get("by", "key")
        if by not in get_args(By):
            raise Misused(f"calls are aligned by {' or '.join(get_args(By))}, not by {by!r}")
        there = run if run.shelf.entry(name) is not None else await self._library.holding(name)
        other = await there.shelf.trajectory(name)
        for shelf, trajectory in ((run.shelf, one), (there.shelf, other)):
            async with shelf.source() as source:
                await with_captures(source, trajectory)
        told = await asyncio.to_thread(lambda: b"".join(difference(one, other, by=cast("By", by)).json()))
        return web.Response(body=told, content_type="application/json")

    async def fork(self, request: web.Request) -> web.StreamResponse:
        words, given = await self._fork(request)
        return _json(await self.jobs.start(words, given))

    async def fork_command(self, request: web.Request) -> web.StreamResponse:
        return _json({"command": typed(*await self._fork(request))})

    async def job(self, request: web.Request) -> web.StreamResponse:
        found = self.jobs.view(int(request.match_info["job"]))
        return _json(found) if found is not None else _json({"error": "there is no such command"}, 404)

    async def _fork(self, request: web.Request) -> tuple[list[str], bytes | None]:
        run, rollout = await self._known(request)
        try:
            asked = _FORK.decode(await request.read())
        except msgspec.DecodeError as error:
            raise Misused(f"the fork that is asked for: {error}") from error
        return words_of(run.shelf.where, rollout, asked)

    async def _run(self, request: web.Request) -> Opened:
        run = await self._library.open(request.match_info["run"])
        await self._library.tidy()
        return run

    async def _trajectory(self, request: web.Request) -> tuple[Opened, Trajectory]:
        run, rollout = await self._known(request)
        return run, await run.shelf.trajectory(rollout)

    async def _known(self, request: web.Request) -> tuple[Opened, str]:
        """The run and the ID of one of its rollouts. Raises `UnknownName`."""
        run, rollout = await self._run(request), rollout_id(request.match_info["rollout"])
        await run.shelf.ready()
        if run.shelf.entry(rollout) is None and run.shelf.state in ("live", "at rest"):
            raise UnknownName(f"run {run.run_id} has no rollout {rollout!r}")
        return run, rollout


async def _tell_news(shelf: Shelf, response: web.StreamResponse) -> None:
    seen = -1
    while True:
        try:
            async with asyncio.timeout(_BEAT_S):
                seen = await shelf.changed(seen)
        except TimeoutError:
            await response.write(b": still here\n\n")
            continue
        news = {"version": seen, "state": shelf.state, "error": shelf.error}
        await response.write(b"data: " + msgspec.json.encode(news) + b"\n\n")
        await asyncio.sleep(_PAUSE_S)


def _count(asked: Mapping[str, str], name: str, default: int = 0) -> int:
    """A number in the query of a URL."""
    found = asked.get(name, str(default))
    if not found.isdecimal():
        raise Misused(f"{name} is a number, and {found!r} is none")
    return int(found)


def _unfinished(rows: Sequence[Entry]) -> bool:
    return any(row.duration_s is None for row in rows)


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
