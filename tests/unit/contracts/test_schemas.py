"""Every public type has a JSON Schema, and what the type takes is valid under it."""

from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from contracts import chat, responses
from tests.unit.contracts.documents import documents

PACKAGES = {"responses": responses, "chat": chat}


def models(package: object) -> dict[str, type[BaseModel]]:
    members = vars(package).items()
    return {name: member for name, member in members if isinstance(member, type) and issubclass(member, BaseModel)}


def schema(package: object, mode: Any) -> dict[str, Any]:
    _, document = models_json_schema([(model, mode) for model in models(package).values()])
    return document


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_every_model_has_a_schema(package: object) -> None:
    document = schema(package, "serialization")
    jsonschema.Draft202012Validator.check_schema(document)
    assert set(document["$defs"]) == set(schema(package, "validation")["$defs"]) == set(models(package))


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_documents_are_valid_under_the_schema(package: object) -> None:
    defs = schema(package, "serialization")["$defs"]
    validators = {
        name: jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": defs}) for name in models(package)
    }

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(validators)))
        validators[name].validate(data.draw(documents(models(package)[name], extra=True)))

    check()


def test_item_s_schema_names_its_kinds_side_by_side() -> None:
    items = schema(responses, "serialization")["$defs"]["Response"]["properties"]["output"]["items"]
    assert {"$ref": "#/$defs/OutputMessage"} in items["anyOf"]
    assert {"$ref": "#/$defs/UnknownItem"} in items["anyOf"]
    assert all(set(kind) == {"$ref"} for kind in items["anyOf"])
