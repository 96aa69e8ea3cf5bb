"""What do `fork` and `whatif` share? Their options, and how a plan is made of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer

from contracts.events import Kind
from replay.bulk import Bulk
from replay.edits import Edit
from replay.errors import Misused, NoSource
from replay.facts import Facts, facts_of
from replay.fork import Changes, Plan
from replay.names import find_rollout
from replay.opening import Where, open_source, run_in
from replay.points import point
from replay.source import load, with_captures
from replay.verify import Resolved

Rollout = Annotated[
    str, typer.Argument(metavar="ID", help="A rollout's ID, the beginning of it, or `last`.", show_default=False)
]
At = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="N",
        help="The first event that is not shared: its number as `show` prints it (of the log or file that is read: an "
        "export numbers events anew), a call's key, `turn:K`, 0, or `end`.",
        show_default=False,
    ),
]
SetReply = Annotated[
    Path | None,
    typer.Option("--set-reply", metavar="FILE", help="JSON that takes the place of the reply.", show_default=False),
]
Fields = Annotated[
    list[str] | None,
    typer.Option(
        "--edit",
        metavar="PATH=VALUE",
        help="Set a field of the reply, at 0 of the task: output.0.content.0.text=Yes; text=Yes is what a model said. "
        "May be given again.",
        show_default=False,
    ),
]
Drop = Annotated[bool, typer.Option("--drop", help="Have the call fail, as if nobody could be reached.")]
Agent = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Another agent instance.", show_default=False)
]
Model = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Call this model instance from here on; OLD=NEW where the agent calls several.",
        show_default=False,
    ),
]
Seed = Annotated[
    str | None,
    typer.Option(
        "--seed", help="What the agent's randomness is seeded with after N; by default the new ID.", show_default=False
    ),
]


class Asks(NamedTuple):
    """What the command line asks for."""

    rollout: str
    at: str
    changes: Changes
    models: tuple[str, ...]


def asks(
    rollout: str,
    at: str,
    *,
    set_reply: Path | None,
    fields: list[str] | None,
    drop: bool,
    agent: str | None,
    models: list[str] | None,
    seed: str | None,
) -> Asks:
    """Raises `Misused` or `NoSource`."""
    try:
        reply = set_reply.read_bytes() if set_reply is not None else None
    except OSError as error:
        raise NoSource(f"{set_reply} cannot be read: {error.strerror}") from error
    edit = Edit(reply=reply, fields=tuple(fields or ()), drop=drop)
    changes = Changes(edit=edit, agent=agent or "", seed=seed or "")
    return Asks(rollout, at, changes, tuple(models or ()))


@asynccontextmanager
async def planned(
    place: Where, asked: Asks, override: Resolved | None, roots: list[str], deadline_s: float
) -> AsyncIterator[tuple[Plan, Facts, Bulk]]:
    """The plan of a fork, what is known of the deployment, and what runs the agent's code. Raises `ReplayError`."""
    async with open_source(place, asked.rollout) as source:
        run = await run_in(source, place, asked.rollout)
        parent = await with_captures(source, await load(source, await find_rollout(source, asked.rollout, run)))
        facts = await facts_of(source)
        called = {call.instance for call in parent.calls.values() if call.what == "model"}
        changes = msgspec.structs.replace(asked.changes, routed=_routed(asked.models, called, _known(facts, "models")))
        agents = _known(facts, "agents")
        if agents is not None and changes.agent and changes.agent not in agents:
            raise Misused(f"--agent {changes.agent}: what is deployed has no such agent; it has {_named(agents)}")
        plan = Plan(parent, point(parent, asked.at), changes)
        async with Bulk(source, facts, override, roots, deadline_s=deadline_s) as bulk:
            yield plan, facts, bulk


def _routed(models: tuple[str, ...], called: set[str], known: set[str] | None) -> dict[str, str]:
    routed: dict[str, str] = {}
    for model in models:
        old, equals, new = model.rpartition("=")
        if not equals and len(called) != 1:
            raise Misused(f"--model {model}: the rollout calls {_named(called) or 'no model'}: give OLD=NEW")
        if equals and old not in called:
            raise Misused(f"--model {model}: the rollout does not call {old!r}, but {_named(called) or 'no model'}")
        if known is not None and new not in known:
            raise Misused(f"--model {model}: what is deployed has no model {new!r}; it has {_named(known)}")
        routed[old if equals else next(iter(called))] = new
    return routed


def _known(facts: Facts, kind: Kind) -> set[str] | None:
    """The deployment's instances of a kind; None where it is not known what they are."""
    if facts.latest is None:
        return None
    return {name for name, described in facts.latest.descriptions.items() if described.kind == kind}


def _named(names: set[str]) -> str:
    return ", ".join(sorted(names))
