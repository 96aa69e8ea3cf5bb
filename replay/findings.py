"""Draws what `verify` found: one rollout in full, or many by the place where they depart."""

from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from components.durable.matching import UNANSWERED
from replay.bulk import Summary
from replay.engine import Departure
from replay.page import Page, counted, number, safe
from replay.verify import Verdict

_INDENT: Final = "  "
_LABEL: Final = 10
_COUNT: Final = 9


def draw_verdict(verdict: Verdict, console: Console) -> None:
    """Tells one verdict."""
    page = Page(console)
    style = {"same": "bold green", "differs": "bold red"}.get(verdict.verdict, "bold yellow")
    ended = verdict.ended if verdict.reward is None else f"{verdict.ended} with reward {number(verdict.reward)}"
    told = Text.assemble((verdict.rollout_id, "bold"), " ", (verdict.verdict, style))
    if verdict.verdict == "same":
        changed = "; the source has changed since" if verdict.code == "changed" else ""
        told.append(f"  {counted(verdict.calls, 'call')}, {ended}{changed}", style="dim")
    page.write(told)
    if verdict.reason:
        page.write(Text(safe(verdict.reason)), first=_INDENT, rest=_INDENT)
    if verdict.departure is not None:
        draw_departure(verdict.departure, page)
        page.write(Text(_why(verdict)), first=_INDENT, rest=_INDENT)


def draw_summary(summary: Summary, console: Console) -> None:
    """Tells many: how many are the same, and where the others part."""
    page = Page(console)
    counts = summary.counts
    total = sum(counts.values())
    told = Text.assemble((f"{counted(total, 'rollout')}: ", "bold"), (f"{counts['same']:,} same", "bold green"))
    if counts["differs"]:
        told.append(", ").append(
            f"{counts['differs']:,} {'departs' if counts['differs'] == 1 else 'depart'}", style="bold red"
        )
    if counts["could not run"]:
        told.append(", ").append(f"{counts['could not run']:,} could not run", style="bold yellow")
    page.write(told)
    for group in summary.groups:
        style = "red" if group.verdict == "differs" else "yellow"
        where = f"{near(group.where)}  " if group.where else ""
        code = f" ({_CODE[group.code]})" if group.verdict == "differs" else ""
        margin = " " * (_COUNT + 1)
        page.write(
            Text.assemble((safe(where), "bold"), (safe(group.reason), style), (code, "dim")),
            first=Text(f"{group.count:>{_COUNT},} ", style="bold"),
            rest=margin,
        )
        page.write(Text(f"such as {', '.join(group.examples)}", style="dim"), first=margin, rest=margin)


def draw_departure(departure: Departure, page: Page) -> None:
    """Tells where code and recording part."""
    event = f", event {departure.seq}" if departure.seq else ""
    page.write(
        Text(f"departs at call {departure.call_key}{event}: {safe(departure.reason)}"), first=_INDENT, rest=_INDENT
    )
    lines = [("at", f"{near(departure.file)}:{departure.line}" if departure.file else "")]
    lines += [("field", departure.field), ("recorded", departure.recorded), ("now", departure.made)]
    if not departure.recorded and not departure.made:
        lines = lines[:2]
    for label, text in lines:
        if text or label in ("recorded", "now"):
            first = Text.assemble(_INDENT, _INDENT, (f"{label:<{_LABEL}}", "dim"))
            page.write(Text(safe(text or "nothing")), first=first, rest=" " * first.cell_len)


_CODE: Final = {
    "same": "the code is the same",
    "changed": "the code has changed",
    "unknown": "whether the code has changed is not known",
}


def _why(verdict: Verdict) -> str:
    name = verdict.implementation or verdict.agent
    versions = f" ({'; '.join(verdict.versions)})" if verdict.versions else ""
    if verdict.code == "changed":
        return f"The source of {name} has changed since it was recorded{versions}."
    if verdict.departure is not None and verdict.departure.reason == UNANSWERED and verdict.code == "same":
        return f"The source of {name} is the same: the recording is not whole, this reply was deleted or left out."
    if verdict.code == "same":
        if versions:
            return f"The source of {name} is the same, but not what it runs on{versions}."
        return (
            f"The source of {name} is the same: it is not deterministic, or something that it imports or its config "
            f"has changed."
        )
    return f"The log does not say which source of {name} was recorded{versions}."


def near(file: str) -> str:
    """The path as seen from here."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file
