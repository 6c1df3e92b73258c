r"""Norms that no product of given matrices can outgrow: upper bounds of the joint spectral radius.

If :math:`A_i^\top P A_i \le \gamma P` for all :math:`i` and some :math:`P > 0`, no product of
:math:`k` of the matrices grows by more than a constant times :math:`\gamma^{k/2}`, in any order.
The least such :math:`\gamma` is a generalised eigenvalue problem (Boyd and El Ghaoui, 1993), solved
here by the method of centers: :math:`P` moves to the analytic center of what
:math:`\gamma` allows, :math:`\gamma` falls to what :math:`P` needs, and again. Of many matrices few
are tight; the others are looked at now and then, and all of them at the end, so that the bound
holds whatever the search has reached.

The same for the symmetric power :math:`A^{[s]}`, which acts on the monomials of degree
:math:`s` in the state and has the radius :math:`\rho(A)^s`, gives norms by forms of degree
:math:`2s`, and a bound that is at least as good (Parrilo and Jadbabaie, 2008).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

__all__ = ["growth_in", "lifted_norm", "quadratic_bound", "symmetric_power"]

Matrices = Callable[[np.ndarray], np.ndarray]  # places -> (k, size, size)

_CHUNK = 4096  # matrices looked at together
_STARTS = 24  # matrices, far from each other, that the search begins with
_ADDED = 4  # matrices that join them at a time
_ROUNDS = 3
_CENTER_STEPS = 40  # of the centers
_NEWTON_STEPS = 10  # steps to a center at most, which need not be met exactly
_START_FACTOR = 1.01  # the first gamma over what the start needs, which is on the border of it
_KEPT_SLACK = 0.05  # what gamma keeps above what P needs, of the distance to the one before
_TOLERANCE = 1e-3  # relative gap of the log of gamma at which the search ends


def symmetric_power(degree: int, size: int) -> np.ndarray:
    """Return an orthonormal basis of the symmetric tensors, (size**degree, dimension).

    Examples
    --------
    >>> basis = symmetric_power(2, 3)
    >>> basis.shape, bool(np.allclose(basis.T @ basis, np.eye(6)))
    ((9, 6), True)
    """
    picks = list(itertools.combinations_with_replacement(range(size), degree))
    basis = np.zeros((size**degree, len(picks)))
    for column, pick in enumerate(picks):
        for order in set(itertools.permutations(pick)):
            basis[np.ravel_multi_index(order, (size,) * degree), column] = 1.0
    return basis / np.linalg.norm(basis, axis=0)


def lifted(matrices: np.ndarray, degree: int) -> np.ndarray:
    """Return the symmetric powers of matrices, (k, dimension, dimension)."""
    if degree == 1:
        return matrices
    basis = symmetric_power(degree, matrices.shape[1])
    found = []
    for matrix in matrices:
        power = matrix
        for _ in range(degree - 1):
            power = np.kron(power, matrix)
        found.append(basis.T @ power @ basis)
    return np.array(found)


def lifted_norm(norm: np.ndarray, degree: int) -> np.ndarray:
    """Return the norm of the symmetric power in which it grows as in the given one."""
    return lifted(norm[None], degree)[0]


def growth_in(norm: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Return the largest factor, squared, by which each matrix changes the norm x P x."""
    root = np.linalg.cholesky(norm)
    turned = np.linalg.solve(root, np.swapaxes(matrices, 1, 2) @ root)
    return np.linalg.norm(turned, 2, axis=(1, 2)) ** 2


def quadratic_bound(
    matrices: Matrices, count: int, start: np.ndarray, degree: int = 1
) -> tuple[float, np.ndarray]:
    """Return an upper bound of the log joint spectral radius, and the norm that shows it.

    Parameters
    ----------
    matrices
        Gives the matrices at some places.
    count
        How many there are.
    start
        A positive definite matrix to start from; of the lifted size for a degree above 1.
    degree
        Of the symmetric power.
    """
    norm = start / np.trace(start) * len(start)
    best, best_norm, places = math.inf, norm, _spread(matrices, count, _STARTS)
    for turn in range(_ROUNDS + 1):
        needs = np.concatenate(
            [
                growth_in(norm, lifted(matrices(np.arange(at, min(at + _CHUNK, count))), degree))
                for at in range(0, count, _CHUNK)
            ]
        )
        if needs.max() < best:
            best, best_norm = float(needs.max()), norm
        if turn:
            if math.log(best) <= math.log(needs[places].max()) * (1 + _TOLERANCE) + 1e-9:
                break
            worst = np.argsort(needs)[::-1]
            places = np.concatenate([places, worst[~np.isin(worst, places)][:_ADDED]])
        norm = _centers(lifted(matrices(places), degree), norm)
    return math.log(best) / (2 * degree), best_norm


