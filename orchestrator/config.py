"""What is the configuration of this process, resolved once and static after?

`load_config` composes the files, applies the overrides, resolves references between values, and checks the shape:
instance name -> kind -> implementation -> content. What the content may hold is checked by `describing`, which knows
the components. Called by the commands; it starts nothing and reads no environment variable.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError

from components.faults import told
from contracts.deployments import REDACTED, Description
from contracts.events import Kind
from orchestrator.compose import ENV_FILE, KINDS, Composed, KeyPath, Tree, compose, merge
from orchestrator.errors import ConfigError, Problem, nearest
from orchestrator.instances import Instance, NoInstance, read_instance
from orchestrator.overrides import apply_overrides
from orchestrator.redaction import Redactor, differences
from orchestrator.settings import Settings

COMMAND_LINE: Final = "command line"
_REFUSED: Final = re.compile(r"\$\{\s*oc\.(env|decode)\s*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A resolved configuration."""

    settings: Settings = field(repr=False)
    instances: Mapping[str, Instance]
    folder: Path
    """The working directory, that relative paths start from."""
    redactor: Redactor
    tree: Tree = field(repr=False)
    """The whole config as resolved; secrets in clear."""
    origins: Mapping[KeyPath, str] = field(repr=False)

    def of_kind(self, kind: Kind) -> list[Instance]:
        """The instances of one kind, in the order of the config."""
        return [instance for instance in self.instances.values() if instance.kind == kind]

    @property
    def in_files(self) -> list[str]:
        """The instances that some file configures; any other is from the command line alone."""
        return [name for name in self.instances if (name,) in self.origins]

    def problem(self, path: KeyPath, message: str) -> Problem:
        """A fault at `path`, with the file that wrote it."""
        return _problem(self.origins, path, self.redactor.text(message))

    def redacted(self, descriptions: Mapping[str, Description] | None = None) -> Tree:
        """The config without secrets; with `descriptions`, components' defaults are filled in."""
        tree: Tree = {key: value for key, value in self.tree.items() if key in self.instances}
        for name, description in (descriptions or {}).items():
            tree[name] = {description.kind: {description.implementation: description.config}}
        settings = self.settings.model_dump(mode="json", exclude={"config_paths"})
        redacted: Tree = self.redactor.tree({**settings, **tree})
        return redacted

    def to_yaml(self, descriptions: Mapping[str, Description] | None = None) -> str:
        """`redacted` as YAML."""
        return yaml.safe_dump(self.redacted(descriptions), sort_keys=False, allow_unicode=True, width=120)


_global: Config | None = None


def get_global_config() -> Config:
    """The configuration of this process; raises `ConfigError` before it was resolved."""
    if _global is None:
        raise ConfigError("no configuration has been resolved in this process yet")
    return _global


def set_global_config(config: Config) -> None:
    """Makes `config` the configuration of this process."""
    global _global  # noqa: PLW0603 - one config a process is the point
    _global = config


def redact(text: str) -> str:
    """`text` without the secrets of this process's configuration, if it has one yet."""
    return _global.redactor.text(text) if _global is not None else text


