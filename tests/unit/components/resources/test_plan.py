"""What an author's class offers is worked out, and what is wrong with it is said, when the class is defined."""

from typing import Any

import pytest
from pydantic import Field, ValidationError

from components.resources import InvalidResources, Resources, ResourcesConfig, TaskFields, tool
from contracts.responses import Response


class Task(TaskFields):
    goal: int


class Config(ResourcesConfig):
    scale: float = Field(default=1.0, gt=0)


def test_a_class_with_seed_session_is_stateful_and_one_without_is_not() -> None:
    class Stateful(Resources):
        def seed_session(self) -> list[int]:
            return []

        def verify(self, session: list[int]) -> float:
            return float(len(session))

    class Stateless(Resources):
        def verify(self) -> float:
            return 0.0

    assert Stateful.describe().stateful
    assert not Stateless.describe().stateful
    assert Stateless.describe().rebuild == "replay"
    assert Stateless.describe().tools == ()


def test_the_config_type_is_the_generic_argument_also_further_down() -> None:
    class Scaled(Resources[Config]):
        def verify(self) -> float:
            return self.config.scale

    class Further(Scaled):
        pass

    class Plain(Resources):
        def verify(self) -> float:
            return 0.0

    assert Scaled.config_class() is Config
    assert Further.config_class() is Config
    assert Plain.config_class() is ResourcesConfig


def test_a_component_made_without_a_config_has_the_defaults() -> None:
    class Scaled(Resources[Config]):
        def verify(self) -> float:
            return self.config.scale

    assert Scaled().config.scale == 1.0
    assert Scaled(Config(scale=2.0)).config.scale == 2.0


def test_the_config_refuses_unknown_keys_and_times_that_are_none() -> None:
    with pytest.raises(ValidationError, match="tool_deadline"):
        ResourcesConfig.model_validate({"tool_deadline": 1})
    with pytest.raises(ValidationError, match="greater than 0"):
        ResourcesConfig(tool_deadline_s=0)


def test_task_fields_keep_what_they_do_not_know() -> None:
    task = Task.model_validate_json('{"responses_create_params": {"input": "hi"}, "goal": 3, "colour": "red"}')
    assert task.goal == 3
    assert task.responses_create_params == {"input": "hi"}
    assert task.model_extra == {"colour": "red"}


def test_a_class_without_verify_is_refused_unless_its_name_says_that_it_is_a_base() -> None:
    with pytest.raises(InvalidResources, match="Bad: needs a `verify`"):

        class Bad(Resources):
            pass

    class _Fine(Resources):
        pass


@pytest.mark.parametrize("method", ["seed_session", "verify"])
def test_a_parameter_that_the_runtime_cannot_give_is_refused(method: str) -> None:
    with pytest.raises(InvalidResources, match=rf"Bad\.{method}: parameter `mood` is unknown; it can take"):
        _define(f"def {method}(self, mood): ...")


@pytest.mark.parametrize("method", ["seed_session", "verify"])
@pytest.mark.parametrize("annotation", ["", ": dict", ": int | None"])
def test_a_task_whose_type_is_no_task_fields_is_refused(method: str, annotation: str) -> None:
    with pytest.raises(InvalidResources, match=rf"Bad\.{method}.*TaskFields"):
        _define(f"def {method}(self, task{annotation}): ...")


def test_asking_for_a_session_without_seeding_one_is_refused() -> None:
    with pytest.raises(InvalidResources, match=r"Bad\.verify: takes `session`, but the class has no `seed_session`"):
        _define("def verify(self, session): ...")
    with pytest.raises(InvalidResources, match=r"Bad\.look: takes `session`"):
        _define("@tool\n def look(self, session): 'Looks.'\n def verify(self): ...")


def test_a_verify_that_is_no_method_is_refused() -> None:
    with pytest.raises(InvalidResources, match=r"Bad\.verify: must be a plain or an async method"):
        _define("verify = 1")


def test_an_unknown_way_to_rebuild_is_refused() -> None:
    expected = r"Bad\.rebuild: is 'again'; it must be one of 'replay', 'snapshot', 'fail'"
    with pytest.raises(InvalidResources, match=expected):
        _define("rebuild = 'again'\n def verify(self): ...")


_SEED = "def seed_session(self): ...\n def verify(self): ...\n "
_SNAPSHOT = "def snapshot(self, session): ...\n "
_RESTORE = "async def restore(self, task: TaskFields, snapshot): ...\n "


def test_snapshots_are_declared_and_have_their_two_methods() -> None:
    made = _define(_SEED + _SNAPSHOT + _RESTORE + "rebuild = 'snapshot'")
    assert made.describe().rebuild == "snapshot"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (_RESTORE + "rebuild = 'snapshot'", r"Bad\.snapshot: is missing: .* needs `snapshot` and `restore`"),
        (_SNAPSHOT + "rebuild = 'snapshot'", r"Bad\.restore: is missing: .* needs `snapshot` and `restore`"),
        (_SNAPSHOT + _RESTORE, r"Bad\.snapshot: is never called, since the class says rebuild = 'replay'"),
        (_RESTORE + "rebuild = 'fail'", r"Bad\.restore: is never called, since the class says rebuild = 'fail'"),
        (_RESTORE + "def snapshot(self): ...\n rebuild = 'snapshot'", r"Bad\.snapshot: must take `session`"),
        (_SNAPSHOT + "def restore(self): ...\n rebuild = 'snapshot'", r"Bad\.restore: must take `snapshot`"),
        (_SNAPSHOT + "def restore(self, state): ...", r"Bad\.restore: parameter `state` is unknown"),
    ],
)
def test_half_of_what_snapshots_need_is_refused(body: str, said: str) -> None:
    with pytest.raises(InvalidResources, match=said):
        _define(_SEED + body)


def test_snapshots_of_no_session_are_refused() -> None:
    with pytest.raises(InvalidResources, match=r"Bad\.rebuild: is 'snapshot', but the class has no `seed_session`"):
        _define("def verify(self): ...\n " + _SNAPSHOT + _RESTORE + "rebuild = 'snapshot'")


def _define(body: str) -> type[Resources]:
    scope: dict[str, Any] = {"Resources": Resources, "Response": Response, "TaskFields": TaskFields, "tool": tool}
    exec(f"class Bad(Resources):\n {body}", scope)
    made: type[Resources] = scope["Bad"]
    return made
