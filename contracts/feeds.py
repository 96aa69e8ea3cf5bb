"""What a trainer has taken of a run: the `data` of the `feed.*` events. No I/O.

The records of a feed are numbered. Their order, with the ends of the rollouts, says what is committed, what is dropped
and what is still to be delivered, to whoever has only the log.
"""

import msgspec


class FeedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`feed.opened`, `feed.committed` and `feed.dropped`."""

    version: int
    """The trainer's policy version when it was written; of what is committed, the one at which it was trained on, or an
    earlier one."""
    committed: tuple[str, ...] = ()
    """What was used: IDs of groups, or of rollouts where groups were taken in parts."""
    dropped: dict[str, str] = {}
    """What will not be used, each with the reason: `stale`, `token_less`, `zero_variance`, `no_reward`, or its own."""
    groups: int = 0
    """Of how many groups nothing is left after this record."""
    rollouts: int = 0
    """Rollouts that the feed is done with, by all its records up to this one."""
    staleness: dict[int, int] = {}
    """Of these, the committed ones by their staleness when they were delivered, in versions."""
    refused: dict[str, int] = {}
    """Of these, the dropped ones by reason."""
    untrainable: int = 0
    """Of the committed ones those with a reward and without a captured token: there was nothing to train on."""
    unfinished: int = 0
    """Groups that were asked for and had not ended, when it was written."""
    waiting: int = 0
    """Groups that had ended and were not committed, when it was written."""
    pacing: dict[str, int] = {}
    """`groups` between two versions and `max_lag`, as far as they are bounded."""
