"""`Item`: any one item of a request's `input` or a response's `output`, and how its kind is told.

The two take the same items: a rollout's response holds all that was said since its task, tool outputs and a simulated
user's messages included, and a response's output can be put into the next request's input as it is.
"""

from typing import Annotated, TypeAlias, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from contracts import variants
from contracts.responses.hosted import (
    AdditionalTools,
    ApplyPatchCall,
    ApplyPatchCallOutput,
    CodeInterpreterCall,
    Compaction,
    CompactionTrigger,
    ComputerCall,
    ComputerCallOutput,
    ConfigurationUpdate,
    FileSearchCall,
    ImageGenerationCall,
    LocalShellCall,
    LocalShellCallOutput,
    McpApprovalRequest,
    McpApprovalResponse,
    McpCall,
    McpListTools,
    Program,
    ProgramOutput,
    ShellCall,
    ShellCallOutput,
    ToolSearchCall,
    ToolSearchOutput,
    WebSearchCall,
)
from contracts.responses.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    InputMessage,
    ItemReference,
    OutputMessage,
    ReasoningItem,
    UnknownItem,
)


class _Items(variants.Variants):
    """Marks the union of all items; its rules are those of `Item`."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The union, for pydantic."""
        schemas = {member: handler.generate_schema(member) for member in get_args(source)}
        known = {name: schema for member, schema in schemas.items() for name in variants.literals(member, "type")}
        put_in, reference = schemas[InputMessage], schemas[ItemReference]
        assistant = core_schema.union_schema([schemas[OutputMessage], put_in], mode="left_to_right")
        by_role: dict[str, CoreSchema] = dict.fromkeys(variants.literals(InputMessage, "role"), put_in)
        known["message"] = core_schema.tagged_union_schema(by_role | {"assistant": assistant}, "role")
        known["item_reference"] = reference

        def tag(value: object) -> str | None:
            name = variants.read(value, "type")
            if name is None and variants.read(value, "role") is not None:
                return "message"
            if name is None and variants.read(value, "id") is not None:
                return "item_reference"
            return "unknown" if isinstance(name, str) and name not in known else None

        rest = {"message": put_in, "item_reference": reference, "unknown": schemas[UnknownItem]}
        return variants.union(known | by_role, [["type"], ["role"]], rest, tag)


Item: TypeAlias = Annotated[
    InputMessage
    | OutputMessage
    | ReasoningItem
    | FunctionCall
    | FunctionCallOutput
    | CustomToolCall
    | CustomToolCallOutput
    | McpCall
    | McpListTools
    | McpApprovalRequest
    | McpApprovalResponse
    | WebSearchCall
    | FileSearchCall
    | ComputerCall
    | ComputerCallOutput
    | ImageGenerationCall
    | CodeInterpreterCall
    | LocalShellCall
    | LocalShellCallOutput
    | ShellCall
    | ShellCallOutput
    | ApplyPatchCall
    | ApplyPatchCallOutput
    | ToolSearchCall
    | ToolSearchOutput
    | AdditionalTools
    | ConfigurationUpdate
    | Compaction
    | CompactionTrigger
    | Program
    | ProgramOutput
    | ItemReference
    | UnknownItem,
    _Items(),
]
"""One item, by its `type`.

A message without a type is an `InputMessage`; one of type `message` is an `OutputMessage` if the assistant wrote it in
parts, else an `InputMessage`. What has neither type nor role but an ID is an `ItemReference`.
"""
