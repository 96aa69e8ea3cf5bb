from pathlib import Path

import pytest

from examples.grpo_cpu import plot
from examples.grpo_cpu.curves import Curves, Depth, Step


def step(index: int, reward: float, first: list[float], lag: int) -> Step:
    return Step(
        step=index, at_s=float(index), version=index, reward=reward, first=first, rollouts=64, without_reward=0,
        lags={lag: 64}, straddling=1, tokens=100, clipped=0.0, drift=0.0, train_s=0.5,
    )  # fmt: skip


CURVES = Curves(
    steps=[step(0, 0.25, [0.0, 0.5], 0), step(1, 0.5, [1.0], 1), step(2, 1.0, [], 2)],
    depths=[Depth(at_s=0.5 * index, waiting=index, unfinished=64, generating=10) for index in range(6)],
)


def test_figures_are_those_of_the_curves() -> None:
    assert CURVES.reward_start == pytest.approx(0.5)
    assert CURVES.reward_end == pytest.approx(1.75 / 3)
    assert CURVES.max_lag == 2
    assert CURVES.straddling == 3
    assert CURVES.trainer_busy == pytest.approx(0.5)
    assert CURVES.rate(2) == 64.0
    assert CURVES.rate(1) == 0.0


def test_a_curve_in_the_terminal_rises_with_its_values() -> None:
    assert plot.line([0.0, 0.5, 1.0], 1.0) == " ▄█"
    assert len(plot.line([float(value) for value in range(1_000)])) == plot.WIDTH


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    plot.save_picture(CURVES, tmp_path / "curves.png", "a training")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
