"""How does a rollout become a test's file: lossless for the agent's code, without what is secret or of a machine?

Called by `replay export --format golden`. Data and captures stand in their events; of the deployment only what
`verify` needs is kept. A secret is replaced by as many other characters wherever it stands, so that the agent's code
meets the same in requests and replies, and the file is verified to be the same. Secrets are what `env.yaml` says, what
looks like a key, and what is named; what a model or a tool wrote beside that stands as it is.
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
_LOOKS_SECRET: Final = re.compile(
    rb"sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    rb"|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"
    rb"|(?<=Bearer )[A-Za-z0-9._~+/=-]{16,}|(?<=://)[^/\s:@\"\\]+:[^/\s@\"\\]+(?=@)"
)
_HOST: Final = re.compile(rb'"host":"[^"]*"')
_KEPT: Final = ("deployment.resolved", "deployment.worker")


def secrets_here(path: Path = SECRETS) -> list[str]:
    """The strings that `env.yaml` holds; none where there is no such file. Raises `NoSource`."""
    if not path.is_file():
        return []
    try:
        return list(_strings(yaml.safe_load(path.read_text())))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise NoSource(f"{path}, whose values are to be left out, cannot be read: {error}") from error


class Scrubber:
    """Takes secrets and names of this machine out of bytes."""

    def __init__(self, secrets: Iterable[str], here: Path) -> None:
        known = sorted({value for value in secrets if len(value) >= SHORTEST}, key=len, reverse=True)
        self._known = [form for value in known for form in {value.encode(), msgspec.json.encode(value)[1:-1]}]
        self._here = f"{here}/".encode()
        self.found = 0
        """Secrets that were replaced."""

    def clean(self, raw: bytes) -> bytes:
        """The bytes without them."""
        for form in self._known:
            self.found += raw.count(form)
            raw = raw.replace(form, _filled(len(form)))
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


def _strings(tree: Any) -> Iterable[str]:
    if isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _strings(value)
    elif isinstance(tree, str):
        yield tree
