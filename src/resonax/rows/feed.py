"""Input of a pass: rows in some order, as factors of the curvature of each update."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from resonax.core.errors import ArgumentError
from resonax.learners import Features

__all__ = ["Feed", "Principal", "feed_of", "principal_axes"]

_NULL = 1e-9  # a direction with less than this share of the largest second moment is left out


@dataclass(frozen=True)
class Principal(Features):
    r"""Features of the rows of a recording, in their principal axes.

    Multiplication by ``basis`` rotates the features, which does not change the growth, and leaves
    out directions in which all rows are zero: along those the weights are never updated. In river
    the intercept is trained without momentum, with its own step size ``intercept_lr``.
    """

    features: Features
    basis: np.ndarray
    second_moment: np.ndarray  # of the features, in these axes
    largest: float  # norm of the longest row of features
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

    An intercept with its own step size, the last weight, is not rotated with the others.
    """
    size = features.size(inputs.shape[1])
    second, largest = np.zeros((size, size)), 0.0
    for start in range(0, len(inputs), piece):
        rows = _rows(features, inputs[start : start + piece]).astype(float)
        second += rows.T @ rows
        largest = max(largest, float(np.sqrt(np.max(np.sum(rows * rows, axis=1)))))
    second /= len(inputs)
    if not np.isfinite(second).all():
        raise ArgumentError(
            "the features of these rows are too large for floating-point numbers: use another basis"
        )
    rotated = size if intercept_lr is None else size - 1  # weights
    values, vectors = np.linalg.eigh(second[:rotated, :rotated])
    axes = vectors[:, values > _NULL * values[-1]]
    basis = np.zeros((size, axes.shape[1] + size - rotated))
    basis[:rotated, : axes.shape[1]] = axes
    basis[rotated:, axes.shape[1] :] = np.eye(size - rotated)
    return Principal(features, basis, basis.T @ second @ basis, largest, intercept_lr)


@dataclass(frozen=True)
class Feed:
    r"""Rows of the steps of one or more sequences, as factors :math:`F_k` of their curvature.

    The gradient of the mean squared error of a batch is :math:`F_k^\top F_k\,\theta - \ldots` with
    :math:`F_k = \sqrt{2/n}\,(\phi_1, \ldots, \phi_n)^\top`; a batch of more rows than weights is
    replaced by the triangular factor of the same product.
    """

    steps: int
    rank: int
    size: int
    sequences: int
    # first step, last step (excluded), dtype -> (steps, rank, size, sequences)
    factors: Callable[[int, int, type], np.ndarray]
    largest: float  # upper bound of the norm of a row


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
    is_logistic: bool = False,
) -> Feed:
    """Return a feed of rows; an incomplete last batch is left out.

    Parameters
    ----------
    model
        Features of the rows.
    fetch
        First and last row (excluded) -> (rows, columns, sequences).
    rows, columns
        Numbers of rows and columns.
    batch
        Rows of a step.
    sequences
        Number of sequences.
    targets
        First and last row (excluded) -> (rows, sequences). The negative target becomes one more
        feature: with a last weight of 1 the product of features and weights is the residual.
    rank
        Factors are filled with zeros up to this rank, so that batches of several sizes share one
        compiled loop.
    largest
        Upper bound of the norm of a row of features.
    is_logistic
        Whether the factors are the plain features, as the logistic loss needs them.
    """
    size = model.size(columns) + (targets is not None)
    full_rank = batch if is_logistic else min(batch, size)
    rank = full_rank if rank is None or is_logistic else rank
    scale = 1.0 if is_logistic else math.sqrt(2 / batch)

    def factors(first: int, last: int, dtype: type) -> np.ndarray:
        inputs = np.asarray(fetch(first * batch, last * batch), dtype=dtype)
        phi = _rows(model, np.moveaxis(inputs, -1, 0))  # (sequences, rows, weights)
        if targets is not None:
            target = np.asarray(targets(first * batch, last * batch), dtype=dtype)
            phi = np.concatenate([phi, -target.T[..., None]], axis=-1)
        grouped = phi.reshape(sequences, last - first, batch, size) * scale
        if batch > size and not is_logistic:
            grouped = np.asarray(np.linalg.qr(grouped, mode="r"))
        if rank > full_rank:
            grouped = np.pad(grouped, ((0, 0), (0, 0), (0, rank - full_rank), (0, 0)))
        return np.moveaxis(grouped, 0, -1).astype(dtype, copy=False)

    return Feed(rows // batch, rank, size, sequences, factors, largest)
