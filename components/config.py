"""Which parts of a component's configuration do all kinds share, and which instances does it name?

Every `ComponentConfig` is written by a config file and validated by pydantic. A field that names another component
instance is annotated `ModelRef`, `ResourcesRef` or `AgentRef`; `references` finds these fields, and the orchestrator
checks that each name exists. This module never reads a file and never looks an instance up.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Final, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "AgentRef",
    "ComponentConfig",
    "ComponentKind",
    "DatasetConfig",
    "ModelRef",
    "PoolConfig",
    "Ref",
    "Reference",
    "ResourcesRef",
    "references",
]

ComponentKind = Literal["agents", "models", "resources"]


@dataclass(frozen=True, slots=True)
class Ref:
    """Marks a string field as the name of an instance of `kind`."""

    kind: ComponentKind


AgentRef = Annotated[str, Ref("agents")]
ModelRef = Annotated[str, Ref("models")]
ResourcesRef = Annotated[str, Ref("resources")]

_UNIONS: Final = (Union, UnionType)


class PoolConfig(BaseModel):
    """How many workers serve an instance, and how much each of them takes on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workers: int = Field(default=1, ge=1)
    """Processes."""
    concurrency: int = Field(default=1024, ge=1)
    """Calls in progress in each worker."""
    slots: int = Field(default=1, ge=1)
    """Parts of the pool that rollouts are spread over by a hash of their ID; at least as many as workers to give
    each worker its own."""
    memory_mb: int | None = Field(default=None, ge=1)
    """A worker that takes more memory than so many MB finishes what it holds and is started anew; None for no bound."""


class DatasetConfig(BaseModel):
    """A file of tasks that an agent is run on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    path: str
    """A JSONL file of task lines, relative to the working directory or the installation."""
    repeats: int = Field(default=1, ge=1)
    """Rollouts of each task: the size of a group."""


class ComponentConfig(BaseModel):
    """The base of every component's own configuration: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pool: PoolConfig = PoolConfig()


class Reference(NamedTuple):
    """One field that names another instance."""

    path: str
    """Where in the configuration, as an override would say it: `model`, `judges.0`, `swarm.critic.model`."""
    kind: ComponentKind
    name: str


def references(config: BaseModel) -> list[Reference]:
    """All instances that `config` names, in the order of its fields; lists, dicts and nested models included."""
    return list(_in_model(config, ""))


def _in_model(config: BaseModel, prefix: str) -> Iterator[Reference]:
    for name, field in type(config).model_fields.items():
        value: object = getattr(config, name)
        path = prefix + name
        ref = next((mark for mark in field.metadata if isinstance(mark, Ref)), None)
        if ref is not None and isinstance(value, str):
            yield Reference(path, ref.kind, value)
        else:
            yield from _in_value(field.annotation, value, path)


def _in_value(annotation: object, value: object, path: str) -> Iterator[Reference]:
    if isinstance(value, BaseModel):
        yield from _in_model(value, path + ".")
        return
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        ref = next((mark for mark in args[1:] if isinstance(mark, Ref)), None)
        if ref is not None and isinstance(value, str):
            yield Reference(path, ref.kind, value)
        else:
            yield from _in_value(args[0], value, path)
    elif origin in _UNIONS:
        found = (list(_in_value(arm, value, path)) for arm in args)
        yield from next((refs for refs in found if refs), [])
    elif isinstance(value, Mapping):
        item = args[1] if len(args) == 2 else object  # noqa: PLR2004 - the key's and the value's type
        for key, entry in value.items():
            yield from _in_value(item, entry, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, entry in enumerate(value):
            fixed = origin is tuple and args[-1:] != (...,) and index < len(args)
            yield from _in_value(args[index] if fixed else args[0] if args else object, entry, f"{path}.{index}")
