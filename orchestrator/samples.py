"""How does a rollout in a log, or in an exported file, become samples?

Reads its events, fetches what they refer to and hands both to `contracts.samples`. Called by the trainer, by exports
and by adapters. It only reads.
"""

from collections.abc import Collection

import structlog

from bus.errors import BlobLost
from contracts.events import Recorded
from contracts.samples import RolloutSamples, Tokenless, build_samples
from orchestrator.histories import Readable, ended_history, fetch_spoken

_log = structlog.get_logger("samples")


async def read_samples(
    log: Readable,
    rollout_id: str,
    *,
    ended: bool = False,
    models: Collection[str] | None = None,
    tokenizer: str = "",
    template: str = "",
) -> RolloutSamples:
    """The samples of a rollout; none where there is no such rollout.

    Args:
        log: where it is.
        rollout_id: its full ID.
        ended: it is known to have ended: what comes after its end counts for nothing, and a replica of the log that
            does not show the end yet is asked again.
        models: names of the model instances whose tokens are wanted; all, if not given.
        tokenizer: digest of the tokenizer that the tokens are read under; not looked at, if not given.
        template: digest of the chat template, likewise.

    Raises:
        OtherTokenizer: the tokens were recorded under another tokenizer or template, or under none that is known.
        TwoPayloads: two events say different things of one call.
        BusError: the log cannot be read.
    """
    events = await ended_history(log, rollout_id) if ended else await log.history(rollout_id)
    try:
        blobs = await fetch_spoken(log, events)
    except BlobLost as error:
        return _lost(rollout_id, events, models, error)
    found = build_samples(events, blobs, models=models)
    found.check(tokenizer=tokenizer, template=template)
    return found


def _lost(
    rollout_id: str, events: Collection[Recorded], models: Collection[str] | None, error: BlobLost
) -> RolloutSamples:
    """Of a rollout of which a power cut took something that was said: no call of it can be trained on."""
    _log.warning("no_tokens", rollout=rollout_id, error=str(error))
    replied = [each.event for each in events if each.event.type == "model.replied"]
    if models is not None:
        replied = [event for event in replied if event.source.removeprefix("models/").partition("/")[0] in models]
    tokenless = tuple(Tokenless(call=event.callkey, why=f"not all that was said is left: {error}") for event in replied)
    return RolloutSamples(rollout_id=rollout_id, samples=(), breaks=(), tokenless=tokenless)
