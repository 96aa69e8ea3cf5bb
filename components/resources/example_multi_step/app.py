"""Several tool calls whose results build on each other: look values up, then hand them in, in order."""

import json
from collections.abc import Sequence

from components.resources import Resources, TaskFields, tool
from contracts.responses import FunctionCall, Response


class SynonymTask(TaskFields):
    """The values that should be handed in."""

    expected_synonym_values: list[int]


class SynonymResources(Resources):
    """Words have values; the task says which words count."""

    @tool
    async def get_synonym_value(self, synonym: str) -> dict[str, int]:
        """Looks up the value of a synonym.

        Args:
            synonym: The synonym to look up.
        """
        return {"synonym_value": sum(map(ord, synonym))}

    @tool
    async def extract_synonym_values(self, synonym_values: list[int]) -> dict[str, bool]:  # noqa: ARG002 - see verify
        """Hands in the values of all synonyms that count.

        Args:
            synonym_values: The values, in the order of the list of synonyms.
        """
        return {"success": True}

    async def verify(self, task: SynonymTask, response: Response) -> bool:
        """Whether the values that were handed in last are the expected ones, in their order."""
        return handed_in(response.function_calls) == task.expected_synonym_values


def handed_in(calls: Sequence[FunctionCall]) -> object:
    """The list of the last `extract_synonym_values` call, None where there is none that can be read."""
    for call in reversed(calls):
        if call.name == "extract_synonym_values":
            try:
                arguments = json.loads(call.arguments)
            except ValueError:
                return None
            return arguments.get("synonym_values") if isinstance(arguments, dict) else None
    return None
