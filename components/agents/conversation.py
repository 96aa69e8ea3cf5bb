"""A request and all that was said since: what a loop of model and tool calls accumulates.

Used by authors of agents inside `responses`. Pure.
"""

from collections.abc import Sequence

from contracts.base import ApiModel
from contracts.responses import (
    FunctionCall,
    FunctionCallOutput,
    IncompleteDetails,
    InputTokensDetails,
    Item,
    OutputTokensDetails,
    ReasoningItem,
    Response,
    ResponseCreateParams,
    ResponseUsage,
    user_message,
)


class Conversation:
    """Grows turn by turn: `hear` what the model says, `tell` it what the tools answered."""

    __slots__ = ("_given", "_items", "_replies", "_start")

    def __init__(self, request: ResponseCreateParams) -> None:
        self._start = request
        first: list[Item] = [user_message(request.input)] if isinstance(request.input, str) else list(request.input)
        self._items = first
        self._given = len(first)
        self._replies: list[Response] = []

    @property
    def turns(self) -> int:
        """Model replies so far."""
        return len(self._replies)

    @property
    def items(self) -> list[Item]:
        """All items since the request, in order."""
        return self._items[self._given :]

    def request(self) -> ResponseCreateParams:
        """The request for the next turn: the first one, and everything said since."""
        return self._start.model_copy(update={"input": list(self._items)})

    def hear(self, reply: Response) -> None:
        """Adds a model's reply."""
        self._replies.append(reply)
        self._items.extend(reply.output)

    def tell(self, items: Sequence[Item]) -> None:
        """Adds tool outputs, or messages of a simulated user."""
        self._items.extend(items)

    def response(self, incomplete: str | None = None) -> Response:
        """The last reply, with all new items as its output and the usage of all turns.

        It is a whole Responses object: the tools and how they could be called stand in it, though models need not
        repeat them turn by turn. `incomplete` is the reason for which the loop was ended before the model ended it.
        """
        asked, last = self._start, self._replies[-1]
        update: dict[str, object] = {"output": self.items}
        if last.tools is None:
            update["tools"] = asked.tools or []
        if last.tool_choice is None:
            update["tool_choice"] = "auto" if asked.tool_choice is None else asked.tool_choice
        if last.parallel_tool_calls is None:
            update["parallel_tool_calls"] = True if asked.parallel_tool_calls is None else asked.parallel_tool_calls
        if (usage := _total([reply.usage for reply in self._replies])) is not None:
            update["usage"] = usage
        if incomplete is not None:
            update |= {"status": "incomplete", "incomplete_details": IncompleteDetails(reason=incomplete)}
        return last.model_copy(update=update)


def only_reasoning(reply: Response) -> bool:
    """Whether a finished reply holds reasoning and neither text nor a call: the model has not answered yet."""
    return (
        bool(reply.output)
        and reply.status != "incomplete"
        and all(isinstance(item, ReasoningItem) for item in reply.output)
    )


def exchange(calls: Sequence[FunctionCall], outputs: Sequence[FunctionCallOutput]) -> tuple[object, ...]:
    """What was asked and answered in a turn, without its IDs: equal for turns that repeat each other."""
    asked = tuple((call.name, call.arguments) for call in calls)
    return (asked, tuple(output.output for output in outputs))


def _total(usages: Sequence[ResponseUsage | None]) -> ResponseUsage | None:
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    if len(known) == 1:
        return known[0]
    total = ResponseUsage(
        input_tokens=sum(usage.input_tokens for usage in known),
        output_tokens=sum(usage.output_tokens for usage in known),
        total_tokens=sum(usage.total_tokens for usage in known),
    )
    read = _sums([usage.input_tokens_details for usage in known])
    written = _sums([usage.output_tokens_details for usage in known])
    if read:
        total.input_tokens_details = InputTokensDetails.model_validate(read)
    if written:
        total.output_tokens_details = OutputTokensDetails.model_validate(written)
    return total


def _sums(details: Sequence[ApiModel | None]) -> dict[str, int]:
    """Each count that some turn knows, summed; what no turn knows is left out: unknown is not zero."""
    counts: dict[str, int] = {}
    for turn in details:
        for name, count in () if turn is None else {**turn.__dict__, **(turn.model_extra or {})}.items():
            if isinstance(count, int):
                counts[name] = counts.get(name, 0) + count
    return counts
