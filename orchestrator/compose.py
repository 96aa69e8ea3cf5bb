"""Which files make up a config, and in which order do they count?

A config may name others under `config_paths`, and these others again: two levels, not more. What includes comes
after what it includes, a later sibling after an earlier one, and `env.yaml` of the working directory after all. An
instance has one implementation, so a file that gives it another one replaces the earlier. Called by `config`; it
knows no keys but `config_paths` and the three kinds, and resolves no value.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from components.loading import INSTALLED
from orchestrator.errors import ConfigError

KINDS: Final = ("agents", "models", "resources")
ENV_FILE: Final = "env.yaml"
MAX_DEPTH: Final = 2

KeyPath = tuple[str, ...]
Tree = dict[str, Any]
"""YAML's mappings, lists and scalars, interpolations still as text."""


class Composed(NamedTuple):
    """The merged files, not yet resolved."""

    content: Tree
    """The configs, without `env.yaml`."""
    env: Tree
    """What `env.yaml` holds; it counts more than the configs."""
    origins: dict[KeyPath, str]
    """The file that gave each key its value."""


def compose(names: Sequence[str], folder: Path) -> Composed:
    """Merges the named configs and reads `env.yaml` of `folder`, the working directory; raises `ConfigError`."""
    content: Tree = {}
    origins: dict[KeyPath, str] = {}
    for name in names:
        for source, tree in _expand(find(name, folder), folder, ()):
            origins.update((path, source) for path in key_paths(tree))
            merge(content, tree)
    env = read(path) if (path := folder / ENV_FILE).is_file() else {}
    if "config_paths" in env:
        raise ConfigError(f"{ENV_FILE} may not name config_paths: it holds secrets and what this machine needs")
    origins.update((path, ENV_FILE) for path in key_paths(env))
    return Composed(content, env, origins)


def merge(content: Tree, later: Tree) -> None:
    """Puts a later config over `content`: mappings are merged, all else is replaced, and so are implementations."""
    for name, instance in later.items():
        earlier = content.get(name)
        if isinstance(earlier, dict) and isinstance(instance, dict):
            _drop_replaced(earlier, instance)
    _merge(content, later)


def find(name: str, folder: Path, beside: Path | None = None) -> Path:
    """The file that a config's name means; raises `ConfigError` that lists where it was looked for.

    That is: beside the file that names it, in the working directory, in its `configs/`, then in the installation.
    """
    places = [*([beside] if beside else []), folder, folder / "configs", INSTALLED, INSTALLED / "configs"]
    for place in places:
        if (path := place / name).is_file():
            return path
    looked = ", ".join(dict.fromkeys(shown(place / name, folder) for place in places))
    raise ConfigError(f"there is no config {name!r} (looked for {looked})")


def read(path: Path) -> Tree:
    """One YAML file; raises `ConfigError` with file and line."""
    name = shown(path, Path.cwd())
    try:
        if isinstance(yaml.compose(path.read_text(), yaml.SafeLoader), yaml.ScalarNode):  # OmegaConf takes it for a key
            hint = "is a colon, or the space after it, missing?"
            raise ConfigError(f"{name} must hold keys and values (`name: value`), it holds text: {hint}")
        content = OmegaConf.load(path)
    except yaml.YAMLError as error:
        raise ConfigError(f"{name} is no YAML: {' '.join(str(error).split())}") from error
    except (OSError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise ConfigError(f"{name} cannot be read: {error}") from error
    if not isinstance(content, DictConfig):
        raise ConfigError(f"{name} must hold keys and values, it holds a list")
    tree = OmegaConf.to_container(content, resolve=False)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def key_paths(tree: object, above: KeyPath = ()) -> Iterator[KeyPath]:
    """The path of every key in nested dicts and lists, inner ones after outer ones."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in entries:
        path = (*above, str(key))
        yield path
        yield from key_paths(value, path)


def shown(path: Path, folder: Path) -> str:
    """A path as a user wants to read it: relative to the working directory where it lies below it."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _expand(path: Path, folder: Path, above: tuple[Path, ...]) -> Iterator[tuple[str, Tree]]:
    """Name and content of the files that `path` stands for, in the order in which they count."""
    name, chain = shown(path, folder), (*above, path.resolve())
    if chain[-1] in above:
        raise ConfigError(f"configs include each other in a circle: {_arrows(chain, folder)}")
    content = read(path)
    included = content.pop("config_paths", None) or []
    if not isinstance(included, list) or not all(isinstance(entry, str) for entry in included):
        raise ConfigError(f"{name}: config_paths must be a list of file names")
    for entry in included:
        try:
            found = find(entry, folder, beside=path.parent)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error
        if len(above) == MAX_DEPTH and found.resolve() not in chain:
            raise ConfigError(f"{name}: config_paths go two levels deep: {_arrows((*chain, found.resolve()), folder)}")
        yield from _expand(found, folder, chain)
    yield name, content


def _arrows(chain: Sequence[Path], folder: Path) -> str:
    return " -> ".join(shown(path, folder.resolve()) for path in chain)


def _drop_replaced(earlier: Tree, later: Tree) -> None:
    """Drops an instance's earlier implementation where a later file gives it another one."""
    named = {(kind, name) for kind in KINDS for name in _names(later.get(kind))}
    if not named:
        return
    for kind in KINDS:
        if any((kind, name) not in named for name in _names(earlier.get(kind))):
            del earlier[kind]


def _names(implementations: object) -> list[str]:
    return [str(name) for name in implementations] if isinstance(implementations, dict) else []


def _merge(into: Tree, later: Tree) -> None:
    for key, value in later.items():
        current = into.get(key)
        if isinstance(current, dict) and isinstance(value, dict):
            _merge(current, value)
        else:
            into[key] = deepcopy(value)
