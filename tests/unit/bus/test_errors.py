"""What a server refuses is told with the next step, where there is one."""

import pytest

from bus.errors import ApiRefused


@pytest.mark.parametrize(
    ("code", "description", "next_step"),
    [
        (
            10008,
            "JetStream system temporarily unavailable",
            ". More than half of the servers of its cluster have to be",
        ),
        (10012, "error creating store for consumer", ". The server could not write: is there room on its disk?"),
        (10049, "error creating store for stream", ". The server could not write: is there room on its disk?"),
        (10059, "stream not found", ""),
    ],
)
def test_what_a_server_refuses_is_told_with_the_next_step(code: int, description: str, next_step: str) -> None:
    told, _, rest = str(ApiRefused("STREAM.CREATE.x", 503, code, description)).partition(")")
    assert told == f"STREAM.CREATE.x: {description} (503, error {code}"
    assert rest.startswith(next_step)
    assert bool(rest) == bool(next_step)
