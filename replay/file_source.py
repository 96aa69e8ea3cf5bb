"""Trajectories out of files of exported events.

The form: one line a stored event, its bytes exactly as they are in the log (`Recorded.raw`), in the order of the log;
so an event's sequence here is the number of its line. Data that is a claim check stands before its first use on a line
of its own, `{"blob": "sha256:<hex>", "data": <the data>}`, or with its bytes as `base64` where JSON on one line would
not be the same bytes. A file is read as a stream; only where each event begins is kept in memory. Where files overlap,
or one is several put together, an event stands once; two that are in each other's place are refused.
"""

from array import array
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from contracts.codec import current, decode
from contracts.errors import InvalidEvent
from contracts.events import Event, Recorded
from replay.errors import NoSource
from replay.source import by_ending

_OUTLINE: Final = ("rollout.requested", "rollout.completed", "rollout.failed", "rollout.cancelled")


class _Head(msgspec.Struct):
    """As much of a line as says where it belongs."""

    type: str = ""
    subject: str = ""
    rolloutid: str = ""
    blob: str = ""


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """The line of data that events refer to."""

    blob: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    base64: bytes | None = None


class _Place(NamedTuple):
    file: int
    offset: int
    line: int
    """Counted through all files, from 1."""


_HEAD: Final = msgspec.json.Decoder(_Head)
_BLOB: Final = msgspec.json.Decoder(Blob)
_FIELDS: Final = len(_Place._fields)


class FileSource:
    """Files of exported events, read in the order given."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises `NoSource` where a line is no event, or where lines contradict one another."""
        for path in paths:
            _check_plain(path)
        self._paths = self.paths = list(paths)
        self.name = ", ".join(map(str, paths))
        self._rollouts: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))
        self._blobs: dict[str, _Place] = {}
        self._outlines: dict[tuple[int, str], array[int]] = {}
        """By file and partition, each of which is in the order of its log."""
        self._revisions = array("Q")
        self._deployment = array("Q")
        self._asked: set[str] = set()
        """Rollouts whose request was met."""
        self._copied: set[str] = set()
        """Rollouts whose request stands more than once."""
        self._copies: set[int] = set()
        """The lines of events that stand before too."""
        for place, line in self._lines():
            self._note(place, line)
        self._leave_out_copies()

    async def history(self, rollout_id: str) -> list[Recorded]:
        """See `Source`."""
        return list(self._read(self._rollouts[rollout_id])) if rollout_id in self._rollouts else []

    def stream(self, rollout_id: str) -> AsyncIterator[Recorded]:
        """See `Source`."""
        return self._stream(self._rollouts.get(rollout_id, array("Q")))

    async def data(self, event: Event) -> bytes:
        """See `Source`."""
        return current(event, await self.fetch_blob(event.dataref)) if event.dataref else bytes(event.data)

    async def fetch_blob(self, reference: str) -> bytes:
        """See `Source`."""
        if (place := self._blobs.get(reference)) is None:
            raise NoSource(f"{self.name}: an event refers to {reference}, which is not in the file")
        with self._paths[place.file].open("rb") as file:
            file.seek(place.offset)
            found = _BLOB.decode(file.readline())
        return bytes(found.data) if found.base64 is None else found.base64

    def outline(self) -> AsyncIterator[Recorded]:
        """See `Source`."""
        return by_ending([self._stream(places) for places in self._outlines.values()])

    def revisions(self) -> AsyncIterator[Recorded]:
        """See `Source`."""
        return self._stream(self._revisions)

    async def deployment(self) -> list[Recorded]:
        """See `Source`."""
        found: dict[bytes, Recorded] = {}
        for recorded in self._read(self._deployment):
            found.setdefault(recorded.raw, recorded)
        return list(found.values())

    @property
    def rollouts(self) -> list[str]:
        """The IDs of all rollouts, in the order of their first events."""
        return list(self._rollouts)

    @property
    def blobs(self) -> list[str]:
        """The references of all blobs, in their order."""
        return list(self._blobs)

    def events(self) -> Iterator[Recorded]:
        """All events, in their order."""
        for place, line in self._lines():
            if place.line not in self._copies and not _HEAD.decode(line).blob:
                yield self._recorded(place, line.rstrip(b"\r\n"))

    @staticmethod
    def check_first(path: Path) -> None:
        """Raises `NoSource` where the first line is no event, for who reads the rest later."""
        _check_plain(path)
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    _head(line, f"{path}:{number}")
                    return

    def _lines(self) -> Iterator[tuple[_Place, bytes]]:
        number = 0
        for index, path in enumerate(self._paths):
            offset = 0
            try:
                with path.open("rb") as file:
                    for line in file:
                        number += 1
                        if line.strip():
                            yield _Place(index, offset, number), line
                        offset += len(line)
            except OSError as error:
                raise NoSource(f"{path} cannot be read: {error.strerror}") from error

    def _note(self, place: _Place, line: bytes) -> None:
        head = _head(line, f"{self._paths[place.file]}:{place.line}")
        if head.blob:
            self._blobs[head.blob] = place
            return
        if head.rolloutid and head.type != "cancel.requested":  # of its run, as in a log: no part of its trajectory
            self._rollouts[head.rolloutid].extend(place)
        if head.type == _OUTLINE[0]:
            (self._copied if head.rolloutid in self._asked else self._asked).add(head.rolloutid)
        if head.type in _OUTLINE:
            of = place.file, ".".join(head.subject.split(".", 2)[:2])
            self._outlines.setdefault(of, array("Q")).extend(place)
        elif head.type == "rollout.revised":
            self._revisions.extend(place)
        elif head.type.startswith("deployment."):
            self._deployment.extend(place)

    def _leave_out_copies(self) -> None:
        """Of each rollout that stands more than once, keeps the first of each event. Raises `NoSource`."""
        outlined: set[int] = set()
        """Lines of their requests and ends that are left out of the outlines."""
        for rollout in self._copied:
            places = self._rollouts[rollout]
            first: dict[str, tuple[int, bytes]] = {}
            outline: list[_Place] = []
            end: _Place | None = None
            for place, recorded in zip(_places(places), self._read(places), strict=True):
                digest = blake2b(recorded.raw, digest_size=16).digest()
                line, stood = first.setdefault(recorded.subject, (place.line, digest))
                if stood != digest:
                    raise NoSource(
                        f"{self._paths[place.file]}:{place.line}: line {line} of what is read has another event in its "
                        f"place, {recorded.subject}: these are not exports of one log"
                    )
                if line != place.line:
                    self._copies.add(place.line)
                if recorded.event.type in _OUTLINE:
                    outline.append(place)
                    if line == place.line and recorded.event.type != _OUTLINE[0]:
                        end = place
            self._rollouts[rollout] = _without(places, self._copies)
            # the request before the end in its file: those of other files may be read after that end
            before = [place for place in outline if end and place.file == end.file and place.line < end.line]
            kept = before[-1] if before else outline[0]
            outlined |= {place.line for place in outline if place not in (kept, end)}
        if self._copied:
            self._outlines = {of: _without(places, outlined) for of, places in self._outlines.items()}
            self._revisions = _without(self._revisions, self._copies)

    async def _stream(self, places: "array[int]") -> AsyncIterator[Recorded]:
        for recorded in self._read(places):
            yield recorded

    def _read(self, places: "array[int]") -> Iterator[Recorded]:
        opened: dict[int, BinaryIO] = {}
        try:
            for place in _places(places):
                if place.file not in opened:
                    opened[place.file] = self._paths[place.file].open("rb")
                opened[place.file].seek(place.offset)
                yield self._recorded(place, opened[place.file].readline().rstrip(b"\r\n"))
        finally:
            for file in opened.values():
                file.close()

    def _recorded(self, place: _Place, line: bytes) -> Recorded:
        try:
            event = decode(line)
        except InvalidEvent as error:
            raise NoSource(f"{self._paths[place.file]}:{place.line}: {error}") from error
        return Recorded(seq=place.line, subject=event.subject, event=event, raw=line)


