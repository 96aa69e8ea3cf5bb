"""A client of the Debug Adapter Protocol, as far as a test needs one: what an editor says to debugpy."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Json = dict[str, Any]
_DEADLINE_S = 60.0


class Client:
    """A connected debugger."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rwb")
        self._sent = 0
        self.events: list[Json] = []
        """That were not waited for yet."""

    def send(self, command: str, **arguments: Any) -> int:
        """Asks for something; returns the number that its answer names."""
        self._sent += 1
        body = json.dumps({"seq": self._sent, "type": "request", "command": command, "arguments": arguments}).encode()
        self._file.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._file.flush()
        return self._sent

    def ask(self, command: str, **arguments: Any) -> Any:
        """Asks for something and waits for the answer's body."""
        number = self.send(command, **arguments)
        while (found := self._read()).get("request_seq") != number:
            self.events.append(found)
        assert found["success"], found
        return found.get("body")

    def until(self, event: str) -> Json:
        """Waits for an event; returns what it says."""
        while True:
            for place, found in enumerate(self.events):
                if found.get("event") == event:
                    del self.events[place]
                    return found.get("body") or {}
            self.events.append(self._read())

    def stop_at(self, path: str, *lines: int) -> None:
        """Sets the breakpoints of a file."""
        asked = [{"line": line} for line in lines]
        found = self.ask("setBreakpoints", source={"path": path}, breakpoints=asked)
        assert [each["verified"] for each in found["breakpoints"]] == [True] * len(lines)

    def stopped(self) -> tuple[int, Json]:
        """Waits until the program stands still; the thread, and its innermost frame."""
        thread = self.until("stopped")["threadId"]
        return thread, self.ask("stackTrace", threadId=thread)["stackFrames"][0]

    def _read(self) -> Json:
        length = 0
        while line := self._file.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert length, "the debugger has gone"
        found: Json = json.loads(self._file.read(length))
        return found


@contextmanager
def attached(port: int) -> Iterator[Client]:
    """A debugger that is attached to what listens on a port; the program waits for `configurationDone`."""
    until = time.monotonic() + _DEADLINE_S
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE_S)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < until, "nothing listens"
            time.sleep(0.05)
    with connection:
        client = Client(connection)
        client.ask("initialize", adapterID="test", pathFormat="path", linesStartAt1=True, columnsStartAt1=True)
        client.send("attach", justMyCode=False)
        client.until("initialized")
        yield client