def load_config(
    names: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    folder: Path | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Config:
    """Resolves the named configs with Hydra's `overrides` and the command line's `flags`, which are settings.

    Raises `ConfigError` with every problem of the same stage at once.
    """
    folder = folder or Path.cwd()
    composed = compose(names, folder)
    changed = [text.lstrip("+~").partition("=")[0] for text in overrides] + list(flags or {})
    origins = composed.origins | {tuple(key.split(".")): COMMAND_LINE for key in changed}
    unresolved = _merged(composed, composed.env, overrides, flags or {})
    _refuse_environment(unresolved, origins)
    _refuse_missing(unresolved, origins)
    tree = _resolve(unresolved, origins)
    redactor = Redactor()
    if composed.env:  # what depends on it differs when it holds other values
        masked = _merged(composed, _mask(composed.env), overrides, flags or {})
        redactor = Redactor(differences(tree, _resolve(masked, origins)), (v for _, v in _leaves(composed.env)))
    redactor.learn_named(tree)
    variables = {key for key, value in composed.env.items() if not isinstance(value, dict)}
    settings, instances = _typed(tree, variables, origins)
    return Config(settings=settings, instances=instances, folder=folder, redactor=redactor, tree=tree, origins=origins)


def _merged(composed: Composed, env: Tree, overrides: Sequence[str], flags: Mapping[str, Any]) -> DictConfig:
    content: Tree = Settings().model_dump(mode="json", exclude={"config_paths"})
    merge(content, composed.content)
    merge(content, env)
    config = OmegaConf.create(content)
    apply_overrides(config, overrides)
    config.merge_with(dict(flags))
    return config


def _mask(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _mask(value) for key, value in tree.items()}
    return [_mask(value) for value in tree] if isinstance(tree, list) else REDACTED


def _refuse_environment(config: DictConfig, origins: Mapping[KeyPath, str]) -> None:
    raw = OmegaConf.to_container(config, resolve=False)
    found = [path for path, value in _leaves(raw) if isinstance(value, str) and _REFUSED.search(value)]
    if found:
        hint = (
            f"the environment is not read; put the value into {ENV_FILE} as `name: value` and refer to it as ${{name}}"
        )
        raise ConfigError([_problem(origins, path, hint) for path in found])


def _refuse_missing(config: DictConfig, origins: Mapping[KeyPath, str]) -> None:
    missing = [path for path, value in _leaves(OmegaConf.to_container(config, resolve=False)) if value == "???"]
    if missing:
        hint = f"needs a value (it is ???): set it in a config, in {ENV_FILE}, or with {{}}=…"
        raise ConfigError([_problem(origins, path, hint.format(".".join(path))) for path in missing])


def _resolve(config: DictConfig, origins: Mapping[KeyPath, str]) -> Tree:
    problems: list[Problem] = []
    tree = _resolved(config, (), problems, origins)
    if problems:
        raise ConfigError(problems)
    assert isinstance(tree, dict)
    return tree


def _resolved(node: Any, above: KeyPath, problems: list[Problem], origins: Mapping[KeyPath, str]) -> Any:
    """`node` with its interpolations replaced; the ones that fail become problems."""
    if not isinstance(node, DictConfig | ListConfig):
        return node
    keys = list(node) if isinstance(node, DictConfig) else range(len(node))
    values: dict[Any, Any] = {}
    for key in keys:
        path = (*above, str(key))
        try:
            values[key if isinstance(node, ListConfig) else str(key)] = _resolved(node[key], path, problems, origins)
        except OmegaConfBaseException as error:
            text = node._get_node(key)._value()  # type: ignore[union-attr]  # noqa: SLF001 - the raw text
            reason = str(error).splitlines()[0]
            problems.append(_problem(origins, path, f"{text} cannot be resolved: {reason}; {ENV_FILE} may define it"))
    return values if isinstance(node, DictConfig) else list(values.values())


def _typed(tree: Tree, variables: set[str], origins: Mapping[KeyPath, str]) -> tuple[Settings, dict[str, Instance]]:
    """Sorts the top-level keys into settings and instances; `variables` are `env.yaml`'s own names."""
    problems: list[Problem] = []
    instances: dict[str, Instance] = {}
    settings = {key: value for key, value in tree.items() if key in Settings.model_fields}
    for key, value in tree.items():
        if key in settings or key in variables:
            continue
        try:
            instances[key] = read_instance(key, value, list(Settings.model_fields))
        except NoInstance as error:
            problems.append(_problem(origins, error.path, error.message))
    for key in [key for key, value in settings.items() if key != "vars" and isinstance(value, dict)]:
        if not set(KINDS).isdisjoint(settings[key]):
            told = "is reserved for a setting (docs/config.md), so an instance needs another name"
            problems.append(_problem(origins, (key,), told))
            del settings[key]
    try:
        checked = Settings.model_validate(settings)
    except ValidationError as error:
        problems += [_problem(origins, *fault) for fault in _faults(error)]
    if problems:
        raise ConfigError(problems)
    return checked, instances


def _faults(error: ValidationError) -> Iterator[tuple[KeyPath, str]]:
    for fault in error.errors(include_url=False, include_input=False):
        path = tuple(str(part) for part in fault["loc"])
        message = told(fault)
        section = Settings.model_fields[path[0]].annotation
        known = list(section.model_fields) if isinstance(section, type) and issubclass(section, BaseModel) else []
        if fault["type"] == "model_type":
            message += f": {', '.join(known)}"
        elif fault["type"] == "extra_forbidden":
            message = f"unknown key; {nearest(path[-1], known)}"
        yield path, message


def _problem(origins: Mapping[KeyPath, str], path: KeyPath, message: str) -> Problem:
    above = (path[:length] for length in range(len(path), 0, -1))
    where = next((origins[part] for part in above if part in origins), "")
    return Problem(where, ".".join(path), message)


def _leaves(tree: object, above: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(tree, dict | list) and tree:
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _leaves(value, (*above, str(key)))
    else:
        yield above, tree
