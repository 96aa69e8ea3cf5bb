"""A rollout as one HTML page that needs nothing else: no script, no other file, no network.

Called by `replay export --format html`. Pure. Everything that models, tools and tasks wrote is escaped, and the page's
own policy forbids scripts and anything from elsewhere, so that it can be sent around.
"""

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, Final

import msgspec

from contracts.events import CallError
from contracts.rollouts import RolloutFailure, RolloutRequest, RolloutResult, ToolCall
from replay.facts import Facts
from replay.header import header_lines
from replay.items import Said, call_text, said_of_item, said_of_output
from replay.page import number, safe, seconds
from replay.story import revised_text
from replay.timeline import News, Step, timeline
from replay.trajectory import Call, Trajectory, worker_of

LONG: Final = 2000
"""Characters from which on a text is folded."""

_ERROR: Final = msgspec.json.Decoder(CallError)
_TOOL: Final = msgspec.json.Decoder(ToolCall)
_REQUEST: Final = msgspec.json.Decoder(RolloutRequest)
_STYLE: Final = """
:root{color-scheme:light dark;--dim:#6b7280;--line:#8884;--bad:#c0392b;--good:#2e7d32}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.3rem;margin:0}
dl{display:grid;grid-template-columns:8rem 1fr;margin:1rem 0}dt{color:var(--dim)}dd{margin:0}
section{border-left:3px solid var(--line);margin:.8rem 0;padding:.1rem 0 .1rem .8rem}section section{margin-left:1rem}
section.model{border-color:#2b8a9e}section.tool{border-color:#b7950b}section.verify{border-color:#8e44ad}
section.agent{border-color:#2e7d32}section.failed{border-color:var(--bad)}
h2{font-size:1rem;margin:0}h2 small{color:var(--dim);font-weight:normal}
.label{color:var(--dim);font-size:.85rem;margin-top:.4rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.1rem 0;
font:13px/1.45 ui-monospace,monospace}.bad{color:var(--bad)}.good{color:var(--good)}
summary{cursor:pointer;color:var(--dim)}
"""
_HEAD: Final = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    '<meta name="viewport" content="width=device-width"><title>{title}</title><style>{style}</style></head><body>\n'
)


def html_page(trajectory: Trajectory, facts: Facts) -> Iterator[str]:
    """The page, in parts: one call at a time is in memory."""
    yield _HEAD.format(title=_text(trajectory.rollout_id), style=_STYLE) + _header(trajectory, facts)
    yield from _Writer(trajectory).steps(timeline(trajectory))
    yield _ending(trajectory) + "</body></html>\n"


def _header(trajectory: Trajectory, facts: Facts) -> str:
    lines = header_lines(trajectory, facts)
    told = "".join(f"<dt>{_text(label)}</dt><dd>{_text(value)}</dd>" for label, value in lines)
    return f"<h1>{_text(trajectory.rollout_id)} {_badge(trajectory)}</h1><dl>{told}</dl>\n"


def _badge(trajectory: Trajectory) -> str:
    told = trajectory.state if trajectory.reward is None else f"reward {number(trajectory.reward)}"
    return f'<span class="{"good" if trajectory.state == "completed" else "bad"}">{_text(told)}</span>'


def _ending(trajectory: Trajectory) -> str:
    outcome = trajectory.outcome
    if outcome is None:
        return "<p>In flight.</p>"
    if isinstance(outcome, RolloutResult):
        extra = "".join(
            f'<div class="label">{_text(name)}</div>{_pre(bytes(value).decode(errors="replace"))}'
            for name, value in outcome.extra.items()
        )
        told = f'<h2><span class="good">{_text(f"reward {number(outcome.reward)}")}</span></h2>{extra}'
        for recorded, revised in zip(trajectory.revised, trajectory.revisions, strict=True):
            where = f"at {seconds(trajectory.offset(recorded))} by {worker_of(recorded.event)}"
            told += f"<h2>{_text(f'revised: reward {revised_text(revised)}')} <small>{_text(where)}</small></h2>"
        return told
    return f'<h2 class="bad">{_text(trajectory.state)}: {_text(outcome.kind)}</h2>{_failure_text(outcome)}'


