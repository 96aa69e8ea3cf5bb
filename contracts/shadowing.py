"""Are the packages that Python finds under our plain names really ours?

`bus`, `components` and the like are names that others use too. Both commands run this file by its path before they
import anything else of ours: what they would import may be another's. For the same reason it imports nothing of ours.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGES: Final = ("contracts", "bus", "components", "orchestrator", "replay")


def check_packages() -> None:
    """Ends the process with code 2 and a line that names the file which stands before one of our packages."""
    root = Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        spec = find_spec(name)
        places = [spec.origin, *(spec.submodule_search_locations or ())] if spec is not None else []
        if not any(place is not None and Path(place).resolve().is_relative_to(root / name) for place in places):
            found = next((place for place in places if place is not None), "nothing")
            sys.stderr.write(
                f"error: JetGym's package {name!r} is {root / name}, but Python finds {found}: rename that, or install "
                f"JetGym into an environment of its own\n"
            )
            sys.exit(2)
