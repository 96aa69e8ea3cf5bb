"""The lines of `replay step`: reads commands, moves a `Stepper`, tells where the code is.

Commands come from standard input, typed or out of a file. `breakpoint()` in the agent's code opens Python's own
debugger on the same input. It holds no connection and writes nothing but lines.
"""

import cmd
import linecache
import pdb  # noqa: T100 - it is what `breakpoint()` in an agent's code opens
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from contracts.events import CallError
from contracts.rollouts import RolloutResult
from replay.breaks import FORMS, Break, read_break, stops, unmet
from replay.errors import Misused, ReplayError
from replay.page import Page, counted, number, safe
from replay.points import point
from replay.stepping import Branch, Stepper
from replay.trajectory import Call

_AROUND: Final = 4
"""Lines of source before and after the one where the code is."""
_VALUE: Final = 300
"""Characters of a value; `print` shows all."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Where the code is, as `--json` tells it after each move."""

    position: int
    last: int
    seq: int
    """Number of the event that the code was given last; 0 before its start."""
    type: str
    call_key: str
    at_s: float
    turns: int
    tokens: int
    frames: dict[str, list[str]]
    """By branch, `file:line function`, the outermost first."""
    waits_for: list[str]
    """Keys of calls."""
    done: bool
    outcome: str
    departs: str
    """In which way code and recording differ here; empty where they do not."""
    stopped: str
    """The condition that was met."""


