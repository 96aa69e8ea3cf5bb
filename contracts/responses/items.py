"""The items that agents work with: messages, reasoning, calls of functions and custom tools, and their outputs.

Items of tools that the engine or its vendor defines are in `contracts.responses.hosted`, the union of all in
`contracts.responses.item`.
"""

from typing import Literal

from contracts.base import ApiModel, JsonObject
from contracts.responses.content import ContentPart, InputText, OutputText, ReasoningPart, UnknownPart


class InputMessage(ApiModel):
    """A message that was put in: by the user, the developer, or as an example of the assistant.

    The API's easy form has no `type`; both forms take a string or parts.
    """

    role: Literal["user", "system", "developer", "assistant"]
    content: str | list[ContentPart]
    type: Literal["message"] | None = None
    id: str | None = None
    status: str | None = None
    phase: str | None = None

    @property
    def text(self) -> str:
        """The texts of all its parts, joined."""
        return self.content if isinstance(self.content, str) else text_of(self.content)


class OutputMessage(ApiModel):
    """A message that the model wrote."""

    type: Literal["message"]
    role: Literal["assistant"]
    content: list[ContentPart]
    """`OutputText` and `Refusal` parts."""
    id: str | None = None
    status: str | None = None
    """`in_progress`, `completed` or `incomplete`."""
    phase: str | None = None
    """`commentary` or `final_answer`."""

    @property
    def text(self) -> str:
        """The texts of all its parts, joined."""
        return text_of(self.content)


class ReasoningItem(ApiModel):
    """What the model thought before it wrote or called."""

    type: Literal["reasoning"]
    summary: list[ReasoningPart]
    content: list[ReasoningPart] | None = None
    """The reasoning itself, where the engine shows it."""
    encrypted_content: str | None = None
    """The reasoning in a form that only its vendor can read, to be sent back."""
    id: str | None = None
    status: str | None = None

    @property
    def text(self) -> str:
        """The reasoning if it is shown, else its summary; parts are set apart by an empty line."""
        parts = self.content or self.summary
        return "\n\n".join(part.text for part in parts if not isinstance(part, UnknownPart))


class FunctionCall(ApiModel):
    """The model calls a function."""

    type: Literal["function_call"]
    call_id: str
    """Names the call for its output."""
    name: str
    arguments: str
    """JSON text as the model wrote it, not checked."""
    id: str | None = None
    status: str | None = None
    namespace: str | None = None
    caller: JsonObject | None = None
    created_by: str | None = None


class FunctionCallOutput(ApiModel):
    """What a function answered."""

    type: Literal["function_call_output"]
    call_id: str | None = None
    output: str | list[ContentPart]
    id: str | None = None
    status: str | None = None
    name: str | None = None
    namespace: str | None = None
    caller: JsonObject | None = None
    created_by: str | None = None


class CustomToolCall(ApiModel):
    """The model calls a custom tool."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str
    id: str | None = None
    status: str | None = None
    namespace: str | None = None
    caller: JsonObject | None = None
    created_by: str | None = None


class CustomToolCallOutput(ApiModel):
    """What a custom tool answered."""

    type: Literal["custom_tool_call_output"]
    call_id: str
    output: str | list[ContentPart]
    id: str | None = None
    status: str | None = None
    caller: JsonObject | None = None
    created_by: str | None = None


class ItemReference(ApiModel):
    """Stands for an item that the engine stored under this ID."""

    id: str
    type: Literal["item_reference"] | None = None


class UnknownItem(ApiModel):
    """An item of a type that this version does not know, kept whole."""

    type: str


def text_of(parts: list[ContentPart]) -> str:
    """The texts among `parts`, joined."""
    return "".join(part.text for part in parts if isinstance(part, OutputText | InputText))
