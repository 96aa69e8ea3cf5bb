"""Two samples of one rollout: branches that share their first call."""

from contracts.rollouts import RolloutStats, Timings, Usage
from contracts.samples import build_samples
from contracts.tokens import PolicySpan
from orchestrator.adapters.trained import Trained
from tests.unit.contracts.conversations import Conversations, capture, logprob

STATS = RolloutStats(
    usage=Usage(), timings=Timings(queue_s=0.5, total_s=9.0, model_s=4.0, tools_s=2.0, verify_s=1.0), turns=3
)


def trained() -> list[Trained]:
    """Tokens 1 to 3 are the prompt, 4 and 5 sampled by version 3 and 4; then each branch goes its own way."""
    rollout = Conversations("run-0")
    spans = (PolicySpan(3, 1), PolicySpan(4, 1))
    rollout.call("m_0", ["s", "u"], ["a"], capture([1, 2, 3], [4, 5], spans=spans))
    rollout.call("m1_0", ["s", "u", "a", "t"], ["b"], capture([6], [7], cited=("m_0", 5), version=4))
    cut = capture([8, 9], [10, 11], cited=("m_0", 5), version=5)
    rollout.call("m2_0", ["s", "u", "a", "t2"], ["c"], cut, status="incomplete")
    first, second = build_samples(rollout.events).samples
    common = {"reward": 0.5, "advantage": -0.25, "group": "run-e0-ab", "task_index": 7, "rollout_index": 2}
    return [
        Trained(sample=first, last=False, stats=STATS, **common),  # type: ignore[arg-type]
        Trained(sample=second, last=True, stats=STATS, **common),  # type: ignore[arg-type]
    ]


def logprobs(*tokens: int) -> list[float]:
    """Of these tokens; 0 for one that is not trained on."""
    return [logprob(token) if token else 0.0 for token in tokens]