class Debugger(cmd.Cmd):
    """One session. `run` returns when the user leaves."""

    intro = None
    doc_header = "Commands (help NAME tells more):"

    def __init__(self, stepper: Stepper, console: Console, source: IO[str], *, json: bool = False) -> None:
        super().__init__(stdin=source, stdout=sys.stderr if json else sys.stdout)
        self.use_rawinput = source.isatty()
        self.prompt = "(step) " if self.use_rawinput else ""
        self.departed = False
        """Whether a place was reached at which code and recording differ."""
        self._stepper, self._page, self._json = stepper, Page(console), json
        self._source = source
        self._breaks: list[Break] = []
        self._branch = self._frame = 0

    def run(self, at: str | None, breaks: Iterable[str]) -> None:
        """Begins at a point, with conditions, and reads commands to their end. Raises `ReplayError`."""
        for text in breaks:
            self._stop_at(text)
        self._move(self._meant(at) if at else 1)
        while True:
            try:
                self.cmdloop()
            except ReplayError as error:
                self._say(str(error), "red")
            except KeyboardInterrupt:
                self._say("(quit leaves)", "dim")
            else:
                return

    # Moving

    def do_next(self, arg: str) -> None:
        """Next [N]: gives the code its next reply, or N of them."""
        if self._stepper.position == self._stepper.last:
            self._say(self._end(), "yellow")
            return
        self._move(self._stepper.position + _count(arg))

    def do_back(self, arg: str) -> None:
        """Back [N]: goes back by a reply, or by N. The code runs anew from its start."""
        self._move(max(0, self._stepper.position - _count(arg)))

    def do_goto(self, arg: str) -> None:
        """Goto WHERE: an event's number, a call's key (once answered), turn:K (before it is answered), start, end."""
        self._move(self._meant(arg))

    def do_continue(self, _arg: str) -> None:
        """continue: goes on until something that `break` named, or to the end."""
        stepper, met = self._stepper, ""
        while stepper.position < stepper.last and not met:
            tokens, turns = stepper.tokens, stepper.turns
            self._go(stepper.position + 1)
            met = ", ".join(str(each) for each in self._breaks if stops(each, stepper, tokens, turns))
        self._told(met)

    def do_break(self, arg: str) -> None:
        """Break [CONDITION]: where `continue` stops; without one, those there are."""
        if arg:
            self._stop_at(arg)
        for place, each in enumerate(self._breaks, start=1):
            self._say(f"{place}  {each}")
        if not self._breaks:
            self._say(f"none; there are: {FORMS}", "dim")

    def do_clear(self, _arg: str) -> None:
        """clear: forgets all conditions."""
        self._breaks.clear()

    def do_quit(self, _arg: str) -> bool:
        """quit: leaves. Nothing was touched."""
        return True

    # Looking

    def do_where(self, _arg: str) -> None:
        """where: all branches of the code and their frames; the chosen frame has a mark."""
        branches = self._stepper.branches()
        if not branches:
            self._say("the code is not running" if not self._stepper.done else "the code has ended", "dim")
        for place, branch in enumerate(branches):
            for depth, frame in enumerate(branch.frames):
                chosen = (place, depth) == (self._branch, self._depth(branch))
                mark = ">" if chosen else " "
                self._say(
                    f"{mark} {branch.path:<6} {_place(frame)} in {frame.f_code.co_qualname}", "bold" if chosen else ""
                )

    def do_branch(self, arg: str) -> None:
        """Branch PATH: chooses another branch of the code, such as m1."""
        paths = [branch.path for branch in self._stepper.branches()]
        if arg not in paths:
            raise Misused(f"there is no branch {arg!r} here; there are: {', '.join(paths) or 'none'}")
        self._branch, self._frame = paths.index(arg), 0
        self.do_list("")

    def do_up(self, _arg: str) -> None:
        """up: the frame that called this one."""
        self._frame += 1
        self.do_list("")

    def do_down(self, _arg: str) -> None:
        """down: the frame that this one called."""
        self._frame = max(0, self._frame - 1)
        self.do_list("")

    def do_locals(self, _arg: str) -> None:
        """locals: the variables of the chosen frame."""
        for name, value in self._chosen().f_locals.items():
            self._say(f"{name} = {_shown(value)}")

    def do_print(self, arg: str) -> None:
        """Print EXPRESSION: its value in the chosen frame."""
        frame = self._chosen()
        try:
            value = eval(arg, frame.f_globals, frame.f_locals)  # noqa: S307 - the user's own expression
            self._say(repr(value))
        except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
            self._say(f"{type(error).__name__}: {error}", "red")

    def do_list(self, _arg: str) -> None:
        """list: the source around the chosen frame."""
        frame = self._chosen()
        line = frame.f_lineno
        self._say(f"{_place(frame)} in {frame.f_code.co_qualname}", "bold")
        for at in range(max(1, line - _AROUND), line + _AROUND + 1):
            if text := linecache.getline(frame.f_code.co_filename, at, frame.f_globals).rstrip():
                self._say(f"{'->' if at == line else '  '} {at:>4} {text}", "bold" if at == line else "")

    def do_reply(self, _arg: str) -> None:
        """reply: what the code was given last."""
        event = self._stepper.event
        if event is None:
            self._say("nothing yet", "dim")
        else:
            self._say(msgspec.json.format(self._stepper.trajectory.data(event.event), indent=2).decode())

    def do_calls(self, _arg: str) -> None:
        """calls: what the code asked and waits for."""
        for call in self._stepper.waiting():
            self._say(f"{call} (not recorded)" if isinstance(call, str) else _call(call))

    do_n, do_b, do_g, do_c, do_w, do_l, do_p, do_q = (
        do_next,
        do_back,
        do_goto,
        do_continue,
        do_where,
        do_list,
        do_print,
        do_quit,
    )

    def do_EOF(self, _arg: str) -> bool:  # noqa: N802 - as `cmd` names it
        """The end of the input leaves."""
        return True

    def default(self, line: str) -> None:
        """An unknown command."""
        self._say(f"there is no command {line.split(maxsplit=1)[0]!r}: help names them", "red")

    # What it is made of

    def _move(self, position: int) -> None:
        self._go(position)
        self._told("")

    def _go(self, position: int) -> None:
        with redirect_stdout(sys.stderr) if self._json else nullcontext():  # what the agent prints
            self._stepper.goto(position, self._hook())

    def _stop_at(self, text: str) -> None:
        at = read_break(text)
        self._breaks.append(at)
        if why := unmet(at, self._stepper):
            self._say(f"nothing that is recorded meets {text.strip()!r}: {why}", "yellow")

    def _meant(self, where: str) -> int:
        if where == "start":
            return 1
        if where == "end":
            return self._stepper.last
        found = point(self._stepper.trajectory, where, self._stepper.prefix)
        if found.seq is None:
            return self._stepper.last
        if found.call is not None and not where.isdigit() and not where.startswith("turn:"):
            answered = found.call.replied
            return self._stepper.position_of(answered.seq) if answered is not None else self._stepper.last
        return self._stepper.position_of(found.seq)

    def _told(self, met: str) -> None:
        self._branch = self._frame = 0
        stepper = self._stepper
        self.departed = self.departed or stepper.departs
        state = self._state(met)
        if self._json:
            sys.stdout.write(msgspec.json.encode(state).decode() + "\n")
            sys.stdout.flush()
            return
        key = f" {state.call_key}" if state.call_key else ""
        told = f"[{state.position}/{state.last}] "
        told += f"event {state.seq} {state.type}{key}, {state.at_s:.3f} s" if state.position else "before the start"
        self._say(
            f"{told}, turn {state.turns}, {counted(state.tokens, 'token')}" + (f"  ({met})" if met else ""), "bold"
        )
        for path, frames in state.frames.items():
            self._say(f"  {path:<6} {frames[-1] if frames else ''}")
        waiting = [call if isinstance(call, str) else _call(call) for call in stepper.waiting()]
        if waiting:
            self._say(f"  waits for {', '.join(waiting)}", "dim")
        if state.outcome:
            self._say(f"  the code has ended: {state.outcome}", "green" if not stepper.branches() else "red")
        if state.departs:
            self._say(f"  the code departs here: {state.departs}", "bold red")

    def _state(self, met: str) -> State:
        stepper, event = self._stepper, self._stepper.event
        return State(
            position=stepper.position,
            last=stepper.last,
            seq=event.seq if event is not None else 0,
            type=event.event.type if event is not None else "",
            call_key=stepper.reply.key if stepper.reply is not None else "",
            at_s=stepper.trajectory.offset(event) if event is not None else 0.0,
            turns=stepper.turns,
            tokens=stepper.tokens,
            frames={
                branch.path: [f"{_place(frame)} {frame.f_code.co_qualname}" for frame in branch.frames]
                for branch in stepper.branches()
            },
            waits_for=[call if isinstance(call, str) else call.key for call in stepper.waiting()],
            done=stepper.done,
            outcome=_outcome(stepper.outcome),
            departs=self._departs(),
            stopped=met,
        )

    def _departs(self) -> str:
        departure = self._stepper.departure
        if departure is None or not self._stepper.departs:
            return ""
        told = f"{departure.reason} (call {departure.call_key}, {departure.file}:{departure.line})"
        if departure.recorded or departure.made:
            told += f"; {departure.field} recorded {departure.recorded or 'nothing'}, now {departure.made or 'nothing'}"
        return told

    def _end(self) -> str:
        if self._stepper.departs:
            return "what was recorded after this does not fit what the code does now: there is no going on"
        return "this is the end of what is recorded"

    def _chosen(self) -> FrameType:
        branches = self._stepper.branches()
        if not branches or not (frames := branches[min(self._branch, len(branches) - 1)].frames):
            raise Misused("the code is nowhere: it has not begun, or it has ended")
        return frames[self._depth(branches[min(self._branch, len(branches) - 1)])]

    def _depth(self, branch: Branch) -> int:
        return max(0, len(branch.frames) - 1 - self._frame)

    def _hook(self) -> Callable[..., Any]:
        """What `breakpoint()` in the code does: Python's debugger, on our input."""

        def stop(*_args: Any, **_kwargs: Any) -> None:
            _Pdb(self._source, self.stdout).set_trace(sys._getframe(1))  # noqa: SLF001 - the line that stops

        return stop

    def _say(self, text: str, style: str = "") -> None:
        if not self._json:
            self._page.write(Text(safe(text), style=style), rest="  ", wrap="never")
        else:
            sys.stderr.write(f"{safe(text)}\n")


