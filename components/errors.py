"""The errors of finding and configuring components.

ComponentError
├── ComponentNotFound     no folder of that name
└── InvalidComponent      the folder's code is not a component
"""

from collections.abc import Sequence


class ComponentError(Exception):
    """A component cannot be used as it is."""


class ComponentNotFound(ComponentError):
    """No implementation has this name; `names` are those there are."""

    def __init__(self, message: str, *, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(message)


class InvalidComponent(ComponentError):
    """A component's code breaks a rule that its author can mend."""
