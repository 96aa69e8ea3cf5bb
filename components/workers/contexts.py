"""What was said before in a rollout, for workers that are sent only what is new.

A model worker remembers the contexts of the calls that it answered, the latest up to `REMEMBERED` bytes; whatever else
is cited is read from the log. Called by the model and resources workers, and by whoever reads results.
"""

import asyncio
from collections import OrderedDict
from typing import Final

from msgspec import Raw

from bus import Bus, Unreachable
from components.workers.adoption import LAG_S
from contracts.contexts import Citation, Context, ModelCalls, whole_response
from contracts.errors import MissingContext
from contracts.rollouts import RolloutResult, VerifyRequest

REMEMBERED: Final = 64 * 1024 * 1024
"""Bytes of items that a worker keeps."""
_LOOK_AGAIN_S: Final = 0.1


class Contexts:
    """The contexts that one worker remembers."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._known: OrderedDict[tuple[str, str], tuple[Context, int]] = OrderedDict()
        self._bytes = 0

    async def of(self, rollout: str, citation: Citation) -> Context:
        """The context of a cited call; raises `Unreachable` if the log does not have it."""
        known = self._known.get((rollout, citation.call))
        if known is None:
            return await read_context(self._bus, rollout, citation.call)
        self._known.move_to_end((rollout, citation.call))
        return known[0]

    def keep(self, rollout: str, call: str, context: Context, new_bytes: int) -> None:
        """Remembers a call's context, of which so many bytes are not in one that is remembered already."""
        before = self._known.pop((rollout, call), None)
        self._bytes += new_bytes - (before[1] if before is not None else 0)
        self._known[rollout, call] = context, new_bytes
        while self._bytes > REMEMBERED:
            _, (_, gone) = self._known.popitem(last=False)
            self._bytes -= gone


async def read_context(bus: Bus, rollout: str, call: str) -> Context:
    """The context of an answered model call, from the log; raises `Unreachable` if the log does not have it."""
    deadline = asyncio.get_running_loop().time() + LAG_S
    while True:
        recorded = await bus.history(rollout)
        said: dict[str, dict[str, bytes]] = {"model.requested": {}, "model.replied": {}}
        for event in (entry.event for entry in recorded):
            if event.type in said:
                said[event.type][event.callkey] = await bus.fetch_data(event)
        try:
            return ModelCalls(said["model.requested"], said["model.replied"]).context(call)
        except MissingContext as missing:
            if asyncio.get_running_loop().time() > deadline:
                raise Unreachable(f"rollout {rollout}: {missing}") from missing
        await asyncio.sleep(_LOOK_AGAIN_S)


async def response_of(bus: Bus, rollout: str, said: VerifyRequest | RolloutResult) -> Raw:
    """The whole Responses object of a request to verify, or of a result; raises `Unreachable`."""
    if said.cited is None:
        return said.response
    return whole_response(said.response, said.cited, await read_context(bus, rollout, said.cited.call))
