"""What do several commands share?

Arguments and options that mean the same everywhere, the way from them to a resolved config, and how a command runs
its coroutine until it is done or told to stop.
"""

import asyncio
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self, TypeVar

import typer
from rich.console import Console
from rich.status import Status

from orchestrator.config import Config, load_config, set_global_config
from orchestrator.overrides import is_override

T = TypeVar("T")

_CONFIGS = typer.Argument(
    metavar="CONFIG… [OVERRIDE…]",
    help="YAML files, looked for here and in configs/; and overrides: a.b=c (is there), ++a.b=c (set it anyway), "
    "+a.b=c (add it), ~a.b (drop it).",
    show_default=False,
)
Configs = Annotated[list[str], _CONFIGS]
OptionalConfigs = Annotated[list[str] | None, _CONFIGS]
Url = Annotated[
    str | None, typer.Option("--url", metavar="nats://HOST:PORT", help="A running NATS server.", show_default=False)
]

console = Console(highlight=False)


def resolve(arguments: Sequence[str], flags: Mapping[str, Any] | None = None) -> Config:
    """The config that the positional arguments and the flags that were given say; from now on the global one."""
    names = [argument for argument in arguments if not is_override(argument)]
    overrides = [argument for argument in arguments if is_override(argument)]
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    config = load_config(names, overrides, folder=Path.cwd(), flags=given)
    set_global_config(config)
    return config


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` to its end. SIGINT or SIGTERM cancels it, and raises `KeyboardInterrupt` once it has cleaned up."""
    try:
        import uvloop  # noqa: PLC0415 - absent on platforms that it does not support

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_until_signal(work))


async def _until_signal(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


class Steps:
    """Tells what is going on: a spinner on a terminal, lines elsewhere."""

    def __init__(self, on: Console = console) -> None:
        self._console = on
        self._status = Status("", console=on) if on.is_terminal else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pause()

    def __call__(self, text: str) -> None:
        """Tells one step."""
        if self._status is not None:
            self._status.update(text)
        else:
            self._console.print(text, markup=False)

    def pause(self) -> None:
        """Leaves the terminal to something else; later steps are lines."""
        if self._status is not None:
            self._status.stop()
            self._status = None
