"""verl: a sample as an `AgentLoopOutput` (`verl.experimental.agent_loop.agent_loop`).

`AgentLoopOutput(**agent_loop_output(trained))` in verl's process. One sample is one output: a rollout of several
branches gives several, and verl's `uid` of all is the group's ID. Pure.
"""

from typing import Any, TypedDict

from orchestrator.adapters.trained import Trained, halves


class AgentLoopMetrics(TypedDict):
    """Seconds; `num_preempted` is -1, which verl reads as not known."""

    generate_sequences: float
    tool_calls: float
    compute_score: float
    num_preempted: int


class AgentLoopOutput(TypedDict):
    """The fields of verl's model that a rollout has."""

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float]
    reward_score: float
    num_turns: int
    metrics: AgentLoopMetrics
    extra_fields: dict[str, Any]


def agent_loop_output(trained: Trained) -> AgentLoopOutput:
    """The output of one sample."""
    sample, parts = trained.sample, halves(trained.sample)
    oldest, newest = trained.versions
    timings = trained.stats.timings if trained.stats is not None else None
    return AgentLoopOutput(
        prompt_ids=parts.prompt,
        response_ids=parts.response,
        response_mask=parts.mask,
        response_logprobs=parts.logprobs,
        reward_score=trained.reward,
        num_turns=2 * len(sample.calls),  # what was said to the model, and what it said
        metrics=AgentLoopMetrics(
            generate_sequences=timings.model_s if timings is not None else 0.0,
            tool_calls=timings.tools_s if timings is not None else 0.0,
            compute_score=timings.verify_s if timings is not None else 0.0,
            num_preempted=-1,
        ),
        extra_fields={
            "uid": trained.group,
            "global_steps": newest,
            "min_global_steps": oldest,
            "max_global_steps": newest,
            "turn_scores": [],
            "tool_rewards": [],
        },
    )
