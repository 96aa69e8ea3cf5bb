"""Keeps what it can neither make again nor store."""

from components.resources import Resources, ResourcesConfig, tool


class Frail(Resources[ResourcesConfig]):
    """All that was added in a rollout."""

    rebuild = "fail"

    async def seed_session(self) -> list[int]:
        """Nothing yet."""
        return []

    @tool
    async def add(self, session: list[int], count: int) -> str:
        """Adds, and says what there is.

        Args:
            session: All that was added.
            count: What to add.
        """
        session.append(count)
        return str(session)

    async def verify(self, session: list[int]) -> float:
        """How much was added."""
        return float(len(session))
