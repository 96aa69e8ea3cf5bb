"""Which rollouts does the table show, and in what order? The words of its filter.

    reward<0.5 outcome:failed agent:solver turns>=3 duration>10 -error:deadline "free text"

Words are joined by "and", `-` before one denies it. A bare word is looked for in the ID, the task, the agent, the
environment, the outcome and the error. Pure; used by `table`.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from operator import eq, ge, gt, le, lt, ne
from typing import Final

from replay.errors import Misused
from replay.ui.entries import Entry

Keep = Callable[[Entry], bool]
Key = Callable[[Entry], float | str | None]

_WORD: Final = re.compile(
    r"""(?P<not>-?)(?:(?P<name>[a-z_]+)(?P<sign><=|>=|!=|[:=<>]))?(?P<value>"[^"]*"|\S+)""", re.IGNORECASE
)
_HALF: Final = re.compile(r"(?P<name>[a-z_]*)(?P<sign><=|>=|!=|[:=<>])|(<=|>=|!=|[=<>])\S+", re.IGNORECASE)
"""A comparison without what to compare with, or without what is to be compared."""
_MOMENT: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ](?P<hour>\d\d)(?:(?P<minute>:\d\d)(?P<second>:\d\d)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?"
)
_SIGNS: Final = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, ":": eq, "!=": ne}

_NUMBERS: Final[dict[str, Callable[[Entry], float | None]]] = {
    "task": lambda row: row.task_index,
    "index": lambda row: row.rollout_index,
    "attempt": lambda row: row.attempt,
    "reward": lambda row: row.reward,
    "turns": lambda row: row.turns,
    "tools": lambda row: row.tool_calls,
    "in": lambda row: row.input_tokens,
    "out": lambda row: row.output_tokens,
    "tokens": lambda row: None if row.output_tokens is None else (row.input_tokens or 0) + row.output_tokens,
    "duration": lambda row: row.duration_s,
    "queued": lambda row: row.queue_s,
    "version": lambda row: row.policy[0] if row.policy is not None else None,
    "revised": lambda row: row.revisions,
    "adoptions": lambda row: row.adoptions,
    "started": lambda row: row.started.timestamp(),
}
_TEXTS: Final[dict[str, Callable[[Entry], str]]] = {
    "rollout": lambda row: row.rollout_id,
    "run": lambda row: row.run_id,
    "agent": lambda row: row.agent,
    "environment": lambda row: row.environment,
    "outcome": lambda row: row.outcome,
    "error": lambda row: row.error,
    "group": lambda row: row.group,
    "parent": lambda row: row.parent,
    "text": lambda row: row.task,
}
NAMES: Final = (*_NUMBERS, *_TEXTS)
"""What can be filtered and sorted by; `columns` has a column of each."""


def filter_of(text: str) -> Keep:
    """What the words of a filter keep. Raises `Misused` where they make no sense."""
    conditions: list[Keep] = []
    for word in _WORD.finditer(text):
        keep = _condition(word["name"], word["sign"], word["value"])
        conditions.append(_denied(keep) if word["not"] else keep)
    if len(conditions) == 1:
        return conditions[0]
    return lambda row: all(keep(row) for keep in conditions)


def key_of(name: str) -> Key:
    """What a column sorts by. Raises `Misused`."""
    found = _NUMBERS.get(name) or _TEXTS.get(name)
    if found is None:
        raise Misused(f"no column is called {name!r}; there are: {', '.join(NAMES)}")
    return found


def _condition(name: str | None, sign: str | None, value: str) -> Keep:
    if name is None or sign is None:
        return _anywhere(_text(value))
    if value.startswith('"') != value.endswith('"') or value == '"':
        raise Misused(f"a quote is not closed in {name}{sign}{value}")
    value = value.strip('"')
    name = name.lower()
    if (number := _NUMBERS.get(name)) is not None:
        return _compared(name, number, sign, value)
    if (text := _TEXTS.get(name)) is not None:
        if sign not in (":", "=", "!="):
            raise Misused(f"{name} is a text: write {name}:{value}, {name}={value} or {name}!={value}")
        return _matching(text, sign, value)
    if sign == ":":
        return _anywhere(f"{name}:{value}")
    raise Misused(f"nothing is called {name!r}; there are: {', '.join(NAMES)}")


def _text(word: str) -> str:
    """A word that is looked for as it is. Raises `Misused` where it is half of a comparison, or of a quotation."""
    if len(word) > 1 and word.startswith('"') and word.endswith('"'):
        return word[1:-1]
    if '"' in word:
        raise Misused(f"a quote is not closed in {word}")
    half = _HALF.fullmatch(word)
    if half is not None and (half["sign"] != ":" or half["name"].lower() in NAMES):
        raise Misused(
            f"{word} compares nothing: write it as one word, such as reward<0.5; in quotes it is looked for as a text"
        )
    return word


def _compared(name: str, number: Callable[[Entry], float | None], sign: str, value: str) -> Keep:
    if value.lower() == "none":
        return lambda row: (number(row) is None) != (sign == "!=")
    try:
        wanted = _moment(value) if name == "started" else float(value)
    except ValueError:
        what = "a time in UTC, such as 2026-11-30 or 2026-11-30T12:30," if name == "started" else "a number,"
        raise Misused(f"{name} is {what} and {value!r} is none") from None
    compare = _SIGNS[sign]
    if name == "started" and (span := _span(value)) and compare in (eq, ne):  # a day, an hour, a minute or a second
        return lambda row: (wanted <= row.started.timestamp() < wanted + span) == (compare is eq)

    def keep(row: Entry) -> bool:
        found = number(row)
        return found is not None and compare(found, wanted)

    return keep


def _moment(value: str) -> float:
    """Seconds since 1970 of a time in UTC, or as they are. Raises `ValueError`."""
    try:
        return float(value)
    except ValueError:
        found = datetime.fromisoformat(value)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _span(value: str) -> int:
    """How many seconds it names: those of a day where no time is given; 0 where it is a number or has fractions."""
    told = _MOMENT.fullmatch(value)
    if told is None:
        return 0
    return 1 if told["second"] else 60 if told["minute"] else 3600 if told["hour"] else 86_400


def _matching(text: Callable[[Entry], str], sign: str, value: str) -> Keep:
    wanted = value.lower()
    if sign == "=":
        return lambda row: text(row).lower() == wanted
    if sign == "!=":
        return lambda row: text(row).lower() != wanted
    return lambda row: wanted in text(row).lower()


def _anywhere(value: str) -> Keep:
    wanted = value.lower()
    return lambda row: (
        wanted in row.rollout_id.lower()
        or wanted in row.task.lower()
        or wanted in row.agent.lower()
        or wanted in row.environment.lower()
        or wanted in row.outcome
        or wanted in row.error
    )


def _denied(keep: Keep) -> Keep:
    return lambda row: not keep(row)
