"""What is parsed is written again as it was: known and unknown fields, absent ones and nulls, numbers in their form."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts import chat, responses
from contracts.base import ApiModel
from tests.unit.contracts.documents import canonical, documents

MODELS: list[type[ApiModel]] = [
    member
    for package in (responses, chat)
    for member in vars(package).values()
    if isinstance(member, type) and issubclass(member, ApiModel)
]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_document_of_every_model_round_trips(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(MODELS))
    document = data.draw(documents(model, extra=True))
    expected = canonical(document)
    parsed = model.model_validate_json(json.dumps(document))
    assert canonical(json.loads(parsed.to_json())) == expected
    assert canonical(json.loads(parsed.model_dump_json(exclude_unset=True))) == expected
    assert canonical(parsed.to_dict()) == expected
    assert canonical(model.model_validate(document).to_dict()) == expected
    assert model.model_validate_json(parsed.to_json()) == parsed
