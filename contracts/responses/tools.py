"""What a request offers the model to call (`Tool`) and how far it must call (`ToolChoice`)."""

from typing import Annotated, Literal, TypeAlias

from contracts.base import ApiModel, JsonObject, Number
from contracts.variants import Variants


class FunctionTool(ApiModel):
    """A function with JSON arguments; resources components serve these."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    """JSON Schema of the arguments."""
    strict: bool | None = None
    """Whether the engine must keep to `parameters` exactly."""
    output_schema: JsonObject | None = None
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None


class CustomTool(ApiModel):
    """A tool whose input is free text, or text of a grammar."""

    type: Literal["custom"]
    name: str
    description: str | None = None
    format: JsonObject | None = None
    """`{"type": "text"}`, or a grammar: `{"type": "grammar", "syntax": …, "definition": …}`."""
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None


class McpTool(ApiModel):
    """All tools of an MCP server that the engine itself calls."""

    type: Literal["mcp"]
    server_label: str
    server_url: str | None = None
    server_description: str | None = None
    connector_id: str | None = None
    authorization: str | None = None
    headers: dict[str, str] | None = None
    allowed_tools: list[str] | JsonObject | None = None
    require_approval: str | JsonObject | None = None
    """`always`, `never`, or a filter for each."""
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None


class WebSearchTool(ApiModel):
    """The engine's web search."""

    type: Literal["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"]
    filters: JsonObject | None = None
    search_context_size: str | None = None
    search_content_types: list[str] | None = None
    user_location: JsonObject | None = None
    external_web_access: bool | None = None


class FileSearchTool(ApiModel):
    """The engine's search in vector stores."""

    type: Literal["file_search"]
    vector_store_ids: list[str]
    filters: JsonObject | None = None
    max_num_results: int | None = None
    ranking_options: JsonObject | None = None


class ComputerTool(ApiModel):
    """A computer that the model operates by screenshots, keys and pointer."""

    type: Literal["computer", "computer_use_preview"]
    environment: str | None = None
    display_width: int | None = None
    display_height: int | None = None


class CodeInterpreterTool(ApiModel):
    """The engine's Python."""

    type: Literal["code_interpreter"]
    container: str | JsonObject
    """ID of a container, or `{"type": "auto", …}`."""
    allowed_callers: list[str] | None = None


class ImageGenerationTool(ApiModel):
    """The engine's image generator."""

    type: Literal["image_generation"]
    action: str | None = None
    model: str | None = None
    background: str | None = None
    input_fidelity: str | None = None
    input_image_mask: JsonObject | None = None
    moderation: str | None = None
    output_compression: Number | None = None
    output_format: str | None = None
    partial_images: int | None = None
    quality: str | None = None
    size: str | None = None


class LocalShellTool(ApiModel):
    """A shell that the agent runs, one command an item."""

    type: Literal["local_shell"]


class ShellTool(ApiModel):
    """A shell that the agent or the engine runs, several commands an item."""

    type: Literal["shell"]
    environment: JsonObject | None = None
    allowed_callers: list[str] | None = None


class ApplyPatchTool(ApiModel):
    """Edits of files, which the agent applies."""

    type: Literal["apply_patch"]
    allowed_callers: list[str] | None = None


class UnknownTool(ApiModel):
    """A tool of a type that this version does not know, kept whole."""

    type: str


SimpleTool: TypeAlias = Annotated[FunctionTool | CustomTool | UnknownTool, Variants()]
"""What a namespace may hold."""


class NamespaceTool(ApiModel):
    """Function and custom tools under one name."""

    type: Literal["namespace"]
    name: str
    description: str | None = None
    tools: list[SimpleTool]


class ToolSearchTool(ApiModel):
    """A search among the tools whose loading is deferred."""

    type: Literal["tool_search"]
    description: str | None = None
    execution: str | None = None
    parameters: JsonObject | None = None


class ProgrammaticToolCalling(ApiModel):
    """Lets the model write a program that calls the tools."""

    type: Literal["programmatic_tool_calling"]


Tool: TypeAlias = Annotated[
    FunctionTool
    | CustomTool
    | McpTool
    | WebSearchTool
    | FileSearchTool
    | ComputerTool
    | CodeInterpreterTool
    | ImageGenerationTool
    | LocalShellTool
    | ShellTool
    | ApplyPatchTool
    | NamespaceTool
    | ToolSearchTool
    | ProgrammaticToolCalling
    | UnknownTool,
    Variants(),
]
"""One tool of a request."""


class FunctionChoice(ApiModel):
    """The model must call this function."""

    type: Literal["function"]
    name: str


class CustomChoice(ApiModel):
    """The model must call this custom tool."""

    type: Literal["custom"]
    name: str


class McpChoice(ApiModel):
    """The model must call this server's tools, or one of them."""

    type: Literal["mcp"]
    server_label: str
    name: str | None = None


class AllowedToolsChoice(ApiModel):
    """The model may (`auto`) or must (`required`) call one of these tools only."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[JsonObject]
    """Each names a tool, as in `{"type": "function", "name": "add"}`."""


class HostedToolChoice(ApiModel):
    """The model must call a tool that its type alone names, like `file_search` or `shell`; also unknown choices."""

    type: str


ToolChoiceMode: TypeAlias = Literal["none", "auto", "required"]

ToolChoice: TypeAlias = (
    ToolChoiceMode
    | Annotated[FunctionChoice | CustomChoice | McpChoice | AllowedToolsChoice | HostedToolChoice, Variants()]
)
"""Whether and what the model must call."""
