"""Draws the figures of a run: counts, histograms of bars, and a table of its calls.

Called by `replay stats`. At 80 columns and without colours it says the same.
"""

from collections.abc import Callable, Mapping
from typing import Final

from rich.console import Console
from rich.text import Text

from replay.figures import CallFigures, RunFigures
from replay.page import Page, counted, number, safe, seconds
from replay.spread import Bin, SpreadFigures

_LABEL: Final = 10
_RANGE: Final = 22
_COUNT: Final = 10
_NAME: Final = 22
_SHOWN: Final = 20
"""Names of a kind that are drawn; `--json` has all."""
_COLUMN: Final = 10
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"

Tell = Callable[[float], str]


def draw_figures(figures: RunFigures, console: Console) -> None:
    """Writes the page."""
    page = Page(console)
    name = figures.run_id or "all runs"
    page.write(Text.assemble((name, "bold"), f"  {counted(figures.rollouts, 'rollout')}"))
    page.rule()
    if not figures.rollouts:
        return
    _draw_facts(page, figures)
    _draw_spread(page, "reward", figures.reward, number)
    if len(figures.reward_by_agent) > 1:
        for agent, spread in list(figures.reward_by_agent.items())[:_SHOWN]:
            _line(page, "", f"{agent}: {_summary(spread, number)}")
    for title, spread, tell in (
        ("turns", figures.turns, _whole),
        ("tool calls", figures.tool_calls, _whole),
        ("tokens in", figures.input_tokens, _whole),
        ("tokens out", figures.output_tokens, _whole),
        ("duration", figures.duration_s, seconds),
        ("queued for an agent", figures.queue_s, seconds),
    ):
        _draw_spread(page, title, spread, tell)
    for title, calls in (("calls", figures.calls), ("tools", figures.tools)):
        if calls:
            _draw_calls(page, title, calls)


def _draw_facts(page: Page, figures: RunFigures) -> None:
    _line(page, "outcomes", ", ".join(f"{count:,} {name}" for name, count in figures.outcomes.items()))
    if len(figures.agents) > 1:
        _line(page, "agents", _first(figures.agents))
    if figures.wall_s is not None:
        ended = figures.duration_s.count
        rate = f", {ended / figures.wall_s:.3g} rollouts/s" if figures.wall_s > 0 else ""
        _line(page, "time", f"{seconds(figures.wall_s)} from the first request to the last end{rate}")
    if figures.adoptions:
        _line(page, "adopted", f"{counted(figures.adoptions, 'time')} by another worker")
    if figures.policy_versions:
        _line(page, "policy", f"rollouts by oldest version: {_first(figures.policy_versions)}")
    for kind, failure in list(figures.failures.items())[:_SHOWN]:
        _line(page, "failed", f"{failure.count:,} {kind}, such as {', '.join(failure.examples)}", "red")


def _line(page: Page, label: str, told: str, style: str = "") -> None:
    page.write(Text(safe(told), style=style), first=Text(f"{label:<{_LABEL}}", style="dim"), rest=" " * _LABEL)


def _first(counts: Mapping[str, int]) -> str:
    told = [f"{safe(name)} {count:,}" for name, count in list(counts.items())[:_SHOWN]]
    return ", ".join([*told, f"and {len(counts) - _SHOWN} more"] if len(counts) > _SHOWN else told)


def _draw_spread(page: Page, title: str, spread: SpreadFigures, tell: Tell) -> None:
    """A heading and a bar for each bin; nothing where there is no number."""
    if not spread.count or spread.maximum == 0 == spread.minimum:
        return
    page.blank()
    page.write(Text.assemble((title, "bold"), (f"  {_summary(spread, tell)}", "dim")), rest="  ")
    if len(spread.bins) == 1:
        return
    bars: dict[str, int] = {}
    for bin_ in spread.bins:  # those that are told alike are one bar
        told = _range(bin_, tell)
        bars[told] = bars.get(told, 0) + bin_.count
    most = max(bars.values())
    room = max(8, min(60, page.width - _RANGE - _COUNT - 4))
    for told, count in bars.items():
        page.write(Text.assemble((f"{told:>{_RANGE}}  ", "dim"), (_bar(count / most * room), "cyan"), f" {count:,}"))


def _summary(spread: SpreadFigures, tell: Tell) -> str:
    if spread.mean is None or spread.p50 is None or spread.p90 is None or spread.p99 is None:
        return "none"
    assert spread.minimum is not None
    assert spread.maximum is not None
    mean = f"{spread.mean:.3g}" if tell is _whole else tell(spread.mean)
    told = f"mean {mean}, median {tell(spread.p50)}, 90% {tell(spread.p90)}, 99% {tell(spread.p99)}"
    return f"{told}, from {tell(spread.minimum)} to {tell(spread.maximum)}"


def _range(bin_: Bin, tell: Tell) -> str:
    low, high = tell(bin_.low), tell(bin_.high)
    return low if low == high else f"{low} to {high}"


def _bar(length: float) -> str:
    full, part = int(length), int((length % 1) * 8)
    bar = "█" * full + _EIGHTHS[part].strip()
    return bar or ("▏" if length > 0 else "")


def _draw_calls(page: Page, title: str, named: Mapping[str, CallFigures]) -> None:
    page.blank()
    columns = ("calls", "failed", "median", "99%", "queued", "q. 99%")
    heading = f"{title:<{_NAME}}" + "".join(f"{column:>{_COLUMN}}" for column in columns[: _fitting(page)])
    page.write(Text(heading, style="bold"))
    for name, calls in list(named.items())[:_SHOWN]:
        times = [calls.worked.p50, calls.worked.p99, calls.waited.p50, calls.waited.p99]
        cells = [f"{calls.calls:,}", f"{calls.failed:,}", *("" if time is None else seconds(time) for time in times)]
        row = "".join(f"{cell:>{_COLUMN}}" for cell in cells[: _fitting(page)])
        page.write(Text(f"{safe(name)[: _NAME - 1]:<{_NAME}}{row}", style="red" if calls.failed else ""), wrap="never")
    if len(named) > _SHOWN:
        page.write(Text(f"and {len(named) - _SHOWN} more: --json", style="dim"))


def _fitting(page: Page) -> int:
    return max(2, (page.width - _NAME) // _COLUMN)


def _whole(value: float) -> str:
    return f"{value:,.0f}"
