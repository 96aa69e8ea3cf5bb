"""What the bus uses of nats-py beyond its public names, pinned to the installed version."""

import inspect

import pytest
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from bus.connection import field_of, redacted, status_of
from bus.wire import PRIVATE_NAMES, Wire

OVERRIDDEN = ("_process_connect_init", "_process_op_err", "_process_pong", "_read_loop", "_connect_to_server", "close")


async def test_nats_py_still_has_the_private_names_that_the_wire_uses() -> None:
    """When this fails, read `bus/wire.py` beside the new nats-py before changing anything."""
    client = Wire()
    assert [name for name in PRIVATE_NAMES if not hasattr(client, name)] == []


def test_the_overridden_methods_have_the_shape_that_nats_py_calls() -> None:
    for name in OVERRIDDEN:
        assert list(inspect.signature(getattr(Wire, name)).parameters) == list(
            inspect.signature(getattr(Client, name)).parameters
        )
    assert inspect.iscoroutinefunction(Client._process_msg)
    assert list(inspect.signature(TcpTransport.wait_closed).parameters) == ["self"]
    assert "self._io_writer" in inspect.getsource(TcpTransport.wait_closed)
    assert "limit" in inspect.signature(Subscription.unsubscribe).parameters


def test_no_other_private_name_of_nats_py_is_used() -> None:
    used = {name for name in Wire.__dict__ if name.startswith("_") and not name.startswith("__")}
    own = {"_flush_now", "_go_on_if_wanted"}
    assert used == own | set(OVERRIDDEN) - {"close"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (None, 0),
        (b"NATS/1.0\r\nNats-Sequence: 5\r\n\r\n", 0),
        (b"NATS/1.0 503\r\n\r\n", 503),
        (b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\n\r\n", 100),
        (b"NATS/1.0 \r\n\r\n", 0),
    ],
)
def test_the_status_of_a_header_block(headers: bytes | None, status: int) -> None:
    assert status_of(headers) == status


def test_a_field_of_a_header_block() -> None:
    block = b"NATS/1.0 100 Idle\r\nNats-Last-Consumer: 7\r\nNats-Last-Stream:12\r\n\r\n"
    assert field_of(block, b"Nats-Last-Consumer") == b"7"
    assert field_of(block, b"Nats-Last-Stream") == b"12"
    assert field_of(block, b"Nats-Last") == b""
    assert field_of(None, b"Nats-Last") == b""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://h:4222", "nats://h:4222"),
        ("nats://user:pass@h:4222", "nats://h:4222"),
        ("nats://token@h", "nats://h"),
        ("nats://a:b@h1:1,nats://c:d@h2:2", "nats://h1:1,nats://h2:2"),
        ("user:pass@h:4222", "h:4222"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert redacted(url) == shown
