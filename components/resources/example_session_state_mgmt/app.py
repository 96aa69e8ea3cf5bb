"""A counter that the model moves with tools: the smallest environment that keeps a session."""

from dataclasses import dataclass

from components.resources import Resources, TaskFields, tool


class CounterTask(TaskFields):
    """Where the counter starts and where it should end."""

    expected_count: int
    initial_count: int = 0


@dataclass
class Counter:
    """The session."""

    value: int


class CounterResources(Resources):
    """One counter a rollout."""

    async def seed_session(self, task: CounterTask) -> Counter:
        """Starts at the task's initial count."""
        return Counter(task.initial_count)

    @tool
    async def increment_counter(self, session: Counter, count: int) -> str:
        """Adds a number to the counter.

        Args:
            session: The rollout's counter; the model does not see this parameter.
            count: The number to add.
        """
        session.value += count
        return "ok"

    @tool
    async def get_counter_value(self, session: Counter) -> str:
        """Says what the counter stands at."""
        return str(session.value)

    async def verify(self, task: CounterTask, session: Counter) -> bool:
        """Whether the counter stands where it should."""
        return session.value == task.expected_count
