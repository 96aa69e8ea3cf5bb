"""What every test may rely on, wherever it stands."""

import faulthandler
import os
import sys
import threading
from collections.abc import Generator, Iterator

import pytest
import structlog

GRACE_S = 100.0
"""After its limit, at which a test is to be ended from inside."""

_TERMINAL = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the way to the terminal, which tests have not: what they write is captured."""
    config.stash[_TERMINAL] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Ends the process of a test that outlives its limit: a signal ends none that joins a thread, and may get lost."""
    marker = item.get_closest_marker("timeout")
    limit_s = float(marker.args[0] if marker else item.config.getini("timeout"))
    timer = threading.Timer(limit_s + GRACE_S, _end, (item.nodeid, item.config.stash[_TERMINAL]))
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()


def _end(test: str, terminal: int) -> None:
    os.write(terminal, f"\n{test} does not end: all threads of its process\n".encode())
    faulthandler.dump_traceback(terminal)
    os._exit(1)


@pytest.fixture(autouse=True)
def log_lines_go_to_this_test() -> Iterator[None]:
    """A logger that one test configured would write into that test's closed output in the next."""
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr), cache_logger_on_first_use=False)
    yield
    structlog.reset_defaults()
