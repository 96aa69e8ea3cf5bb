"""Answers with text that does not compress, another one for each question."""

import random
import string

from components.resources.base import Resources, tool
from contracts.responses import Response


class Echo(Resources):
    """One tool, and a verifier that is always content."""

    @tool
    def look(self, at: str) -> str:
        """Looks at something."""
        return "".join(random.Random(at).choices(string.ascii_letters + string.digits, k=350))  # noqa: S311

    def verify(self, response: Response) -> float:  # noqa: ARG002
        """Nothing is wrong here."""
        return 1.0
