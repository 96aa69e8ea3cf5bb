"""Runs code on the private loop, as most tests of it do."""

from components.durable import Execution
from tests.unit.components.durable.world import Main, World


def started(main: Main) -> tuple[Execution[str], list[str]]:
    """An execution at its first wait, and the keys of its calls."""
    execution = World.execution_of(main)
    return execution, [call.key for call in execution.start()]


def finished(main: Main) -> str:
    """The result of code that makes no calls."""
    execution, calls = started(main)
    assert calls == []
    return execution.result()


def begun(main: Main) -> Execution[str]:
    """An execution at its first wait."""
    return started(main)[0]


def ended(main: Main) -> Execution[str]:
    """An execution of code that makes no calls."""
    execution = begun(main)
    assert execution.done
    return execution
