"""The product of the matrices of all steps of a period: the one engine of the exact criteria.

A criterion says what one step is, as a matrix; here the matrices of a period are multiplied, for
one setting or for many cells that differ in a few numbers. The matrices come from a small compiled
program, for blocks of cells and steps of one shape; the products and eigenvalues are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from resonax.core.algebra import double_precision, on_the_cpu
from resonax.core.threads import count_threads

if TYPE_CHECKING:
    from resonax.dynamics import Problem, Setting

__all__ = [
    "REASONS",
    "Advance",
    "Product",
    "Steps",
    "Values",
    "check_values",
    "chunks",
    "multiply",
    "over_cells",
    "own_values",
    "padded",
    "product",
    "rational_period",
    "rational_periods",
    "take",
]

_MAX_TURNS = 64
_MAX_STEPS = 4096
_TOLERANCE = 2e-4
_SMALL_BLOCK, _BLOCK = 8, 64  # steps of a block, and cells of a block of many
_MAX_NUMBERS = 2**20  # in the matrices of a block: larger matrices come in smaller blocks

_LOWER = "lower the period, the lr or the inputs, or use the map criterion"
# The flag of a cell is the place of its reason; names as in CF's ``flag_meanings``.
REASONS = {
    "computed": "",
    "too_stiff": f"the flow is too stiff to be integrated: {_LOWER}",
    "not_integrated": f"the flow could not be integrated: {_LOWER}",
    "overflow": "the growth exceeds all numbers: lower the lr, the inputs or the basis",
}

Values = Mapping[str, Any]  # numbers of each cell, by their names
Advance = Callable[[int], None]  # called with the number of cells just finished
# setting, values (cells,), steps (cells, steps), steps of a period (cells,) -> (cells, steps, n, n)
Steps = Callable[["Setting", dict[str, np.ndarray], np.ndarray, np.ndarray], np.ndarray]


def check_values(setting: Setting, values: Values) -> None:
    """Check every value that an axis takes, as if each had been given on its own."""
    for name, array in values.items():
        for extreme in (np.min(array), np.max(array)):
            setting.at({name: float(extreme)})


def own_values(setting: Setting) -> dict[str, np.ndarray]:
    """Return a setting as the values of a single cell."""
    return {"momentum": np.array([setting.optimizer.momentum], dtype=float)}


def take(values: Mapping[str, ArrayLike], index: np.ndarray) -> dict[str, np.ndarray]:
    """Return the values of some of the cells."""
    return {name: np.asarray(array, dtype=float)[index] for name, array in values.items()}


def chunks(need: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield ``size`` indices of cells that need about equal work, and how many of them count.

    The last chunk is filled up by repeating its last cell, so that one compiled shape serves all.
    """
    order = np.argsort(need, kind="stable")
    for start in range(0, len(order), size):
        part = order[start : start + size]
        yield np.pad(part, (0, size - len(part)), mode="edge"), len(part)


def rational_period(period: float) -> tuple[int, int]:
    """Return a rational period steps/turns, so that the product of the updates repeats.

    After that many whole steps, that many periods have passed. A period that is no such fraction is
    replaced by the simplest one within a share of 2e-4 of it, or by the closest one with at most 64
    turns (fewer for long periods, to keep the steps below about 4096).

    Examples
    --------
    >>> rational_period(22), rational_period(22.5), rational_period(15 + 5 / 11)
    ((22, 1), (45, 2), (170, 11))
    """
    most = int(np.clip(_MAX_STEPS / period, 1, _MAX_TURNS))
    for turns in range(1, most + 1):
        steps = round(turns * period)
        if abs(steps / turns - period) <= _TOLERANCE * period:
            return steps, turns
    share = Fraction(float(period)).limit_denominator(most)
    return share.numerator, share.denominator


