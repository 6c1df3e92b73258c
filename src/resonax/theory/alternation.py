r"""Growth over a period of alternating phases, the orbit that it drives, and where growth ends.

On the directions of a `Subspace` a step of the optimizer in phase :math:`i` is, with
:math:`H_i = M^{-1} A_i + \lambda I` and the symbols of `Momentum`,

.. math:: v \gets \mu v - \alpha h, \quad z \gets z + \kappa v - \beta h, \qquad
          h = H_i z + M^{-1}(f_i + \varepsilon),

where :math:`z` is the distance from a run on mixed phases, :math:`f_i` how far the gradient of the
phase is from that of all, and :math:`\varepsilon` the noise of a batch. :math:`M = U^\top D U` is 1
as long as the optimizer divides by the same :math:`D`. The rate is that of the product of the
matrices of a period (Floquet), and the orbit its fixed point. What the orbit costs is

.. math:: \overline{\tfrac12\,E[z^\top \bar A z] + \bar g^\top z}.

Three predictions of that cost are compared: `driven_orbit` with the mean curvature in every phase,
the same with the curvature of each, and `settle`, where the second moment of Adam follows the
gradients of the orbit, so that growth ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError
from resonax.learners.adaptive import Adaptive, adaptive_form
from resonax.learners.optimizers import Momentum
from resonax.theory.period import Product, multiply
from resonax.theory.subspace import Reduced, Subspace

__all__ = [
    "ExcessMode",
    "canonical",
    "driven_orbit",
    "growth",
    "metric_of",
    "phase_steps",
    "settle",
]

_DOUBLINGS = 14  # of periods: so long an orbit is followed
_NO_GROWTH = 1e-7  # rate below which a direction is flat, and has no time to grow
_MIN_SQUARE = 0.01  # of the given second moment, below which it does not fall
_MAX_HELD_STEPS = 16  # steps at most for which the second moment is held


def canonical(optimizer: Any) -> tuple[Momentum, Adaptive | None]:
    """Return an optimizer as heavy ball, in units of what it divides by, and its adaptive form.

    Examples
    --------
    >>> from resonax import adam
    >>> canonical(adam(lr=0.01, beta1=0.9))[0].alpha
    0.00099...
    """
    if isinstance(optimizer, Momentum):
        return optimizer, None
    if not isinstance(optimizer, Adaptive) and hasattr(optimizer, "make"):
        optimizer = adaptive_form(optimizer)
    if not isinstance(optimizer, Adaptive):
        raise ArgumentError(
            "optimizer must be heavy_ball, nesterov, sgd, adam, adamw, rmsprop or amsgrad of "
            f"resonax, got {type(optimizer).__name__}"
        )
    shrink = float(optimizer.lr) * float(optimizer.weight_decay)
    gain, momentum = float(optimizer.gain), float(optimizer.momentum)
    decay = shrink * (1 - momentum) / gain  # see `learners.adaptive`
    rule = Momentum(gain, momentum * (1 - shrink), 0.0, decay, lookahead=optimizer.lookahead)
    return rule, optimizer


def metric_of(form: Adaptive, square: np.ndarray) -> np.ndarray:
    """Return what a second moment makes the optimizer divide by."""
    return (square + form.eps_root) ** 0.5 + form.eps


def phase_steps(steps: Sequence[int], period: int) -> tuple[int, ...]:
    """Return how long each phase lasts in another period, in the same shares.

    Examples
    --------
    >>> phase_steps((24, 24), 5), phase_steps((10, 20), 9)
    ((2, 3), (3, 6))
    """
    if period < len(steps):
        raise ArgumentError(f"a period of {len(steps)} phases has at least {len(steps)} steps")
    ends = np.round(np.cumsum(steps) / sum(steps) * period).astype(int)
    ends = np.maximum(ends, np.arange(1, len(steps) + 1))
    ends = np.minimum(ends, period - np.arange(len(steps))[::-1])
    return tuple(np.diff(ends, prepend=0).tolist())


def step_matrix(rule: Momentum, hessian: np.ndarray) -> np.ndarray:
    """Return the matrix of a step of (z, v), as `resonax.dynamics.Map.matrix` does."""
    eye, total = np.eye(len(hessian)), rule.kappa * rule.alpha + rule.beta
    hessian = hessian + rule.weight_decay * eye
    return np.block(
        [
            [eye - total * hessian, rule.kappa * rule.momentum * eye],
            [-rule.alpha * hessian, rule.momentum * eye],
        ]
    )


def _power(matrix: np.ndarray, count: int) -> Product:
    """Return a power of a matrix, its size in an exponent."""
    square, found = multiply(matrix[None, None]), None
    while True:
        if count % 2:
            found = square if found is None else _join(square, found)
        count //= 2
        if not count:
            assert found is not None
            return found
        square = _join(square, square)


def _join(later: Product, earlier: Product) -> Product:
    both = np.stack([earlier.matrix, later.matrix], axis=1)
    return multiply(both, earlier.exponent + later.exponent)


def growth(rule: Momentum, curvatures: np.ndarray, steps: Sequence[int]) -> float:
    """Return the rate per step over a period of phases of these curvatures, (phases, K, K).

    Examples
    --------
    >>> from resonax import sgd
    >>> rate = growth(sgd(lr=0.1), np.array([[[1.0]], [[2.0]]]), (1, 1))
    >>> print(f"{rate:.6f} {np.log(0.9 * 0.8) / 2:.6f}")
    -0.164252 -0.164252
    """
    found = None
    for curvature, count in zip(curvatures, steps, strict=True):
        power = _power(step_matrix(rule, curvature), int(count))
        found = power if found is None else _join(power, found)
    assert found is not None
    return float(found.log_radii()[0]) / sum(steps)


class ExcessMode(NamedTuple):
    """A direction that carries excess loss."""

    share: float  # of the sum of what all directions carry
    curvature: float  # of the mean of the phases, as the optimizer sees it
    period: float  # at which it swings by itself, in steps; infinite if it does not swing


class Driven(NamedTuple):
    """What alternation makes of a run, against a run on mixed phases."""

    # Mean loss above that of the mixed run; infinite where the orbit or the mixed run diverges.
    excess: float
    modes: tuple[ExcessMode, ...]  # the directions that carry most of it, the first one most


class _Motion(NamedTuple):
    """Second moments of (z, v, 1) at one step, and how a step moves them."""

    matrix: np.ndarray  # of (z, v, 1)
    noise: np.ndarray


def _motion(
    rule: Momentum, curvature: np.ndarray, force: np.ndarray, noise: np.ndarray, mass: np.ndarray
) -> _Motion:
    """Return the motion in a phase, where the optimizer divides by another metric: its mass."""
    size = len(force)
    solved = np.linalg.solve(mass, np.column_stack([curvature, force, noise]))
    matrix = np.eye(2 * size + 1)
    matrix[:-1, :-1] = step_matrix(rule, solved[:, :size])
    gains = np.repeat([rule.kappa * rule.alpha + rule.beta, rule.alpha], size)
    matrix[:-1, -1] = -gains * np.tile(solved[:, size], 2)
    covariance = np.linalg.solve(mass, solved[:, size + 1 :].T)
    spread = np.zeros_like(matrix)
    spread[:-1, :-1] = gains[:, None] * np.tile(covariance, (2, 2)) * gains
    return _Motion(matrix, spread)


def _advance(motion: _Motion, moment: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the moments after some steps, and their sum over the steps from the first one on."""
    matrix, noise = motion
    power, spread = np.eye(len(matrix)), np.zeros_like(matrix)  # of the steps done so far
    total, done = np.zeros_like(moment), 0
    for digit in f"{steps:b}":
        total = total + power @ total @ power.T + done * spread
        spread = power @ spread @ power.T + spread
        power, done = power @ power, 2 * done
        if digit == "1":
            total = total + power @ moment @ power.T + spread
            spread = matrix @ spread @ matrix.T + noise
            power, done = matrix @ power, done + 1
    return power @ moment @ power.T + spread, total


