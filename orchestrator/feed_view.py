"""What do the parts of a trainer share?

One object that `trainer` makes, `asking`, `feed` and `consumption` look at. It does nothing.
"""

from bus import Bus
from orchestrator.admission import Pacing
from orchestrator.bell import Bell
from orchestrator.groups import Groups


class FeedView:
    """One trainer, as its parts see it."""

    def __init__(self, bus: Bus, run: str, models: tuple[str, ...], groups: Groups, bell: Bell) -> None:
        self.bus, self.run, self.models, self.groups, self.bell = bus, run, models, groups, bell
        self.version = 0
        self.pacing = Pacing(None, None, 0)
        self.submitting = 0
        """Submissions that are not done."""
        self.changing = False
        """The weights change: nothing is asked for meanwhile."""
        self.told: set[str] = set()
        """What was warned of: each is said once."""
        self.complete = False
        """Nothing more will be submitted."""
