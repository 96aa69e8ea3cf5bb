"""What does a fault that pydantic found in a config mean, in the words of whoever wrote the config?

Called by whoever checks configs, with each of `ValidationError.errors()`. Pure; it never shows the value, which may be
a secret.
"""

from collections.abc import Mapping
from typing import Any, Final

_TOLD: Final = {
    "missing": "is missing, and is needed",
    "model_type": "must hold keys and values",
    "model_attributes_type": "must hold keys and values",
    "dict_type": "must hold keys and values",
    "mapping_type": "must hold keys and values",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "set_type": "must be a list",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "value_error": "{error}",
}


def told(fault: Mapping[str, Any]) -> str:
    """One sentence without a subject: what the value must be."""
    form = _TOLD.get(fault["type"])
    return str(fault["msg"]) if form is None else form.format(**fault.get("ctx", {}))
