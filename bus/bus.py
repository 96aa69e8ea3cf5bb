"""The bus: one connection to a deployment's log, and everything that can be done with it.

Called by workers, the orchestrator and replay. It only puts the package's parts together; each method says what it
promises, the module it calls says how that is kept.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Final, Self

import msgspec
import structlog

from bus.connection import Connection, connect
from bus.deadletter import DEAD_LETTER, DeadLetter, Reason, letter_data
from bus.errors import BusError, Conflict, Unreadable
from bus.history import history, history_stream, last_event, recorded_or_ended
from bus.pool import Pool
from bus.publish import Publisher
from bus.pull import MAX_ACK_PENDING, ConsumerConfig
from bus.replies import OnReply, Replies
from bus.scan import read
from bus.subjects import NO_ROLLOUT, Subjects, consumer_name, rollout_of
from bus.topology import LogConfig, ensure_log, stream_info
from bus.writing import Writing
from contracts.codec import current
from contracts.events import NO_TIME, NOTHING, SAID_ELSEWHERE, Event, Kind, Recorded
from contracts.ids import check_name
from contracts.upcast import dataschema_of

OUTAGE_S: Final = 120.0
"""Seconds that a publish outlives a server that is away, before it fails with `Unreachable`."""

_log = structlog.get_logger("bus")


class Bus:
    """One process's place on the log of a deployment."""

    def __init__(
        self, connection: Connection, publisher: Publisher, config: LogConfig, *, source: str, writer: str
    ) -> None:
        self.config = config
        self.subjects = Subjects(config.namespace, config.partitions)
        self._connection = connection
        self._publisher = publisher
        self._writing = Writing(connection, publisher, self.subjects, config)
        self._blobs = self._writing.blobs
        self._source = source
        self._writer = writer
        self._events = 0
        self._open: list[Pool | Replies] = []
        self._burials: set[asyncio.Task[None]] = set()

    @classmethod
    async def connect(cls, url: str, config: LogConfig, *, name: str, writer: str) -> "Bus":
        """Connects within 5 s.

        Args:
            url: `nats://host:port`, several separated by commas for a cluster.
            config: the deployment's log.
            name: who this is, as the source of its events: `<kind>/<instance>/<worker>` or `orchestrator/<run>`.
            writer: unique in the deployment and new for each process: its worker ID. Event IDs begin with it.

        Raises:
            Unreachable: nothing answers.
            ServerUnfit: what answers is older than 2.11.
        """
        check_name(writer, "writer")
        connection = await connect(url, name=name)
        publisher = Publisher(connection, outage_s=OUTAGE_S)
        await publisher.start()
        return cls(connection, publisher, config, source=name, writer=writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, timeout_s: float = 5.0) -> None:
        """Stops what is open, waits up to `timeout_s` for publishes in flight, fails the rest, disconnects."""
        for opened in self._open:
            await (opened.close() if isinstance(opened, Pool) else opened.stop())
        if self._burials:
            await asyncio.wait(self._burials, timeout=timeout_s)
        await self._publisher.close(timeout_s)
        await self._connection.close()

    def on_connection(self, changed: Callable[[bool], None]) -> None:
        """Has `changed` told of each loss of the connection (False), which then no log tells, and return (True)."""
        self._connection.on_disconnect.append(lambda: changed(False))
        self._connection.on_reconnect.append(lambda: changed(True))

    async def ensure_log(self, *, adjust: bool = False) -> None:
        """Creates the streams that are missing and checks those that are there.

        Sizes, ages, replicas and compression that differ are kept and warned of, or with `adjust` brought to this
        configuration. Raises `LogMismatch` for what cannot be changed, `ServerUnfit` if the server cannot hold it.
        """
        await ensure_log(self._connection, self.config, self.subjects, adjust=adjust)

    @property
    def log_full(self) -> bool:
        """True while publishes wait because the log is full: admit no new work."""
        return self._publisher.log_full

    @property
    def in_flight(self) -> int:
        """Publishes that the log has not confirmed yet."""
        return self._publisher.in_flight

    # Writing

    async def room(self) -> None:
        """Waits while there are as many publishes in flight as there may be: take no new work before."""
        await self._publisher.room()

    def event(
        self,
        type: str,  # noqa: A002
        subject: str,
        data: bytes | msgspec.Raw = NOTHING,
        *,
        rolloutid: str = "",
        callkey: str = "",
        afterkey: str | None = None,
        replyto: str = "",
        causationid: str = "",
        traceparent: str = "",
        elapsed: float = NO_TIME,
        capture: msgspec.Raw = NOTHING,
        policy: tuple[int, int] | None = None,
        generated: int = SAID_ELSEWHERE,
    ) -> Event:
        """A new event by this writer, now. `data` and `capture` are JSON."""
        self._events += 1
        return Event(
            id=f"{self._writer}-{self._events}",
            source=self._source,
            type=type,
            time=datetime.now(UTC),
            subject=subject,
            dataschema=dataschema_of(type),
            rolloutid=rolloutid,
            callkey=callkey,
            afterkey=afterkey,
            replyto=replyto,
            causationid=causationid,
            traceparent=traceparent,
            elapsed=elapsed,
            data=data if isinstance(data, msgspec.Raw) else msgspec.Raw(data),
            capture=capture,
            policy=policy,
            generated=generated,
        )

    async def publish(self, event: Event) -> int:
        """Stores the event; returns its sequence once the log has confirmed it.

        It survives lost acks, disconnects and restarts, and waits while the log is full. Publishing the same event
        again is a success. Data over the inline limit is stored as a blob first.

        Raises:
            Conflict: another event holds the subject (`stored`).
            Unreadable: what holds it is no event of that subject that this version knows (`letter`).
            EventIdReused: the same event ID was stored with other bytes.
            PayloadTooLarge: over the blob limit.
            Unreachable: the server was away for longer than two minutes; the event may or may not be stored.
        """
        return await (await self.post(event))

    async def post(self, event: Event) -> asyncio.Future[int]:
        """`publish` in two halves: returns when the event is sent, the future when it is confirmed.

        For a worker that has many in flight and wants no task for each. It waits only for room in flight.
        """
        return await self._writing.post(event)

    async def copy(self, recorded: Recorded) -> int:
        """Stores an event of another log with exactly its bytes, under its own ID and subject; raises as `publish`.

        What it refers to is stored before, with `store_blob`.
        """
        return await self._writing.copy(recorded)

    async def store_blob(self, data: bytes) -> str:
        """Stores what events refer to, if it is not there yet; returns its reference when it can be read."""
        return await self._blobs.store(data)

    def post_at_once(self, event: Event) -> asyncio.Future[int] | None:
        """`post` that waits for nothing; None where it would have to: for room in flight, for its data to be stored."""
        return self._writing.post_at_once(event)

    async def fetch_data(self, event: Event) -> bytes:
        """The event's data, from its blob if it has one; raises `BlobLost`."""
        return current(event, await self._blobs.fetch(event.dataref)) if event.dataref else bytes(event.data)

    async def fetch_capture(self, event: Event) -> bytes:
        """The event's capture, from its blob if it has one; `null` where there is none. Raises `BlobLost`."""
        return await self._blobs.fetch(event.captureref) if event.captureref else bytes(event.capture)

    async def fetch_blob(self, reference: str) -> bytes:
        """What is stored under a `dataref` or `captureref`; raises `BlobLost`."""
        return await self._blobs.fetch(reference)

    # Pools, replies

    async def pool(
        self,
        kind: Kind,
        instance: str,
        slots: Sequence[int],
        *,
        types: Collection[str],
        batch: int = 256,
        places: int | None = None,
        max_ack_pending: int = MAX_ACK_PENDING,
        ack_wait_s: float | None = None,
        max_deliver: int | None = None,
        on_dead: Callable[[DeadLetter], Awaitable[None]] | None = None,
    ) -> Pool:
        """Takes part in a pool: `async for delivery in pool`.

        Args:
            kind: with `instance`, which pool.
            instance: name of the configured component.
            slots: those that this worker serves.
            types: the types of event that this pool serves; any other is poison.
            batch: how many deliveries to fetch ahead of the worker.
            places: how many deliveries this worker has a place for: no more are fetched and in progress together. None:
                any number.
            max_ack_pending: deliveries that all workers of the pool together may hold unfinished, per slot.
            ack_wait_s: seconds without a sign of life after which a delivery goes to another worker. What this worker
                holds is kept alive for it.
            max_deliver: deliveries after which an event that was never finished is dead.
            on_dead: called when something was buried as a dead letter and before it is acked; here the worker ends
                the call or the rollout that it belonged to. If it raises, the delivery comes again.
        """
        check_name(instance, "instance")
        known = frozenset(types)
        prefixes = {
            (partition, slot): self.subjects.pool_prefix(partition, kind, instance, slot)
            for partition in range(self.config.partitions)
            for slot in slots
        }
        consumers = [
            ConsumerConfig(
                stream=self.subjects.stream(partition),
                name=consumer_name(kind, instance, slot),
                filter=f"{prefix}>",
                ack_wait_s=ack_wait_s or self.config.ack_wait_s,
                max_ack_pending=max_ack_pending,
            )
            for (partition, slot), prefix in prefixes.items()
        ]
        own = f"{self.config.namespace}."

        def check(event: Event) -> Reason | None:
            answer = f"{event.replyto}.", f".{event.rolloutid}."
            if not event.replyto.startswith(own) or not answer[0].endswith((answer[1], f"{answer[1]}{event.callkey}.")):
                return "subject_mismatch"
            return None if event.type in known else "unknown_type"

        async def bury(letter: DeadLetter) -> None:
            await self.dead_letter(letter, kind, instance)
            if on_dead is not None:
                await on_dead(letter)

        pool = Pool(
            self._connection,
            consumers,
            batch=batch,
            places=places or max_ack_pending * len(consumers),
            max_deliver=max_deliver or self.config.max_deliver,
            check=check,
            bury=bury,
        )
        self._open.append(pool)
        return await pool.start()

    async def replies(self, worker: str, on_reply: OnReply) -> Replies:
        """Hears the answers to `worker`'s calls from now on, in the log's order, without a gap.

        `on_reply` is called in the event loop and must not block. While there is no room in flight for what it would
        publish, replies wait. `Replies.subscribe_also` adds another worker's.
        """
        check_name(worker, "worker")
        starts = [
            (await stream_info(self._connection, self.subjects.stream(partition))).state.last_seq + 1
            for partition in range(self.config.partitions)
        ]
        replies = Replies(
            self._connection, self._publisher, self.subjects, worker, on_reply=on_reply, on_dead=self._bury_reply
        )
        self._open.append(replies)
        return await replies.start(starts)

    async def dead_letter(self, letter: DeadLetter, kind: str, instance: str) -> None:
        """Records a dead letter; a message that has one already keeps it."""
        rollout = rollout_of(letter.subject)
        tokens = letter.subject.split(".")
        partition = int(tokens[1]) if len(tokens) > 1 and tokens[1].isdigit() else 0
        subject = self.subjects.dead(partition, kind, instance, rollout or NO_ROLLOUT, str(letter.seq))
        _log.warning(
            "dead_letter", reason=letter.reason, message=letter.message, subject=letter.subject, seq=letter.seq
        )
        try:
            await self.publish(self.event(DEAD_LETTER, subject, letter_data(letter), rolloutid=rollout))
        except (Conflict, Unreadable):
            return

    def _bury_reply(self, letter: DeadLetter) -> None:
        async def bury() -> None:
            try:
                await self.dead_letter(letter, "reply", letter.subject.split(".")[3])
            except BusError as error:
                _log.error("burial_failed", subject=letter.subject, seq=letter.seq, error=str(error))

        task = asyncio.get_running_loop().create_task(bury())
        self._burials.add(task)
        task.add_done_callback(self._burials.discard)

    # Reading

    async def history(self, rollout: str) -> list[Recorded]:
        """Every event of one rollout that is in the log now, in its order."""
        return await history(self._connection, self.subjects, rollout)

    def history_stream(self, rollout: str) -> AsyncGenerator[Recorded, None]:
        """`history` for a rollout of any length: some megabytes of it are in memory at a time."""
        return history_stream(self._connection, self.subjects, rollout)

    async def last(self, subject: str) -> Recorded | None:
        """The newest event under `subject`, which may hold wildcards after the partition.

        Of a rollout whose end cannot be read, that it failed by that; so has `scan`.
        """
        return await last_event(self._connection, self.subjects, subject)

    async def scan(
        self, *filters: str, partition: int = 0, start: int = 1, follow: bool = False
    ) -> AsyncGenerator[Recorded, None]:
        """The events of one partition that match a filter (all, if none is given), in the log's order.

        From sequence `start` to the present end, or for ever with `follow`.
        """
        stream = self.subjects.stream(partition)
        wanted = filters or (f"{self.config.namespace}.{partition}.>",)
        async for stored in read(self._connection, stream, wanted, start=start, follow=follow):
            recorded = recorded_or_ended(stored)
            if recorded is not None:
                yield recorded
