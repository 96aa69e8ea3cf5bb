"""What agent code can reach: its calls, and time and randomness that follow from the log.

`components/agents/base` wraps it for authors. It belongs to one execution and never does I/O.
"""

import random
from datetime import datetime
from hashlib import blake2b
from uuid import UUID

from components.durable.loop import RolloutLoop
from contracts.events import Kind


class Context:
    """The outside, as one rollout sees it."""

    __slots__ = ("_loop",)

    def __init__(self, loop: RolloutLoop) -> None:
        self._loop = loop

    @property
    def rollout_id(self) -> str:
        """The rollout that this code is an attempt of."""
        return self._loop.rollout_id

    async def call(self, kind: Kind, instance: str, type: str, data: bytes) -> bytes:  # noqa: A002
        """Makes a call and waits for its reply's data.

        `type` is `<call>.requested`, `data` JSON. Raises `CallFailed` when the reply is `<call>.failed`.
        """
        reply = self._loop.call(kind, instance, type, data)
        del data  # what was asked is not kept while the rollout waits: a worker holds tens of thousands
        return await reply

    @property
    def next_key(self) -> str:
        """The key that the next call of this branch will have."""
        return self._loop.next_key

    def now(self) -> datetime:
        """The time of the latest event given to this rollout, UTC.

        A function of the log, so no event is needed to record it. It stands still until the next reply.
        """
        return self._loop.latest

    def random(self) -> random.Random:
        """A generator of its own, seeded from the rollout's ID and the place of this call in its branch.

        The seed follows from the code's path, so no event is needed to record it. Another attempt at the same task
        has another rollout ID and so another seed. In a fork, a generator that was taken before the point is seeded
        anew at the point, so that what is drawn after it is the fork's own; what was drawn before is the parent's.
        """
        return self._loop.generator()

    def uuid(self) -> UUID:
        """A UUID that is the same whenever this rollout is re-executed; made as `random` makes its seed."""
        return UUID(
            bytes=blake2b(self._loop.draw().encode(), digest_size=16, person=b"jetgym.uuid").digest(), version=4
        )
