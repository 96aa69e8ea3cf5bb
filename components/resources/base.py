"""What an author of resources writes against: `Resources`, `@tool`, `TaskFields`, `Reward`, `ToolError`.

A component is a class with a `verify`, and, where it has them, tools and a `seed_session`. `def` runs in a thread,
`async def` on the event loop. There is one component object a worker and one session a rollout. An author never sees
an event, a subject or a token ID.
"""

from dataclasses import dataclass
from typing import ClassVar, Generic, get_args

from pydantic import Field
from typing_extensions import TypeVar

from components.config import ComponentConfig
from components.resources.errors import ToolError
from components.resources.plan import Plan, Rebuild, TaskFields, plan_of
from components.resources.results import Reward
from components.resources.tools import tool
from contracts.base import JsonObject

__all__ = ["Described", "Resources", "ResourcesConfig", "Reward", "TaskFields", "ToolError", "tool"]


class ResourcesConfig(ComponentConfig):
    """The config that every resources component takes. Deadlines count from when the code begins to run."""

    tool_deadline_s: float = Field(default=60.0, gt=0)
    """Seconds that one tool call may take."""
    verify_deadline_s: float = Field(default=120.0, gt=0)
    """Seconds that scoring one rollout may take."""
    seed_deadline_s: float = Field(default=60.0, gt=0)
    """Seconds that starting one session may take, and a `snapshot` or a `restore` of it."""
    threads: int = Field(default=16, ge=1)
    """Plain (`def`) tools and verifiers that run at once in one worker."""
    max_sessions: int = Field(default=65_536, ge=1)
    """Sessions that one worker keeps in memory; the least recently used is made again from the log when needed."""


@dataclass(frozen=True, slots=True)
class Described:
    """What a class offers, found without starting it."""

    tools: tuple[JsonObject, ...]
    """Its tools, as they stand in `tools` of a Responses request."""
    stateful: bool
    """It keeps a session, which must be seeded."""
    rebuild: Rebuild
    """How a session that was lost comes back."""


C_co = TypeVar("C_co", bound=ResourcesConfig, default=ResourcesConfig, covariant=True)


class Resources(Generic[C_co]):
    """Tools and a verifier. Write `verify`, and where they are needed `seed_session` and `@tool` methods.

    seed_session(self, task) -> session
        Starts a rollout's session: any object. Without it there is no session.
    verify(self, task, response, session) -> float | Reward
        Scores the response. It takes those of the three parameters that it needs.
    snapshot(self, session) -> JSON value
        What the session can be made from again. With `restore`, where the class says `rebuild = "snapshot"`.
    restore(self, task, snapshot) -> session
        The session of that snapshot.
    aggregate_metrics(self, lines) -> dict
        Metrics of your own over all result lines of a run. Optional.

    The annotation of `task` is the type that the task's line is checked against.
    """

    rebuild: ClassVar[Rebuild] = "replay"
    """How a session that was lost comes back. `replay`: the recorded calls are made again, for the same calls on the
    same task give the same session. `snapshot`: from what `snapshot` returned after the last of them. `fail`: not at
    all, and the rollout fails."""

    jetgym_plan: ClassVar[Plan]
    """What the class offers, for the runtime."""

    def __init__(self, config: C_co | None = None) -> None:
        self.config: C_co = self.config_class()() if config is None else config

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.jetgym_plan = plan_of(cls, cls.rebuild)

    @classmethod
    def describe(cls) -> Described:
        """What this class offers."""
        plan = cls.jetgym_plan
        tools = tuple(entry.function for entry in plan.tools.values())
        return Described(tools=tools, stateful=plan.seed is not None, rebuild=plan.rebuild)

    @classmethod
    def config_class(cls) -> type[C_co]:
        """The config type, taken from `Resources[...]`."""
        for base in cls.__mro__:
            for origin in getattr(base, "__orig_bases__", ()):
                for argument in get_args(origin):
                    if isinstance(argument, type) and issubclass(argument, ResourcesConfig):
                        return argument  # type: ignore[return-value]  # it is the class's own argument
        return ResourcesConfig  # type: ignore[return-value]  # the type variable's default
