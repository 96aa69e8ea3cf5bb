"""Tells a rollout in the terminal: who said what, when, and how long it took.

Called by `replay show`. It draws what `timeline` found and reads nothing itself. At 80 columns and without colours it
says the same.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from contracts.events import CallError, Recorded
from contracts.rollouts import Revised, RolloutFailure, RolloutRequest, RolloutResult, ToolCall
from replay.items import Said, call_text, said_of_item, said_of_output
from replay.page import Page, Wrap, cut, number, safe, seconds
from replay.rows import outcome_text
from replay.timeline import News, Step, timeline
from replay.trajectory import Call, Trajectory, is_fork_point, worker_of

LINES: Final = 12
CHARACTERS: Final = 1200
"""Longer contents are cut, unless everything is asked for."""

_STYLES: Final = {"model": "cyan", "tool": "yellow", "session": "blue", "verify": "magenta", "agent": "green"}
_LABEL: Final = 10
_TIME: Final = 10
_PRECISE_S: Final = 100
"""Offsets up to this are told to the millisecond."""

_ERROR: Final = msgspec.json.Decoder(CallError)
_REQUEST: Final = msgspec.json.Decoder(RolloutRequest)
_TOOL_CALL: Final = msgspec.json.Decoder(ToolCall)


class Story:
    """Draws one trajectory."""

    def __init__(self, trajectory: Trajectory, console: Console, *, full: bool = False) -> None:
        self._trajectory = trajectory
        self._page = Page(console)
        self._news = News(trajectory)
        self._full = full
        self._asked: set[str] = set()
        """`call_id`s that a model's reply has shown with their arguments."""
        self._margin = Text()

    def draw(self) -> None:
        """Writes the whole story."""
        self.draw_steps()
        self._ending()
        self._revisions()

    def draw_steps(self) -> None:
        """Writes what happened so far, and not how it stands."""
        self._steps(timeline(self._trajectory))

    # --- steps -------------------------------------------------------------------------------------------------

    def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if step.call is not None:
                self._call(step, step.call)
            elif step.adoption is not None:
                adopted = f"adopted by {step.adoption.worker} (epoch {step.adoption.epoch})"
                if is_fork_point(self._trajectory, step.adoption):
                    adopted = f"forked: {step.adoption.worker} went on from here"
                self._heading(step, Text(adopted, style="bold yellow"))
                self._page.blank()
            elif step.other is not None:
                event = step.other.event
                self._heading(step, Text(safe(f"{event.type} by {event.source}"), style="bold"))
                self._json("", self._trajectory.data(event))
                self._page.blank()

    def _call(self, step: Step, call: Call) -> None:
        style = _STYLES.get(call.what, "")
        title = Text.assemble(
            (call.what, f"bold {style}"), " ", (self._target(call), style), "  ", (_times(step), "dim")
        )
        by = f"#{call.requested.seq} {call.key}" + (f" @ {call.worker}" if call.worker else "")
        if step.together > 1 and step.place == 0:
            self._line(Text(f"┌ {step.together} in parallel", style="dim"))
        self._heading(step, title, right=Text(by, style="dim"))
        before, self._margin = self._margin, self._inner(step)
        self._request(call)
        if step.steps:
            self._page.write(Text(""), first=self._lead())
            outer, self._margin = self._margin, Text.assemble(self._margin, "    ")
            self._steps(step.steps)
            self._margin = outer
        if call.replied is None:
            told, loud = ("not fired", "dim") if call.what == "timer" else ("no reply is recorded", "bold yellow")
            self._labelled("", Text(told, style=loud))
        elif call.failed:
            self._failure(self._trajectory.decoded(call.replied, _ERROR))
        else:
            self._reply(call, call.replied)
        self._margin = before
        last = step.place == step.together - 1
        if step.together > 1 and last:
            self._line(Text("└", style="dim"))
        self._page.write(Text(""), first=self._lead() if last else self._lead(step))

    def _target(self, call: Call) -> str:
        if call.what == "tool" and (asked := self._tool_call(call)) is not None:
            return safe(asked.name)
        if call.what == "timer":
            delay = _values(self._trajectory.data(call.requested.event)).get("delay")
            return f"of {seconds(delay)}" if isinstance(delay, int | float) else ""
        return call.instance

    def _tool_call(self, call: Call) -> ToolCall | None:
        try:
            return _TOOL_CALL.decode(self._trajectory.data(call.requested.event))
        except msgspec.DecodeError:
            return None

    def _request(self, call: Call) -> None:
        if call.what == "model":
            settings, items = self._news.request(call)
            self._settings(settings)
            for item in items:
                self._said(said_of_item(item))
        elif call.what == "tool" and (asked := self._tool_call(call)) is not None:
            if asked.call_id not in self._asked:
                self._said([Said("calls", call_text(asked.name, asked.arguments), "bold")])
        elif call.what == "agent":
            self._task(call.requested)
        elif call.what not in ("session", "verify", "timer"):
            self._json("asked", self._trajectory.data(call.requested.event))

    def _task(self, requested: Recorded) -> None:
        """The task that an agent is handed by another."""
        task = self._trajectory.decoded(requested, _REQUEST).task
        if bytes(task) == bytes(self._trajectory.request.task):
            self._labelled("task", Text("the rollout's own", style="dim"))
        else:
            self._json("task", bytes(task))

    def _reply(self, call: Call, replied: Recorded) -> None:
        if call.what == "model":
            self._response(self._news.reply(call))
        elif call.what == "tool":
            output = _values(self._trajectory.data(replied.event)).get("output")
            asked = self._tool_call(call)
            self._news.output(call, output, asked.call_id if asked is not None else "")
            self._said(said_of_output("returns", output))
        elif call.what in ("verify", "agent"):
            self._verdict(_values(self._trajectory.data(replied.event)))
        elif call.what not in ("session", "timer"):
            self._json("answers", self._trajectory.data(replied.event))

    def _response(self, response: dict[str, Any]) -> None:
        for item in response.get("output") or ():
            if isinstance(item, dict) and isinstance(call_id := item.get("call_id"), str):
                self._asked.add(call_id)
            self._said(said_of_item(item))
        if not response.get("output"):
            self._labelled("", Text("nothing", style="dim"))
        if isinstance(why := response.get("incomplete_details"), dict):
            self._labelled("", Text(safe(f"incomplete: {why.get('reason')}"), style="bold yellow"))
        if isinstance(usage := response.get("usage"), dict):
            tokens = f"{usage.get('input_tokens', '?')} tokens in, {usage.get('output_tokens', '?')} out"
            self._labelled("", Text(tokens, style="dim"))

    def _settings(self, params: dict[str, Any]) -> None:
        """The request's settings beside its input; tools by their names."""
        if isinstance(instructions := params.pop("instructions", None), str):
            self._said([Said("system", instructions, "")])
        if tools := params.pop("tools", None):
            names = ", ".join(str(tool.get("name") or tool.get("type")) for tool in tools)
            self._labelled("tools", Text(safe(names), style="dim"))
        set_ = {name: value for name, value in params.items() if value is not None}
        if set_:
            told = ", ".join(f"{name} {_short(value)}" for name, value in set_.items())
            self._labelled("settings", Text(safe(told), style="dim"))

    def _verdict(self, verdict: dict[str, Any]) -> None:
        extra = dict(verdict.get("extra") or {})
        told = reward_text(verdict.get("reward"), extra.pop("reward_components", None))
        self._labelled("reward", Text(told, style="bold"))
        for name, value in extra.items():
            self._said([Said(name, _short(value), "")])

    def _failure(self, error: CallError) -> None:
        self._said([Said("failed", f"{error.kind}: {error.message}", "bold red")], wrap="words")

    def _ending(self) -> None:
        trajectory, ended = self._trajectory, self._trajectory.ended
        if ended is None:
            last = trajectory.events[-1]
            self._page.write(
                Text(f"in flight: the last event is {last.event.type}", style="bold yellow"),
                first=_clock(trajectory.offset(last)),
                rest=" " * _TIME,
            )
            return
        outcome = trajectory.outcome
        by = Text(f"by {worker_of(ended.event)}", style="dim")
        margin = _clock(trajectory.offset(ended))
        if isinstance(outcome, RolloutResult):
            told = Text.assemble((trajectory.state, "bold green"), "  reward ", (number(outcome.reward), "bold"))
            self._page.write(told, first=margin, rest=" " * _TIME, right=by)
        elif isinstance(outcome, RolloutFailure):
            told = Text(outcome_text(trajectory.state, outcome.kind), style="bold red")
            self._page.write(told, first=margin, rest=" " * _TIME, right=by)
            self._said([Said("", outcome.message, "red")], wrap="words")
            for name, value in outcome.details.items():
                if value not in outcome.message:
                    self._said([Said(name, value.rstrip(), "dim")], wrap="never", end=True)

    def _revisions(self) -> None:
        """Later scores: they stand behind the end, and change what it came to."""
        for recorded, revised in zip(self._trajectory.revised, self._trajectory.revisions, strict=True):
            told = Text.assemble(("revised", "bold"), "  reward ", revised_text(revised))
            by = Text(f"by {worker_of(recorded.event)}", style="dim")
            self._page.write(told, first=_clock(self._trajectory.offset(recorded)), rest=" " * _TIME, right=by)

    # --- lines -------------------------------------------------------------------------------------------------

    def _said(self, parts: Sequence[Said], *, wrap: Wrap = "anywhere", end: bool = False) -> None:
        """Writes texts, cut to their beginning, or to their `end`."""
        for part in parts:
            text, left = safe(part.text), 0
            if not self._full:
                text, left = cut(text, lines=LINES, characters=CHARACTERS, end=end)
            self._labelled(part.label, Text(text, style=part.style), wrap)
            if left:
                which = "before" if end else "more"
                self._labelled("", Text(f"… {left:,} {which}: --full shows all characters", style="dim italic"))

    def _json(self, label: str, data: bytes) -> None:
        """JSON on as many lines as it needs."""
        try:
            text = msgspec.json.format(data, indent=2).decode()
        except msgspec.DecodeError:
            text = data.decode(errors="replace")
        self._said([Said(label, text, "")])

    def _labelled(self, label: str, text: Text, wrap: Wrap = "words") -> None:
        name = Text(f"{safe(label):<{_LABEL - 1}} ", style="dim")
        if name.cell_len > _LABEL:  # a long name of an author's own stands on a line of its own
            self._page.write(name, first=self._lead(), rest=self._lead())
            name = Text(" " * _LABEL)
        below = Text.assemble(self._lead(), " " * _LABEL)
        self._page.write(text, first=Text.assemble(self._lead(), name), rest=below, wrap=wrap)

    def _heading(self, step: Step, title: Text, right: Text | None = None) -> None:
        rest = Text.assemble(" " * _TIME, self._margin, _bracket(step))
        first = Text.assemble(_clock(step.at), self._margin, _bracket(step))
        self._page.write(title, first=first, rest=rest, right=right)

    def _line(self, text: Text) -> None:
        self._page.write(text, first=Text.assemble(" " * _TIME, self._margin))

    def _lead(self, step: Step | None = None) -> Text:
        margin = self._margin if step is None else self._inner(step)
        return Text.assemble(" " * _TIME, margin)

    def _inner(self, step: Step) -> Text:
        return Text.assemble(self._margin, _bracket(step))


