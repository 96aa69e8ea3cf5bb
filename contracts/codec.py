"""Bytes to events and back: the one encoder and the one decoder of the envelope.

A caller that forwards or exports an event passes on the recorded bytes, so fields that this version does not know
survive. Does no I/O.
"""

from typing import Final

import msgspec

from contracts.errors import InvalidEvent, NewerVersion
from contracts.events import SPECVERSION, Event
from contracts.upcast import UPCASTS, upcast, version_of

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """The event as stored."""
    return _ENCODER.encode(event)


def decode(raw: bytes) -> Event:
    """The event in `raw`; raises `InvalidEvent`, or `NewerVersion` if a newer JetGym wrote it."""
    try:
        event = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent(f"not an event: {error}") from error
    if event.specversion != SPECVERSION:
        raise NewerVersion(f"event {event.id!r} is CloudEvents {event.specversion}, this version reads {SPECVERSION}")
    if event.dataschema == "1" and event.type not in UPCASTS:
        return event
    newest = version_of(event.type)
    if not _known(event.dataschema, newest):
        raise NewerVersion(
            f"event {event.id!r} of type {event.type!r} has data version {event.dataschema}, this version reads up "
            f"to {newest}: upgrade JetGym on this worker"
        )
    return event if event.dataref else _upcast(event)


def current(event: Event, fetched: bytes) -> bytes:
    """Data that was fetched for an event with a `dataref`, in the present form; raises `InvalidEvent`."""
    try:
        return upcast(event.type, event.dataschema, fetched)
    except msgspec.DecodeError as error:
        raise InvalidEvent(f"the data of event {event.id!r} ({event.type}) is no object: {error}") from error


def _upcast(event: Event) -> Event:
    data = bytes(event.data)
    found = current(event, data)
    return event if found is data else msgspec.structs.replace(event, data=msgspec.Raw(found))


def _known(dataschema: str, newest: int) -> bool:
    major = dataschema.partition(".")[0]
    return major.isdigit() and 1 <= int(major) <= newest
