"""How does a training look? Reward, staleness and queue depth, as a picture and in the terminal.

Called by `learn.py` with the curves; it computes nothing of its own but means.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib import pyplot as plt
from rich.console import Group
from rich.table import Table
from rich.text import Text

from examples.grpo_cpu.curves import Curves

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
WIDTH: Final = 60
"""Characters of a curve in the terminal, at most."""


def save_picture(curves: Curves, path: Path, title: str) -> None:
    """Draws the three curves above each other into a PNG."""
    mpl.use("Agg")  # no screen is needed
    figure, (reward, staleness, depth) = plt.subplots(3, 1, figsize=(8, 9), constrained_layout=True)
    figure.suptitle(title)
    steps = [step.step for step in curves.steps]
    reward.plot(steps, [step.reward for step in curves.steps], color="tab:green")
    reward.set(ylabel="mean reward of a batch", ylim=(0, 1.02))
    below = [0] * len(steps)
    for lag in range(curves.max_lag + 1):
        counts = [step.lags.get(lag, 0) for step in curves.steps]
        staleness.bar(steps, counts, bottom=below, width=1.0, label=f"{lag}", color=plt.get_cmap("viridis")(lag / 4))
        below = [one + other for one, other in zip(below, counts, strict=True)]
    staleness.set(xlabel="step", ylabel="rollouts by staleness, versions")
    staleness.legend(  # beside the bars, which fill the picture
        title="versions\nbehind", loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True, fontsize="small"
    )
    times = [point.at_s for point in curves.depths]
    depth.plot(times, [point.waiting for point in curves.depths], label="ended, waiting for the trainer")
    depth.plot(times, [point.unfinished for point in curves.depths], label="unfinished")
    depth.plot(times, [point.generating for point in curves.depths], label="at the engine")
    depth.set(xlabel="seconds", ylabel="rollouts")
    depth.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def in_terminal(curves: Curves) -> Group:
    """The same three for a terminal, one line each."""
    steps = curves.steps
    lags = [sum(lag * count for lag, count in step.lags.items()) / sum(step.lags.values()) for step in steps]
    table = Table(box=None, pad_edge=False)
    for name in ("", "first", "last", "over time"):
        table.add_column(name, justify="left" if name in ("", "over time") else "right", no_wrap=True)
    rows = {
        "reward": ([step.reward for step in steps], 1.0),
        "staleness, versions": (lags, 4.0),
        "waiting rollouts": ([float(point.waiting) for point in curves.depths], None),
        "unfinished rollouts": ([float(point.unfinished) for point in curves.depths], None),
    }
    for name, (values, top) in rows.items():
        if values:
            table.add_row(name, f"{values[0]:.2f}", f"{values[-1]:.2f}", Text(line(values, top), style="green"))
    return Group(table)


def line(values: Sequence[float], top: float | None = None) -> str:
    """A curve of block characters; each stands for the mean of a stretch of `values`, up to `top` or their largest."""
    top = top or max(values) or 1.0
    width = min(WIDTH, len(values))
    cuts = [index * len(values) // width for index in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    return "".join(BLOCKS[min(len(BLOCKS) - 1, max(0, round(mean / top * (len(BLOCKS) - 1))))] for mean in means)
