"""How do many coroutines share one engine? A thread runs it; they wait for their generation.

Used by the server. Between two steps of the engine the thread takes what has come: prompts, and new weights.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from examples.grpo_cpu.engine import Engine, Generation
from examples.grpo_cpu.weights import BadWeights, read_weights


class Load(NamedTuple):
    """What an engine is doing."""

    running: int
    waiting: int
    version: int
    busy_s: float
    """Seconds that it computed, since it was started."""
    tokens: int
    """Tokens that it generated since."""
    read: int
    """Tokens that it put through its policy since: each generated one, and what of prompts it had to read."""


class EngineThread:
    """An engine at work. Use it as a context."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._orders: list[Callable[[], None]] = []
        """To be carried out between two steps."""
        self._changed = threading.Condition()
        self._stopped = False
        self._error: BaseException | None = None
        self._ends: dict[Generation, tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = {}
        self._busy_s, self._tokens = 0.0, 0
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    @property
    def load(self) -> Load:
        """What it is doing now."""
        engine = self._engine
        return Load(engine.running, engine.waiting, engine.version, self._busy_s, self._tokens, engine.read)

    async def generate(self, generation: Generation) -> Generation:
        """Returns when it has ended. Raises `ValueError` for a prompt that is too long.

        Cancelled, it takes the sequence out of the batch.
        """
        ended = asyncio.get_running_loop().create_future()

        def begin() -> None:
            self._ends[generation] = (ended.get_loop(), ended)
            try:
                self._engine.add(generation)
            except ValueError as error:
                self._finish(generation, error)

        def leave() -> None:
            self._engine.leave(generation)
            self._ends.pop(generation, None)

        self._order(begin)
        try:
            await ended
        except asyncio.CancelledError:
            self._order(leave)
            raise
        return generation

    async def swap(self, path: Path, version: int) -> None:
        """Returns when the weights in the file are the ones that generate. Raises `BadWeights`."""
        done = asyncio.get_running_loop().create_future()

        def swap() -> None:
            try:
                self._engine.swap(read_weights(path), version)
            except BadWeights as error:
                _settle(done.get_loop(), done, error)
            else:
                _settle(done.get_loop(), done, None)

        self._order(swap)
        await done

    def _order(self, order: Callable[[], None]) -> None:
        with self._changed:
            if self._error is not None:
                raise RuntimeError("the engine has stopped") from self._error
            self._orders.append(order)
            self._changed.notify()

    def _work(self) -> None:
        try:
            while self._take_orders():
                began = time.perf_counter()
                ended = self._engine.step()
                self._busy_s += time.perf_counter() - began
                for generation in ended:
                    self._tokens += len(generation.tokens)
                    self._finish(generation, None)
        except BaseException as error:
            with self._changed:
                self._error = error
            for generation in list(self._ends):
                self._finish(generation, RuntimeError(f"the engine has stopped: {error!r}"))
            raise

    def _take_orders(self) -> bool:
        """Carries out what has come, and waits while there is nothing to do; False when it is to end."""
        while True:
            with self._changed:
                while not (self._orders or self._stopped or self._engine.running or self._engine.waiting):
                    self._changed.wait()
                if self._stopped:
                    return False
                orders, self._orders = self._orders, []
            began = time.perf_counter()
            for order in orders:
                order()
            self._busy_s += time.perf_counter() - began
            if self._engine.running or self._engine.waiting:
                return True

    def _finish(self, generation: Generation, error: Exception | None) -> None:
        if (waiting := self._ends.pop(generation, None)) is not None:
            _settle(*waiting, error)


def _settle(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None], error: Exception | None) -> None:
    """Ends a wait in its own event loop; it may have been given up, and the loop may be closed."""

    def settle() -> None:
        if not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)
