"""Tasks made for NeMo Gym are read and written again as they are."""

import json
from pathlib import Path

import pytest

from contracts.responses import InputMessage, ResponseCreateParams
from tests.unit.contracts.documents import canonical

DATA = Path(__file__).parents[4] / "shared" / "data" / "nemo_gym"
FILES = sorted(DATA.glob("*.jsonl"))


@pytest.mark.skipif(not FILES, reason="NeMo Gym's example data is not beside the repository")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_requests_round_trip(file: Path) -> None:
    for line in file.read_text().splitlines():
        document = json.loads(line)["responses_create_params"]
        request = ResponseCreateParams.model_validate_json(json.dumps(document))
        assert canonical(json.loads(request.to_json())) == canonical(document)
        assert all(isinstance(item, InputMessage) for item in request.input)
