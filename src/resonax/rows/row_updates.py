r"""Updates of single rows as matrices: the growth along any order of rows, and the gain of a row.

A *word* is a finite sequence of rows, which may repeat, given by their indices. With the row
:math:`r_i = \sqrt 2\,\phi_i` an error :math:`u` and its velocity :math:`v` become

.. math:: h = r_i\langle r_i, u\rangle + \lambda u, \qquad v^+ = \mu v - \alpha h, \qquad
          u^+ = u + \kappa v^+ - \beta h .

This is a matrix :math:`A_i` that differs from :math:`A_0` (no row) by one of rank one. With the
state :math:`x = (u, v)` before a step and a costate :math:`l = (l_u, l_v)`, or adjoint state, after
it,

.. math:: l^\top A_i x = l^\top A_0 x - \langle r_i, u\rangle\langle r_i, m\rangle, \qquad
          m = (\kappa\alpha + \beta)\, l_u + \alpha\, l_v ,

so that two matrix products give :math:`l^\top A_i x` for all rows at all positions of a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from resonax.learners import Momentum

__all__ = ["Pairs", "RowUpdates"]

_RESCALE = 16  # steps between two rescalings

Pairs = tuple[np.ndarray, np.ndarray]  # errors and velocities, or costates: (words, size, k) each


@dataclass(frozen=True)
class RowUpdates:
    """The update of each row, with hyperparameters of the optimizer for each weight."""

    rows: np.ndarray  # (rows, size): the gradient of a row is r <r, u>
    momentum: np.ndarray  # (size,)
    alpha: np.ndarray
    kappa: np.ndarray
    beta: np.ndarray
    decay: np.ndarray

    @classmethod
    def of(
        cls, features: np.ndarray, optimizer: Momentum, intercept_lr: float | None = None
    ) -> RowUpdates:
        """Return the updates of the squared error.

        With ``intercept_lr`` the last weight has this step size, and no momentum.
        """
        size = features.shape[1]
        names = ("momentum", "alpha", "kappa", "beta", "weight_decay")
        columns = {name: np.full(size, float(getattr(optimizer, name))) for name in names}
        if intercept_lr is not None:
            plain = {"momentum": 0.0, "alpha": intercept_lr, "kappa": 1.0}
            for name, column in columns.items():
                column[-1] = plain.get(name, 0.0)
        return cls(np.sqrt(2.0) * np.asarray(features, dtype=float), *columns.values())

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.rows.shape[1]

    @cached_property
    def gain(self) -> np.ndarray:
        """Factor of the gradient in the update of the weights."""
        return self.kappa * self.alpha + self.beta

    @cached_property
    def _columns(self) -> tuple[np.ndarray, ...]:
        """Hyperparameters as columns, (size, 1), cached for the many steps of a search."""
        numbers = (self.momentum, self.alpha, self.kappa, self.beta, self.decay, self.gain)
        return tuple(number[:, None] for number in numbers)

    def step(self, state: Pairs, indices: np.ndarray | None) -> Pairs:
        """Return states after one row each, by index, or without any row (the matrix A_0)."""
        error, velocity = state
        momentum, alpha, kappa, beta, decay, _ = self._columns
        gradient = decay * error
        if indices is not None:
            row = self.rows[indices][..., None]
            gradient = gradient + row * (row * error).sum(axis=-2, keepdims=True)
        velocity = momentum * velocity - alpha * gradient
        return error + kappa * velocity - beta * gradient, velocity

    def step_back(self, costate: Pairs, indices: np.ndarray) -> Pairs:
        """Return the costates before one row each, by multiplication with the transposed matrix."""
        first, second = costate
        momentum, _, kappa, _, decay, _ = self._columns
        row = self.rows[indices][..., None]
        weights = self.gradient_weights(costate)
        change = row * (row * weights).sum(axis=-2, keepdims=True) + decay * weights
        return first - change, momentum * (kappa * first + second)

    def gradient_weights(self, costate: Pairs) -> np.ndarray:
        """Return m, the derivative of l^T x+ by the negative gradient h."""
        first, second = costate
        _, alpha, _, _, _, gain = self._columns
        return gain * first + alpha * second

    def matrices(self, indices: np.ndarray) -> np.ndarray:
        """Return the matrices of some rows, (rows, 2 size, 2 size)."""
        start = np.broadcast_to(np.eye(2 * self.size), (len(indices), *[2 * self.size] * 2))
        state = self.step((start[:, : self.size], start[:, self.size :]), indices)
        return np.concatenate(state, axis=1)

    def follow(self, state: Pairs, words: np.ndarray) -> tuple[Pairs, np.ndarray]:
        """Return the states after words, (words, steps), and the logarithms of their scales."""
        scale = np.zeros(len(words))
        for first in range(0, words.shape[1], _RESCALE):
            for indices in words[:, first : first + _RESCALE].T:
                state = self.step(state, indices)
            largest = np.maximum(*(np.abs(part).max(axis=(1, 2)) for part in state))
            largest = np.maximum(largest, np.finfo(float).tiny)
            state = state[0] / largest[:, None, None], state[1] / largest[:, None, None]
            scale += np.log(largest)
        return state, scale

    def products(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the matrix of each word, (words, 2 size, 2 size), and the log of its scale."""
        start = np.broadcast_to(np.eye(2 * self.size), (len(words), *[2 * self.size] * 2))
        state, scale = self.follow((start[:, : self.size], start[:, self.size :]), words)
        return np.concatenate(state, axis=1), scale

    def rates(self, words: np.ndarray) -> np.ndarray:
        """Return the growth per step of words that are repeated forever."""
        matrix, scale = self.products(words)
        radius = np.abs(np.linalg.eigvals(matrix)).max(axis=1)
        return (np.log(np.maximum(radius, np.finfo(float).tiny)) + scale) / words.shape[1]
