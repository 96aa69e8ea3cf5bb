"""How many files and connections may a worker have open?

A model worker has a connection for each call in progress, and many systems allow a process 1,024 until it asks for
more. Called once, where a worker starts. What the system does not allow stays so: calls wait for a connection then.
"""

import resource
from contextlib import suppress


def allow_most() -> None:
    """From now on this process, and what it starts, may have as many open as the system allows it at most."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems name a limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
