r"""The product of the updates over a period, for many cells of few weights at once.

Cells that differ in the numbers of the optimizer alone share the law of their inputs: a tile has
rows of such cells, and what a law gives to a step is computed once for each row. Every entry of a
matrix is an array of its own over the cells of the tile, and the sums over entries are written out:
that is what the compiler fuses, and vectorises over the cells.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.algebra import Scaled
from resonax.dynamics import Map, Setting
from resonax.theory.coordinates import symmetric_basis

__all__ = ["EXPECTED", "SECOND_MOMENT", "Product", "multiply_tile"]

_LARGEST = 1000  # exponent by which a state is scaled at once

Matrix = list[list[Any]]  # of arrays, each over the cells


class _Optimizer(NamedTuple):
    """The numbers of the optimizer, over the cells; in a finished cell they change nothing."""

    momentum: Array
    alpha: Array
    kappa: Array
    at_once: Array | None  # beta / alpha; None where beta is 0 by the kind of optimizer
    decay: Array


class Product(NamedTuple):
    """What is multiplied.

    The state is a flat list of the entries of a vector, arrays (columns, rows, cells).
    """

    law: Callable[[Setting, Array], Any]  # what the law of a setting gives to one step
    coefficients: Callable[[Any, _Optimizer], Any]  # of a step, from law and optimizer
    step: Callable[[Any, list[Array]], list[Array]]  # the state after a step
    entries: Callable[[int], int]  # of the state of so many weights
    most: int  # weights up to which the sums are written out
    cells: int  # of a tile, so that it stays in the cache
    block: int  # steps between two scalings


def _dot(left: Matrix, right: Matrix) -> Matrix:
    places = range(len(right))
    return [
        [sum(row[k] * right[k][j] for k in places) for j in range(len(right[0]))] for row in left
    ]


def _combine(function: Callable[..., Any], *matrices: Matrix) -> Matrix:
    """Return the matrix of a function of entries."""
    return [
        [function(*entries) for entries in zip(*rows, strict=True)]
        for rows in zip(*matrices, strict=True)
    ]


def _transpose(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def _symmetric(entries: list[Any], size: int) -> Matrix:
    """Return a symmetric matrix by its entries in the order of `numpy.triu_indices`."""
    matrix: Matrix = [[None] * size for _ in range(size)]
    for entry, i, j in zip(entries, *np.triu_indices(size), strict=True):
        matrix[i][j] = matrix[j][i] = entry
    return matrix


def _upper(matrix: Matrix) -> list[Any]:
    return [matrix[i][j] for i, j in zip(*np.triu_indices(len(matrix)), strict=True)]


def _entries(matrix: Array) -> Matrix:
    rows, columns = matrix.shape
    return [[matrix[i, j] for j in range(columns)] for i in range(rows)]


def _curvature(setting: Setting, index: Array) -> Matrix:
    """Return B at one step."""
    return _entries(setting.curvature(setting.process.moments(index)))


def _pull(curvature: Matrix, of: _Optimizer) -> Matrix:
    r"""Return :math:`\alpha H` with :math:`H = B + \lambda I`."""
    eye = np.eye(len(curvature)).tolist()
    return _combine(lambda b, one: of.alpha * (b + of.decay * one), curvature, eye)


class _Expected(NamedTuple):
    """A step by the expected gradient."""

    pull: Matrix
    momentum: Array
    kappa: Array
    at_once: Array | None


def _expected_coefficients(law: Matrix, of: _Optimizer) -> _Expected:
    return _Expected(_pull(law, of), of.momentum, of.kappa, of.at_once)


def _expected_entries(size: int) -> int:
    return 2 * size


def _expected_step(of: _Expected, state: list[Array]) -> list[Array]:
    """Return errors and velocities after one step."""
    size = len(of.pull)
    errors, velocities = state[:size], state[size:]
    pulls = [row[0] for row in _dot(of.pull, [[error] for error in errors])]
    velocities = [of.momentum * v - g for v, g in zip(velocities, pulls, strict=True)]
    moved = [e + of.kappa * v for e, v in zip(errors, velocities, strict=True)]
    if of.at_once is not None:
        moved = [e - of.at_once * g for e, g in zip(moved, pulls, strict=True)]
    return moved + velocities


def _gradient_law(setting: Setting, index: Array) -> tuple[Matrix, Matrix, Matrix]:
    r"""Return B, and :math:`S\mapsto E[gg^\top]` and :math:`BS+SB` on symmetric matrices."""
    basis, row, column = symmetric_basis(setting.size)
    moments = setting.process.moments(index)
    of_error, _ = Map(setting).gradient(moments)
    curvature = setting.curvature(moments)
    squares = jax.vmap(of_error)(jnp.asarray(basis))[:, row, column]
    beside = jax.vmap(lambda unit: curvature @ unit + unit @ curvature)(jnp.asarray(basis))
    beside = beside[:, row, column].T
    return _entries(curvature), _entries(squares.T), _entries(beside)


class _SecondMoment(NamedTuple):
    """A step of the second moments."""

    pull: Matrix
    squares: Matrix  # of S -> alpha^2 E[h h'], h the decayed gradient, on symmetric matrices
    momentum: Array
    momentum_square: Array
    kappa: Array
    at_once: Array | None


def _second_moment_coefficients(
    law: tuple[Matrix, Matrix, Matrix], of: _Optimizer
) -> _SecondMoment:
    r"""Return them; :math:`E[hh^\top] = E[gg^\top] + \lambda(BS+SB) + \lambda^2S`."""
    curvature, squares, beside = law
    decayed = _combine(
        lambda g, b, one: of.alpha**2 * (g + of.decay * (b + of.decay * one)),
        squares,
        beside,
        np.eye(len(squares)).tolist(),
    )
    square = of.momentum**2
    return _SecondMoment(_pull(curvature, of), decayed, of.momentum, square, of.kappa, of.at_once)


def _second_moment_entries(size: int) -> int:
    return size * (2 * size + 1)


def _second_moment_step(of: _SecondMoment, state: list[Array]) -> list[Array]:
    r"""Return the second moments of errors and velocities after one step.

    With :math:`A = E[ee^\top]`, :math:`C = E[ev^\top]`, :math:`V = E[vv^\top]`, the pull
    :math:`p = \alpha h`, :math:`v' = \mu v-p` and :math:`e' = e+\kappa v'-\rho p`:

    .. math:: V' &= \mu^2V - \mu\,(E[pv^\top]+E[vp^\top]) + E[pp^\top] \\
              C' &= E[ev'^\top] + \kappa V' - \rho E[pv'^\top] \\
              A' &= A + \kappa\,(\kappa V' + E[ev'^\top]+E[v'e^\top]) +
                    \rho\,(\rho E[pp^\top] - E[pe^\top] - E[ep^\top]
                    - \kappa E[pv'^\top] - \kappa E[v'p^\top])
    """
    size, pairs = len(of.pull), len(of.squares)
    flat, mixed = state[:pairs], state[pairs : pairs + size**2]
    error, velocity = _symmetric(flat, size), _symmetric(state[-pairs:], size)
    cross = [mixed[i * size : (i + 1) * size] for i in range(size)]
    with_error, with_velocity = _dot(of.pull, error), _dot(of.pull, cross)  # E[p e'], E[p v']
    squares = [sum(s * a for s, a in zip(row, flat, strict=True)) for row in of.squares]
    square = _symmetric(squares, size)
    velocity = _combine(
        lambda v, u, t, g: of.momentum_square * v - of.momentum * (u + t) + g,
        velocity,
        with_velocity,
        _transpose(with_velocity),
        square,
    )
    ahead = _combine(lambda c, w: of.momentum * c - w, cross, _transpose(with_error))
    cross = _combine(lambda y, v: y + of.kappa * v, ahead, velocity)
    moved = _combine(
        lambda a, v, y, t: a + of.kappa * (of.kappa * v + y + t),
        error,
        velocity,
        ahead,
        _transpose(ahead),
    )
    if of.at_once is not None:
        share = of.at_once
        pulled = _combine(lambda u, g: of.momentum * u - g, with_velocity, square)
        cross = _combine(lambda c, z: c - share * z, cross, pulled)
        moved = _combine(
            lambda a, g, w, s, z, t: a + share * (share * g - w - s - of.kappa * (z + t)),
            moved,
            square,
            with_error,
            _transpose(with_error),
            pulled,
            _transpose(pulled),
        )
    return [*_upper(moved), *(entry for row in cross for entry in row), *_upper(velocity)]


EXPECTED = Product(
    law=_curvature,
    coefficients=_expected_coefficients,
    step=_expected_step,
    entries=_expected_entries,
    most=6,
    cells=1024,
    block=16,
)
SECOND_MOMENT = Product(
    law=_gradient_law,
    coefficients=_second_moment_coefficients,
    step=_second_moment_step,
    entries=_second_moment_entries,
    most=3,
    cells=256,
    block=16,
)


@functools.partial(jax.jit, static_argnames=("product",))
def multiply_tile(
    setting: Setting,
    laws: dict[str, Array],
    numbers: dict[str, Array],
    steps: Array,
    *,
    product: Product,
) -> Scaled:
    """Return what one period does in each cell of a `Tile`, (rows, cells, entries, entries)."""
    count = product.entries(setting.size)
    optimizer: Any = setting.optimizer.at(numbers)
    shape = (len(steps), next(iter(numbers.values())).shape[1] if numbers else 1)

    def coefficients(index: Array) -> Any:
        """Return those of one step, arrays over the tile."""
        if laws:
            found = jax.vmap(lambda values: product.law(setting.at(values), index))(laws)
            law = jax.tree.map(lambda entry: entry[:, None], found)
        else:
            law = product.law(setting, index)
        active = jnp.broadcast_to((index < steps)[:, None], shape)
        share = optimizer.beta / optimizer.alpha if optimizer.lookahead else None
        of = _Optimizer(
            jnp.where(active, optimizer.momentum, 1.0),
            jnp.where(active, optimizer.alpha, 0.0),
            jnp.where(active, optimizer.kappa, 0.0),
            None if share is None else jnp.where(active, share, 0.0),
            jnp.asarray(optimizer.weight_decay),
        )
        return product.coefficients(law, of)

    def block(number: Array, carry: tuple[list[Array], Array]) -> tuple[list[Array], Array]:
        state, exponent = carry
        # Stored for some steps: fused with a step, they would be formed for every entry.
        given = jax.vmap(coefficients)(number * product.block + jnp.arange(product.block))
        state = jax.lax.fori_loop(
            0,
            product.block,
            lambda k, state: product.step(jax.tree.map(lambda part: part[k], given), state),
            state,
        )
        peak = functools.reduce(jnp.maximum, [jnp.max(jnp.abs(entry), 0) for entry in state])
        shift = jnp.maximum(jnp.frexp(peak)[1], -_LARGEST)
        scale = jnp.ldexp(1.0, -shift)
        return [entry * scale for entry in state], exponent + shift

    start = [jnp.broadcast_to(unit[:, None, None], (count, *shape)) for unit in jnp.eye(count)]
    blocks = -(-jnp.max(steps) // product.block)
    begun = start, jnp.zeros(shape, jnp.int64)
    state, exponent = jax.lax.fori_loop(0, blocks, block, begun)
    return Scaled(jnp.moveaxis(jnp.stack(state), (0, 1), (2, 3)), exponent)
