"""How does a rollout in a log, or in an exported file, become samples?

Reads its events, fetches what they refer to and hands both to `contracts.samples`. Called by the trainer, by exports
and by adapters. It only reads.
"""

from collections.abc import Collection

from contracts.samples import RolloutSamples, build_samples
from orchestrator.histories import Readable, ended_history, fetch_spoken


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
        BusError: the log cannot be read. What it has lost of a call costs that call its tokens.
    """
    events = await ended_history(log, rollout_id) if ended else await log.history(rollout_id)
    blobs = await fetch_spoken(log, events)
    found = build_samples(events, blobs, models=models)
    found.check(tokenizer=tokenizer, template=template)
    return found
