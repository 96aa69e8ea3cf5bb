"""Keeps what nobody can make again: each call draws something at random."""

from typing import Any
from uuid import uuid4

from components.resources import Resources, ResourcesConfig, Reward, TaskFields, tool

Session = dict[str, list[Any]]


class Draws(Resources[ResourcesConfig]):
    """All draws of a rollout, in their order; its session is large enough to be a blob where the tests want it."""

    rebuild = "snapshot"

    async def seed_session(self) -> Session:
        """One draw."""
        return {"drawn": [uuid4().hex], "fill": ["x" * 1_500]}

    @tool
    async def add(self, session: Session, count: int) -> str:
        """Draws, and says what was drawn before too.

        Args:
            session: All draws.
            count: Which draw this is, for the test.
        """
        session["drawn"].append(f"{count} {uuid4().hex}")
        return " ".join(session["drawn"])

    @tool
    def spoil(self, session: Session, how: str) -> str:
        """Makes a session that has no snapshot.

        Args:
            session: All draws.
            how: `raise`, `set` or `large`.
        """
        session["drawn"].append("spoiled")
        session["fill"] = ["x" * 100_000] if how == "large" else [how, {how}]
        return "spoiled"

    def snapshot(self, session: Session) -> object:
        """All of it."""
        if "raise" in session["fill"]:
            raise OSError("the disk is full")
        return session

    async def restore(self, task: TaskFields, snapshot: Session) -> Session:
        """Draws nothing."""
        assert task.responses_create_params
        return snapshot

    def verify(self, session: Session) -> Reward:
        """How many draws there are, and which."""
        return Reward(reward=len(session["drawn"]), drawn=" ".join(session["drawn"]))
