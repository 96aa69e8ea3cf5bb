"""A counter, with tools and verdicts that go wrong in all the ways that tests want."""

import asyncio
import math
import os
import time
from dataclasses import dataclass

from components.resources import Resources, ResourcesConfig, TaskFields, ToolError, tool

LEAKED: list[bytes] = []


class StageTask(TaskFields):
    """What is expected of the counter, and how the verifier behaves."""

    expected: int = 0
    verdict: str = "compare"


@dataclass
class Count:
    """The session."""

    value: int = 0


class Stage(Resources[ResourcesConfig]):
    """One counter a rollout."""

    async def seed_session(self, task: StageTask) -> Count:
        """Starts at 0."""
        if task.verdict == "no session":
            raise OSError("there is no room")
        if task.verdict == "slow session":
            await asyncio.sleep(math.inf)
        return Count()

    @tool
    async def add(self, session: Count, count: int) -> str:
        """Adds to the counter, and says what it stands at.

        Args:
            session: The counter.
            count: What to add.
        """
        before = session.value
        await asyncio.sleep(0)  # calls that ran at once on one session would overwrite each other
        session.value = before + count
        return str(session.value)

    @tool
    async def add_slowly(self, session: Count, count: int, seconds: float) -> str:
        """Adds first and answers later.

        Args:
            session: The counter.
            count: What to add.
            seconds: When to answer.
        """
        session.value += count
        await asyncio.sleep(seconds)
        return str(session.value)

    @tool
    async def append(self, session: Count, digit: int, seconds: float = 0.0, fill: str = "", padded: int = 0) -> str:
        """Puts a digit behind the counter's, and says what it stands at: in another order it is another number.

        Args:
            session: The counter.
            digit: Which; a negative one ends the process.
            seconds: When.
            fill: Makes the call large.
            padded: Makes the answer so long.
        """
        await asyncio.sleep(seconds)
        if digit < 0:
            os._exit(7)
        session.value = 10 * session.value + digit
        return str(session.value).rjust(padded)

    @tool
    def fill(self, size: int) -> str:
        """Says much.

        Args:
            size: How many characters.
        """
        return "x" * size

    @tool
    def hang(self, seconds: float) -> str:
        """Blocks a thread.

        Args:
            seconds: For so long.
        """
        time.sleep(seconds)
        return "at last"

    @tool
    def hang_on(self, session: Count, count: int) -> str:
        """Adds, and blocks a thread for longer than any deadline here.

        Args:
            session: The counter.
            count: What to add.
        """
        session.value += count
        time.sleep(1.5)
        return "at last"

    @tool
    async def leak(self, session: Count, megabytes: int, seconds: float = 0.0) -> str:
        """Takes memory for ever.

        Args:
            session: The counter, which goes up by 1.
            megabytes: How much.
            seconds: When to answer.
        """
        session.value += 1
        LEAKED.append(b"x" * (megabytes * 1_000_000))
        await asyncio.sleep(seconds)
        return str(session.value)

    @tool
    async def fail(self, how: str) -> str:
        """Raises.

        Args:
            how: What.
        """
        if how == "exit":
            raise SystemExit(1)
        raise ToolError(how) if how != "key" else KeyError("gone")

    @tool
    async def die(self, seconds: float) -> str:
        """Ends the process.

        Args:
            seconds: When.
        """
        await asyncio.sleep(seconds)
        os._exit(7)

    async def verify(self, task: StageTask, session: Count) -> float:
        """Whether the counter stands where it should; other verdicts are faults."""
        if task.verdict == "raise":
            raise RuntimeError("the judge is out \udc80")
        if task.verdict == "die":
            os._exit(7)
        if task.verdict == "hang":
            await asyncio.sleep(math.inf)
        if task.verdict == "nan":
            return math.nan
        if task.verdict == "value":
            return float(session.value)
        return float(session.value == task.expected)