def _spread(matrices: Matrices, count: int, most: int) -> np.ndarray:
    """Return places of matrices that are far from each other: each next one is the farthest."""
    some = np.unique(np.linspace(0, count - 1, min(count, _CHUNK)).astype(int))
    flat = matrices(some).reshape(len(some), -1)
    chosen = [int(np.argmax(np.sum((flat - flat.mean(axis=0)) ** 2, axis=1)))]
    near = np.full(len(some), np.inf)
    while len(chosen) < min(most, len(some)):
        near = np.minimum(near, np.sum((flat - flat[chosen[-1]]) ** 2, axis=1))
        chosen.append(int(near.argmax()))
    return some[np.unique(chosen)]


def _basis(size: int) -> np.ndarray:
    """Return symmetric matrices of trace 0 that span all of them, (dimension, size, size)."""
    made = symmetric_power(2, size).T.reshape(-1, size, size)
    trace = np.trace(made, axis1=1, axis2=2)
    _, _, turn = np.linalg.svd(trace[None])
    return np.einsum("ab,bij->aij", turn[1:], made)


def _centers(matrices: np.ndarray, norm: np.ndarray) -> np.ndarray:
    """Return the norm in which the largest of some matrices is least."""
    basis = _basis(len(norm))
    moved = np.swapaxes(matrices, 1, 2)[:, None] @ basis @ matrices[:, None]
    gamma = float(growth_in(norm, matrices).max()) * _START_FACTOR
    for _ in range(_CENTER_STEPS):
        norm = _center(matrices, norm, gamma, basis, moved)
        need = float(growth_in(norm, matrices).max())
        if math.log(gamma / need) < _TOLERANCE * abs(math.log(need)) + 1e-10:
            break
        gamma = need + _KEPT_SLACK * max(gamma - need, 0.0)
    return norm


def _center(
    matrices: np.ndarray, norm: np.ndarray, gamma: float, basis: np.ndarray, moved: np.ndarray
) -> np.ndarray:
    """Return the analytic center of gamma P - A^T P A > 0, P > 0 by damped Newton steps."""

    def slacks(at: np.ndarray) -> np.ndarray:
        used = gamma * at - np.swapaxes(matrices, 1, 2) @ at @ matrices
        return np.concatenate([used, at[None]])

    count, size = basis.shape[:2]
    # (k, i, a l): one product of matrices for each slack, whatever the number of directions
    directions = np.concatenate([gamma * basis - moved, basis[None]])
    directions = np.ascontiguousarray(np.swapaxes(directions, 1, 2)).reshape(-1, size, count * size)
    for _ in range(_NEWTON_STEPS):
        inverse = np.linalg.inv(slacks(norm))
        scaled = (inverse @ directions).reshape(-1, size, count, size)
        slope = np.einsum("kiai->a", scaled)
        one, other = scaled.transpose(2, 0, 1, 3), scaled.transpose(2, 0, 3, 1)
        bend = one.reshape(count, -1) @ other.reshape(count, -1).T
        step = np.linalg.lstsq(bend, slope, rcond=1e-14)[0]
        decrement = math.sqrt(max(float(slope @ step), 0.0))
        change = np.einsum("a,aij->ij", step, basis)
        length = 1.0 if decrement < 0.25 else 1.0 / (1.0 + decrement)
        while length > 1e-12 and np.linalg.eigvalsh(slacks(norm + length * change)).min() <= 0:
            length *= 0.5
        norm = norm + length * change
        if decrement < 0.5:
            break
    return norm
