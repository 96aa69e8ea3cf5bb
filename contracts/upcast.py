"""How is data of an older form read by newer code?

The form of an event's data may grow by optional fields for ever. Where it changes otherwise, its type gets the next
version, and a function here turns data of the version before into it, named after both: `rename_colour_v1_v2`. Called
where data is decoded (`contracts.codec`) and where it is fetched. What is stored is never changed. Pure.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from contracts.events import FIRST_FORM

Fields = dict[str, msgspec.Raw]
"""The fields of an event's data. Those that a function does not know, it leaves."""
Upcast = Callable[[Fields], Fields]

UPCASTS: Final[dict[str, tuple[Upcast, ...]]] = {}
"""By the type of the event, the functions from version 1 to 2, from 2 to 3, and so on. No type has a second one yet."""

_FIELDS: Final = msgspec.json.Decoder(Fields)


def version_of(type: str) -> int:  # noqa: A002 - an event's type
    """The version of the form in which data of this type is written."""
    return 1 + len(UPCASTS.get(type, ()))


def dataschema_of(type: str) -> str:  # noqa: A002 - an event's type
    """`version_of`, as an event says it."""
    return str(version_of(type)) if type in UPCASTS else FIRST_FORM


def upcast(type: str, dataschema: str, data: bytes) -> bytes:  # noqa: A002 - an event's type
    """Data of a version that this code knows, in the present form.

    Raises `msgspec.DecodeError` for data of an older version that is no JSON object.
    """
    steps = UPCASTS.get(type, ())[_major(dataschema) - 1 :]
    if not steps:
        return data
    fields = _FIELDS.decode(data)
    for step in steps:
        fields = step(fields)
    return msgspec.json.encode(fields)


def _major(dataschema: str) -> int:
    return int(dataschema.partition(".")[0])
