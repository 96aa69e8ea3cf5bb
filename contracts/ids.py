"""Identifiers: what they may look like, and where a rollout lives.

Every name that becomes a token of a subject passes `check_name` at the boundary, so that no input can make a
message land on another rollout's subject. Used by all packages; does no I/O.
"""

import re
from hashlib import blake2b
from typing import Final, NewType

from contracts.errors import InvalidName

RolloutId = NewType("RolloutId", str)
RunId = NewType("RunId", str)
CallKey = NewType("CallKey", str)
WorkerId = NewType("WorkerId", str)

ROOT_CALL: Final = CallKey("run")
"""The call key under which a rollout itself is requested from an agents pool."""

MAX_NAME: Final = 64
MAX_ROLLOUT_ID: Final = 128
MAX_CALL_KEY: Final = 512

_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")


def check_name(value: str, what: str, limit: int = MAX_NAME) -> str:
    """Returns `value` if it can stand as one token of a subject, else raises `InvalidName` that says why."""
    if not isinstance(value, str) or not _NAME.match(value):
        raise InvalidName(f"{what} {value!r} may only hold the characters A-Z a-z 0-9 _ - and must not be empty")
    if len(value) > limit:
        raise InvalidName(f"{what} {value[:20]!r}… has {len(value)} characters, the limit is {limit}")
    return value


def rollout_id(value: str) -> RolloutId:
    """`value` as a rollout ID; raises `InvalidName`."""
    return RolloutId(check_name(value, "rollout ID", MAX_ROLLOUT_ID))


def attempt_id(first: str, attempt: int) -> RolloutId:
    """The rollout ID of a later attempt at what `first` was the first attempt at; raises `InvalidName`."""
    return rollout_id(f"{first}-a{attempt}")


def first_attempt(rollout: str, attempt: int) -> str:
    """The rollout ID of the first attempt, of the one with this ID and number."""
    return rollout.removesuffix(f"-a{attempt}") if attempt else rollout


def call_key(value: str) -> CallKey:
    """`value` as a call key; raises `InvalidName`."""
    return CallKey(check_name(value, "call key", MAX_CALL_KEY))


def _hash(rollout: str) -> int:
    return int.from_bytes(blake2b(rollout.encode(), digest_size=8).digest(), "big")


def partition_of(rollout: str, partitions: int) -> int:
    """The partition in which a rollout lives wholly: a stable hash of its ID."""
    return 0 if partitions == 1 else (_hash(rollout) >> 32) % partitions


def slot_of(rollout: str, slots: int) -> int:
    """The slot that serves a rollout in a pool with affinity: a stable hash, independent of its partition."""
    return 0 if slots == 1 else (_hash(rollout) & 0xFFFFFFFF) % slots
