"""What workers in the test's own process log is kept off the terminal: rendering it takes longer than the tests."""

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.e2e.runs import Run, started


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the run comes to without any kill."""
    run = Run(tmp_path_factory.mktemp("undisturbed"))
    run.finish(run.start())
    return run.results()


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """A test that fails leaves no command running."""
    yield
    while started:
        process = started.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()
