"""One rollout in the table of the web app: the row of `list`, and what charts and filters need beside it.

Pure. Entries are kept in memory, some hundred bytes each, so what repeats between rollouts is kept once.
"""

from typing import Any, Final

import msgspec

from contracts.events import Recorded
from contracts.rollouts import Revised, RolloutStats
from replay.errors import BrokenHistory
from replay.facts import Facts
from replay.rows import Row, end, requested_row
from replay.trajectory import Decoded

PREVIEW: Final = 160
"""Characters of a task that the table shows."""


class Entry(Row, kw_only=True, gc=False):
    """A rollout at a glance, as the table shows it."""

    task: str = ""
    """The beginning of what the user says in it."""
    attempt: int = 0
    group: str = ""
    """ID of its group, where a trainer asked for one."""
    asked_version: int | None = None
    """The trainer's policy version when it asked."""
    adoptions: int = 0
    seq: int = 0
    """Where its request stands in its partition."""


class _Params(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw(b"")


class _Task(msgspec.Struct):
    responses_create_params: _Params = msgspec.field(default_factory=_Params)


class _Request(msgspec.Struct):
    task: msgspec.Raw = msgspec.Raw(b"{}")
    attempt: int = 0
    group: str = ""
    policy_version: int | None = None


class _Ending(msgspec.Struct):
    stats: RolloutStats | None = None


_REQUEST: Final = msgspec.json.Decoder(_Request)
_TASK: Final = msgspec.json.Decoder(_Task)
_ENDING: Final = msgspec.json.Decoder(_Ending)
_REVISED: Final = msgspec.json.Decoder(Revised)
_ANY: Final = msgspec.json.Decoder()


class Entries:
    """Makes the entries of one source."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._texts: dict[str, str] = {}

    def requested(self, recorded: Recorded, data: bytes) -> Entry:
        """The entry of a rollout that has been asked for. Raises `BrokenHistory`."""
        row = requested_row(recorded, data, self.facts)
        request = _decode(recorded, data, _REQUEST)
        known = {name: getattr(row, name) for name in Row.__struct_fields__}
        for name in ("run_id", "agent", "environment"):
            known[name] = self._once(known[name])
        return Entry(
            **known,
            task=self._once(_preview(request.task)),
            attempt=request.attempt,
            group=self._once(request.group),
            asked_version=request.policy_version,
            seq=recorded.seq,
        )

    def ended(self, entry: Entry, recorded: Recorded, data: bytes) -> None:
        """Completes the entry with the rollout's end. Raises `BrokenHistory`."""
        end(entry, recorded, data)
        entry.error = self._once(entry.error)
        stats = _decode(recorded, data, _ENDING).stats
        if stats is not None:
            entry.adoptions = stats.adoptions

    def revised(self, entry: Entry, recorded: Recorded, data: bytes) -> None:
        """Notes that a verifier has scored it again; the latest revision counts. Raises `BrokenHistory`."""
        number = int(recorded.subject.rpartition(".")[2])
        if entry.reward is not None and number > entry.revisions:
            entry.first_reward = entry.first_reward if entry.revisions else entry.reward
            entry.revisions, entry.reward = number, _decode(recorded, data, _REVISED).reward

    def _once(self, text: str) -> str:
        return self._texts.setdefault(text, text)


def _preview(task: msgspec.Raw) -> str:
    """What the user says last before the agent begins, on one line."""
    try:
        given = _ANY.decode(_TASK.decode(task).responses_create_params.input or b'""')
    except msgspec.DecodeError:
        return ""
    said = given if isinstance(given, str) else next(filter(None, map(_said, reversed(given or []))), "")
    return " ".join(said[: 4 * PREVIEW].split())[:PREVIEW]


def _said(item: Any) -> str:
    """The text of a message of the user's; empty for anything else."""
    if not isinstance(item, dict) or item.get("role") != "user":
        return ""
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return " ".join(text for text in texts if isinstance(text, str))


def _decode(recorded: Recorded, data: bytes, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise BrokenHistory(f"event {recorded.seq} ({recorded.event.type}): {error}") from error
