"""A room of boxes: a note in one leads to the next, and the last one holds a code. Written as any environment is."""

import asyncio
import re
from typing import Final

from pydantic import Field

from components.resources import Resources, ResourcesConfig, TaskFields, tool
from contracts.responses import Response

_QUOTED: Final = re.compile(r'"([^"]*)"')


class BoxesConfig(ResourcesConfig):
    """How slow the room is."""

    open_s: float = Field(default=0.0, ge=0)
    """Seconds until an opened box answers; nothing computes meanwhile, as where a tool asks a service."""


class BoxesTask(TaskFields):
    """Where the notes lead, and what is at the end. The model reads of it only the first box's name."""

    path: list[str]
    """The boxes in the order in which the notes name them."""
    code: str
    """What lies in the last one."""


class Boxes(Resources[BoxesConfig]):
    """Each rollout has a room of its own."""

    async def seed_session(self, task: BoxesTask) -> dict[str, str]:
        """Puts a note into each box of the path, and the code into the last."""
        notes = [f'A note: open "{box}".' for box in task.path[1:]]
        return dict(zip(task.path, [*notes, f'The code is "{task.code}".'], strict=True))

    @tool
    async def open(self, session: dict[str, str], box: str) -> str:
        """Opens a box and says what is in it.

        Args:
            session: The room; the model does not see this parameter.
            box: The box's name, as a colour.
        """
        await asyncio.sleep(self.config.open_s)
        return session.get(box, f'"{box}" is empty.')

    async def verify(self, task: BoxesTask, response: Response) -> float:
        """1 for an answer that names the code in quotes and nothing else so, 0 otherwise."""
        return float(_QUOTED.findall(response.output_text) == [task.code])
