"""Resources: the tools and the verifiers of environments, and the sessions that they keep."""

from components.resources.base import Described, Resources, ResourcesConfig, Reward, TaskFields, ToolError, tool
from components.resources.errors import InvalidResources, ResourcesError
from components.resources.runtime import History, Runtime

__all__ = [
    "Described",
    "History",
    "InvalidResources",
    "Resources",
    "ResourcesConfig",
    "ResourcesError",
    "Reward",
    "Runtime",
    "TaskFields",
    "ToolError",
    "tool",
]
