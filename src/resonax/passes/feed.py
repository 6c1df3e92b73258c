"""What a pass over the data is fed with: the rows in an order, as the factors of the updates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from resonax.checks import ArgumentError
from resonax.learners import Features

__all__ = ["Feed", "Model", "feed_of", "fitted"]

_NULL = 1e-9  # a direction with less than this share of the largest moment is never moved along


@dataclass(frozen=True)
class Model:
    r"""What is trained on a row: its features, and a bias.

    ``basis`` turns the features into their principal axes, which changes no growth, and leaves
    out directions that no row has: along those the gradient is zero, the weights never move, and
    the growth of a difference is exactly 1. ``curvature`` is that of the loss along each axis.
    ``intercept_lr`` is the step size of a bias that is trained without momentum, as river's is.
    """

    features: Features
    intercept_lr: float | None = None
    basis: np.ndarray | None = None
    curvature: np.ndarray | None = None

    def apply(self, inputs: np.ndarray) -> np.ndarray:
        """Return the features of inputs, (..., columns) -> (..., size)."""
        rows = np.asarray(self.features.apply(inputs))  # pyright: ignore[reportArgumentType]
        return rows if self.basis is None else rows @ self.basis.astype(rows.dtype)

    def size(self, columns: int) -> int:
        """Return the number of weights."""
        return self.features.size(columns) if self.basis is None else self.basis.shape[1]


def fitted(model: Model, inputs: np.ndarray, piece: int = 16384) -> tuple[Model, np.ndarray, float]:
    """Return the model in its principal axes, the second moment there, and the longest row.

    Where the bias has a step size of its own the weights do not move alike, and only directions
    among the others are left out.
    """
    size = model.size(inputs.shape[1])
    second, largest = np.zeros((size, size)), 0.0
    for start in range(0, len(inputs), piece):
        rows = model.apply(inputs[start : start + piece]).astype(float)
        second += rows.T @ rows
        largest = max(largest, float(np.sqrt(np.max(np.sum(rows * rows, axis=1)))))
    second /= len(inputs)
    if not np.isfinite(second).all():
        raise ArgumentError("the features of these rows exceed all numbers: use another basis")
    free = size if model.intercept_lr is None else size - 1
    values, vectors = np.linalg.eigh(second[:free, :free])
    kept = vectors[:, values > _NULL * values[-1]]
    basis = np.zeros((size, kept.shape[1] + size - free))
    basis[:free, : kept.shape[1]] = kept
    basis[free:, kept.shape[1] :] = np.eye(size - free)
    turned = basis.T @ second @ basis
    return Model(model.features, model.intercept_lr, basis, 2 * np.diag(turned)), turned, largest


@dataclass(frozen=True)
class Feed:
    r"""Steps of several streams side by side, as factors :math:`F_k` of their curvature.

    The gradient of the mean squared error of a batch is :math:`F_k^\top F_k\,\theta - \ldots` with
    :math:`F_k = \sqrt{2/n}\,(\phi_1, \ldots, \phi_n)^\top`; a batch of more rows than weights is
    replaced by the triangular factor of the same product.
    """

    steps: int
    rank: int
    size: int
    streams: int
    # first and last step, and the kind of numbers -> (steps, rank, size, streams)
    factors: Callable[[int, int, type], np.ndarray]
    largest: float  # no row is longer than this


def feed_of(
    model: Model,
    fetch: Callable[[int, int], np.ndarray],
    rows: int,
    columns: int,
    *,
    batch: int = 1,
    streams: int = 1,
    targets: Callable[[int, int], np.ndarray] | None = None,
    rank: int | None = None,
    largest: float = math.inf,
    logistic: bool = False,
) -> Feed:
    """Make a feed from rows, ``fetch(first, last) -> (rows, columns, streams)``.

    With ``targets``, (rows, streams), the target is one more column with its sign changed: the
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
        phi = model.apply(np.moveaxis(inputs, -1, 0))  # (streams, rows, weights)
        if targets is not None:
            target = np.asarray(targets(first * batch, last * batch), dtype=dtype)
            phi = np.concatenate([phi, -target.T[..., None]], axis=-1)
        grouped = phi.reshape(streams, last - first, batch, size) * scale
        if batch > size and not logistic:
            grouped = np.asarray(np.linalg.qr(grouped, mode="r"))
        if rank > own:
            grouped = np.pad(grouped, ((0, 0), (0, 0), (0, rank - own), (0, 0)))
        return np.moveaxis(grouped, 0, -1).astype(dtype, copy=False)

    return Feed(rows // batch, rank, size, streams, factors, largest)
