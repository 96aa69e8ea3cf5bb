"""Asking the server: a task that is told to stop stops, whatever arrives at that moment."""

import asyncio

from bus.connection import Message, connect


async def test_a_cancellation_that_meets_the_answer_is_not_lost(server: str) -> None:
    """Python 3.11's `wait_for` returns the answer then and forgets the cancellation: a worker would go on for ever."""
    connection = await connect(server, name="test")
    went_on = False

    async def work() -> None:
        nonlocal went_on
        await connection.ask("$JS.API.INFO", b"", on_answer)
        went_on = True
        await asyncio.Event().wait()

    def on_answer(_message: Message) -> bool:
        working.cancel()  # the answer is set in this very turn of the loop
        return True

    working = asyncio.create_task(work())
    await asyncio.wait([working], timeout=5)
    stopped = working.cancelled()
    working.cancel()
    await connection.close()
    assert stopped
    assert not went_on


async def test_a_cancellation_right_after_the_answer_is_not_lost(server: str) -> None:
    """As above, with the answer first."""
    connection = await connect(server, name="test")

    async def work() -> None:
        await connection.ask("$JS.API.INFO", b"", on_answer)
        await asyncio.Event().wait()

    def on_answer(_message: Message) -> bool:
        asyncio.get_running_loop().call_soon(working.cancel)
        return True

    working = asyncio.create_task(work())
    await asyncio.wait([working], timeout=5)
    stopped = working.cancelled()
    working.cancel()
    await connection.close()
    assert stopped
