"""The answers to one worker's calls, in the log's order, without a gap, across reconnects and restarts.

Called by the agent worker. One reader per partition reads for all workers whose answers are wanted, so that the order
seen is the order of the log also after an adoption. An answer causes publishes: while there is no room for these in
flight, answers wait here, as the bytes that they came as. It never acks and never waits for the callback.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog

from bus.connection import Connection
from bus.deadletter import DeadLetter, event_or_letter
from bus.frames import TURN_S
from bus.ordered import OrderedReader
from bus.publish import Publisher
from bus.subjects import Subjects
from contracts.events import Recorded

OnReply = Callable[[Recorded], None]
OnDead = Callable[[DeadLetter], None]

NOW: Final = 0
"""For `subscribe_also`: from the present position on."""

_log = structlog.get_logger("bus.replies")


class Replies:
    """A subscription to the answers to one worker, and to others that it adopted rollouts from."""

    def __init__(
        self,
        connection: Connection,
        publisher: Publisher,
        subjects: Subjects,
        worker: str,
        *,
        on_reply: OnReply,
        on_dead: OnDead,
    ) -> None:
        self._subjects = subjects
        self._workers = [worker]
        """Those whose answers come, in every partition."""
        self._subscribing = asyncio.Lock()
        self._on_reply = on_reply
        self._on_dead = on_dead
        self._rewound: list[dict[bytes, int]] = [{} for _ in range(subjects.partitions)]
        """After a rewind, per partition: what had already been handed over, by the beginning of its subject."""
        self._readers: list[OrderedReader] = []
        self._connection, self._publisher = connection, publisher
        self._waiting: deque[tuple[int, bytes, bytes]] = deque()
        self._working_off: asyncio.Task[None] | None = None

    async def start(self, starts: Sequence[int]) -> "Replies":
        """Reads each partition from its sequence in `starts` on."""
        for number, start in enumerate(starts):
            reader = OrderedReader(
                self._connection,
                self._subjects.stream(number),
                [self._subjects.replies_of(number, worker) for worker in self._workers],
                partial(self._on_message, number),
                start=start,
            )
            await reader.start()
            self._readers.append(reader)
        return self

    async def subscribe_also(self, worker: str, *, start: int = NOW) -> None:
        """Answers to another worker come too, in one order with all others.

        From `start` on in each partition (1: from the beginning), or from the present position on: then what is
        older is in the rollout's history. When this returns, what is stored from now on will come.
        """
        async with self._subscribing:  # who asks for the same worker meanwhile waits until it is heard everywhere
            if worker in self._workers:
                return
            workers = [*self._workers, worker]
            for number, reader in enumerate(self._readers):
                filters = [self._subjects.replies_of(number, name) for name in workers]
                if start == NOW or start >= reader.next:
                    await reader.reopen(filters, reader.next)
                    continue
                for one in reader.filters:
                    prefix = one.removesuffix(">").encode()
                    self._rewound[number].setdefault(prefix, reader.next)
                await reader.reopen(filters, start)
            self._workers = workers

    async def stop(self) -> None:
        """No callback is made after this returns."""
        for reader in self._readers:
            await reader.stop()
        self._waiting.clear()
        if self._working_off is not None:
            self._working_off.cancel()
            await asyncio.wait([self._working_off])

    def _on_message(self, partition: int, seq: int, subject: bytes, data: bytes, _behind: int) -> None:
        rewound = self._rewound[partition]
        if rewound and self._was_seen(rewound, seq, subject):
            return
        if self._working_off is None and self._publisher.has_room:
            self._hear(seq, subject, data)
            return
        self._waiting.append((seq, subject, data))
        if self._working_off is None:
            self._working_off = asyncio.create_task(self._work_off())

    async def _work_off(self) -> None:
        while self._waiting:
            await self._publisher.room()
            ends = time.monotonic() + TURN_S
            while self._waiting and self._publisher.has_room and time.monotonic() < ends:
                message = self._waiting.popleft()
                try:
                    self._hear(*message)
                except Exception:  # noqa: BLE001 - as where messages are read: the others are heard all the same
                    _log.exception("handler_failed", subject=message[1].decode(errors="replace"))
            await asyncio.sleep(0)
        self._working_off = None

    def _hear(self, seq: int, subject: bytes, data: bytes) -> None:
        name = subject.decode()
        found = event_or_letter(data, name, seq)
        if isinstance(found, DeadLetter):
            self._on_dead(found)
        else:
            self._on_reply(Recorded(seq=seq, subject=name, event=found, raw=data))

    def _was_seen(self, rewound: dict[bytes, int], seq: int, subject: bytes) -> bool:
        if seq >= max(rewound.values()):
            rewound.clear()
            return False
        return any(subject.startswith(prefix) and seq < before for prefix, before in rewound.items())
