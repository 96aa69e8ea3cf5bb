"""What a rollout is asked for with and what it ends with: the `data` of its events. No I/O.

A call's `data` is the callee's own request: `ModelRequest` for a model, `ToolCall`, `SessionSeed` and
`VerifyRequest` for resources, `RolloutRequest` for an agent.
"""

from collections.abc import Collection
from datetime import datetime

import msgspec

from contracts.contexts import Citation


class Fork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rollout shares with the one that it is a fork of: calls and replies that are in its log from the start.

    The agent's code is run again on them and goes on from there, as when a rollout is adopted.
    """

    rollout: str
    """Rollout ID of the parent."""
    at: int
    """Sequence of the parent's first event that is not shared, in the parent's log; 0 where none is."""
    started: datetime
    """When the parent's code took itself to begin, so that the shared part sees the same times."""
    seeds: tuple[tuple[int, str], ...]
    """What randomness is seeded with from the so-manieth reply on, from 0: first the parent's ID."""
    nested: dict[str, str] = {}
    """The same for agents whose call is shared, by its key: they ran to their end under one seed."""
    routed: dict[str, str] = {}
    """Instances that are called in place of others, from here on."""


class RolloutRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`rollout.requested` and `agent.requested`: one attempt at one task."""

    task: msgspec.Raw
    """The task's line, materialized: `responses_create_params` exactly as the agent starts from, and its own fields."""
    agent: str
    """Name of the agent's instance."""
    run_id: str = ""
    task_index: int = 0
    rollout_index: int = 0
    """Index among the repeats of the task (the group)."""
    attempt: int = 0
    """How often the rollout was asked for before, because it had failed. Each attempt has a rollout ID of its own."""
    parent: str = ""
    """Rollout ID of the attempt before, or of the rollout that this is a fork of; else empty."""
    fork: Fork | None = None
    """What it shares with its parent; None where it is no fork."""
    sessionless: tuple[str, ...] = ()
    """Resources instances that keep no session, so that seeding them is no call."""
    policy_version: int | None = None
    """The trainer's policy version when it asked; None where no trainer did."""
    group: str = ""
    """ID of the group, where a trainer asked for one: its rollouts are compared with each other."""
    group_size: int = 1
    """So many rollouts the group has."""


class PolicyUpdated(msgspec.Struct, frozen=True, kw_only=True):
    """`policy.updated`: a model instance has new weights."""

    instance: str
    """Name of the model instance."""
    version: int
    """Higher than those before."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all model calls of a rollout, as the engines count them; those of the agents that it called too."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. `total_s` is from request to end; the callees' times add up over parallel calls."""

    queue_s: float
    """From the request until an agent worker took it."""
    total_s: float
    model_s: float = 0.0
    tools_s: float = 0.0
    verify_s: float = 0.0


class ModelStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was counted of one model instance, or of several together."""

    captured: int = 0
    """Calls whose tokens are in the log."""
    flawed: int = 0
    """Calls whose tokens were refused."""
    generated: int = 0
    """Generated tokens that are in the log; where none are, as many as the engines counted."""
    policy: tuple[int, int] | None = None
    """The oldest and the newest policy version that generated any token; None where none is known."""

    @property
    def token_less(self) -> bool:
        """Whether tokens were asked for and refused, all of them: there is nothing to train on."""
        return self.flawed > 0 and self.captured == 0


class RolloutStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent worker counted on the way; part of every terminal event.

    A nested rollout counts for itself, and once more for its caller: tokens, turns, tool calls, models and the callees'
    seconds of a rollout are those of everything that happened in it.
    """

    usage: Usage
    timings: Timings
    turns: int = 0
    tool_calls: int = 0
    models: tuple[str, ...] = ()
    """Model instances that were called."""
    adoptions: int = 0
    captured: int = 0
    """Model calls whose tokens are in the log."""
    flawed: int = 0
    """Model calls whose tokens were refused, since they cannot be trained on."""
    policy: tuple[int, int] | msgspec.UnsetType = msgspec.UNSET
    """The oldest and the newest policy version that generated any token in it; not there where none is known."""
    generated: int | msgspec.UnsetType = msgspec.UNSET
    """Tokens of its `captured` calls; not there where `usage` says the same, or several models were called."""
    by_model: dict[str, ModelStats] | msgspec.UnsetType = msgspec.UNSET
    """The same for each model instance, where several were called."""

    @property
    def token_less(self) -> bool:
        """Whether its engines' tokens were asked for and refused, all of them: there is nothing in it to train on."""
        return self.flawed > 0 and self.captured == 0


