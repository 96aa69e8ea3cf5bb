"""What is each configured component, and do the instances fit together?

Loads the code behind every instance, in this process or in the component's own venv, validates its config against the
implementation's type, and checks that the names by which instances refer to each other exist and are of the right
kind. Called by the commands before anything starts.
"""

import asyncio
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import msgspec

from components.errors import ComponentNotFound
from components.loading import INSTALLED, add_roots, folder, requirements
from components.workers.describe import DescribeRequest, describe
from contracts.deployments import Description
from orchestrator.config import Config, Instance
from orchestrator.errors import ConfigError, LaunchError, Problem, nearest
from orchestrator.venvs import Python, Venvs

Descriptions = Mapping[str, Description]
"""By instance name."""

DESCRIBE_S = 120.0
"""Seconds that a component's code may take to be imported in its own venv."""


def roots(config: Config) -> tuple[str, ...]:
    """The folders whose `components/` come before JetGym's own: the working directory, where it is not JetGym's."""
    return () if config.folder.resolve() == INSTALLED.resolve() else (str(config.folder.resolve()),)


async def pythons(config: Config, venvs: Venvs) -> dict[str, Python]:
    """The interpreter for each instance, built where it has to be; raises `ConfigError` or `VenvError`."""
    add_roots(roots(config))
    problems: list[Problem] = []
    needs: dict[str, Path | None] = {}
    for instance in config.instances.values():
        try:
            needs[instance.name] = requirements(instance.kind, instance.implementation)
        except ComponentNotFound as error:
            close = get_close_matches(instance.implementation, error.names, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            problems.append(config.problem(instance.path, hint + str(error)))
    if problems:
        raise ConfigError(problems)
    built: dict[str, Python] = {}
    for name, file in needs.items():
        built[name] = await venvs.python(file) if file else venvs.own
    return built


async def describe_all(config: Config, interpreters: Mapping[str, Python]) -> Descriptions:
    """The description of every instance; raises `ConfigError` with all problems of all instances."""
    found = await asyncio.gather(*(_describe(config, i, interpreters[i.name]) for i in config.instances.values()))
    descriptions = dict(zip(config.instances, found, strict=True))
    problems = [
        config.problem((*config.instances[name].path, *filter(None, problem.path.split("."))), problem.message)
        for name, description in descriptions.items()
        for problem in description.problems
    ]
    problems += _broken_references(config, descriptions)
    if problems:
        raise ConfigError(problems)
    for name, description in descriptions.items():
        _learn_secrets(config, config.instances[name].content, description.config)
    return descriptions


async def _describe(config: Config, instance: Instance, python: Python) -> Description:
    request = DescribeRequest(
        kind=instance.kind, implementation=instance.implementation, config=instance.content, roots=roots(config)
    )
    if python.is_own:
        return await asyncio.to_thread(describe, request)
    process = await asyncio.create_subprocess_exec(
        *python.command("components.workers.describe"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DESCRIBE_S):
            out, err = await process.communicate(msgspec.json.encode(request))
    except TimeoutError as error:
        process.kill()
        raise LaunchError(f"{instance.name}: importing its code took longer than {DESCRIBE_S:.0f} s") from error
    if process.returncode != 0:
        tail = config.redactor.text(err.decode(errors="replace").strip())
        where = folder(instance.kind, instance.implementation)
        raise LaunchError(f"{instance.name}: the code in {where} cannot be loaded:\n{tail}")
    return msgspec.json.decode(out, type=Description)


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
            problems.append(config.problem(path, f"{said}; {nearest(reference.name, known)}"))
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
