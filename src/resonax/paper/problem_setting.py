"""The paper's first figure: a fixed line, learned from inputs whose mean moves."""

from __future__ import annotations

import jax
import numpy as np
import xarray as xr

from resonax.algebra import double_precision
from resonax.processes import Sinusoid

__all__ = ["compute_problem_setting"]

_PERIOD = 100
_STEPS = 240
_SAMPLES = 12
# The mean of the paper's first experiment. Its inputs have variance 1, in which a mean that moves
# by 0.5 can hardly be seen; the paper gives no numbers for the picture itself.
_AMPLITUDE = 0.5
_VARIANCE = 0.02
_NOISE = 0.01
_WEIGHTS = (0.8, 0.2)  # slope and bias
_MOMENTS = (25, 100, 175)  # a crest, a zero and a trough of the mean
_GRID = np.linspace(-1.1, 1.1, 221)


@double_precision
def compute_problem_setting(seed: int) -> xr.Dataset:
    r"""Return samples of the one-dimensional regression with a moving Gaussian.

    .. math:: X_k \sim \mathcal N(a \sin(2\pi k/T),\, c), \qquad
              Y_k = \theta^*_1 X_k + \theta^*_2 + \epsilon_k

    The line :math:`\theta^*` stays where it is; only the place where it is seen moves.

    Parameters
    ----------
    seed
        Of all draws.

    Returns
    -------
    xarray.Dataset
        ``mean(step)``, ``input(step, sample)``, ``target(step, sample)``, ``line(x)``, and
        ``density(moment, x)`` of the inputs at the steps in ``moment``.
    """
    process = Sinusoid(period=_PERIOD, amplitude=_AMPLITUDE, variance=_VARIANCE)
    key = jax.random.key(seed)
    mean = np.asarray(process.path(key, _STEPS))[:, 0]
    inputs = np.asarray(process.sample(key, _STEPS, _SAMPLES))[..., 0]
    noise = np.sqrt(_NOISE) * np.random.default_rng(seed).standard_normal(inputs.shape)
    slope, bias = _WEIGHTS
    off = _GRID - mean[list(_MOMENTS), None]
    density = np.exp(-0.5 * off**2 / _VARIANCE) / np.sqrt(2 * np.pi * _VARIANCE)
    return xr.Dataset(
        {
            "mean": ("step", mean),
            "input": (("step", "sample"), inputs),
            "target": (("step", "sample"), slope * inputs + bias + noise),
            "line": ("x", slope * _GRID + bias),
            "density": (("moment", "x"), density),
        },
        coords={
            "step": np.arange(_STEPS),
            "sample": np.arange(_SAMPLES),
            "moment": np.array(_MOMENTS),
            "x": _GRID,
        },
        attrs={
            "amplitude": f"{_AMPLITUDE:g}",
            "period": f"{_PERIOD:g}",
            "variance": f"{_VARIANCE:g}",
            "noise": f"{_NOISE:g}",
            "weights": f"{slope:g}, {bias:g}",
            "seed": str(seed),
        },
    )
