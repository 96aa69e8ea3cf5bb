"""How does a rollout in a log, or in an exported file, become samples?

Reads its events, fetches what they refer to and hands both to `contracts.samples`. Called by the trainer, by exports
and by adapters. It only reads.
"""

from collections.abc import Collection
from typing import Protocol

from contracts.events import Recorded
from contracts.samples import RolloutSamples, build_samples


class Readable(Protocol):
    """Where a rollout's events are: a `Bus`, or a source of `replay`."""

    async def history(self, rollout: str, /) -> list[Recorded]:
        """All events of a rollout; empty where there is no such rollout."""

    async def fetch_blob(self, reference: str, /) -> bytes:
        """What an event refers to."""


async def read_samples(
    log: Readable,
    rollout_id: str,
    *,
    models: Collection[str] | None = None,
    tokenizer: str = "",
    template: str = "",
) -> RolloutSamples:
    """The samples of a rollout; none where there is no such rollout.

    Args:
        log: where it is.
        rollout_id: its full ID.
        models: names of the model instances whose tokens are wanted; all, if not given.
        tokenizer: digest of the tokenizer that the tokens are read under; not looked at, if not given.
        template: digest of the chat template, likewise.

    Raises:
        OtherTokenizer: the tokens were recorded under another tokenizer or template, or under none that is known.
        TwoPayloads: two events say different things of one call.
        BusError: the log cannot be read, or has lost a blob.
    """
    events = await log.history(rollout_id)
    blobs = await fetch_spoken(log, events)
    found = build_samples(events, blobs, models=models)
    found.check(tokenizer=tokenizer, template=template)
    return found


async def fetch_spoken(log: Readable, events: Collection[Recorded]) -> dict[str, bytes]:
    """What the model calls among the events refer to, by reference: data and captures."""
    spoken = [each.event for each in events if each.event.type in ("model.requested", "model.replied")]
    references = dict.fromkeys(reference for event in spoken for reference in (event.dataref, event.captureref))
    return {reference: await log.fetch_blob(reference) for reference in references if reference}
