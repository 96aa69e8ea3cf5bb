"""A method's signature and docstring become the schema that a model gets, and the check of what it writes."""

import json
from contextlib import suppress
from enum import Enum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from components.resources import InvalidResources, Resources, tool
from components.resources.tools import BadArguments, Tool


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


class Everything(Resources):
    @tool
    def every_type(  # noqa: PLR0917 - every kind of type, once
        self,
        colour: Colour,
        size: Literal["small", "large"],
        at: Point,
        weights: dict[str, float],
        names: list[str],
        limit: Annotated[int, Field(ge=1, description="At least one.")],
        note: str | None,
        *,
        deep: bool = False,
        schema: str = "plain",
    ) -> None:
        """Takes everything.

        Args:
            colour: Which colour.
            limit: Overruled by the annotation's own words.
            deep: Whether to dig.
        """

    @tool
    def strict_one(self, a: int, b: list[Literal[1, 2]]) -> None:
        """Takes what strict mode can hold to."""

    @tool(name="with-dashes")
    async def dashed(self) -> None:
        """Takes nothing."""

    def verify(self) -> float:
        return 0.0


TOOLS: dict[str, Tool] = Everything.jetgym_plan.tools
PARAMETERS: dict[str, Any] = TOOLS["every_type"].function["parameters"]


def test_a_tool_has_the_form_of_a_responses_function_tool() -> None:
    assert TOOLS["strict_one"].function == {
        "type": "function",
        "name": "strict_one",
        "description": "Takes what strict mode can hold to.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"type": "array", "items": {"enum": [1, 2], "type": "integer"}},
            },
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "strict": True,
    }


def test_the_schema_is_valid_json_schema_and_closed() -> None:
    jsonschema.Draft202012Validator.check_schema(PARAMETERS)
    assert PARAMETERS["additionalProperties"] is False


def test_types_of_all_kinds_have_their_schema() -> None:
    properties = PARAMETERS["properties"]
    assert properties["size"] == {"enum": ["small", "large"], "type": "string"}
    assert properties["weights"] == {"additionalProperties": {"type": "number"}, "type": "object"}
    assert properties["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert PARAMETERS["$defs"]["Colour"] == {"enum": ["red", "blue"], "type": "string"}
    assert PARAMETERS["$defs"]["Point"]["properties"] == {
        "x": {"type": "integer"},
        "y": {"default": 0, "type": "integer"},
    }


def test_parameters_with_a_default_are_optional_and_say_it() -> None:
    assert PARAMETERS["required"] == ["colour", "size", "at", "weights", "names", "limit", "note"]
    assert PARAMETERS["properties"]["deep"] == {"type": "boolean", "default": False, "description": "Whether to dig."}


def test_descriptions_come_from_the_docstring_unless_the_annotation_has_its_own() -> None:
    assert PARAMETERS["properties"]["colour"]["description"] == "Which colour."
    assert PARAMETERS["properties"]["limit"] == {"type": "integer", "minimum": 1, "description": "At least one."}


def test_strict_is_claimed_only_where_every_property_is_required_and_every_object_closed() -> None:
    assert TOOLS["strict_one"].function["strict"] is True
    assert TOOLS["with-dashes"].function["strict"] is True
    assert TOOLS["every_type"].function["strict"] is False


def test_names_that_a_pydantic_model_could_not_have_are_fine() -> None:
    assert PARAMETERS["properties"]["schema"] == {"type": "string", "default": "plain"}


GOOD = {"colour": "red", "size": "small", "at": {"x": 1}, "weights": {"a": 1}, "names": [], "limit": 3, "note": None}


def test_good_arguments_arrive_as_the_annotated_types_and_defaults_stay_the_methods() -> None:
    arguments = TOOLS["every_type"].arguments(json.dumps(GOOD))
    assert arguments["colour"] is Colour.RED
    assert arguments["at"] == Point(x=1)
    assert "deep" not in arguments


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON"),
        ("", "`a` is missing"),
        ("null", "no JSON object"),
        ('"{}"', "no JSON object"),
        ("[1]", "no JSON object"),
        ('{"a": 1}', "`b` is missing"),
        ('{"a": "1", "b": []}', "`a`: Input should be a valid integer"),
        ('{"a": true, "b": []}', "`a`: Input should be a valid integer"),
        ('{"a": 1, "b": [3]}', "`b.0`: Input should be 1 or 2"),
        ('{"a": 1, "b": [], "c": 2}', "there is no parameter `c`"),
        ('{"a": 1, "b": [], "\ud800": 2}', "strict_one"),
        ("[" * 10_000, "not valid JSON"),
    ],
)
def test_bad_arguments_are_refused_with_what_was_wrong_and_what_is_expected(text: str, said: str) -> None:
    with pytest.raises(BadArguments) as refusal:
        TOOLS["strict_one"].arguments(text)
    assert said in str(refusal.value)
    assert "It takes a JSON object with `a` (integer), `b` (array of one of 1, 2)" in str(refusal.value)


def test_no_text_counts_as_no_arguments() -> None:
    assert TOOLS["with-dashes"].arguments("  ") == {}


def test_expected_arguments_are_said_in_words() -> None:
    assert TOOLS["with-dashes"].expected == "no arguments: {}"
    assert "`deep` (boolean, optional)" in TOOLS["every_type"].expected
    assert "`note` (string or null)" in TOOLS["every_type"].expected


