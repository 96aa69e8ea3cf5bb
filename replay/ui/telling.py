"""The story of a rollout for a page: the steps of `timeline`, with what was said in each as texts.

Pure. It says what `story` says in the terminal. Long texts are cut, those of a long story more, and `whole` gives one
step uncut.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from contracts.events import CallError, Recorded
from contracts.rollouts import RolloutRequest, ToolCall
from replay.items import Said, call_text, said_of_item, said_of_output
from replay.timeline import News, Step, timeline
from replay.trajectory import Call, Trajectory, is_fork_point

CUT: Final = 6_000
"""Characters of a text that a page gets at first."""
ROOM: Final = 4_000_000
"""Characters of all texts; those after that are cut to their beginning."""
BEGINNING: Final = 200

_ERROR: Final = msgspec.json.Decoder(CallError)
_REQUEST: Final = msgspec.json.Decoder(RolloutRequest)
_TOOL_CALL: Final = msgspec.json.Decoder(ToolCall)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_STYLES: Final = {"italic": "thought", "bold": "code", "yellow": "refusal", "dim": "aside", "": ""}


class Part(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A text, and who or what it is from."""

    label: str
    text: str
    style: str = ""
    """`thought`, `code`, `refusal`, `aside`, `error`, `json`, or plain."""
    left: int = 0
    """Characters that are cut off."""


