"""`replay reverify`: recorded responses, scored again by the verifier that is here now."""

from collections import Counter
from typing import Annotated

import typer
from rich.text import Text

from bus.room import unless_full
from replay.apart import DEADLINE_S
from replay.bulk import EXAMPLES, Bulk, anonymous
from replay.commands.common import (
    Config,
    Deadline,
    Files,
    Ids,
    Json,
    Namespace,
    Run,
    Url,
    by_source,
    chosen,
    console,
    named,
    resolved,
    run_async,
    use_own_components,
    write_json,
)
from replay.errors import Misused
from replay.facts import facts_of
from replay.log_source import LogSource
from replay.opening import Where, open_source
from replay.page import counted, number
from replay.reverify import Rescore, append, changed, compared, rescore
from replay.source import load
from replay.verify import Resolved

_SHOWN = 50


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("reverify", no_args_is_help=True)(reverify)


def reverify(
    rollouts: Ids = None,
    *,
    run: Run = None,
    config: Config = None,
    deadline: Deadline = DEADLINE_S,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would change, and append nothing.")] = False,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Scores recorded responses again with the verifier that is here now, and appends the rewards as revisions.

    A verifier that looks at the session gets it made again, from the recorded
    seed and calls. What was recorded stays as it is: a revision is one more
    event, and the latest one is the reward that `list`, `show` and the result
    files tell. Told are the rewards that change. Without IDs, all completed
    rollouts of the run are scored; then the advantages within their groups are
    told too, first those that change their sign (with --json: `advantages`,
    before and now, and `flips`).

    A rollout without a verifier of its own, such as one that only an agent that
    it called was scored in, is told and counts for nothing.

    Ends with 0 if no reward changes, 1 if one does, 2 if one could not be
    scored, or none has a verifier of its own.

    \b
    replay reverify --run last --dry-run
    replay reverify r1129-1612-x7k2-00003-01
    replay reverify --run r1129-1612-x7k2 --config stricter.yaml
    replay reverify --file rollouts.jsonl --config config.yaml --dry-run
    """  # noqa: D301 - the help keeps these lines as they are
    place = named(rollouts, run, url, namespace, file)
    if file and not dry_run:
        raise Misused("nothing can be appended to a file of exported events: give --dry-run")
    override = resolved(config)
    roots = use_own_components()
    scores: list[Rescore] = []
    for source, names in by_source(place, rollouts or []):
        scores += run_async(_reverify(source, names, override, roots, deadline, dry_run=dry_run))
    if not rollouts:
        scores = compared(scores)
    if json:
        for score in scores:
            write_json(score)
    else:
        draw(scores, dry_run=dry_run)
    raise typer.Exit(exit_code({score.verdict for score in scores}))


def exit_code(verdicts: set[str]) -> int:
    """2 also where nothing was scored."""
    if "could not run" in verdicts or verdicts <= {"not scored"}:
        return 2
    return 1 if "differs" in verdicts else 0


async def _reverify(
    place: Where, names: list[str], override: Resolved | None, roots: list[str], deadline_s: float, *, dry_run: bool
) -> list[Rescore]:
    scores = []
    async with open_source(place) as source:
        facts = await facts_of(source)
        ids = await chosen(source, place, names, facts, "completed")
        async with Bulk(source, facts, override, roots, deadline_s=deadline_s) as bulk:
            for rollout in ids:
                trajectory = await load(source, rollout)
                score, revised = await rescore(bulk, trajectory)
                if revised is not None and not dry_run:
                    assert isinstance(source, LogSource)
                    score = score.numbered(await unless_full(source.bus, append(source.bus, trajectory, revised)))
                scores.append(score)
    return scores


def draw(scores: list[Rescore], *, dry_run: bool) -> None:
    """Tells what changed."""
    counts = Counter(score.verdict for score in scores)
    tried = counted(len(scores) - counts["not scored"], "rollout")
    told = f"{tried} scored again: {counts['same']:,} the same, {counts['differs']:,} changed"
    if counts["could not run"]:
        told += f", {counts['could not run']:,} could not be scored"
    if counts["not scored"]:
        told += (
            f", {counts['not scored']:,} without a verifier of {'its' if counts['not scored'] == 1 else 'their'} own"
        )
    console.print(told, style="bold", markup=False)
    for change in [each for each in changed(scores) if each.was != each.now or each.flips][:_SHOWN]:
        flips = "  advantage changes its sign" if change.flips else ""
        advantages = " → ".join(map(number, change.advantages or ()))
        line = Text.assemble(
            (f"  {change.rollout_id}  ", "bold"),
            f"{number(change.was)} → {number(change.now)}",
            f"  advantage {advantages}" if advantages else "",
            (flips, "yellow"),
        )
        console.print(line, soft_wrap=True)
    reasons: dict[str, list[str]] = {}
    for score in scores:
        if why := anonymous(score.reason, score.rollout_id):
            reasons.setdefault(why, []).append(score.rollout_id)
    for why, ids in sorted(reasons.items(), key=lambda reason: -len(reason[1]))[:_SHOWN]:
        console.print(f"  {counted(len(ids), 'time')}: {why}", style="yellow", markup=False, soft_wrap=True)
        console.print(f"    such as {', '.join(ids[:EXAMPLES])}", style="dim", soft_wrap=True)
    if flipped := sum(score.flips for score in scores):
        console.print(f"{counted(flipped, 'advantage')} changed the sign", markup=False)
    if dry_run:
        console.print("nothing was appended (--dry-run)", style="dim")
