"""Which component instance does a top-level key configure?

The shape of an instance is name -> kind -> implementation -> content. Called by `config`; what the content may hold is
the component's matter.
"""

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from contracts.errors import InvalidName
from contracts.events import Kind
from contracts.ids import check_name
from orchestrator.compose import KINDS, KeyPath, Tree
from orchestrator.errors import nearest

_SHAPE: Final = "an instance is written `name: {agents|models|resources: {implementation: {…}}}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One configured component."""

    name: str
    kind: Kind
    implementation: str
    content: Tree = field(repr=False)
    """Exactly what the implementation's config takes; secrets in clear."""

    @property
    def path(self) -> KeyPath:
        """Where the content stands in the config."""
        return (self.name, self.kind, self.implementation)


class NoInstance(Exception):
    """A key that configures no instance: where exactly, and why."""

    def __init__(self, path: KeyPath, message: str) -> None:
        self.path, self.message = path, message
        super().__init__(message)


def read_instance(name: str, value: object, settings: list[str]) -> Instance:
    """The instance under a top-level key that is none of `settings`; raises `NoInstance`."""
    if not isinstance(value, dict) or not any(get_close_matches(str(key), KINDS) for key in value):
        raise NoInstance((name,), f"unknown key; {nearest(name, settings)} ({_SHAPE})")
    if unknown := [key for key in value if key not in KINDS]:
        raise NoInstance((name, unknown[0]), f"unknown kind; {nearest(unknown[0], KINDS)}")
    try:
        check_name(name, "instance name")
    except InvalidName as error:
        raise NoInstance((name,), str(error)) from error
    if len(value) != 1:
        raise NoInstance((name,), f"is of kind {' and '.join(value)}; an instance has one kind")
    ((kind, implementations),) = value.items()
    if not isinstance(implementations, dict) or not implementations:
        raise NoInstance((name, kind), f"names no implementation; {_SHAPE}")
    if len(implementations) != 1:
        several = ", ".join(implementations)
        hint = f"drop one with ~{name}.{kind}.{next(iter(implementations))}"
        raise NoInstance((name, kind), f"has several implementations ({several}), an instance has one; {hint}")
    ((implementation, content),) = implementations.items()
    if not isinstance(content, dict | None):
        raise NoInstance((name, kind, implementation), "must hold keys and values, the implementation's config")
    return Instance(name=name, kind=kind, implementation=implementation, content=content or {})
