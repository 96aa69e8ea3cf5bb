"""What is wrong with a refused document, one line a place: called where a dataset, a file or a reply is read.

pydantic's own report names every member of every union that was tried; this keeps what a person can act on. Does no
I/O.
"""

from pydantic import ValidationError

from contracts.variants import KNOWN, NO_VARIANT, UNKNOWN

_ABSENT = object()


def problems(error: ValidationError, document: object) -> list[tuple[str, str]]:
    """The places of `document` (decoded JSON) that `error` complains of, like `input.0.content`, and why."""
    found: dict[tuple[str | int, ...], list[str]] = {}
    vague: dict[tuple[str | int, ...], list[str]] = {}
    for line in error.errors(include_url=False, include_context=False, include_input=False):
        place = _place(line["loc"], document, missing=line["type"] == "missing")
        messages = (vague if line["type"] == NO_VARIANT else found).setdefault(place, [])
        if line["msg"] not in messages:
            messages.append(line["msg"])
    for place, messages in vague.items():
        if not any(other[: len(place)] == place for other in found):
            found[place] = messages
    return [
        (".".join(map(str, place)), ", or: ".join(messages))
        for place, messages in found.items()
        if not any(len(other) > len(place) and other[: len(place)] == place for other in found)
    ]


def _place(location: tuple[str | int, ...], document: object, *, missing: bool) -> tuple[str | int, ...]:
    """`location` without the names of unions and their members: the steps that `document` has."""
    place: list[str | int] = []
    for before, step in zip((None, *location), location, strict=False):
        inner = _ABSENT if before in (KNOWN, UNKNOWN) else _inside(document, step)
        if inner is not _ABSENT:
            document = inner
            place.append(step)
    return (*place, location[-1]) if missing else tuple(place)


def _inside(document: object, step: str | int) -> object:
    if isinstance(document, list) and isinstance(step, int):
        return document[step] if step < len(document) else _ABSENT
    return document.get(step, _ABSENT) if isinstance(document, dict) else _ABSENT
