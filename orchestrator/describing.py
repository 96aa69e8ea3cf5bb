"""What is each configured component, and do the instances fit together?

Loads the code behind every instance, in this process or in the component's own venv, validates its config against the
implementation's type, and checks that the names by which instances refer to each other exist and are of the right
kind. Called by the commands before anything starts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import msgspec

from components.config import PoolConfig
from components.errors import ComponentNotFound
from components.loading import INSTALLED, add_roots, folder, requirements
from components.workers.describe import DescribeRequest, describe
from contracts.deployments import Description
from contracts.events import Kind
from orchestrator.config import COMMAND_LINE, Config
from orchestrator.errors import ConfigError, LaunchError, Problem, nearest
from orchestrator.instances import Instance
from orchestrator.venvs import NoAnswer, Python, Report, Venvs

Descriptions = Mapping[str, Description]
"""By instance name."""

DESCRIBE_S = 120.0
"""Seconds that a component's code may take to be imported in its own venv."""


def roots(config: Config) -> tuple[str, ...]:
    """The folders whose `components/` come before JetGym's own: the working directory, where it is not JetGym's."""
    return () if config.folder.resolve() == INSTALLED.resolve() else (str(config.folder.resolve()),)


class Checked(NamedTuple):
    """A config whose every part is known to be right, and who runs it."""

    config: Config
    descriptions: Descriptions
    pythons: Mapping[str, Python]
    """The interpreter for each instance."""


async def check(config: Config, report: Report, *, only: str | None = None) -> Checked:
    """Checks everything that can be checked before the start; raises `ConfigError`, `VenvError` or `LaunchError`.

    With `only`, instances that need a venv of their own are not looked into, except this one.
    """
    report("checking the components")
    interpreters = await _pythons(config, Venvs(config.folder, report), only)
    elsewhere = [config.instances[name] for name, python in interpreters.items() if not python.is_own]
    found = await asyncio.gather(
        asyncio.to_thread(_describe_here, config, [n for n, python in interpreters.items() if python.is_own]),
        *(_describe_in_venv(config, instance, interpreters[instance.name]) for instance in elsewhere),
    )
    described = {name: description for part in found for name, description in part.items()}
    descriptions = {name: described.get(name) or _not_looked_into(i) for name, i in config.instances.items()}
    faulty = [name for name, description in descriptions.items() if description.problems]
    if problems := [problem for name in faulty for problem in _misspelt(config, name)]:
        raise ConfigError(problems)
    problems = [
        config.problem((*config.instances[name].path, *filter(None, problem.path.split("."))), problem.message)
        for name, description in descriptions.items()
        for problem in description.problems
    ]
    if problems := [*problems, *_broken_references(config, descriptions)]:
        raise ConfigError(problems)
    if problems := _unfit_pools(config, descriptions):
        raise ConfigError(problems)
    for name, description in descriptions.items():
        _learn_secrets(config, config.instances[name].content, description.config)
    return Checked(config, descriptions, interpreters)


def _misspelt(config: Config, name: str) -> list[Problem]:
    """Says of an instance that is from an override alone, and cannot be, which one was meant."""
    if name in config.in_files or not (meant := get_close_matches(name, config.in_files, n=1)):
        return []
    path = ".".join(config.instances[name].path)
    return [Problem(COMMAND_LINE, path, f"no config has {name!r}; did you mean {meant[0]!r}?")]


async def _pythons(config: Config, venvs: Venvs, only: str | None) -> dict[str, Python]:
    add_roots(roots(config))
    problems: list[Problem] = []
    needs: dict[str, Path | None] = {}
    for instance in config.instances.values():
        try:
            needs[instance.name] = requirements(instance.kind, instance.implementation)
        except ComponentNotFound as error:
            name = instance.implementation
            message = f"there is no {instance.kind} implementation {name!r}; {nearest(name, error.names)}"
            problems.append(config.problem(instance.path, message))
    if problems:
        raise ConfigError(problems)
    built: dict[str, Python] = {}
    for name, file in needs.items():
        if file is None:
            built[name] = venvs.own
        elif only in (None, name):
            built[name] = await venvs.python(file)
    return built