def rational_periods(setting: Problem, values: Values) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the values with every period replaced by a rational one, and its steps."""
    values = {name: np.asarray(array, dtype=float) for name, array in values.items()}
    count = len(next(iter(values.values())))
    cycles = values.get("period", np.full(count, setting.process.cycle, dtype=float))
    pairs = {cycle: rational_period(cycle) for cycle in np.unique(cycles)}
    steps, turns = np.array([pairs[cycle] for cycle in cycles]).T
    if hasattr(setting.process, "period"):
        values["period"] = steps / turns
    return values, steps


class Product(NamedTuple):
    """The matrix ``matrix * 2**exponent`` of each cell; its largest entry is below 1."""

    matrix: np.ndarray  # (cells, n, n)
    exponent: np.ndarray  # (cells,)

    def log_radii(self) -> np.ndarray:
        r"""Return :math:`\log \max_i |\lambda_i|` of each cell; NaN where a product overflowed.

        A nilpotent product has radius 0; its logarithm is given as that of the least normal number,
        so that no rate is infinite.

        Examples
        --------
        >>> tiny = Product(np.diag([0.5, -0.25])[None], np.array([-5000]))
        >>> print(f"{tiny.log_radii()[0]:.6f}")  # -5001 log 2
        -3466.429050
        """
        finite = np.all(np.isfinite(self.matrix), axis=(1, 2))
        values = np.linalg.eigvals(np.where(finite[:, None, None], self.matrix, 0.0))
        radius = np.maximum(np.abs(values).max(axis=1), np.finfo(float).tiny)
        logs = np.log(radius) + self.exponent * math.log(2.0)
        return np.where(finite, logs, np.nan)

    def power(self, doublings: int) -> np.ndarray:
        """Return the matrices, squared so many times, up to their size."""
        found = self
        for _ in range(doublings):
            found = multiply(np.repeat(found.matrix[:, None], 2, axis=1), 2 * found.exponent)
        return found.matrix


def multiply(matrices: np.ndarray, exponent: ArrayLike = 0) -> Product:
    """Return the products of matrices, (cells, steps, n, n), the first one first, in pairs.

    Sizes move into exponents, powers of two, so that a product of any length neither overflows nor
    vanishes, and nothing is rounded.

    Examples
    --------
    >>> found = multiply(np.full((1, 1000, 1, 1), 8.0))
    >>> print(f"{found.log_radii()[0] / math.log(2):.6f}")
    3000.000000
    """
    total = np.broadcast_to(np.asarray(exponent), len(matrices))
    while True:
        size = np.sqrt(np.einsum("csij,csij->cs", matrices, matrices))
        shift = np.frexp(size)[1]
        total = total + shift.sum(axis=1)
        scale = np.ldexp(1.0, -shift)[..., None, None]
        count = matrices.shape[1]
        if count == 1:
            return Product((matrices * scale)[:, 0], total)
        pairs = matrices[:, 1::2] @ matrices[:, : count - count % 2 : 2]
        pairs *= scale[:, 1::2] * scale[:, : count - count % 2 : 2]
        last = matrices[:, count - count % 2 :] * scale[:, count - count % 2 :]
        matrices = np.concatenate([pairs, last], axis=1) if count % 2 else pairs


def product(
    matrices: Steps, setting: Setting, values: dict[str, np.ndarray], counts: np.ndarray, size: int
) -> Product:
    """Return the product over a period in each of a few cells.

    Parameters
    ----------
    matrices
        Gives the matrices of some steps of all these cells.
    setting, values
        Of the cells.
    counts
        Steps of a period in each cell.
    size
        Rows of a matrix.
    """
    cells, together = len(counts), _block(size)
    found = Product(np.broadcast_to(np.eye(size), (cells, size, size)), np.zeros(cells, dtype=int))
    for start in range(0, counts.max(), together):
        some = np.arange(start, min(start + together, counts.max()))
        steps = np.broadcast_to(some, (cells, len(some)))
        after = matrices(setting, values, steps, counts)
        if some[-1] >= counts.min():
            is_over = (steps >= counts[:, None])[..., None, None]
            after = np.where(is_over, np.eye(size), after)
        block = multiply(after)
        both = np.stack([found.matrix, block.matrix], axis=1)
        found = multiply(both, found.exponent + block.exponent)
    return found


def padded(steps: np.ndarray) -> np.ndarray:
    """Return steps, (cells, steps), filled up to one of the few shapes that are compiled."""
    count = steps.shape[1]
    whole = next(length for length in (_SMALL_BLOCK, _BLOCK) if count <= length)
    return np.pad(steps, ((0, 0), (0, whole - count)), mode="edge")


def _block(size: int) -> int:
    """Return how many matrices of a cell are held at once."""
    return 2 ** int(np.clip(math.log2(_MAX_NUMBERS / size**2), 0, math.log2(_BLOCK)))


def over_cells(
    function: Callable[[dict[str, np.ndarray], np.ndarray], np.ndarray],
    values: Values,
    counts: np.ndarray,
    size: int,
    advance: Advance | None = None,
) -> np.ndarray:
    """Return what a function finds in each of many cells; it takes a few of them at a time.

    Parameters
    ----------
    function
        Of the values and of the steps of a period of some cells, always as many.
    values, counts, size
        Of the cells, as in `product`.
    advance
        Called with the number of cells just finished.
    """
    together = 1
    if len(counts) > 1:
        together = int(np.clip(_MAX_NUMBERS // (_block(size) * size**2), 1, _BLOCK))

    @double_precision  # as seen by the thread that calls it
    @on_the_cpu
    def compute(part: tuple[np.ndarray, int]) -> tuple[np.ndarray, np.ndarray]:
        cells, count = part
        return cells[:count], function(take(values, cells), counts[cells])[:count]

    parts = chunks(counts, together)
    places, found = compute(next(parts))  # which compiles what the threads run
    result = np.empty((len(counts), *found.shape[1:]), dtype=found.dtype)
    result[places] = found
    if advance:
        advance(len(places))
    with ThreadPoolExecutor(count_threads()) as pool:
        for places, found in pool.map(compute, parts):
            result[places] = found
            if advance:
                advance(len(places))
    return result
