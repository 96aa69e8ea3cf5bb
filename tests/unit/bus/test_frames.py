"""However the server's bytes are cut, each message comes once and whole; all else stays nats-py's."""

import asyncio
import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from bus.frames import Frames

HANDLED, OTHER = 7, 8
Heard = tuple[int | str, bytes, bytes, bytes, bytes | None]


class Client:
    """What nats-py's parser calls."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.handlers = {HANDLED: self._handler}

    def _handler(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.heard.append((HANDLED, subject, reply, data, headers))
        if data == b"raise":
            raise RuntimeError("a handler's own fault")

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.heard.append((sid, bytes(subject), bytes(reply), data, headers))

    async def _process_ping(self) -> None:
        self.heard.append(("PING", b"", b"", b"", None))

    async def _process_pong(self) -> None:
        self.heard.append(("PONG", b"", b"", b"", None))

    async def _process_err(self, message: str) -> None:
        self.heard.append(("ERR", message.encode(), b"", b"", None))

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.heard.append(("INFO", str(info).encode(), b"", b"", None))


words = st.text(alphabet="abc.$_", min_size=1, max_size=9).map(str.encode)
bodies = st.one_of(st.binary(max_size=40), st.just(b"MSG a 7 1\r\nx\r\n"), st.just(b"raise"))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """One command of the server."""
    kind = draw(
        st.sampled_from(["MSG", "HMSG", "PING", "PONG", "+OK", "-ERR 'Slow Consumer'", 'INFO {"max_payload":1}'])
    )
    if kind not in ("MSG", "HMSG"):
        return f"{kind}\r\n".encode()
    subject, sid, reply, body = draw(words), draw(st.sampled_from([HANDLED, OTHER])), draw(words), draw(bodies)
    headers = draw(st.sampled_from([b"NATS/1.0 503\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"])) if kind == "HMSG" else b""
    to = b" " + reply if draw(st.booleans()) else b""
    sizes = b"%d %d" % (len(headers), len(headers) + len(body)) if headers else b"%d" % len(body)
    return b"%b %b %d%b %b\r\n%b%b\r\n" % (kind.encode(), subject, sid, to, sizes, headers, body)


async def parsed(parser: Parser, chunks: list[bytes]) -> None:
    for chunk in chunks:
        await parser.parse(chunk)


@given(st.lists(frames(), max_size=8), st.data())
def test_what_is_heard_is_what_nats_py_hears_however_the_bytes_are_cut(
    commands: list[bytes], data: st.DataObject
) -> None:
    said = b"".join(commands)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(said) - 1)), max_size=12)))
    chunks = [said[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(said)], strict=True)]

    async def ours() -> list[Heard]:
        client = Client()
        await parsed(Frames(client, client.handlers), chunks)
        return client.heard

    async def theirs() -> list[Heard]:
        client = Client()
        await parsed(Parser(client), chunks)
        return client.heard

    assert asyncio.run(ours()) == asyncio.run(theirs())


@pytest.mark.parametrize("line", [b"MSG\r\n", b"MSG a x 3\r\n", b"MSG a 7 many\r\n", b"HMSG a 7 x 3\r\n", b"NOISE\r\n"])
async def test_what_is_no_command_ends_the_connection(line: bytes) -> None:
    client = Client()
    with pytest.raises(ProtocolError):
        await Frames(client, client.handlers).parse(line)


async def test_a_message_of_many_reads_is_put_together_once() -> None:
    client = Client()
    parser = Frames(client, client.handlers)
    body = bytes(range(256)) * 40_000
    said = b"MSG a 7 %d\r\n%b\r\n" % (len(body), body)
    await parsed(parser, [said[at : at + 32_768] for at in range(0, len(said), 32_768)])
    assert client.heard == [(HANDLED, b"a", b"", body, None)]


async def test_nothing_of_a_lost_connection_is_heard_on_the_next_one() -> None:
    client = Client()
    parser = Frames(client, client.handlers)
    await parser.parse(b"MSG a 7 5\r\nhal")
    parser.reset()
    await parser.parse(b"MSG b 7 2\r\nok\r\n")
    assert client.heard == [(HANDLED, b"b", b"", b"ok", None)]


async def test_a_new_connection_made_while_a_message_is_handled_ends_the_reading_of_the_old_one() -> None:
    client = Client()

    class Reconnecting(Client):
        async def _process_ping(self) -> None:
            parser.reset()

    client = Reconnecting()
    parser = Frames(client, client.handlers)
    await parser.parse(b"PING\r\nMSG old 7 2\r\nno\r\nMSG old 7 9\r\nhal")
    await parser.parse(b"MSG new 7 2\r\nok\r\n")
    assert client.heard == [(HANDLED, b"new", b"", b"ok", None)]


def test_nats_py_calls_its_parser_as_it_did() -> None:
    """When this fails, read `bus/frames.py` beside the new nats-py before changing anything."""
    assert list(inspect.signature(Frames.parse).parameters) == list(inspect.signature(Parser.parse).parameters)
    assert list(inspect.signature(Parser.__init__).parameters) == ["self", "nc"]
    assert Parser(None).nc is None
