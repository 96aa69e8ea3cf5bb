"""Who, what and how: the facts about a rollout that stand above its story.

Called by `replay show` and by the page that `export` writes. The facts come from the rollout's own events and from what
the deployment recorded of its workers.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from rich.console import Console
from rich.text import Text

from contracts.rollouts import RolloutRequest, RolloutResult, RolloutStats
from replay.facts import Facts
from replay.page import Page, counted, number, safe, seconds
from replay.rows import outcome_text
from replay.story import reward_text
from replay.trajectory import Trajectory, is_fork_point

_LABEL: Final = 10
_DIGEST: Final = 8
"""Characters of a source digest that tell two apart for a reader."""
_WORKERS: Final = 8


def draw_header(trajectory: Trajectory, facts: Facts, console: Console) -> None:
    """Writes the header."""
    page = Page(console)
    reward = trajectory.reward
    style = {"completed": "bold green", "in flight": "bold yellow"}.get(trajectory.state, "bold red")
    badge = trajectory.state if reward is None else f"reward {number(reward)}"
    page.write(Text(trajectory.rollout_id, style="bold"), right=Text(badge, style=style))
    page.rule()
    for label, told in header_lines(trajectory, facts):
        page.write(Text(safe(told)), first=Text(f"{label:<{_LABEL}}", style="dim"), rest=" " * _LABEL)
    page.rule()
    page.blank()


def _agent(trajectory: Trajectory, facts: Facts) -> str:
    """The agent's instance, and the code that ran it where that is known."""
    name = trajectory.request.agent
    ran = trajectory.agent_workers(next(trajectory.executions()))
    worker = next((facts.workers[name] for name in ran if name in facts.workers), None)
    if worker is None:
        return name
    return (
        f"{name}: {worker.implementation} version {worker.version}, source {worker.digest[:_DIGEST]}, "
        f"Python {worker.python}, JetGym {worker.jetgym}"
    )


def header_lines(trajectory: Trajectory, facts: Facts) -> list[tuple[str, str]]:
    """The facts, each with its label."""
    request, outcome = trajectory.request, trajectory.outcome
    lines = [("run", request.run_id)] if request.run_id else []
    again = f", submitted again ({request.attempt})" if request.attempt else ""
    fork = request.fork
    whose = "its" if fork is None else "its parent's"
    member = f"rollout {request.rollout_index} of {whose} group"
    lines.append(("task", f"{request.task_index}, {member}{_group(request)}{again}"))
    if fork is not None:
        where = f"before its event {fork.at}" if fork.at else "from its task"
        lines.append(("fork", f"of {fork.rollout}, {where}"))
    lines.append(("agent", _agent(trajectory, facts)))
    if environment := facts.environment(request.agent):
        lines.append(("resources", environment))
    stats = outcome.stats if outcome is not None else None
    called = [call.instance for call in trajectory.calls.values() if call.what == "model"]
    if models := (stats.models if stats is not None else ()) or tuple(dict.fromkeys(called)):
        lines.append(("model", ", ".join(models)))
    if outcome is None:
        lines.append(("outcome", f"in flight, {counted(len(trajectory.calls), 'call')} so far"))
    elif isinstance(outcome, RolloutResult):
        lines.append(("outcome", _reward(trajectory, outcome)))
    else:
        lines.append(("outcome", outcome_text(trajectory.state, outcome.kind)))
    if stats is not None:
        lines += _counts(stats)
        if not isinstance(stats.policy, msgspec.UnsetType):
            lines.append(("versions", " to ".join(map(str, dict.fromkeys(stats.policy)))))
    if trajectory.ended is not None:
        lines.append(("time", _times(trajectory, stats)))
    lines.append(("started", f"{trajectory.started:%Y-%m-%d %H:%M:%S} UTC"))
    workers = trajectory.workers
    more = f" and {len(workers) - _WORKERS} more" if len(workers) > _WORKERS else ""
    lines.append(("workers", ", ".join(workers[:_WORKERS]) + more))
    lines += [
        ("adopted", f"by {adoption.worker} after {seconds(trajectory.offset(adoption.recorded))}")
        for adoption in trajectory.adoptions
        if not is_fork_point(trajectory, adoption)
    ]
    return lines


def _group(request: RolloutRequest) -> str:
    return f" {request.group} of {request.group_size}" if request.group else ""


def _reward(trajectory: Trajectory, outcome: RolloutResult) -> str:
    told = f"completed, reward {_parts(trajectory.reward, trajectory.extra)}"
    if not trajectory.revisions:
        return told
    times = counted(len(trajectory.revisions), "time")
    return f"{told}; {_parts(outcome.reward, outcome.extra)} before it was revised {times}"


def _parts(reward: float | None, extra: Mapping[str, msgspec.Raw]) -> str:
    components = extra.get("reward_components")
    return reward_text(reward, msgspec.json.decode(components) if components is not None else None)


def _counts(stats: RolloutStats) -> list[tuple[str, str]]:
    usage = stats.usage
    return [
        ("turns", f"{counted(stats.turns, 'model call')}, {counted(stats.tool_calls, 'tool call')}"),
        ("tokens", f"{usage.input_tokens:,} in, {usage.output_tokens:,} out, {usage.total_tokens:,} together"),
    ]


def _times(trajectory: Trajectory, stats: RolloutStats | None) -> str:
    assert trajectory.ended is not None
    told = seconds(trajectory.offset(trajectory.ended))
    if (shared := trajectory.offset(trajectory.requested)) > 0:
        told += f", {seconds(shared)} of them its parent's"
    if stats is None:
        return told
    timings = stats.timings
    parts = [
        f"{what} {seconds(value)}"
        for what, value in (
            ("queued for an agent", timings.queue_s),
            ("model", timings.model_s),
            ("tools", timings.tools_s),
            ("verify", timings.verify_s),
        )
        if value
    ]
    return f"{told}: {', '.join(parts)}" if parts else told