def _bracket(step: Step) -> Text:
    return Text("│ ", style="dim") if step.together > 1 else Text()


def _clock(at: float) -> Text:
    told = f"{at:.3f}" if at < _PRECISE_S else f"{at:.1f}"
    return Text(f"{told:>7} s ", style="dim")


def _times(step: Step) -> str:
    if step.took is None:
        return ""
    if step.call is not None and step.call.what == "timer":
        return f"fired after {seconds(step.took)}"
    if step.steps or not step.worked:
        return seconds(step.took)
    return f"{seconds(step.worked)} + {seconds(step.waited)} queued"


def reward_text(reward: object, components: object) -> str:
    """A reward, and its parts where it has named ones: `0.7 = right 0.5 + short 0.2`."""
    told = number(reward)
    if isinstance(components, dict) and components:
        told += " = " + " + ".join(f"{safe(str(name))} {number(part)}" for name, part in components.items())
    return told


def revised_text(revised: Revised) -> str:
    """A later reward, with its parts."""
    components = revised.extra.get("reward_components")
    told = reward_text(revised.reward, msgspec.json.decode(components) if components is not None else None)
    return f"{told}, as before" if revised.reward == revised.was else told


def _values(data: bytes) -> dict[str, Any]:
    """The fields of a JSON object; none where it is something else."""
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"data": data.decode(errors="replace")}


def _short(value: object) -> str:
    return msgspec.json.encode(value).decode() if not isinstance(value, str) else value