class Told(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One step of the story."""

    at: float
    what: str
    """`model`, `tool`, …; `adopted`; `forked`, where a fork goes on by itself; or the type of another event."""
    target: str = ""
    key: str = ""
    caller: str = ""
    worker: str = ""
    took: float | None = None
    worked: float = 0.0
    waited: float = 0.0
    together: int = 1
    place: int = 0
    requested: int = 0
    """Sequences of its events; 0 where there is none."""
    replied: int = 0
    state: str = "answered"
    """`answered`, `failed`, or `open`."""
    asked: list[Part] = []
    answered: list[Part] = []
    usage: tuple[int, int] | None = None
    """Tokens read and written."""
    policy: tuple[int, int] | None = None
    reward: float | None = None
    components: dict[str, float] = {}
    epoch: int = 0
    steps: list["Told"] = []


def tell(trajectory: Trajectory, cut: int | None = CUT) -> list[Told]:
    """The steps in the order of the story. Raises `BrokenHistory` where what a call cites is not there."""
    return _Teller(trajectory, cut).steps(timeline(trajectory))


def whole(trajectory: Trajectory, key: str) -> Told | None:
    """One call, uncut; None where there is no such call."""
    teller = _Teller(trajectory, None)
    tops = (teller.steps([step]) for step in timeline(trajectory))  # one at a time is in memory
    return next((told for top in tops for told in walk(top) if told.key == key), None)


def walk(steps: Sequence[Told]) -> Iterator[Told]:
    """All steps, each before what happened under it."""
    for step in steps:
        yield step
        yield from walk(step.steps)


class _Teller:
    def __init__(self, trajectory: Trajectory, cut: int | None) -> None:
        self._trajectory, self._cut = trajectory, cut
        self._room = ROOM
        self._news = News(trajectory)
        self._called: set[str] = set()
        """`call_id`s that a model's reply has shown with their arguments."""

    def steps(self, steps: Sequence[Step]) -> list[Told]:
        return [self._step(step) for step in steps]

    def _step(self, step: Step) -> Told:
        if step.call is not None:
            return self._call(step, step.call)
        if step.adoption is not None:
            adoption = step.adoption
            return Told(
                at=step.at,
                what="forked" if is_fork_point(self._trajectory, adoption) else "adopted",
                worker=adoption.worker,
                epoch=adoption.epoch,
                requested=adoption.recorded.seq,
            )
        assert step.other is not None
        event = step.other.event
        return Told(
            at=step.at,
            what=event.type,
            worker=event.source,
            requested=step.other.seq,
            asked=[self._part("", _pretty(self._trajectory.data(event)), "json")],
        )

    def _call(self, step: Step, call: Call) -> Told:
        told = Told(
            at=step.at,
            what=call.what,
            target=self._target(call),
            key=call.key,
            caller=call.caller,
            worker=call.worker,
            took=step.took,
            worked=step.worked,
            waited=step.waited,
            together=step.together,
            place=step.place,
            requested=call.requested.seq,
            replied=call.replied.seq if call.replied is not None else 0,
            state="open" if call.replied is None else "failed" if call.failed else "answered",
            asked=self._asked(call),
        )
        told.steps = self.steps(step.steps)
        if call.replied is not None:
            told.policy = call.replied.event.policy
            if call.failed:
                error = self._trajectory.decoded(call.replied, _ERROR)
                told.answered = [self._part("failed", f"{error.kind}: {error.message}", "error")]
            else:
                self._answer(told, call, call.replied)
        return told

    def _target(self, call: Call) -> str:
        if call.what == "tool" and (asked := self._tool_call(call)) is not None:
            return asked.name
        if call.what == "timer":
            delay = _object(self._trajectory.data(call.requested.event)).get("delay")
            return f"{delay:g} s" if isinstance(delay, int | float) else ""
        return call.instance

    def _tool_call(self, call: Call) -> ToolCall | None:
        try:
            return _TOOL_CALL.decode(self._trajectory.data(call.requested.event))
        except msgspec.DecodeError:
            return None

    def _asked(self, call: Call) -> list[Part]:
        data = self._trajectory.data(call.requested.event)
        match call.what:
            case "model":
                settings, items = self._news.request(call)
                return [*self._settings(settings), *self._said(said for item in items for said in said_of_item(item))]
            case "tool" if (asked := self._tool_call(call)) is not None:
                shown = asked.call_id in self._called
                return [] if shown else [self._part("calls", call_text(asked.name, asked.arguments), "code")]
            case "agent":
                return [self._task(call)]
            case "session" | "verify" | "timer":
                return []
        return [self._part("asked", _pretty(data), "json")]

    def _task(self, call: Call) -> Part:
        """The task that an agent is handed by another."""
        task = self._trajectory.decoded(call.requested, _REQUEST).task
        if bytes(task) == bytes(self._trajectory.request.task):
            return self._part("task", "the rollout's own", "aside")
        return self._part("task", _pretty(bytes(task)), "json")

    def _answer(self, told: Told, call: Call, replied: Recorded) -> None:
        data = self._trajectory.data(replied.event)
        if call.what == "model":
            self._response(told, self._news.reply(call))
        elif call.what == "tool":
            output = _object(data).get("output")
            asked = self._tool_call(call)
            self._news.output(call, output, asked.call_id if asked is not None else "")
            told.answered = self._said(said_of_output("returns", output))
        elif call.what in ("verify", "agent"):
            verdict = _object(data)
            told.reward, told.components, told.answered = self.verdict(verdict)
        elif call.what not in ("session", "timer"):
            told.answered = [self._part("answers", _pretty(data), "json")]

    def _response(self, told: Told, response: dict[str, Any]) -> None:
        for item in response.get("output") or ():
            if isinstance(item, dict) and isinstance(call_id := item.get("call_id"), str):
                self._called.add(call_id)
            told.answered += self._said(said_of_item(item))
        if not told.answered:
            told.answered.append(self._part("", "nothing", "aside"))
        if isinstance(why := response.get("incomplete_details"), dict):
            told.answered.append(self._part("", f"incomplete: {why.get('reason')}", "refusal"))
        usage = response.get("usage")
        if isinstance(usage, dict):
            read, written = usage.get("input_tokens"), usage.get("output_tokens")
            if isinstance(read, int) and isinstance(written, int):
                told.usage = read, written

    def _settings(self, params: dict[str, Any]) -> list[Part]:
        """The request's settings beside its input; tools by their names."""
        parts = []
        if isinstance(instructions := params.pop("instructions", None), str):
            parts.append(self._part("system", instructions))
        tools = params.pop("tools", None)
        if isinstance(tools, list) and tools:
            names = [str(tool.get("name") or tool.get("type")) for tool in tools if isinstance(tool, dict)]
            parts.append(self._part("tools", ", ".join(names), "aside"))
        given = {name: value for name, value in params.items() if value is not None}
        if given:
            told = ", ".join(f"{name} {_short(value)}" for name, value in given.items())
            parts.append(self._part("settings", told, "aside"))
        return parts

    def verdict(self, verdict: dict[str, Any]) -> tuple[float | None, dict[str, float], list[Part]]:
        """The reward, its components, and what else a verifier says."""
        extra = dict(verdict.get("extra") or {})
        components = extra.pop("reward_components", None)
        reward = verdict.get("reward")
        return (
            float(reward) if isinstance(reward, int | float) else None,
            {name: float(part) for name, part in components.items()} if isinstance(components, dict) else {},
            [self._part(name, _short(value), "aside") for name, value in extra.items()],
        )

    def _said(self, said: Iterator[Said] | Sequence[Said]) -> list[Part]:
        return [self._part(part.label, part.text, _STYLES.get(part.style, "")) for part in said]

    def _part(self, label: str, text: str, style: str = "") -> Part:
        kept = text if self._cut is None else text[: self._cut if self._room > 0 else BEGINNING]
        self._room -= len(kept)
        return Part(label=label, text=kept, style=style, left=len(text) - len(kept))


def _object(data: bytes) -> dict[str, Any]:
    """The fields of a JSON object; the bytes as a text where it is something else."""
    try:
        return _OBJECT.decode(data)
    except msgspec.DecodeError:
        return {"data": data.decode(errors="replace")}


def _pretty(data: bytes) -> str:
    try:
        return msgspec.json.format(data, indent=2).decode()
    except msgspec.DecodeError:
        return data.decode(errors="replace")


def _short(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