class _Pdb(pdb.Pdb):
    """Python's debugger: leaving it goes on with the step, and does not end the agent's code."""

    def __init__(self, source: IO[str], target: IO[str]) -> None:
        typed = source.isatty()
        super().__init__(
            stdin=None if typed else source,
            stdout=None if typed else target,
            nosigint=True,
            skip=["asyncio.*", "components.durable.*", "contextlib"],
        )

    def do_quit(self, arg: str) -> bool:  # noqa: ARG002 - as `pdb` calls it
        """Leaves the debugger; the step goes on."""
        self.set_continue()
        return True

    def do_q(self, arg: str) -> bool:
        """As `quit`."""
        return self.do_quit(arg)

    def do_exit(self, arg: str) -> bool:
        """As `quit`."""
        return self.do_quit(arg)

    def do_EOF(self, arg: str) -> bool:  # noqa: N802 - as `cmd` names it
        """The end of the input, as `quit`."""
        return self.do_quit(arg)


def _count(arg: str) -> int:
    if arg and not arg.isdigit():
        raise Misused(f"{arg!r} is no number of steps")
    return int(arg or 1)


def _place(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    here = Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{frame.f_lineno}"


def _call(call: Call) -> str:
    return f"{call.key} ({call.what} {call.instance})"


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - an author's `__repr__`
        return f"(its text cannot be had: {type(error).__name__})"
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}… ({len(text):,} characters)"


def _outcome(found: RolloutResult | CallError | None) -> str:
    if found is None:
        return ""
    return f"reward {number(found.reward)}" if isinstance(found, RolloutResult) else f"{found.kind}: {found.message}"
