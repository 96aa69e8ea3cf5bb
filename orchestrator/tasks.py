"""Which tasks does a run have, and how exactly will each be sent?

Reads files of task lines, checks every line before anything starts, and makes from them what is sent: the tools of
the agent's resources are put into tasks that name none, each task is repeated, everything is numbered. Called by the
`run` and `datasets` commands. It never talks to the log.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from pydantic import ValidationError

from components.config import DatasetConfig
from components.loading import INSTALLED
from contracts.deployments import Description
from contracts.problems import problems
from contracts.responses import ResponseCreateParams
from orchestrator.config import Config
from orchestrator.describing import Descriptions
from orchestrator.errors import InputError, Problem, UsageError, nearest
from orchestrator.hints import counted

SHOWN: Final = 20
"""So many bad lines are told one by one; the others are counted."""

_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER: Final = msgspec.json.Encoder()
_PARAMS: Final = "responses_create_params"
_ENDLESS: Final = re.compile(rb"\d{4000}")


class _AgentRef(msgspec.Struct):
    name: str


class TaskLine(NamedTuple):
    """One good line of a file of tasks."""

    number: int
    fields: dict[str, msgspec.Raw]
    params: dict[str, msgspec.Raw]
    """The fields of `responses_create_params`."""


class Dataset(NamedTuple):
    """A file of tasks, and for whom it is."""

    name: str
    """As it was written."""
    path: Path
    agent: str | None
    """None: each line names its agent."""
    repeats: int


class MaterializedTask(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout to ask for."""

    agent: str
    """Name of the instance."""
    task_index: int
    rollout_index: int
    """Among the repeats of the task."""
    line: bytes
    """The task exactly as it is sent; the repeats share it."""
    sessionless: tuple[str, ...] = ()
    """Resources instances of the deployment that keep no session."""


class Materialized(NamedTuple):
    """The rollouts of a run."""

    tasks: list[MaterializedTask]
    skipped: int
    """Bad lines that were left out."""


def read_tasks(path: Path, name: str | None = None) -> Iterator[TaskLine | Problem]:
    """The lines of a file of tasks one by one, checked; empty lines are passed over. Raises `UsageError`.

    Problems call the file by its `name`.
    """
    name = name or str(path)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901 - a byte order mark is no JSON
                if line.strip():
                    yield read_task(name, number, line)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error


def datasets_of(config: Config, descriptions: Descriptions) -> list[Dataset]:
    """The files of the run: the `input` of the settings, else the agents' datasets. Raises `UsageError`."""
    settings = config.settings
    agents = {name: d for name, d in descriptions.items() if d.kind == "agents"}
    if settings.agent is not None and settings.agent not in agents:
        raise UsageError(f"there is no agent {settings.agent!r}; {nearest(settings.agent, list(agents))}")
    if settings.input is not None:
        only = next(iter(agents)) if len(agents) == 1 else None
        return [Dataset(settings.input, _find(settings.input, config), settings.agent or only, settings.repeats or 1)]
    found = [
        Dataset(dataset.path, _find(dataset.path, config), name, settings.repeats or dataset.repeats)
        for name, description in agents.items()
        if settings.agent in (None, name)
        for dataset in (DatasetConfig.model_validate(entry) for entry in description.config["datasets"])
    ]
    if not found:
        whose = f"agent {settings.agent!r} has" if settings.agent else "no agent of this config has"
        raise UsageError(f"{whose} datasets: name a file of tasks with --input")
    return found


def materialize(config: Config, descriptions: Descriptions) -> Materialized:
    """Reads all tasks of the run. Raises `InputError` for bad lines, unless they are to be skipped, or `UsageError`."""
    settings = config.settings
    sessionless = tuple(n for n, d in descriptions.items() if d.kind == "resources" and not d.stateful)
    tools = {n: tools_for(d, descriptions) for n, d in descriptions.items() if d.kind == "agents"}
    tasks: list[MaterializedTask] = []
    told: list[Problem] = []
    bad = task_index = 0
    for dataset in datasets_of(config, descriptions):
        good = 0
        for line in read_tasks(dataset.path, dataset.name):
            agent = line if isinstance(line, Problem) else _agent(dataset, line, list(tools))
            if isinstance(line, Problem) or isinstance(agent, Problem):
                assert isinstance(agent, Problem)
                bad += 1
                told += [agent] if bad <= SHOWN else []
                continue
            whole = sent(line, tools[agent])
            tasks += [
                MaterializedTask(
                    agent=agent, task_index=task_index, rollout_index=index, line=whole, sessionless=sessionless
                )
                for index in range(dataset.repeats)
            ]
            task_index += 1
            good += 1
            if good == settings.limit:
                break
    if bad and not settings.skip_bad_lines:
        raise InputError(
            f"{counted(bad, 'bad line')}: mend them, or leave them out with --skip-bad-lines",
            problems=told,
            total=bad,
        )
    if not tasks:
        raise UsageError("there is no task to run")
    return Materialized(tasks, bad)


