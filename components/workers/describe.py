"""Says what a configured component is, without starting it: its config, references, tools, and what is wrong.

The orchestrator calls `describe` in its own process for components that need nothing beyond the core, and runs
`python -m components.workers.describe` in the component's venv for the others (one JSON document in, one out).
"""

import difflib
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import BaseModel, ValidationError

from components.agents.base import Agent
from components.config import references
from components.errors import ComponentError
from components.faults import told
from components.loading import add_roots, digest, load
from components.models.base import Model
from components.resources.base import Resources
from contracts.deployments import ConfigProblem, Description, Reference
from contracts.events import Kind


class DescribeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to describe."""

    kind: Kind
    implementation: str
    config: dict[str, Any]
    roots: tuple[str, ...] = ()


def describe(request: DescribeRequest) -> Description:
    """The description; what is wrong with code or config is in its `problems`, never raised."""
    add_roots(request.roots)
    blank = Description(kind=request.kind, implementation=request.implementation)
    try:
        component = load(request.kind, request.implementation)
    except ComponentError as error:
        return msgspec.structs.replace(blank, problems=(ConfigProblem(path="", message=str(error)),))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an author's module
        return msgspec.structs.replace(blank, problems=(ConfigProblem(path="", message=_broken(error)),))
    config_class = _config_class(component)
    keys = tuple(sorted(config_class.model_fields))
    try:
        config = config_class.model_validate(request.config)
    except ValidationError as error:
        return msgspec.structs.replace(blank, keys=keys, problems=tuple(_problems(config_class, error)))
    found = msgspec.structs.replace(
        blank,
        config=config.model_dump(mode="json"),
        keys=keys,
        references=tuple(Reference(path=r.path, kind=r.kind, name=r.name) for r in references(config)),
        digest=digest(request.kind, request.implementation),
    )
    if issubclass(component, Agent):
        return msgspec.structs.replace(found, replay=component.replay, version=component.version)
    if issubclass(component, Resources):
        said = component.describe()
        aggregates = component.jetgym_plan.aggregate_metrics is not None
        return msgspec.structs.replace(found, tools=said.tools, stateful=said.stateful, aggregates=aggregates)
    return found


def _broken(error: BaseException) -> str:
    """Why a module cannot be imported, with the author's own line."""
    if isinstance(error, SyntaxError):
        return f"its code has a syntax error at {error.filename}:{error.lineno}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"its code cannot be imported: {type(error).__name__}: {error}{where}"


def _config_class(component: type) -> type[BaseModel]:
    if issubclass(component, Agent | Model | Resources):
        return component.config_class()
    raise TypeError(f"{component} is no component")


def _problems(config_class: type[BaseModel], error: ValidationError) -> list[ConfigProblem]:
    problems = []
    for fault in error.errors(include_url=False, include_input=False):
        path = ".".join(str(part) for part in fault["loc"])
        message = told(fault)
        if fault["type"] == "extra_forbidden":
            known = _fields_at(config_class, fault["loc"][:-1])
            nearest = difflib.get_close_matches(str(fault["loc"][-1]), known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"it takes: {', '.join(known)}"
            message = f"unknown key; {hint}"
        elif fault["type"] == "model_type":
            message += f": {', '.join(_fields_at(config_class, fault['loc']))}"
        problems.append(ConfigProblem(path=path, message=message))
    return problems


def _fields_at(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    for part in path:
        field = model.model_fields.get(str(part))
        if field is None:
            continue
        inner = _model_in(field.annotation)
        if inner is not None:
            model = inner
    return sorted(model.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _model_in(argument)) is not None:
            return found
    return None


def main() -> None:
    """Reads a `DescribeRequest` from standard input and prints the `Description`."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=DescribeRequest)
    sys.stdout.buffer.write(msgspec.json.encode(describe(request)))


if __name__ == "__main__":
    main()
