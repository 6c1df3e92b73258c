"""A replayed learner: its errors along the rows and the norm of its weights."""

from __future__ import annotations

from typing import Protocol

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from resonax.figures.style import INK, RED, STYLE, new_figure

__all__ = ["plot_replay"]


class ReplayLike(Protocol):
    """What the picture needs to know of a replay."""

    @property
    def errors(self) -> np.ndarray: ...
    @property
    def steps(self) -> np.ndarray: ...
    @property
    def norms(self) -> np.ndarray: ...
    @property
    def overflow(self) -> int | None: ...


def plot_replay(replay: ReplayLike) -> Figure:
    """Return the squared error of each batch, and below it the norm of the weights."""
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.2, 4.6)
        above, below = figure.subplots(2, 1, sharex=True)
        curves = ((above, np.arange(len(replay.errors)), replay.errors, "squared error"),)
        for axes, steps, values, words in (
            *curves,
            (below, replay.steps, replay.norms, "norm of the weights"),
        ):
            axes.plot(steps, values, color=INK, linewidth=1.0)
            if (values > 0).any():
                axes.set_yscale("log")
            axes.set_ylabel(words)
            if replay.overflow is not None:
                axes.axvline(replay.overflow, color=RED, linestyle="--", linewidth=1.0)
        end = "stays bounded" if replay.overflow is None else f"diverges at step {replay.overflow}"
        above.set_title(f"The learner {end}")
        below.set_xlabel("step")
    return figure