def counted(stats: RolloutStats, models: Collection[str]) -> ModelStats:
    """What was counted of these model instances. Where a log does not tell several apart, it is that of all."""
    if not isinstance(stats.by_model, msgspec.UnsetType):
        return together([each for name, each in stats.by_model.items() if name in models])
    if len(stats.models) == 1 and stats.models[0] not in models:
        return ModelStats()
    return ModelStats(
        captured=stats.captured,
        flawed=stats.flawed,
        generated=stats.usage.output_tokens if isinstance(stats.generated, msgspec.UnsetType) else stats.generated,
        policy=None if isinstance(stats.policy, msgspec.UnsetType) else stats.policy,
    )


def together(counts: Collection[ModelStats]) -> ModelStats:
    """The counts of several model instances as one. Where tokens of any are in the log, only such count."""
    captured = sum(each.captured for each in counts)
    policies = [each.policy for each in counts if each.policy is not None]
    return ModelStats(
        captured=captured,
        flawed=sum(each.flawed for each in counts),
        generated=sum(each.generated for each in counts if each.captured or not captured),
        policy=(min(oldest for oldest, _ in policies), max(newest for _, newest in policies)) if policies else None,
    )


class RolloutResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`rollout.completed`; also the reply to an agent called by an agent."""

    response: msgspec.Raw
    """The Responses object with all new items as its output, but for those that are `cited`."""
    reward: float
    """Finite. A rollout without a reward fails; a missing reward is never 0."""
    extra: dict[str, msgspec.Raw] = {}
    """What the verifier returned beside the reward: `reward_components` and its own fields."""
    cited: Citation | None = None
    """Where the first items of the output stand already."""
    stats: RolloutStats | None = None


class RolloutFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`rollout.failed`, `rollout.cancelled` and `agent.failed`: the error, never a reward."""

    kind: str
    message: str
    details: dict[str, str] = {}
    stats: RolloutStats | None = None


class Revised(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`rollout.revised`: a verifier scored a completed rollout again. The one with the highest number counts."""

    reward: float
    """Finite."""
    was: float | None = None
    """The reward before: of the revision before, or the recorded one."""
    extra: dict[str, msgspec.Raw] = {}
    """What the verifier returned beside the reward."""
    instance: str = ""
    """Name of the resources instance that scored."""
    implementation: str = ""
    digest: str = ""
    """Of the verifier's source."""


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """`rollout.adopted`: a worker carries on what another one began."""

    epoch: int
    """From 1; the row is shared by a rollout and those nested in it."""
    worker: str


class CancelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`cancel.requested`: a rollout with its later attempts, or a whole run, is to end; the subject says which."""

    run_id: str
    reason: str
    """For a human."""


class TimerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`timer.requested`: the agent sleeps, or set a timeout."""

    delay: float
    """Seconds from the event's time."""


class SessionSeed(msgspec.Struct, frozen=True, kw_only=True):
    """`session.requested`: start this rollout's session from the task."""

    task: msgspec.Raw


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a session can be restored from: the whole of `session.replied`, and a part of `tool.replied`.

    Only where the component takes snapshots; `session.replied` is `null` otherwise.
    """

    calls: int
    """Tool calls that the session has in it, since its seed."""
    state: msgspec.Raw
    """JSON, as the component gave it. Neither the model nor the agent reads it."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """`tool.requested`: one function call as the model wrote it."""

    name: str
    arguments: str
    """JSON text, not yet checked: a model may write anything."""
    call_id: str


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`tool.replied`: what the model gets to read, and what the call left of the session."""

    output: msgspec.Raw
    """A JSON string, or a list of content parts."""
    snapshot: SessionSnapshot | None = None
    """The session after this call, where it takes the session and the component takes snapshots."""


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`verify.requested`: score this response to this task."""

    task: msgspec.Raw
    response: msgspec.Raw
    """All items that are new since the task as its output, but for those that are `cited`."""
    cited: Citation | None = None
    """Where the first items of the output stand already."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`verify.replied`."""

    reward: float
    extra: dict[str, msgspec.Raw] = {}