def pool_size(description: Description) -> int:
    """How many workers the instance has by its config."""
    return int(description.config["pool"]["workers"])


def pool_slots(description: Description) -> int:
    """How many slots the instance has by its config."""
    return int(description.config["pool"]["slots"])


def _request(config: Config, instance: Instance) -> DescribeRequest:
    return DescribeRequest(
        kind=instance.kind, implementation=instance.implementation, config=instance.content, roots=roots(config)
    )


def _describe_here(config: Config, names: Sequence[str]) -> dict[str, Description]:
    return {name: describe(_request(config, config.instances[name])) for name in names}


def _not_looked_into(instance: Instance) -> Description:
    pool = PoolConfig.model_validate(instance.content.get("pool") or {})
    return Description(
        kind=instance.kind, implementation=instance.implementation, config={"pool": pool.model_dump(mode="json")}
    )


async def _describe_in_venv(config: Config, instance: Instance, python: Python) -> dict[str, Description]:
    question = msgspec.json.encode(_request(config, instance))
    try:
        answer = await python.ask("components.workers.describe", question, DESCRIBE_S)
    except NoAnswer as error:
        where = folder(instance.kind, instance.implementation)
        said = config.redactor.text(str(error))
        raise LaunchError(f"{instance.name}: the code in {where} cannot be loaded:\n{said}") from error
    return {instance.name: msgspec.json.decode(answer, type=Description)}


def _broken_references(config: Config, descriptions: Descriptions) -> list[Problem]:
    problems = []
    for name, description in descriptions.items():
        for reference in description.references:
            target = config.instances.get(reference.name)
            if target is not None and target.kind == reference.kind:
                continue
            known = [other.name for other in config.of_kind(reference.kind)]
            said = (
                f"there is no instance {reference.name!r}"
                if target is None
                else f"{reference.name!r} is of kind {target.kind}, {reference.kind} is wanted"
            )
            path = (*config.instances[name].path, *reference.path.split("."))
            hint = nearest(reference.name, known) if known else _to_add(config, reference.kind)
            problems.append(config.problem(path, f"{said}; {hint}"))
    return problems


def _to_add(config: Config, kind: Kind) -> str:
    """What to do where a config has no instance of this kind."""
    places = dict.fromkeys([config.folder.resolve(), INSTALLED])
    found = dict.fromkeys(
        str(path.relative_to(place)) for place in places for path in place.glob(f"components/{kind}/*/config.yaml")
    )
    return f"there are no {kind}: name a config that has one beside yours, like {', '.join(sorted(found))}"


def _unfit_pools(config: Config, descriptions: Descriptions) -> list[Problem]:
    """Where a worker would get no slot, or a session would have no fixed worker."""
    problems = []
    for name, description in descriptions.items():
        workers, slots = pool_size(description), pool_slots(description)
        path = (*config.instances[name].path, "pool", "slots")
        if description.kind == "agents" and slots > 1:
            problems.append(config.problem(path, "must be 1 for agents: any worker takes any rollout"))
        elif slots < workers and (slots > 1 or description.stateful):
            why = "each worker needs a slot" if slots > 1 else "it keeps sessions, and each must find its worker again"
            message = f"is {slots} for {workers} workers, at least {workers} are needed: {why}"
            problems.append(config.problem(path, message))
    return problems


def _learn_secrets(config: Config, content: object, described: object) -> None:
    """What the description masks is a `SecretStr`: its value is hidden everywhere from now on."""
    if isinstance(content, dict) and isinstance(described, dict):
        for key, value in content.items():
            _learn_secrets(config, value, described.get(key))
    elif isinstance(content, list) and isinstance(described, list):
        for value, masked in zip(content, described, strict=False):
            _learn_secrets(config, value, masked)
    elif isinstance(content, str) and isinstance(described, str) and described != content and set(described) == {"*"}:
        config.redactor.learn(content)