def _stationary_covariance(matrix: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the covariance that noise leaves of a motion that is repeated."""
    for _ in range(_DOUBLINGS):
        noise = noise + matrix @ noise @ matrix.T
        matrix = matrix @ matrix
    return (noise + noise.T) / 2


def _mixed_moments(rule: Momentum, reduced: Reduced, mean: np.ndarray) -> np.ndarray:
    """Return the second moments of (z, v, 1) of a run on mixed phases."""
    noise = np.tensordot(reduced.shares, reduced.noise, 1)
    size = len(mean)
    motion = _motion(rule, mean, np.zeros(size), noise, np.eye(size))
    moment = np.zeros_like(motion.matrix)
    moment[:-1, :-1] = _stationary_covariance(motion.matrix[:-1, :-1], motion.noise[:-1, :-1])
    moment[-1, -1] = 1.0
    return moment


def _cost(reduced: Reduced, mean: np.ndarray, moment: np.ndarray) -> float:
    size = len(mean)
    return float(0.5 * np.sum(mean * moment[:size, :size]) + reduced.slope @ moment[:size, -1])


def _modes(
    rule: Momentum, mean: np.ndarray, excess: np.ndarray, most: int = 3
) -> tuple[ExcessMode, ...]:
    """Return which eigenvectors of the mean curvature carry what the second moments cost."""
    values, vectors = np.linalg.eigh(mean)
    carried = 0.5 * values * np.einsum("ik,ij,jk->k", vectors, excess, vectors)
    total = float(np.abs(carried).sum()) or 1.0
    found = []
    for place in np.argsort(-carried)[:most]:
        roots = np.linalg.eigvals(step_matrix(rule, values[place].reshape(1, 1)))
        angle = float(np.abs(np.angle(roots)).max())
        swings = 2 * math.pi / angle if np.iscomplexobj(roots) and angle > 0 else math.inf
        found.append(ExcessMode(float(carried[place]) / total, float(values[place]), swings))
    return tuple(found)


def driven_orbit(rule: Momentum, reduced: Reduced, *, is_averaged: bool = False) -> Driven:
    """Return the orbit on which alternating phases hold a run, with a fixed second moment.

    Parameters
    ----------
    rule
        The optimizer, in units of what it divides by.
    reduced
        The phases, with the steps of each.
    is_averaged
        Whether to give every phase the mean curvature, so that the gradients alone alternate.
    """
    size, means = reduced.size, reduced.means
    mean = np.tensordot(reduced.shares, means, 1)
    curvatures = np.broadcast_to(mean, means.shape) if is_averaged else means
    if max(growth(rule, curvatures, reduced.steps), growth(rule, mean[None], (1,))) > _NO_GROWTH:
        return Driven(math.inf, ())
    motions = [
        _motion(rule, curvature, force, noise, np.eye(size))
        for curvature, force, noise in zip(curvatures, reduced.forces, reduced.noise, strict=True)
    ]
    matrix, noise = np.eye(2 * size + 1), np.zeros((2 * size + 1,) * 2)
    for motion, count in zip(motions, reduced.steps, strict=True):
        noise, _ = _advance(motion, noise, count)
        matrix = np.linalg.matrix_power(motion.matrix, count) @ matrix
    many = matrix  # flat directions have no fixed point, but do not get far in 2**14 periods
    for _ in range(_DOUBLINGS):
        many = many @ many
    moment = np.outer(many[:, -1], many[:, -1])
    moment[:-1, :-1] += _stationary_covariance(matrix[:-1, :-1], noise[:-1, :-1])
    sums = np.zeros_like(moment)
    for motion, count in zip(motions, reduced.steps, strict=True):
        moment, total = _advance(motion, moment, count)
        sums += total
    rest = _mixed_moments(rule, reduced, mean)
    difference = sums / sum(reduced.steps) - rest
    modes = _modes(rule, mean, difference[:size, :size])
    return Driven(_cost(reduced, mean, difference), modes)


def settle(
    rule: Momentum,
    form: Adaptive,
    space: Subspace,
    gradients: Sequence[np.ndarray],
    square: np.ndarray,
    steps: Sequence[int],
    *,
    length: int,
) -> Driven:
    r"""Return the orbit of a run whose second moment follows the gradients that it meets.

    Second moments of (z, v) start at those of the mixed run. Every few steps the second moment of
    the gradients on the way, on each weight,

    .. math:: E[g^2] = v_0 + \overline{E[(f_i + GUz)^2]} + 2\,\bar g\,\overline{(f_i + GUz)},

    with that of the mixed run in :math:`v_0`, enters the running mean of the optimizer, and so the
    mass :math:`M`. A direction that grows raises it, until it grows no more. The distribution of
    z enters by its second moment alone (a describing function).

    Parameters
    ----------
    rule, form
        The optimizer, by `canonical`.
    space
        With its products.
    gradients
        The mean gradient of each phase on all weights, (phases, n).
    square
        The second moment at the start, that of the mixed run, (n,).
    steps
        Of each phase.
    length
        Steps of the run; the excess is that of its second half.

    Arrays over all weights may be of NumPy or jax, so that they can stay on a device.
    """
    if space.products is None:
        raise ArgumentError("the theory of the second moment needs subspaces with keep_products")
    reduced = space.reduced
    size, means = reduced.size, reduced.means
    shares = np.array(steps) / sum(steps)
    mean = np.tensordot(shares, means, 1)
    if growth(rule, mean[None], (1,)) > _NO_GROWTH:  # there is no mixed run to compare with
        return Driven(math.inf, ())
    slopes: Any = sum(float(share) * of for share, of in zip(shares, gradients, strict=True))
    forces = [gradient - slopes for gradient in gradients]
    mixed_moment = _mixed_moments(rule, reduced, mean)
    moment, second_moment, metric = mixed_moment, square, metric_of(form, square)
    mixed_squares = [
        _squares(space.products[place], None, slopes, mixed_moment, size)
        for place in range(len(means))
    ]
    mass, done, counted = np.eye(size), 0, 0
    sums = np.zeros_like(moment)
    for pieces in _stretches(steps, length, min(form.memory / 2, _MAX_HELD_STEPS)):
        added: Any = 0.0
        taken = 0
        for place, count in pieces:
            motion = _motion(rule, means[place], reduced.forces[place], reduced.noise[place], mass)
            moment, total = _advance(motion, moment, count)
            if not np.isfinite(moment).all():
                return Driven(math.inf, ())
            average = total / count
            squares = _squares(space.products[place], forces[place], slopes, average, size)
            added = added + count * (squares - mixed_squares[place])
            taken += count
            if done + taken > length / 2:
                sums, counted = sums + total, counted + count
        done += taken
        kept = form.beta2**taken
        second_moment = kept * second_moment + (1 - kept) * (square + added / taken).clip(
            _MIN_SQUARE * square
        )
        metric = metric_of(form, second_moment)
        known = space.directions
        old_mass, mass = mass, np.asarray((known * metric) @ known.T, float)
        turn = np.eye(len(moment))  # the velocity is what the mean gradient is divided into
        turn[size : 2 * size, size : 2 * size] = np.linalg.solve(mass, old_mass)
        moment = turn @ moment @ turn.T
    difference = sums / counted - mixed_moment
    modes = _modes(rule, mean, difference[:size, :size])
    return Driven(_cost(reduced, mean, difference), modes)


def _stretches(steps: Sequence[int], length: int, most: float) -> list[tuple[tuple[int, int], ...]]:
    """Return the phases and their steps between two updates of the second moment, for a run.

    Short periods are taken together, long phases are cut.
    """
    period, most = sum(steps), max(int(most), 1)
    if period <= most:
        together = tuple(enumerate(steps)) * (most // period)
        return [together] * math.ceil(length / (period * (most // period)))
    pieces = []
    for place, count in enumerate(steps):
        parts = math.ceil(count / most)
        ends = np.round(np.linspace(0, count, parts + 1)).astype(int)
        pieces += [((place, int(part)),) for part in np.diff(ends) if part]
    return (pieces * math.ceil(length / period))[: math.ceil(length * len(pieces) / period)]


def _squares(
    products: np.ndarray,
    force: np.ndarray | None,
    slopes: np.ndarray,
    moment: np.ndarray,
    size: int,
) -> np.ndarray:
    """Return what a second moment of (z, 1) adds to the mean square of each weight's gradient."""
    line = moment[:size, -1].astype(products.dtype)
    linear = line @ products  # the mean of G U z
    values, vectors = np.linalg.eigh(moment[:size, :size])
    is_large = values > 1e-4 * max(float(values[-1]), 0.0)
    factor = (vectors[:, is_large] * np.sqrt(values[is_large])).T.astype(products.dtype)
    spread = factor @ products
    found = (spread * spread).sum(0) + 2 * slopes * linear
    if force is not None:
        found = found + force**2 + 2 * force * (linear + slopes)
    return found
