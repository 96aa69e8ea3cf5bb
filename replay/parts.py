"""How is a JSON object written of which one list may be long? In parts, so that no two entries are in memory.

Used by the commands and formats that tell a whole rollout in one object.
"""

from collections.abc import Iterable, Iterator

import msgspec


def json_parts(head: msgspec.Struct, name: str, entries: Iterable[bytes]) -> Iterator[bytes]:
    """The JSON of `head` with these entries, each of them JSON, as its list `name`."""
    for place, field in enumerate(head.__struct_fields__):
        yield (b"," if place else b"{") + msgspec.json.encode(field) + b":"
        if field == name:
            yield from list_parts(entries)
        else:
            yield msgspec.json.encode(getattr(head, field))
    yield b"}"


def list_parts(entries: Iterable[bytes]) -> Iterator[bytes]:
    """The JSON of a list of these entries."""
    yield b"["
    for place, entry in enumerate(entries):
        yield b"," + entry if place else entry
    yield b"]"
