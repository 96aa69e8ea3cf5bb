"""Bytes to events and back: the one encoder and the one decoder of the envelope.

A caller that forwards or exports an event passes on the recorded bytes, so fields that this version does not know
survive. Does no I/O.
"""

from typing import Final

import msgspec

from contracts.errors import InvalidEvent, NewerVersion
from contracts.events import MAJOR, SPECVERSION, Event

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
    if event.dataschema != "1" and not _known(event.dataschema):
        raise NewerVersion(
            f"event {event.id!r} of type {event.type!r} has data version {event.dataschema}, this version reads up "
            f"to {MAJOR}: upgrade JetGym on this worker"
        )
    return event


def _known(dataschema: str) -> bool:
    major = dataschema.partition(".")[0]
    return major.isdigit() and 1 <= int(major) <= MAJOR
