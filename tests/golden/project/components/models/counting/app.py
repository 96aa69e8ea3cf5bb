"""Plays a model that can count: moves a counter by each number in the task, reads it, and says what it read."""

import re

from components.models.base import Model, ModelCall, ModelConfig
from contracts.responses import (
    FunctionCallOutput,
    InputMessage,
    Item,
    Response,
    ResponseCreateParams,
    ResponseUsage,
    function_call,
    output_message,
    reasoning,
)


class CountingModel(Model[ModelConfig]):
    """What it says follows from the request alone."""

    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        """The next turn of the conversation."""
        items = list(request.input)
        asked = items[0]
        assert isinstance(asked, InputMessage)
        numbers = re.findall(r"-?\d+", asked.text)
        outputs = [item for item in items if isinstance(item, FunctionCallOutput)]
        output: list[Item]
        if not outputs:
            calls = [
                function_call(f"call_{place}", "increment_counter", f'{{"count": {number}}}')
                for place, number in enumerate(numbers)
            ]
            output = [reasoning("The counter moves by each of the numbers.", item_id="rs_1"), *calls]
        elif len(outputs) == len(numbers):
            output = [function_call("call_read", "get_counter_value", "{}")]
        else:
            output = [output_message(f"The counter stands at {outputs[-1].output}.", item_id="msg_1")]
        tokens = 10 * len(items)
        return Response(
            id=f"resp_{call.call_key}",
            object="response",
            created_at=0,
            model="counting",
            output=output,
            status="completed",
            usage=ResponseUsage(input_tokens=tokens, output_tokens=5, total_tokens=tokens + 5),
        )