def _failure_text(failure: RolloutFailure) -> str:
    details = "".join(f'<div class="label">{_text(name)}</div>{_pre(value)}' for name, value in failure.details.items())
    return _pre(failure.message) + details


class _Writer:
    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._news = News(trajectory)

    def steps(self, steps: Iterable[Step]) -> Iterable[str]:
        for step in steps:
            if step.call is not None:
                yield from self._call(step, step.call)
            elif step.adoption is not None:
                told = f"adopted by {step.adoption.worker}, epoch {step.adoption.epoch}"
                yield f"<section><h2>{_text(told)} <small>at {_text(seconds(step.at))}</small></h2></section>\n"
            elif step.other is not None:
                data = self._trajectory.data(step.other.event).decode(errors="replace")
                yield f"<section><h2>{_text(step.other.event.type)}</h2>{_pre(data)}</section>\n"

    def _call(self, step: Step, call: Call) -> Iterable[str]:
        state = " failed" if call.failed else ""
        times = f"at {seconds(step.at)}"
        if step.took is not None and (step.steps or not step.worked):  # how long it worked nobody has measured
            times += f", took {seconds(step.took)}"
        elif step.took is not None:
            times += f", worked {seconds(step.worked)}, queued {seconds(step.waited)}"
        by = f" by {call.worker}" if call.worker else ""
        title = f"{call.what} {call.instance}"
        yield f'<section class="{escape(call.what, quote=True)}{state}" id="{escape(call.key, quote=True)}">'
        yield f"<h2>{_text(title)} <small>{_text(f'{call.key}: {times}{by}')}</small></h2>"
        for said in self._asked(call):
            yield _said(said)
        yield from self.steps(step.steps)
        for said in self._answered(call):
            yield _said(said)
        yield "</section>\n"

    def _asked(self, call: Call) -> list[Said]:
        if call.what == "model":
            settings, items = self._news.request(call)
            said = [Said("settings", _json(settings), "")] if settings else []
            return [*said, *(part for item in items for part in said_of_item(item))]
        data = self._trajectory.data(call.requested.event)
        if call.what == "tool":
            try:
                asked = _TOOL.decode(data)
            except msgspec.DecodeError:
                return [Said("asked", data.decode(errors="replace"), "")]
            return [Said("calls", call_text(asked.name, asked.arguments), "")]
        if call.what == "agent":
            task = bytes(self._trajectory.decoded(call.requested, _REQUEST).task)
            own = task == bytes(self._trajectory.request.task)
            return [Said("task", "the rollout's own" if own else _json(_fields(task)), "")]
        return [Said("asked", data.decode(errors="replace"), "")] if call.what == "timer" else []

    def _answered(self, call: Call) -> list[Said]:
        if call.replied is None:
            return [Said("", "no reply is recorded", "")]
        if call.failed:
            error = self._trajectory.decoded(call.replied, _ERROR)
            return [Said("failed", f"{error.kind}: {error.message}", "")]
        data = self._trajectory.data(call.replied.event)
        if call.what == "model":
            reply = self._news.reply(call)
            return [part for item in reply.get("output") or () for part in said_of_item(item)]
        if call.what == "tool":
            return said_of_output("returns", _fields(data).get("output"))
        return [Said("answers", data.decode(errors="replace"), "")] if data != b"null" else []


def _said(said: Said) -> str:
    return f'<div class="label">{_text(said.label)}</div>{_pre(said.text)}'


def _pre(text: str) -> str:
    told = f"<pre>{_text(text)}</pre>"
    if len(text) <= LONG:
        return told
    return f"<details><summary>{_text(text[:80])}… ({len(text):,} characters)</summary>{told}</details>"


def _text(text: str) -> str:
    return escape(safe(text), quote=True)


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _fields(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
