"""A request and all that was said since: what a loop of model and tool calls accumulates.

Used by authors of agents inside `responses`. Pure.
"""

from collections.abc import Sequence

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

        `incomplete` is the reason for which the loop was ended before the model ended it.
        """
        update: dict[str, object] = {"output": self.items}
        if (usage := _total([reply.usage for reply in self._replies])) is not None:
            update["usage"] = usage
        if incomplete is not None:
            update |= {"status": "incomplete", "incomplete_details": IncompleteDetails(reason=incomplete)}
        return self._replies[-1].model_copy(update=update)


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
    return (asked, tuple(output.model_dump_json(include={"output"}) for output in outputs))


def _total(usages: Sequence[ResponseUsage | None]) -> ResponseUsage | None:
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    if len(known) == 1:
        return known[0]
    return ResponseUsage(
        input_tokens=sum(usage.input_tokens for usage in known),
        output_tokens=sum(usage.output_tokens for usage in known),
        total_tokens=sum(usage.total_tokens for usage in known),
        input_tokens_details=InputTokensDetails(
            cached_tokens=_sum([read.cached_tokens for usage in known if (read := usage.input_tokens_details)])
        ),
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=_sum([out.reasoning_tokens for usage in known if (out := usage.output_tokens_details)])
        ),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    """None where nothing is known: unknown is not zero."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
