"""Items of MCP servers and of tools that the engine's vendor defines, and items about the context itself.

JetGym passes them on; what a vendor nests in them is kept as JSON.
"""

from typing import Any, Literal

from contracts.base import ApiModel, JsonObject
from contracts.responses.tools import Tool


class McpCall(ApiModel):
    """The engine called a tool of an MCP server."""

    type: Literal["mcp_call"]
    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: str | JsonObject | None = None
    approval_request_id: str | None = None
    id: str | None = None
    status: str | None = None


class McpListedTool(ApiModel):
    """A tool as an MCP server describes it."""

    name: str
    input_schema: Any
    description: str | None = None
    annotations: Any = None


class McpListTools(ApiModel):
    """The engine asked an MCP server for its tools."""

    type: Literal["mcp_list_tools"]
    server_label: str
    tools: list[McpListedTool]
    error: str | JsonObject | None = None
    id: str | None = None


class McpApprovalRequest(ApiModel):
    """The engine asks before it calls a tool of an MCP server."""

    type: Literal["mcp_approval_request"]
    server_label: str
    name: str
    arguments: str
    id: str | None = None


class McpApprovalResponse(ApiModel):
    """The answer to `McpApprovalRequest`."""

    type: Literal["mcp_approval_response"]
    approval_request_id: str
    approve: bool
    reason: str | None = None
    id: str | None = None


class WebSearchCall(ApiModel):
    """The engine searched the web, opened a page, or looked for words in one."""

    type: Literal["web_search_call"]
    action: JsonObject | None = None
    id: str | None = None
    status: str | None = None


class FileSearchCall(ApiModel):
    """The engine searched in vector stores."""

    type: Literal["file_search_call"]
    queries: list[str]
    results: list[JsonObject] | None = None
    id: str | None = None
    status: str | None = None


class ComputerCall(ApiModel):
    """The model operates a computer: clicks, keys, screenshots."""

    type: Literal["computer_call"]
    call_id: str
    action: JsonObject | None = None
    actions: list[JsonObject] | None = None
    pending_safety_checks: list[JsonObject] | None = None
    id: str | None = None
    status: str | None = None


class ComputerCallOutput(ApiModel):
    """What the computer shows afterwards."""

    type: Literal["computer_call_output"]
    call_id: str
    output: JsonObject
    """`{"type": "computer_screenshot", "image_url" or "file_id": …}`."""
    acknowledged_safety_checks: list[JsonObject] | None = None
    id: str | None = None
    status: str | None = None
    created_by: str | None = None


class ImageGenerationCall(ApiModel):
    """The engine generated an image."""

    type: Literal["image_generation_call"]
    result: str | None = None
    """Base64."""
    id: str | None = None
    status: str | None = None
    action: str | None = None
    background: str | None = None
    output_format: str | None = None
    quality: str | None = None
    revised_prompt: str | None = None
    size: str | None = None
    error: JsonObject | None = None


class CodeInterpreterCall(ApiModel):
    """The engine ran Python."""

    type: Literal["code_interpreter_call"]
    code: str | None = None
    container_id: str | None = None
    outputs: list[JsonObject] | None = None
    """`{"type": "logs", "logs": …}` and `{"type": "image", "url": …}`."""
    id: str | None = None
    status: str | None = None


class ShellAction(ApiModel):
    """The command of a `LocalShellCall` (`command`) or those of a `ShellCall` (`commands`)."""

    type: str | None = None
    command: list[str] | None = None
    commands: list[str] | None = None
    env: dict[str, str] | None = None
    user: str | None = None
    working_directory: str | None = None
    timeout_ms: int | None = None
    max_output_length: int | None = None


class LocalShellCall(ApiModel):
    """The model calls the local shell."""

    type: Literal["local_shell_call"]
    call_id: str
    action: ShellAction
    id: str | None = None
    status: str | None = None


class LocalShellCallOutput(ApiModel):
    """What the local shell wrote."""

    type: Literal["local_shell_call_output"]
    output: str
    """JSON text."""
    id: str | None = None
    call_id: str | None = None
    status: str | None = None


class ShellCall(ApiModel):
    """The model calls the shell."""

    type: Literal["shell_call"]
    call_id: str
    action: ShellAction
    environment: JsonObject | None = None
    caller: JsonObject | None = None
    id: str | None = None
    status: str | None = None
    created_by: str | None = None


class ShellOutput(ApiModel):
    """What one command wrote and how it ended."""

    stdout: str
    stderr: str
    outcome: JsonObject
    """`{"type": "exit", "exit_code": …}` or `{"type": "timeout"}`."""
    created_by: str | None = None


class ShellCallOutput(ApiModel):
    """What the shell's commands wrote."""

    type: Literal["shell_call_output"]
    call_id: str
    output: list[ShellOutput]
    max_output_length: int | None = None
    caller: JsonObject | None = None
    id: str | None = None
    status: str | None = None
    created_by: str | None = None


class PatchOperation(ApiModel):
    """One file created, updated or deleted."""

    type: str
    """`create_file`, `update_file` or `delete_file`."""
    path: str
    diff: str | None = None


class ApplyPatchCall(ApiModel):
    """The model edits a file."""

    type: Literal["apply_patch_call"]
    call_id: str
    operation: PatchOperation
    caller: JsonObject | None = None
    id: str | None = None
    status: str | None = None
    created_by: str | None = None


class ApplyPatchCallOutput(ApiModel):
    """Whether the edit could be made."""

    type: Literal["apply_patch_call_output"]
    call_id: str
    output: str | None = None
    caller: JsonObject | None = None
    id: str | None = None
    status: str | None = None
    created_by: str | None = None


class ToolSearchCall(ApiModel):
    """The model searches among the tools."""

    type: Literal["tool_search_call"]
    arguments: Any = None
    call_id: str | None = None
    execution: str | None = None
    id: str | None = None
    status: str | None = None
    created_by: str | None = None


class ToolSearchOutput(ApiModel):
    """The tools that were found."""

    type: Literal["tool_search_output"]
    tools: list[Tool]
    call_id: str | None = None
    execution: str | None = None
    id: str | None = None
    status: str | None = None
    created_by: str | None = None


class AdditionalTools(ApiModel):
    """Tools offered from here on."""

    type: Literal["additional_tools"]
    role: str
    tools: list[Tool]
    id: str | None = None


class ConfigurationUpdate(ApiModel):
    """Options of the request that change from here on."""

    type: Literal["configuration_update"]
    reasoning: JsonObject | None = None
    text: JsonObject | None = None
    id: str | None = None


class Compaction(ApiModel):
    """Stands for earlier items, in a form that only its vendor can read."""

    type: Literal["compaction"]
    encrypted_content: str
    id: str | None = None
    created_by: str | None = None


class CompactionTrigger(ApiModel):
    """Asks for a compaction here."""

    type: Literal["compaction_trigger"]
    id: str | None = None


class Program(ApiModel):
    """A program that the model wrote to call tools."""

    type: Literal["program"]
    call_id: str
    code: str
    fingerprint: str | None = None
    id: str | None = None


class ProgramOutput(ApiModel):
    """What such a program gave."""

    type: Literal["program_output"]
    call_id: str
    result: str
    id: str | None = None
    status: str | None = None
