"""The input of a pass: rows in some order, as factors of the curvature of each update."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from resonax.core.errors import ArgumentError
from resonax.learners import Features

__all__ = ["Feed", "Principal", "feed_of", "principal_axes"]

_NULL = 1e-9  # a direction with less than this share of the largest moment is never moved along


@dataclass(frozen=True)
class Principal(Features):
    r"""Features of the rows of a recording, in their principal axes.

    ``basis`` turns the features into these axes, which changes no growth, and leaves out directions
    that no row has: along those the gradient is zero, the weights never move, and the growth of a
    difference is exactly 1. ``intercept_lr`` is the step size of a bias that is trained without
    momentum, as river's is.
    """

    features: Features
    basis: np.ndarray
    second_moment: np.ndarray  # of the features, in these axes
    largest: float  # length of the longest row of features
    intercept_lr: float | None = None

    @property
    def curvature(self) -> np.ndarray:
        """Curvature of the squared error along each axis."""
        return 2 * np.diag(self.second_moment)

    def apply(self, inputs: np.ndarray) -> np.ndarray:  # pyrefly: ignore[bad-override]
        """Return the features of inputs, (..., columns) -> (..., size)."""
        rows = _rows(self.features, inputs)
        return rows @ self.basis.astype(rows.dtype)

    def size(self, dim: int) -> int:
        """Return the number of weights."""
        del dim
        return self.basis.shape[1]


def _rows(features: Features, inputs: np.ndarray) -> np.ndarray:
    return np.asarray(features.apply(inputs))  # pyrefly: ignore[bad-argument-type]


def principal_axes(
    features: Features, inputs: np.ndarray, intercept_lr: float | None = None, piece: int = 16384
) -> Principal:
    """Return the features of rows in their principal axes.

    Where the bias has a step size of its own the weights do not move alike, and only directions
    among the others are left out.
    """
    size = features.size(inputs.shape[1])
    second, largest = np.zeros((size, size)), 0.0
    for start in range(0, len(inputs), piece):
        rows = _rows(features, inputs[start : start + piece]).astype(float)
        second += rows.T @ rows
        largest = max(largest, float(np.sqrt(np.max(np.sum(rows * rows, axis=1)))))
    second /= len(inputs)
    if not np.isfinite(second).all():
        raise ArgumentError("the features of these rows exceed all numbers: use another basis")
    free = size if intercept_lr is None else size - 1
    values, vectors = np.linalg.eigh(second[:free, :free])
    kept = vectors[:, values > _NULL * values[-1]]
    basis = np.zeros((size, kept.shape[1] + size - free))
    basis[:free, : kept.shape[1]] = kept
    basis[free:, kept.shape[1] :] = np.eye(size - free)
    return Principal(features, basis, basis.T @ second @ basis, largest, intercept_lr)


@dataclass(frozen=True)
class Feed:
    r"""Steps of several sequences of rows side by side, as factors :math:`F_k` of their curvature.

    The gradient of the mean squared error of a batch is :math:`F_k^\top F_k\,\theta - \ldots` with
    :math:`F_k = \sqrt{2/n}\,(\phi_1, \ldots, \phi_n)^\top`; a batch of more rows than weights is
    replaced by the triangular factor of the same product.
    """

    steps: int
    rank: int
    size: int
    sequences: int
    # first and last step, and the kind of numbers -> (steps, rank, size, sequences)
    factors: Callable[[int, int, type], np.ndarray]
    largest: float  # no row is longer than this


def feed_of(
    model: Features,
    fetch: Callable[[int, int], np.ndarray],
    rows: int,
    columns: int,
    *,
    batch: int = 1,
    sequences: int = 1,
    targets: Callable[[int, int], np.ndarray] | None = None,
    rank: int | None = None,
    largest: float = math.inf,
    logistic: bool = False,
) -> Feed:
    """Make a feed from rows, ``fetch(first, last) -> (rows, columns, sequences)``.

    With ``targets``, (rows, sequences), the target is one more column with its sign changed: the
    weights with a constant 1 beneath them then follow the learner itself, as
    <(φ, -y), (θ, 1)> is its residual. An incomplete last batch is left out. ``rank`` fills the
    factors with zero rows, so that batches of many sizes share one compiled pass. With
    ``logistic`` the rows are as they are: each has a curvature of its own.
    """
    size = model.size(columns) + (targets is not None)
    own = batch if logistic else min(batch, size)
    rank = own if rank is None or logistic else rank
    scale = 1.0 if logistic else math.sqrt(2 / batch)

    def factors(first: int, last: int, dtype: type) -> np.ndarray:
        inputs = np.asarray(fetch(first * batch, last * batch), dtype=dtype)
        phi = _rows(model, np.moveaxis(inputs, -1, 0))  # (sequences, rows, weights)
        if targets is not None:
            target = np.asarray(targets(first * batch, last * batch), dtype=dtype)
            phi = np.concatenate([phi, -target.T[..., None]], axis=-1)
        grouped = phi.reshape(sequences, last - first, batch, size) * scale
        if batch > size and not logistic:
            grouped = np.asarray(np.linalg.qr(grouped, mode="r"))
        if rank > own:
            grouped = np.pad(grouped, ((0, 0), (0, 0), (0, rank - own), (0, 0)))
        return np.moveaxis(grouped, 0, -1).astype(dtype, copy=False)

    return Feed(rows // batch, rank, size, sequences, factors, largest)
