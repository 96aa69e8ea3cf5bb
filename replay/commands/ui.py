"""`replay ui`: the web app."""

import asyncio
import signal
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from aiohttp import web

from replay.commands.common import Json, console, run_async, where, write_json
from replay.errors import Misused
from replay.file_source import FileSource
from replay.opening import Where
from replay.places import find_place
from replay.ui.guard import Guard
from replay.ui.library import Library
from replay.ui.server import build

_HOST = "127.0.0.1"
_PORT = 8327
_TRIED = 20


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("ui")(ui)


def ui(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="A run (its ID, the beginning of it, its directory, or `last`), a file of exported events, or the URL "
            "of a server. All runs in results/, if not given.",
            show_default=False,
        ),
    ] = None,
    *,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help=f"Port on 127.0.0.1; 0 for any. {_PORT} or the next free one.", show_default=False
        ),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
    namespace: Annotated[
        str, typer.Option("--namespace", help="Namespace of the deployment, where SOURCE is a URL.")
    ] = "jetgym",
    json: Json = False,
) -> None:
    """Shows runs and rollouts in a browser: charts, table, conversation, timeline, tokens, events.

    It serves on this machine only, loads nothing from the net and writes
    nothing but the forks that its Fork button asks for. Ctrl-C ends it.

    \b
    replay ui
    replay ui last
    replay ui results/first --port 9000 --no-open
    replay ui nats://127.0.0.1:4222
    replay ui rollouts.jsonl
    """  # noqa: D301 - the help keeps these lines as they are
    run_async(_serve(_where(source, namespace), port, open_browser=open_browser, json=json))


def _where(source: str | None, namespace: str) -> Where:
    if source is not None and "://" in source:
        return where(None, source, namespace, None)
    if source is not None and Path(source).is_file():
        FileSource.check_first(Path(source))
        return where(None, None, namespace, [Path(source)])
    found = where(source, None, namespace, None)
    if source is not None:
        find_place(found.results, source)
    return found


async def _serve(place: Where, port: int | None, *, open_browser: bool, json: bool) -> None:
    runner = web.AppRunner(build(Library(place), Guard()), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        url = await _listen(runner, port)
        if json:
            write_json({"url": url})
        else:
            console.print(f"{url}  (Ctrl-C ends it)")
        if open_browser:
            with suppress(webbrowser.Error):
                webbrowser.open(url)
        await _told_to_stop()
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, port: int | None) -> str:
    """Starts to listen on the port, else on the first free one from the usual one on; returns the URL."""
    ports = [port] if port is not None else range(_PORT, _PORT + _TRIED)
    for tried in ports:
        site = web.TCPSite(runner, _HOST, tried)
        try:
            await site.start()
        except OSError:
            continue
        return f"http://{_HOST}:{runner.addresses[-1][1]}/"
    raise Misused(f"port {ports[0]} on {_HOST} is taken: give another one as --port, or 0 for any")


async def _told_to_stop() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