def input_line(task: MaterializedTask, rollout_id: str) -> bytes:
    """The line of `materialized_inputs.jsonl`: the task as sent, and which rollout it is."""
    fields = _FIELDS.decode(task.line)
    place = {
        "rollout_id": rollout_id,
        "task_index": task.task_index,
        "rollout_index": task.rollout_index,
        "agent": task.agent,
    }
    return _ENCODER.encode({**fields, **place}) + b"\n"


def other_inputs(path: Path, lines: Iterable[bytes]) -> str | None:
    """In what a file of inputs is not these lines, which would be sent now, for a person; None where it is."""
    begun = sent_now = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line, now in zip_longest(file, lines):
            begun += line is not None
            sent_now += now is not None
            if line != now and line is not None and now is not None:
                return (
                    f"line {begun} of {path} is not what would be sent now: the tasks, the repeats, the agent or its "
                    f"tools have changed since the run began"
                )
        return None if begun == sent_now else f"the run began with {begun} rollouts and would now have {sent_now}"
    return f"{path} is not there"


def read_task(name: str, number: int, line: bytes) -> TaskLine | Problem:
    """The task in a line of the file `name`, or what is wrong with it."""
    where = f"{name}:{number}"
    fields = _fields(line)
    if isinstance(fields, str):
        return Problem(where, "", fields)
    if (raw := fields.get(_PARAMS)) is None:
        return Problem(where, _PARAMS, f"is missing; {nearest(_PARAMS, list(fields))}")
    try:
        ResponseCreateParams.model_validate_json(bytes(raw))
    except ValidationError as error:
        (field, message), *more = problems(error, msgspec.json.decode(raw))
        others = f" (and {len(more)} more)" if more else ""
        return Problem(where, ".".join(filter(None, (_PARAMS, field))), f"{message}{others}")
    return TaskLine(number, fields, _FIELDS.decode(raw))


def _fields(line: bytes) -> dict[str, msgspec.Raw] | str:
    """The fields of a line, or what keeps it from being an object that every reader of JSON reads."""
    try:
        line.decode()
        fields = _FIELDS.decode(line)
    except UnicodeDecodeError as error:
        return f"is no UTF-8: {error.reason} at byte {error.start}"
    except msgspec.DecodeError as error:
        return f"is no JSON object: {error}"
    except RecursionError:
        return "is nested too deeply"
    return "holds a number of more than 4,000 digits" if _ENDLESS.search(line) else fields


def _agent(dataset: Dataset, line: TaskLine, agents: Sequence[str]) -> str | Problem:
    if dataset.agent is not None:
        return dataset.agent
    where = f"{dataset.name}:{line.number}"
    try:
        name = msgspec.json.decode(line.fields["agent_ref"], type=_AgentRef).name
    except (KeyError, msgspec.DecodeError):
        return Problem(
            where, "agent_ref.name", f"is missing, and there are {len(agents)} agents: name one with --agent"
        )
    return name if name in agents else Problem(where, "agent_ref.name", f"no agent {name!r}; {nearest(name, agents)}")


def sent(line: TaskLine, tools: msgspec.Raw | None) -> bytes:
    """The line, with the resources' tools where it names none itself."""
    own = line.params.get("tools", msgspec.Raw(b"null"))
    if tools is None or msgspec.json.decode(own):
        return _ENCODER.encode(line.fields)
    params = msgspec.Raw(_ENCODER.encode({**line.params, "tools": tools}))
    return _ENCODER.encode({**line.fields, _PARAMS: params})


def tools_for(agent: Description, descriptions: Descriptions) -> msgspec.Raw | None:
    """The tools of the instance named by an agent's `resources`, encoded; None if there are none."""
    name = next((ref.name for ref in agent.references if ref.path == "resources"), None)
    tools = descriptions[name].tools if name is not None else ()
    return msgspec.Raw(_ENCODER.encode(tools)) if tools else None


def _find(name: str, config: Config) -> Path:
    for path in (config.folder / name, INSTALLED / name):
        if path.is_file():
            return path
    raise UsageError(f"there is no file {name!r} of tasks")
