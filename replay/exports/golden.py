"""How does a rollout become a test's file: lossless for the agent's code, without what is secret or of a machine?

Called by `replay export --format golden`. Data and captures stand in their events; of the deployment only what
`verify` needs is kept. A secret is replaced by as many other characters wherever it stands, however often the JSON
around it is a string in other JSON, so that the agent's code meets the same in requests and replies, and the file is
verified to be the same. Secrets are what `env.yaml` says, what looks like a key, and what is named; what a model or a
tool wrote beside that stands as it is.
"""

import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from contracts.events import Event, Recorded
from replay.errors import NoSource
from replay.source import Source

SECRETS: Final = Path("env.yaml")
SHORTEST: Final = 6
"""Shorter values are no secrets: `1` is everywhere."""

_FILLING: Final = b"redacted-"
_DIGIT: Final = re.compile(rb"\d")
_SHORT: Final = {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r"}
"""What JSON writes with a letter after a backslash."""
_LOOKS_SECRET: Final = re.compile(
    rb"sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    rb"|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"
    rb"|(?<=Bearer )[A-Za-z0-9._~+/=-]{16,}|(?<=://)[^/\s:@\"\\]+:[^/\s@\"\\]+(?=@)"
)
_HOST: Final = re.compile(rb'"host":"[^"]*"')
_KEPT: Final = ("deployment.resolved", "deployment.worker")


def secrets_here(path: Path = SECRETS) -> list[str]:
    """The strings and numbers that `env.yaml` holds; none where there is no such file. Raises `NoSource`."""
    if not path.is_file():
        return []
    try:
        return list(_values(yaml.safe_load(path.read_text())))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise NoSource(f"{path}, whose values are to be left out, cannot be read: {error}") from error


class Scrubber:
    """Takes secrets and names of this machine out of bytes."""

    def __init__(self, secrets: Iterable[str], here: Path) -> None:
        known = sorted({value for value in secrets if len(value) >= SHORTEST}, key=len, reverse=True)
        self._known = [(_forms(value), _filling(value)) for value in known]
        self._here = f"{here}/".encode()
        self.found = 0
        """Secrets that were replaced."""

    def clean(self, raw: bytes) -> bytes:
        """The bytes without them."""
        for forms, filling in self._known:
            raw, here = forms.subn(filling, raw)
            self.found += here
        raw, looked = _LOOKS_SECRET.subn(lambda match: _filled(len(match[0])), raw)
        self.found += looked
        return raw.replace(self._here, b"")


async def golden_lines(source: Source, rollouts: Iterable[str], scrubber: Scrubber) -> AsyncIterator[bytes]:
    """The lines of these rollouts, without newlines. Raises `NoSource`."""
    for recorded in await source.deployment():
        if recorded.event.type in _KEPT:
            line = await _whole(source, recorded, keep_config=False)
            yield scrubber.clean(_HOST.sub(b'"host":"host"', line))
    for rollout in rollouts:
        async for recorded in source.stream(rollout):
            yield scrubber.clean(await _whole(source, recorded))


async def _whole(source: Source, recorded: Recorded, *, keep_config: bool = True) -> bytes:
    """The event with its data and capture in it; fields that this version does not know stay."""
    event: Event = recorded.event
    if keep_config and not event.dataref and not event.captureref:
        return recorded.raw.replace(b"\n", b" ")
    fields = msgspec.json.decode(recorded.raw, type=dict[str, msgspec.Raw])
    for name, reference in (("data", event.dataref), ("capture", event.captureref)):
        if reference:
            fields.pop(f"{name}ref", None)
            fields[name] = msgspec.Raw(await source.fetch_blob(reference))
    if not keep_config and event.type == "deployment.resolved":
        data = msgspec.json.decode(bytes(fields["data"]), type=dict[str, msgspec.Raw])
        fields["data"] = msgspec.Raw(msgspec.json.encode({**data, "config": {}}))
    return msgspec.json.encode(fields).replace(b"\n", b" ")


def _filled(length: int) -> bytes:
    return (_FILLING * (length // len(_FILLING) + 1))[:length]


def _filling(value: str) -> bytes:
    """What stands for a secret. A number stays one, since it may stand in JSON as such."""
    raw = value.encode()
    return _DIGIT.sub(b"1", raw) if _is_number(value) else _filled(len(value))


def _forms(value: str) -> re.Pattern[bytes]:
    """Finds a secret as it is, as JSON writes it, as JSON in a string of JSON writes it, and so on."""
    pattern = b"".join(_character(character) for character in value)
    return re.compile(rb"(?<![\d.])%b(?![\d.])" % pattern if _is_number(value) else pattern)


def _character(character: str) -> bytes:
    units = memoryview(character.encode("utf-16-be", "surrogatepass")).cast("B")
    escaped = (rb"\\+u(?i:%b)" % units[place : place + 2].hex().encode() for place in range(0, len(units), 2))
    forms = [re.escape(character.encode()), b"".join(escaped)]
    if character == "\\":
        forms[0] = rb"\\+"
    elif character in '"/':
        forms[0] = rb"\\*" + re.escape(character.encode())
    elif character in _SHORT:
        forms.append(rb"\\+" + _SHORT[character].encode())
    return b"(?:%b)" % b"|".join(forms)


def _is_number(value: str) -> bool:
    return value.isascii() and value.replace(".", "", 1).isdecimal()


def _values(tree: Any) -> Iterable[str]:
    if isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _values(value)
    elif isinstance(tree, str | int | float) and not isinstance(tree, bool):
        yield str(tree)
