"""The multipliers of a setting: what a period does to each mode of the expected weights."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from resonax.core.algebra import Scaled, double_precision
from resonax.dynamics import Setting
from resonax.theory.discrete import monodromy, rational_period

__all__ = ["Multipliers", "multipliers"]


class Multipliers(NamedTuple):
    """Eigenvalues of the product of the updates over a rational period, moduli per period."""

    values: np.ndarray  # complex, by falling modulus
    steps: int  # that the product has
    turns: int  # periods in them


@jax.jit
def _product(setting: Setting, steps: Array) -> Scaled:
    return monodromy(setting, steps, steps)


@double_precision
def multipliers(setting: Setting) -> Multipliers | None:
    r"""Return the Floquet multipliers of the expected map; None where the law never repeats.

    They are the eigenvalues :math:`\lambda_i` of :math:`M_{K-1}\cdots M_0`. Where the period is no
    whole number of steps the product goes over ``turns`` periods, and a multiplier is given as
    :math:`|\lambda_i|^{1/\text{turns}}\,e^{i\arg\lambda_i}`: it leaves the unit circle where the
    rate of the map criterion, :math:`\max_i\log|\lambda_i|/K`, turns positive.

    Examples
    --------
    >>> from resonax import Setting, Sinusoid, heavy_ball
    >>> setting = Setting(Sinusoid(period=22), heavy_ball(lr=0.01, momentum=0.97))
    >>> found = multipliers(setting)
    >>> round(float(np.prod(np.abs(found.values))), 4), round(0.97 ** (2 * 22), 4)  # Liouville
    (0.2618, 0.2618)
    """
    setting = setting.grouped
    if not setting.process.periodic:
        return None
    steps, turns = rational_period(float(setting.process.cycle))
    if hasattr(setting.process, "period"):
        setting = setting.at({"period": steps / turns})
    matrix, exponent = _product(setting, np.asarray(steps))
    found = np.linalg.eigvals(np.asarray(matrix))
    with np.errstate(divide="ignore", over="ignore"):
        logs = (np.log(np.abs(found)) + float(exponent) * np.log(2.0)) / turns
        values = np.exp(np.minimum(logs, 700.0)) * np.exp(1j * np.angle(found))
    return Multipliers(values[np.argsort(-np.abs(values))], steps, turns)
