import math

import pytest
import torch

from examples.grpo_cpu.loss import Clip, grpo_loss


def test_the_loss_is_what_is_computed_by_hand() -> None:
    """Two samples; weights 1, 1.5 (beyond the clip above), 0.5 (beyond it below), and a token that was not sampled."""
    weights = torch.tensor([[1.0, 1.5], [0.5, 9.0]])
    then = torch.full((2, 2), -1.0)
    now = (then + weights.log()).requires_grad_()
    mask = torch.tensor([[True, True], [True, False]])
    loss = grpo_loss(now, then, torch.tensor([2.0, -1.0]), mask, Clip(below=0.2, above=0.28))
    # 2·1; 2·min(1.5, 1.28); min(-1·0.5, -1·0.8)
    assert loss.total.item() == pytest.approx(-(2.0 + 2 * 1.28 - 0.8))
    assert loss.tokens == 3
    assert loss.clipped == 2
    assert loss.drift == pytest.approx(sum(1 / w - 1 + math.log(w) for w in (1.0, 1.5, 0.5)), abs=1e-5)
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert now.grad is not None
    assert now.grad.tolist() == [[-2.0, 0.0], [0.0, 0.0]]  # what is beyond the clip teaches nothing


def test_a_weight_beyond_the_clip_still_counts_where_it_makes_things_worse() -> None:
    """A good token that became unlikely is pulled back however far it went, and a bad one that became likely too."""
    then = torch.zeros(2, 1)
    now = torch.tensor([[0.3], [3.0]]).log().requires_grad_()
    loss = grpo_loss(now, then, torch.tensor([1.0, -1.0]), torch.ones(2, 1, dtype=torch.bool), Clip())
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert now.grad is not None
    assert now.grad.flatten().tolist() == pytest.approx([-0.3, 3.0])
    assert loss.clipped == 0
