"""Where is what a long rollout says, while only its outline is in memory?

`Payloads` holds data by reference, `Listed` the parts of an answer in their order: the first megabytes in memory, the
rest in a file that nobody else sees and that is gone with them. `Heads` takes from the events of a rollout what they
say, once they are many, and has it there; as with a claim check, an event then refers to its data. Used by `source`,
which reads rollouts, and by what is made out of them. It knows neither logs nor exported files.
"""

import os
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, Generic, TypeVar, overload
from weakref import finalize

import msgspec

from contracts.events import NOTHING, Event, Recorded
from replay.errors import NoRoom

HELD: Final = 4 * 1024 * 1024
"""Bytes that are held in memory, of the events of a rollout as of what is kept beside them."""
SMALL: Final = 512
"""Bytes of data up to which an event keeps it: to refer to it would take as much."""

_DISK: Final = Path("/var/tmp")  # noqa: S108 - the file has no name; `/tmp` is memory on many machines

T = TypeVar("T", bound=msgspec.Struct)


class _Spool:
    """Bytes by their offset; what has been put in can be read from several threads."""

    def __init__(self) -> None:
        self.size = 0
        self._begin = bytearray()
        self._file = -1

    def put(self, data: bytes) -> int:
        offset, self.size = self.size, self.size + len(data)
        if self._file < 0 and self.size <= HELD:
            self._begin += data
            return offset
        try:
            if self._file < 0:
                self._open()
            left = memoryview(data)
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            raise NoRoom(
                f"a long rollout is read by way of a file in {_folder()}, which cannot be written: {error.strerror}; "
                f"name another directory with TMPDIR"
            ) from error
        return offset

    def get(self, offset: int, length: int) -> bytes:
        begun = len(self._begin)
        if offset < begun or not length:
            return bytes(memoryview(self._begin)[offset : offset + length])
        return os.pread(self._file, length, offset - begun)

    def _open(self) -> None:
        self._file, name = tempfile.mkstemp(prefix="jetgym-replay-", dir=_folder())
        os.unlink(name)  # noqa: PTH108
        finalize(self, os.close, self._file)


def _folder() -> str:
    folder = tempfile.gettempdir()
    return str(_DISK) if folder == "/tmp" and os.access(_DISK, os.W_OK) else folder  # noqa: S108


class Payloads(Mapping[str, bytes]):
    """Data by reference."""

    def __init__(self, known: Mapping[str, bytes] | None = None) -> None:
        self._spool = _Spool()
        self._places: dict[str, tuple[int, int]] = {}
        for reference, data in (known or {}).items():
            self.add(reference, data)

    def add(self, reference: str, data: bytes) -> None:
        """Keeps the data that is referred to so, unless it is there."""
        if reference not in self._places:
            self._places[reference] = self._spool.put(data), len(data)

    def keep(self, data: bytes) -> str:
        """Keeps data; its reference is that of a claim check."""
        reference = f"sha256:{sha256(data).hexdigest()}"
        self.add(reference, data)
        return reference

    def size(self, reference: str) -> int:
        """Bytes of what is referred to; 0 where it is not there."""
        return self._places.get(reference, (0, 0))[1]

    def __getitem__(self, reference: str) -> bytes:
        return self._spool.get(*self._places[reference])

    def __contains__(self, reference: object) -> bool:
        return reference in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Listed(Sequence[T], Generic[T]):
    """Structs in their order, each decoded when it is asked for."""

    def __init__(self, kind: type[T]) -> None:
        self._spool = _Spool()
        self._offsets = array("Q", [0])
        self._decoder = msgspec.json.Decoder(kind)

    def append(self, struct: T) -> None:
        """Adds one at the end."""
        self._spool.put(msgspec.json.encode(struct))
        self._offsets.append(self._spool.size)

    def _raw(self, place: int) -> bytes:
        start = self._offsets[place]
        return self._spool.get(start, self._offsets[place + 1] - start)

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> list[T]: ...

    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        return self._decoder.decode(self._raw(range(len(self))[place]))

    def __len__(self) -> int:
        return len(self._offsets) - 1


class Heads:
    """The events of one rollout as they come: whole up to `HELD` bytes, after that without what they say.

    Such an event has no `raw`, and refers to its data and its capture, which are in `payloads`.
    """

    def __init__(self) -> None:
        self.payloads = Payloads()
        self._seen = 0
        self._texts: dict[str, str] = {}

    def of(self, recorded: Recorded) -> Recorded:
        """The event as it is to be held."""
        self._seen += len(recorded.raw)
        return recorded if self._seen <= HELD else self._head(recorded)

    def _head(self, recorded: Recorded) -> Recorded:
        event, once = recorded.event, self._once
        data, dataref = self._apart(event.data, event.dataref)
        capture, captureref = self._apart(event.capture, event.captureref)
        head = Event(
            id=once(event.id),
            source=once(event.source),
            type=once(event.type),
            time=event.time,
            subject=once(event.subject),
            dataschema=once(event.dataschema),
            rolloutid=once(event.rolloutid),
            callkey=once(event.callkey),
            afterkey=event.afterkey,
            replyto=once(event.replyto),
            causationid=once(event.causationid),
            traceparent=once(event.traceparent),
            elapsed=event.elapsed,
            data=data,
            dataref=dataref,
            capture=capture,
            captureref=captureref,
            policy=event.policy,
            generated=event.generated,
        )
        subject = head.subject if recorded.subject == head.subject else recorded.subject
        return Recorded(seq=recorded.seq, subject=subject, event=head, raw=b"")

    def _apart(self, data: msgspec.Raw, reference: str) -> tuple[msgspec.Raw, str]:
        """What an event keeps of its data, and how it refers to the rest."""
        if reference or data == NOTHING:
            return NOTHING, self._once(reference)
        if memoryview(data).nbytes <= SMALL:
            return data.copy(), ""
        return NOTHING, self._once(self.payloads.keep(bytes(data)))

    def _once(self, text: str) -> str:
        return self._texts.setdefault(text, text)
