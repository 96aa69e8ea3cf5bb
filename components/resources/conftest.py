"""The task lines that an environment's tests run on: our own, and others' where they lie beside the repository."""

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

_ROOT: Final = Path(__file__).parents[2]
_FILES: Final = {
    "ours": (_ROOT / "datasets", "{}/example.jsonl"),
    "nemo_gym": (_ROOT.parent / "shared" / "data" / "nemo_gym", "{}.jsonl"),
}


@pytest.fixture(params=_FILES)
def tasks(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """All tasks of a file that is named after the component whose test asks."""
    folder, name = _FILES[request.param]
    path = folder / name.format(request.path.parents[1].name)
    if request.param != "ours" and not path.is_file():
        pytest.skip(f"the tasks of NeMo Gym are not beside this repository ({path.name})")
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
