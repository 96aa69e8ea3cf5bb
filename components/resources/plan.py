"""What does an author's class offer: which tools, what `seed_session` and `verify` ask for, does it keep a session?

Worked out once, while the class is defined, so that a mistake is seen there and names class, method and parameter.
Called by `Resources`; the runtime follows the plan. This module never makes an object of the class.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict

from components.resources.errors import InvalidResources
from components.resources.tools import SESSION, Tool, hints_of, marked_name, tool_of
from contracts.base import JsonObject

__all__ = ["Method", "Plan", "Rebuild", "TaskFields", "plan_of"]

Rebuild = Literal["replay", "snapshot", "fail"]

_SEED: Final = frozenset({"task"})
_METRICS: Final = frozenset({"lines"})
_VERIFY: Final = frozenset({"task", "response", SESSION})
_SNAPSHOT: Final = frozenset({SESSION})
_RESTORE: Final = frozenset({"task", "snapshot"})


class TaskFields(BaseModel):
    """One task, as the environment sees it. Subclass it with the task line's own fields; others are kept."""

    model_config = ConfigDict(extra="allow", frozen=True)

    responses_create_params: JsonObject = {}
    """The Responses request that the agent starts from, as JSON values."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method that the runtime calls by its name, and which parameters it takes."""

    is_async: bool
    wants: frozenset[str]
    task_type: type[TaskFields]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a class offers."""

    tools: dict[str, Tool]
    seed: Method | None
    verify: Method | None
    aggregate_metrics: Method | None
    rebuild: Rebuild
    snapshot: Method | None
    restore: Method | None


def plan_of(cls: type, rebuild: object) -> Plan:
    """The plan of an author's class; raises `InvalidResources`."""
    plan = Plan(
        tools=_tools(cls),
        seed=_method(cls, "seed_session", _SEED),
        verify=_method(cls, "verify", _VERIFY),
        aggregate_metrics=_method(cls, "aggregate_metrics", _METRICS),
        rebuild=_rebuild(cls, rebuild),
        snapshot=_method(cls, "snapshot", _SNAPSHOT),
        restore=_method(cls, "restore", _RESTORE),
    )
    if plan.verify is None and not cls.__name__.startswith("_"):
        raise InvalidResources(cls.__name__, "needs a `verify` that returns the reward (or a name that starts with _)")
    if plan.seed is None:
        _check_no_session(cls, plan)
    _check_snapshots(cls, plan)
    return plan


def _rebuild(cls: type, value: object) -> Rebuild:
    for known in get_args(Rebuild):
        if value == known:
            return known  # type: ignore[no-any-return]  # it is one of the literals
    listed = ", ".join(repr(known) for known in get_args(Rebuild))
    raise InvalidResources(f"{cls.__name__}.rebuild", f"is {value!r}; it must be one of {listed}")


def _tools(cls: type) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for method in dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base)):
        marks = [marked_name(vars(base)[method]) for base in cls.__mro__ if method in vars(base)]
        if marks[0] is None:
            if any(marks):
                raise InvalidResources(f"{cls.__name__}.{method}", "overrides a tool: put @tool above it too")
            continue
        made = tool_of(cls, method, marks[0])
        if made.name in found:
            other = found[made.name].method
            raise InvalidResources(
                f"{cls.__name__}.{method}", f"the tool name {made.name!r} is that of `{other}` already"
            )
        found[made.name] = made
    return found


def _method(cls: type, name: str, allowed: frozenset[str]) -> Method | None:
    function = inspect.getattr_static(cls, name, None)
    if function is None:
        return None
    place = f"{cls.__name__}.{name}"
    if not inspect.isfunction(function):
        raise InvalidResources(place, "must be a plain or an async method")
    parameters = list(inspect.signature(function).parameters)[1:]
    for parameter in parameters:
        if parameter not in allowed:
            listed = ", ".join(f"`{entry}`" for entry in sorted(allowed))
            raise InvalidResources(place, f"parameter `{parameter}` is unknown; it can take {listed}")
    return Method(
        is_async=inspect.iscoroutinefunction(function),
        wants=frozenset(parameters),
        task_type=_task_type(function, place) if "task" in parameters else TaskFields,
    )


def _task_type(function: Callable[..., Any], place: str) -> type[TaskFields]:
    if "task" not in function.__annotations__:
        raise InvalidResources(place, "parameter `task` needs a type annotation: TaskFields or a subclass of it")
    annotation = hints_of(function, place)["task"]
    if isinstance(annotation, type) and issubclass(annotation, TaskFields):
        return annotation
    raise InvalidResources(place, "the type of parameter `task` must be TaskFields or a subclass of it")


def _check_no_session(cls: type, plan: Plan) -> None:
    users = [entry.method for entry in plan.tools.values() if entry.wants_session]
    if plan.verify is not None and SESSION in plan.verify.wants:
        users.append("verify")
    if users:
        raise InvalidResources(f"{cls.__name__}.{users[0]}", "takes `session`, but the class has no `seed_session`")


def _check_snapshots(cls: type, plan: Plan) -> None:
    for name, method, needed in (("snapshot", plan.snapshot, SESSION), ("restore", plan.restore, "snapshot")):
        place = f"{cls.__name__}.{name}"
        if method is not None and plan.rebuild != "snapshot":
            raise InvalidResources(place, f"is never called, since the class says rebuild = {plan.rebuild!r}")
        if method is None and plan.rebuild == "snapshot":
            raise InvalidResources(place, "is missing: rebuild = 'snapshot' needs `snapshot` and `restore`")
        if method is not None and needed not in method.wants:
            raise InvalidResources(place, f"must take `{needed}`")
    if plan.rebuild == "snapshot" and plan.seed is None:
        raise InvalidResources(f"{cls.__name__}.rebuild", "is 'snapshot', but the class has no `seed_session`")
