"""Fig. 1: a fixed line, learned from inputs whose mean moves."""

from __future__ import annotations

import jax
import numpy as np

from resonax.core.algebra import double_precision
from resonax.store import Layout, Variable
from resonax.streams import Sinusoid
from resonax.sweeps.experiment import Experiment, compute_at_once, drawn_by

__all__ = ["compute_problem_setting", "problem_setting"]

_PERIOD = 100
_STEPS = 240
_SAMPLES = 12
# The mean of the paper's first experiment. Its inputs have variance 1, in which a mean that moves
# by 0.5 can hardly be seen; the paper gives no numbers for the picture itself.
_AMPLITUDE = 0.5
_VARIANCE = 0.02
_NOISE = 0.01
_WEIGHTS = (0.8, 0.2)  # slope and bias
_MOMENTS = (25, 100, 175)  # a crest, a zero and a valley of the mean
_GRID = np.linspace(-1.1, 1.1, 221)

_LAYOUT = Layout(
    coords={
        "step": np.arange(_STEPS),
        "sample": np.arange(_SAMPLES),
        "moment": np.array(_MOMENTS),
        "x": _GRID,
    },
    chunks={},
    variables={
        "mean": Variable(("step",), "float64"),
        "input": Variable(("step", "sample"), "float64"),
        "target": Variable(("step", "sample"), "float64"),
        "line": Variable(("x",), "float64"),
        "density": Variable(("moment", "x"), "float64", {"long_name": "law of the inputs"}),
    },
)


@double_precision
def compute_problem_setting(seed: int) -> dict[str, np.ndarray]:
    r"""Return samples of the one-dimensional regression with a moving Gaussian.

    .. math:: X_k \sim \mathcal N(a \sin(2\pi k/T),\, c), \qquad
              Y_k = \theta^*_1 X_k + \theta^*_2 + \epsilon_k

    The line :math:`\theta^*` stays where it is; only the place where it is seen moves.
    """
    process = Sinusoid(period=_PERIOD, amplitude=_AMPLITUDE, variance=_VARIANCE)
    key = jax.random.key(seed)
    mean = np.asarray(process.path(key, _STEPS))[:, 0]
    inputs = np.asarray(process.sample(key, _STEPS, _SAMPLES))[..., 0]
    noise = np.sqrt(_NOISE) * np.random.default_rng(seed).standard_normal(inputs.shape)
    slope, bias = _WEIGHTS
    off = _GRID - mean[list(_MOMENTS), None]
    return {
        "mean": mean,
        "input": inputs,
        "target": slope * inputs + bias + noise,
        "line": slope * _GRID + bias,
        "density": np.exp(-0.5 * off**2 / _VARIANCE) / np.sqrt(2 * np.pi * _VARIANCE),
    }


def problem_setting(scale: str) -> Experiment:
    """Return the record of this experiment, the same at every scale."""
    del scale
    return Experiment(
        id="problem-setting",
        title="The problem: regression on inputs that move",
        caption="Left: a regression in one dimension, with the samples of three moments of "
        "training. Right: the Gaussian inputs, whose mean moves over time. The relation between "
        "input and target never changes; only where the inputs lie does.",
        specification={"id": "problem-setting"},
        layout=_LAYOUT,
        compute=compute_at_once(compute_problem_setting),
        draw=drawn_by("resonax.figures.problem_setting:plot_problem_setting"),
        attributes={
            "amplitude": _AMPLITUDE,
            "period": _PERIOD,
            "variance": _VARIANCE,
            "noise": _NOISE,
            "weights": list(_WEIGHTS),
        },
        paper="Fig. 1",
    )
