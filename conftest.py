"""What every test may rely on, wherever it stands."""

import sys
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def log_lines_go_to_this_test() -> Iterator[None]:
    """A logger that one test configured would write into that test's closed output in the next."""
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr), cache_logger_on_first_use=False)
    yield
    structlog.reset_defaults()
