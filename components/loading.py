"""Finds the code of a component: the one class that its `app.py` defines.

An implementation is a folder `components/<kind>/<implementation>` below a root: a user's project, or JetGym itself.
Called by workers, by `describe` and by replay; importing a component has no effect but its class.
"""

import importlib
import inspect
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from components.errors import ComponentNotFound, InvalidComponent

INSTALLED = Path(__file__).parent.parent
"""The root of JetGym's own components."""


def add_roots(roots: Sequence[str | Path]) -> None:
    """Makes the components below each root importable, before JetGym's own ones of the same name."""
    for kind in ("agents", "models", "resources"):
        path = importlib.import_module(f"components.{kind}").__path__
        for root in reversed(roots):
            folder = str(Path(root).resolve() / "components" / kind)
            if folder not in path:
                path.insert(0, folder)


def folder(kind: str, implementation: str) -> Path:
    """The folder of an implementation; raises `ComponentNotFound` that names the ones there are."""
    package = importlib.import_module(f"components.{kind}")
    for path in package.__path__:
        if (found := Path(path) / implementation / "app.py").is_file():
            return found.parent
    known = sorted({app.parent.name for path in package.__path__ for app in Path(path).glob("*/app.py")})
    raise ComponentNotFound(
        f"there is no {kind} implementation {implementation!r}; there are: {', '.join(known)}. "
        f"`jetgym new` makes a folder for a new one",
        names=known,
    )


def load(kind: str, implementation: str) -> type:
    """The component class of an implementation; raises `ComponentNotFound` or `InvalidComponent`."""
    folder(kind, implementation)
    name = f"components.{kind}.{implementation}.app"
    return _component(importlib.import_module(name), importlib.import_module(f"components.{kind}.base"))


def _component(app: ModuleType, base: ModuleType) -> type:
    bases = tuple(vars(base)[name] for name in ("Agent", "Model", "Resources") if name in vars(base))
    found = [
        member
        for _, member in inspect.getmembers(app, inspect.isclass)
        if issubclass(member, bases) and member.__module__ == app.__name__ and not member.__name__.startswith("_")
    ]
    if len(found) != 1:
        names = ", ".join(member.__name__ for member in found) or "none"
        expected = " or ".join(member.__name__ for member in bases)
        raise InvalidComponent(f"{app.__file__} must define exactly one public subclass of {expected}; it has {names}")
    return found[0]


def digest(kind: str, implementation: str) -> str:
    """SHA-256 over the Python files of an implementation, tests left out."""
    root, total = folder(kind, implementation), sha256()
    for path in sorted(root.rglob("*.py")):
        if "tests" not in path.relative_to(root).parts:
            total.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def requirements(kind: str, implementation: str) -> Path | None:
    """The implementation's `requirements.txt` if it asks for anything beyond the core, else None."""
    path = folder(kind, implementation) / "requirements.txt"
    if path.is_file() and any(line.split("#")[0].strip() for line in path.read_text().splitlines()):
        return path
    return None
