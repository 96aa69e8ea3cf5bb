"""How is a span of time written, in a config and on the command line?

As a whole number of days, hours or minutes: `7d`, `12h`, `30m`. Called by `LogConfig` and `jetgym log prune`; does no
I/O.
"""

import re
from datetime import timedelta
from typing import Final

_SPAN: Final = re.compile(r"([0-9]{1,9})([dhm])\Z")
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes"}
_LONGEST: Final = timedelta(days=36_500)
"""What lies further back is no date."""


def read_span(text: str) -> timedelta:
    """The span that is written; raises `ValueError`."""
    if (found := _SPAN.match(text)) is None:
        raise ValueError(f"{text!r} is no time: say 7d, 12h or 30m")
    if (span := timedelta(**{_UNITS[found[2]]: int(found[1])})) > _LONGEST:
        raise ValueError(f"{text!r} is more than {_LONGEST.days}d")
    return span
