r"""The mean-square criterion: exact growth of :math:`E\|\theta_k-\theta^*\|^2`, and its floor."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import numpy as np
from jax import Array

from resonax.core.algebra import double_precision, on_the_cpu
from resonax.core.errors import ArgumentError
from resonax.dynamics import Setting
from resonax.theory.period import (
    Advance,
    Values,
    over_cells,
    own_values,
    padded,
    product,
    rational_periods,
)
from resonax.theory.second_moment import Frame, Law, Symmetry, law_of, step_of, symmetric_basis

__all__ = ["mean_square_rates", "noise_floor"]

_MAX_WEIGHTS = 24  # the second moment has (2 p)^2 / 2 entries, its propagator the square of that


_LAWS = 8, 64  # different laws among the cells of a block, for which the program is compiled


@functools.partial(jax.jit, static_argnames=("with_noise",))
def _steps(
    setting: Setting,
    laws: dict[str, Array],
    which: Array,
    values: dict[str, Array],
    steps: Array,
    *,
    with_noise: bool,
) -> Array:
    """Return what steps of some cells do to the coordinates, (cells, steps, n, n).

    With the noise, they come from (coordinates, 1): (cells, steps, n, n + 1).

    Parameters
    ----------
    setting
        Of the cells.
    laws
        Numbers of each law: what a law gives is computed once for all cells that share it.
    which
        The law of each cell.
    values
        Numbers of the optimizer in each cell.
    steps
        Steps, the same of all cells.
    """
    frame = Frame.of(Symmetry(tuple(range(setting.size))))

    def law_at(values: dict[str, Array], step: Array) -> Law:
        cell = setting.at(values)
        return law_of(cell, frame, cell.process.moments(step))

    over_laws = jax.vmap(jax.vmap(law_at, (None, 0)), (0, None), axis_size=len(laws["noise"]))
    found = over_laws(laws, steps)

    def at(values: dict[str, Array], law: Law) -> Array:
        step = step_of(setting.at(values), frame, law)
        return step[:-1] if with_noise else step[:-1, :-1]

    each = jax.tree.map(lambda part: part[which], found)
    return jax.vmap(jax.vmap(at, (None, 0)))(values, each)


def _matrices(
    setting: Setting,
    values: dict[str, np.ndarray],
    steps: np.ndarray,
    _: np.ndarray,
    *,
    with_noise: bool = False,
) -> np.ndarray:
    """Return the matrices of `_steps` of a block."""
    cells = len(steps)
    own = {name: array for name, array in values.items() if name in setting.optimizer.axes}
    rest = {name: array for name, array in values.items() if name not in own}
    rest.setdefault("noise", np.full(cells, float(setting.noise)))
    own.setdefault("momentum", np.full(cells, float(setting.optimizer.momentum)))
    table, which = np.unique(np.stack(list(rest.values())), axis=1, return_inverse=True)
    room = 1 if cells == 1 else next(most for most in _LAWS if table.shape[1] <= most)
    table = np.pad(table, ((0, 0), (0, room - table.shape[1])), mode="edge")
    laws = dict(zip(rest, table, strict=True))
    found = _steps(setting, laws, which.ravel(), own, padded(steps)[0], with_noise=with_noise)
    return np.asarray(found)[:, : steps.shape[1]]


def _coordinates(setting: Setting) -> int:
    """Return how many coordinates the second moment of a setting has."""
    return setting.size * (2 * setting.size + 1)


@double_precision
def mean_square_rates(
    setting: Setting, values: Values, advance: Advance | None = None
) -> np.ndarray:
    """Return the rate per step of every cell: half that of the second moment."""
    if setting.size > _MAX_WEIGHTS:
        raise ArgumentError(
            f"the mean_square criterion takes at most {_MAX_WEIGHTS} weights, got {setting.size}: "
            "use another criterion"
        )
    values, counts = rational_periods(setting, values)
    size = _coordinates(setting)

    def logs(values: dict[str, np.ndarray], counts: np.ndarray) -> np.ndarray:
        return product(_matrices, setting, values, counts, size).log_radii()

    return over_cells(logs, values, counts, size, advance) / counts / 2


@double_precision
@on_the_cpu
def noise_floor(setting: Setting) -> float | None:
    r"""Return the :math:`\sqrt{E\|\theta-\theta^*\|^2}` at which a convergent run settles.

    The second moment obeys :math:`S_{k+1} = T_kS_k + q_k`, and is at rest over a period where
    :math:`S = PS + q`; the level is the average over the period. Weight decay moves the point that
    the run settles around as well; that part, which depends on the unknown target, is not counted.
    None where it exceeds all numbers.
    """
    values, counts = rational_periods(setting, own_values(setting))
    size = _coordinates(setting)
    _, row, column = symmetric_basis(2 * setting.size)
    trace = np.where((row == column) & (row < setting.size), 1.0, 0.0)

    def matrices(*given: Any) -> np.ndarray:
        """Return the steps on (S, 1, the sum of the traces so far)."""
        found = _matrices(*given, with_noise=True)
        whole = np.zeros((*found.shape[:2], size + 2, size + 2))
        whole[..., :size, : size + 1] = found
        whole[..., size + 1, : size + 1] = trace @ found
        whole[..., [size, size + 1], [size, size + 1]] = 1.0
        return whole

    with np.errstate(over="ignore", invalid="ignore"):
        found = product(matrices, setting, values, counts, size + 2)
        period = np.ldexp(found.matrix[0], found.exponent[0])
        if not np.isfinite(period).all():  # a run may grow without bounds inside one period
            return None
        rest = np.linalg.solve(np.eye(size) - period[:size, :size], period[:size, size])
        square = float(period[-1, :size] @ rest + period[-1, size]) / int(counts[0])
    return math.sqrt(max(square, 0.0)) if math.isfinite(square) else None
