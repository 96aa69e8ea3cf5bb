"""Where does a debugger over time stop? What the user asked for, looked at after each step.

Called by `debugger`. Pure.
"""

from typing import Final, Literal

import msgspec

from contracts.rollouts import ToolCall
from replay.errors import Misused
from replay.names import shown
from replay.page import counted
from replay.stepping import Stepper
from replay.trajectory import Call

Kind = Literal["call", "turn", "exception", "tokens", "divergence"]
KINDS: Final = ("call", "turn", "exception", "tokens", "divergence")
FORMS: Final = "call NAME, turn [K], exception, tokens N, divergence"

_TOOL: Final = msgspec.json.Decoder(ToolCall)


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """One condition."""

    kind: Kind
    name: str = ""
    """Of a call: its key, what is called, an instance or a tool."""
    number: int = 0
    """The turn, 0 for each; the budget of tokens."""

    def __str__(self) -> str:
        """As the user typed it."""
        return " ".join(filter(None, (self.kind, self.name, str(self.number or ""))))


def read_break(text: str) -> Break:
    """The condition that was typed. Raises `Misused`."""
    kind, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if kind == "call" and rest:
        return Break(kind="call", name=rest)
    if kind == "turn" and (not rest or rest.isdigit()):
        return Break(kind="turn", number=int(rest or 0))
    if kind == "tokens" and rest.isdigit():
        return Break(kind="tokens", number=int(rest))
    if kind in ("exception", "divergence") and not rest:
        return Break(kind="exception" if kind == "exception" else "divergence")
    raise Misused(f"{text.strip()!r} is nothing to stop at; there are: {FORMS}")


def unmet(at: Break, stepper: Stepper) -> str:
    """Why nothing that is recorded meets the condition; empty where something may."""
    match at.kind:
        case "call":
            names = dict.fromkeys(name for call in stepper.calls for name in _names(call, stepper))
            if at.name in names or any(call.key == at.name for call in stepper.calls):
                return ""
            return f"no answered call is called so; there are: {shown(list(names))}"
        case "turn" if at.number > stepper.most_turns:
            return f"it has {counted(stepper.most_turns, 'turn')}"
        case "tokens" if not 0 < at.number <= stepper.most_tokens:
            return f"it takes {counted(stepper.most_tokens, 'token')}"
    return ""


def stops(at: Break, stepper: Stepper, tokens_before: int, turns_before: int) -> bool:
    """Whether the step that was just made met the condition."""
    match at.kind:
        case "call":
            call = stepper.call
            return call is not None and at.name in (call.key, *_names(call, stepper))
        case "turn":
            return stepper.turns > turns_before and at.number in (0, stepper.turns)
        case "tokens":
            return tokens_before < at.number <= stepper.tokens
        case "divergence":
            return stepper.departs
        case "exception":
            failed = stepper.reply is not None and stepper.reply.type.endswith(".failed")
            return failed or (stepper.done and bool(stepper.branches()))


def _names(call: Call, stepper: Stepper) -> list[str]:
    """What a call is known by beside its key."""
    names = [call.what, call.instance]
    if call.what != "tool":
        return names
    try:
        return [_TOOL.decode(stepper.trajectory.data(call.requested.event)).name, *names]
    except msgspec.DecodeError:
        return names