def test_only_the_first_few_of_many_faults_are_told() -> None:
    with pytest.raises(BadArguments, match="and 15 more"):
        TOOLS["with-dashes"].arguments(json.dumps({f"p{number}": 0 for number in range(20)}))


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=20) | st.recursive(st.none() | st.integers(), st.lists, max_leaves=5).map(json.dumps))
def test_whatever_a_model_writes_is_arguments_or_a_refusal(text: str) -> None:
    with suppress(BadArguments):
        assert isinstance(TOOLS["every_type"].arguments(text), dict)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers() | st.lists(st.integers(0, 3)) | st.text()))
def test_arguments_are_taken_exactly_when_the_schema_takes_them(arguments: dict[str, object]) -> None:
    validator = jsonschema.Draft202012Validator(TOOLS["strict_one"].function["parameters"])
    try:
        TOOLS["strict_one"].arguments(json.dumps(arguments))
        taken = True
    except BadArguments:
        taken = False
    assert taken == validator.is_valid(arguments)


# --- mistakes are seen when the class is defined ------------------------------------------------------------------


class _Base(Resources):
    """A base to share: its name says that it is no component."""

    @tool
    def look(self) -> str:
        """Looks."""
        return "dark"


def test_tools_are_inherited_and_can_be_overridden_with_the_mark() -> None:
    class Lamp(_Base):
        @tool
        def look(self) -> str:
            """Looks by lamplight."""
            return "bright"

        def verify(self) -> float:
            return 0.0

    assert Lamp.describe().tools[0]["description"] == "Looks by lamplight."
    assert len(Lamp.describe().tools) == 1


def test_a_parameter_without_annotation_is_refused() -> None:
    with pytest.raises(InvalidResources, match=r"Bad\.look: parameter `far` needs a type annotation"):

        class Bad(Resources):
            @tool
            def look(self, far) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - that is what is tested
                """Looks."""


@pytest.mark.parametrize("kind", ["*far: int", "**far: int", "far: int, /"])
def test_a_parameter_that_has_no_name_for_a_caller_is_refused(kind: str) -> None:
    scope: dict[str, Any] = {"Resources": Resources, "tool": tool}
    code = f"class Bad(Resources):\n @tool\n def look(self, {kind}):\n  'Looks.'"
    with pytest.raises(InvalidResources, match=r"Bad\.look: parameter .*far.* cannot be passed by name"):
        exec(code, scope)


def test_a_tool_without_a_docstring_is_refused() -> None:
    with pytest.raises(InvalidResources, match=r"Bad\.look: a tool needs a docstring"):

        class Bad(Resources):
            @tool
            def look(self) -> None: ...


def test_a_docstring_without_a_description_is_refused() -> None:
    with pytest.raises(InvalidResources, match=r"Bad\.look: the docstring needs a sentence"):

        class Bad(Resources):
            @tool
            def look(self, far: int) -> None:
                """
                Args:
                    far: How far.
                """


def test_a_docstring_that_describes_another_parameter_is_refused() -> None:
    with pytest.raises(InvalidResources, match=r"Bad\.look: the docstring describes 'fra'"):

        class Bad(Resources):
            @tool
            def look(self, far: int) -> None:
                """Looks.

                Args:
                    fra: How far.
                """


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidResources, match=r"Bad\.peer: the tool name 'look' is that of `look` already"):

        class Bad(_Base):
            @tool(name="look")
            def peer(self) -> None:
                """Peers."""


@pytest.mark.parametrize("name", ["verify", "seed_session", "aggregate_metrics", "mcp"])
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidResources, match=f"the name '{name}' is reserved"):

        class Bad(Resources):
            @tool(name=name)
            def look(self) -> None:
                """Looks."""


@pytest.mark.parametrize("name", ["look at", "a" * 65, "lück", "a.b"])
def test_names_that_the_apis_do_not_take_are_refused(name: str) -> None:
    with pytest.raises(InvalidResources, match="must be 1 to 64 of the characters"):

        class Bad(Resources):
            @tool(name=name)
            def look(self) -> None:
                """Looks."""


def test_a_type_that_json_cannot_carry_is_refused_by_parameter() -> None:
    class Engine: ...

    with pytest.raises(InvalidResources, match=r"Bad\.start: parameter `engine` has a type that JSON cannot carry"):

        class Bad(Resources):
            @tool
            def start(self, speed: int, engine: Engine) -> None:
                """Starts."""


def test_an_annotation_that_cannot_be_found_is_named() -> None:
    with pytest.raises(InvalidResources, match=r"Bad\.start: the annotation 'Nowhere' cannot be found"):

        class Bad(Resources):
            @tool
            def start(self, engine: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821 - that is tested
                """Starts."""


def test_overriding_a_tool_without_the_mark_is_refused() -> None:
    with pytest.raises(InvalidResources, match=r"Bad\.look: overrides a tool: put @tool above it too"):

        class Bad(_Base):
            def look(self) -> str:
                return "bright"


def test_a_static_method_is_refused_as_a_tool() -> None:
    with pytest.raises(InvalidResources, match=r"Bad\.look: a tool is a plain or an async method"):

        class Bad(Resources):
            @staticmethod
            @tool
            def look() -> None:
                """Looks."""
