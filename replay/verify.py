"""Does the agent's code that is here now do what a rollout is recorded to have done?

Finds for each agent of a rollout the code and the config that it ran with, has `engine` run it again, and says whether
the code has changed since. Called by the command line and by the process of `isolated`. It writes nothing.
"""

import contextlib
import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import msgspec
from pydantic import ValidationError

from components.agents.base import Agent, AgentConfig
from components.errors import ComponentError
from components.loading import digest, load, requirements
from contracts.deployments import WorkerStarted
from contracts.events import Kind
from replay.engine import Departure, Upcoming, departure_of, upcoming
from replay.errors import CannotVerify, ReplayError
from replay.facts import Facts
from replay.trajectory import AgentRun, Trajectory

Resolved = Mapping[str, Any]
"""A resolved config: instance name -> kind -> implementation -> content."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What re-executing one rollout showed."""

    rollout_id: str
    verdict: Literal["same", "differs", "could not run"]
    agent: str = ""
    """Name of the instance whose code was run."""
    implementation: str = ""
    calls: int = 0
    """Calls that are recorded."""
    ended: str = ""
    """How the recording ends: `completed`, `failed`, `cancelled`, `in flight`."""
    reward: float | None = None
    departure: Departure | None = None
    code: Literal["same", "changed", "unknown"] = "unknown"
    """Whether the agent's source is the one that was recorded."""
    versions: tuple[str, ...] = ()
    """What else is not as it was: Python, JetGym."""
    reason: str = ""
    """Why it could not run."""


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """The code and config of an agent, as far as the recording names them."""

    instance: str
    implementation: str
    config: dict[str, Any]
    started: WorkerStarted | None
    """What the worker said of itself that ran it."""


class Verifier:
    """Verifies rollouts of one source in this process."""

    def __init__(self, facts: Facts, override: Resolved | None = None, *, loose: bool = False) -> None:
        """`override` is a config that is used in place of the recorded ones for the instances that it names.

        What `loose` leaves out, `departure_of` says.
        """
        self._loose = loose
        self._facts = facts
        self._override = override or {}
        self._loaded: dict[str, type[Agent[AgentConfig]]] = {}
        self._digests: dict[str, str] = {}

    def verify(self, trajectory: Trajectory) -> Verdict:
        """Runs every agent of the rollout again; what cannot be run is a verdict too."""
        verdict = Verdict(
            rollout_id=trajectory.rollout_id,
            verdict="same",
            agent=trajectory.request.agent,
            calls=len(trajectory.calls),
            ended=trajectory.state,
            reward=trajectory.reward,
        )
        for run in trajectory.executions():
            try:
                code = self.code_of(trajectory, run)
                agent, config = self._agent(code), self._config(code)
                with contextlib.redirect_stdout(sys.stderr):  # what an agent prints is no output of ours
                    departure = departure_of(trajectory, run, agent, config, loose=self._loose)
            except ReplayError as error:
                return msgspec.structs.replace(verdict, verdict="could not run", agent=run.agent, reason=str(error))
            found = msgspec.structs.replace(
                verdict,
                agent=run.agent,
                implementation=code.implementation,
                code=self._compared(code),
                versions=_versions(code.started),
            )
            if departure is not None:
                return msgspec.structs.replace(found, verdict="differs", departure=departure)
            if not run.prefix:
                verdict = found
        return verdict

    def upcoming(self, trajectory: Trajectory) -> Upcoming:
        """What the rollout's agent does where its history ends. Raises `ReplayError`."""
        run = next(trajectory.executions())
        code = self.code_of(trajectory, run)
        agent, config = self._agent(code), self._config(code)
        with contextlib.redirect_stdout(sys.stderr):  # what an agent prints is no output of ours
            return upcoming(trajectory, run, agent, config)

    def loaded(self, trajectory: Trajectory, run: AgentRun) -> tuple[type[Agent[AgentConfig]], AgentConfig]:
        """The agent's class and config for one execution. Raises `CannotVerify`."""
        code = self.code_of(trajectory, run)
        return self._agent(code), self._config(code)

    def code_of(self, trajectory: Trajectory, run: AgentRun) -> Code:
        """Which code ran this execution, and with which config. Raises `CannotVerify`."""
        workers = [worker for worker in trajectory.agent_workers(run) if worker in self._facts.workers]
        started = self._facts.workers[workers[0]] if workers else None
        if (given := self._override.get(run.agent)) is not None:
            implementation, content = implementation_in(given, run.agent, "agents")
            return Code(instance=run.agent, implementation=implementation, config=content, started=started)
        description = self._facts.description(run.agent, workers[0] if workers else "")
        if description is None:
            raise CannotVerify(
                f"the log does not say how the agent {run.agent!r} was configured: give its run's config.yaml, or what "
                f"`jetgym validate CONFIG --yaml` prints, with --config FILE"
            )
        return Code(
            instance=run.agent, implementation=description.implementation, config=description.config, started=started
        )

    def _agent(self, code: Code) -> type[Agent[AgentConfig]]:
        name = code.implementation
        if name not in self._loaded:
            try:
                found = load("agents", name)
            except ComponentError as error:
                raise CannotVerify(f"the code of agent {code.instance!r} is not here: {error}") from error
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # importing an author's module may raise any
                what = ": ".join(filter(None, (type(error).__name__, str(error))))
                raise CannotVerify(f"the code of agent {code.instance!r} cannot be imported: {what}") from error
            self._loaded[name] = found
            self._digests[name] = digest("agents", name)
        agent = self._loaded[name]
        if agent.replay == "recording":
            raise CannotVerify(
                f"agent {code.instance!r} ({name}) is an opaque program: its rollouts are recordings, which can be "
                f"read but not executed again"
            )
        return agent

    def _config(self, code: Code) -> AgentConfig:
        config_class = self._loaded[code.implementation].config_class()
        try:
            return config_class.model_validate(code.config)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in fault["loc"])
            raise CannotVerify(
                f"agent {code.instance!r} does not take its config any more: {where}: {fault['msg']}; give a config "
                f"that it takes with --config"
            ) from error

    def _compared(self, code: Code) -> Literal["same", "changed", "unknown"]:
        if code.started is None or code.started.implementation != code.implementation:
            return "unknown"
        return "same" if code.started.digest == self._digests[code.implementation] else "changed"


def needs_venv(code: Code) -> bool:
    """Whether the code asks for packages beyond the core's; raises `CannotVerify` if it is not here."""
    try:
        return requirements("agents", code.implementation) is not None
    except ComponentError as error:
        raise CannotVerify(f"the code of agent {code.instance!r} is not here: {error}") from error


def implementation_in(given: Any, instance: str, kind: Kind) -> tuple[str, dict[str, Any]]:
    """The implementation and its config, in what a config says of an instance. Raises `CannotVerify`."""
    found = given.get(kind) if isinstance(given, dict) else None
    if not isinstance(found, dict) or len(found) != 1:
        raise CannotVerify(f"--config: {instance!r} must hold `{kind}:` with one implementation and its config")
    ((implementation, content),) = found.items()
    return implementation, content or {}


def _versions(started: WorkerStarted | None) -> tuple[str, ...]:
    """What is not as it was when the rollout ran, beside the agent's own code."""
    if started is None:
        return ()
    then = {"Python": started.python, "JetGym": started.jetgym}
    now = {"Python": ".".join(platform.python_version_tuple()[:2]), "JetGym": _jetgym()}
    return tuple(f"{name} {then[name]}, now {now[name]}" for name in then if then[name] != now[name])


@cache
def _jetgym() -> str:
    try:
        return version("jetgym")
    except PackageNotFoundError:
        return "0"
