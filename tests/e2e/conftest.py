"""What workers in the test's own process log is kept off the terminal: rendering it takes longer than the tests."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():
        yield