def _places(places: "array[int]") -> Iterator[_Place]:
    for start in range(0, len(places), _FIELDS):
        yield _Place(*places[start : start + _FIELDS])


def _without(places: "array[int]", lines: Collection[int]) -> "array[int]":
    return array("Q", [field for place in _places(places) if place.line not in lines for field in place])


def blob_line(reference: str, data: bytes) -> bytes:
    """The line, without a newline, of data that events refer to."""
    if b"\n" in data:
        return msgspec.json.encode({"blob": reference, "base64": data})
    return msgspec.json.encode({"blob": reference, "data": msgspec.Raw(data)})


def export_lines(events: Iterable[Recorded], blobs: Mapping[str, bytes]) -> Iterator[bytes]:
    """The lines, without newlines, that `FileSource` reads back as these events.

    `blobs` holds the data and the captures that they refer to, by reference.
    """
    written: set[str] = set()
    for recorded in events:
        for reference in (recorded.event.dataref, recorded.event.captureref):
            if reference and reference not in written:
                written.add(reference)
                yield blob_line(reference, blobs[reference])
        yield recorded.raw


def _check_plain(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise NoSource(f"{path} is no plain file: it is read in any order, so write what comes from there into one")


def _head(line: bytes, where: str) -> _Head:
    """Raises `NoSource` where the line is neither an event nor a blob."""
    try:
        head = _HEAD.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoSource(f"{where}: not an exported event: {error}") from error
    if not head.blob and not (head.type and head.subject):
        raise NoSource(
            f"{where}: not an exported event: it has no type and subject. `replay export` and `jetgym log archive` "
            f"write such files"
        )
    return head
