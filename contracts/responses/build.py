"""Short ways to make the items that authors make most; each sets its type and just the fields that its caller gives."""

from contracts.responses.content import ContentPart, InputText, OutputText, SummaryText
from contracts.responses.items import (
    FunctionCall,
    FunctionCallOutput,
    InputMessage,
    OutputMessage,
    ReasoningItem,
)


def user_message(content: str | list[ContentPart]) -> InputMessage:
    """A message of the user."""
    return InputMessage(type="message", role="user", content=content)


def system_message(content: str | list[ContentPart]) -> InputMessage:
    """A message of the system."""
    return InputMessage(type="message", role="system", content=content)


def developer_message(content: str | list[ContentPart]) -> InputMessage:
    """A message of the developer."""
    return InputMessage(type="message", role="developer", content=content)


def input_text(text: str) -> InputText:
    """Text for a model to read, as a part."""
    return InputText(type="input_text", text=text)


def output_text(text: str) -> OutputText:
    """Text as a model writes it, as a part."""
    return OutputText(type="output_text", text=text, annotations=[])


def output_message(content: str | list[ContentPart], *, item_id: str, status: str = "completed") -> OutputMessage:
    """A message as a model writes it."""
    parts: list[ContentPart] = [output_text(content)] if isinstance(content, str) else content
    return OutputMessage(type="message", role="assistant", content=parts, id=item_id, status=status)


def function_call(call_id: str, name: str, arguments: str) -> FunctionCall:
    """A call as a model writes it; `arguments` is JSON text."""
    return FunctionCall(type="function_call", call_id=call_id, name=name, arguments=arguments)


def function_call_output(call_id: str, output: str | list[ContentPart]) -> FunctionCallOutput:
    """The answer to the call of that ID."""
    return FunctionCallOutput(type="function_call_output", call_id=call_id, output=output)


def reasoning(summary: str, *, item_id: str) -> ReasoningItem:
    """Reasoning as its summary tells it."""
    return ReasoningItem(type="reasoning", id=item_id, summary=[SummaryText(type="summary_text", text=summary)])
