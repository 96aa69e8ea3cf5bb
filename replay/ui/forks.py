"""What a page asks of `replay fork`, as the words of that command.

Pure. Called by the server, which shows the command and runs it.
"""

from typing import Annotated

import msgspec

from replay.errors import Misused
from replay.opening import Where

Count = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of the form."""

    at: str
    """As `--at` takes it."""
    fields: dict[str, str] = {}
    """What is to be another in the reply: path and text. A text stays one, also where it could be read as JSON."""
    edits: tuple[str, ...] = ()
    """The same as it is typed: `path=value`."""
    reply: str | None = None
    """JSON that takes the reply's place."""
    drop: bool = False
    model: str = ""
    agent: str = ""
    seed: str = ""
    count: Count = 1
    config: tuple[str, ...] = ()


def words_of(where: Where, rollout_id: str, asked: ForkRequest) -> tuple[list[str], bytes | None]:
    """The words after `replay`, and the standard input. Raises `Misused`."""
    if rollout_id.startswith("-"):
        raise Misused(f"{rollout_id!r} would be read as an option: fork it in the terminal")
    if not asked.at:
        raise Misused("it is not said where to fork")
    words = ["fork", rollout_id, "--at", asked.at]
    edits = [f"{path}={_as_text(text)}" for path, text in asked.fields.items()]
    for option, values in (
        ("--edit", (*edits, *asked.edits)),
        ("--set-reply", () if asked.reply is None else ("/dev/stdin",)),
        ("--model", (asked.model,)),
        ("--agent", (asked.agent,)),
        ("--seed", (asked.seed,)),
        ("-n", () if asked.count == 1 else (str(asked.count),)),
        ("--config", asked.config),
    ):
        words += [word for value in values if value for word in (option, value)]
    if asked.drop:
        words.append("--drop")
    return words + _source(where), None if asked.reply is None else asked.reply.encode()


def _as_text(text: str) -> str:
    """The value of `--edit` that sets this very text."""
    try:
        msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text
    return msgspec.json.encode(text).decode()


def _source(where: Where) -> list[str]:
    """The options that name what is read."""
    words: list[str] = []
    if where.url is not None:
        words += ["--url", where.url]
        if where.namespace != Where().namespace:
            words += ["--namespace", where.namespace]
    for file in where.files:
        words += ["--file", str(file)]
    if where.is_local and where.run is not None:
        words += ["--run", where.run]
    return words
