"""The map criterion: the exact growth of the expected weights, by the updates of a period."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from resonax.core.algebra import double_precision
from resonax.dynamics import Map, Setting
from resonax.theory.period import (
    Advance,
    Product,
    Values,
    over_cells,
    own_values,
    padded,
    product,
    rational_period,
    rational_periods,
)

__all__ = ["map_product", "map_rates", "multipliers"]


@jax.jit
def _expected(setting: Setting, values: dict[str, Array], steps: Array) -> Array:
    """Return the expected maps of some steps of some cells, (cells, steps, 2 size, 2 size)."""

    def at(values: dict[str, Array], step: Array) -> Array:
        cell = setting.at(values)
        return Map(cell).expected(cell.process.moments(step))

    return jax.vmap(jax.vmap(at, (None, 0)))(values, steps)


def map_product(setting: Setting, values: dict[str, np.ndarray], counts: np.ndarray) -> Product:
    """Return the product of the expected maps over a rational period in each of a few cells."""

    def matrices(setting: Setting, values: dict, steps: np.ndarray, _: np.ndarray) -> np.ndarray:
        return np.asarray(_expected(setting, values, padded(steps)))[:, : steps.shape[1]]

    return product(matrices, setting, values, counts, 2 * setting.size)


@double_precision
def map_rates(setting: Setting, values: Values, advance: Advance | None = None) -> np.ndarray:
    """Return the rate per step of every cell."""
    values, steps = rational_periods(setting, values)

    def logs(values: dict[str, np.ndarray], counts: np.ndarray) -> np.ndarray:
        return map_product(setting, values, counts).log_radii()

    return over_cells(logs, values, steps, 2 * setting.size, advance) / steps


class Multipliers(NamedTuple):
    """Eigenvalues of the product of the updates over a rational period, moduli per period."""

    values: np.ndarray  # complex, by falling modulus
    steps: int  # that the product has
    turns: int  # periods in them


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
    values, counts = rational_periods(setting, own_values(setting))
    matrix, exponent = map_product(setting, values, counts)
    found = np.linalg.eigvals(matrix[0])
    with np.errstate(divide="ignore", over="ignore"):
        logs = (np.log(np.abs(found)) + float(exponent[0]) * np.log(2.0)) / turns
        moduli = np.exp(np.minimum(logs, 700.0)) * np.exp(1j * np.angle(found))
    return Multipliers(moduli[np.argsort(-np.abs(moduli))], steps, turns)
