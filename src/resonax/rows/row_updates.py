r"""The updates of single rows as matrices: growth along any word of rows, and the gain of a row.

An error :math:`u` and its velocity :math:`v` become, with the row :math:`r_i = \sqrt 2\,\phi_i`,

.. math:: h = r_i\langle r_i, u\rangle + \lambda u, \qquad v^+ = \mu v - \alpha h, \qquad
          u^+ = u + \kappa v^+ - \beta h .

This is a matrix :math:`A_i` that differs from :math:`A_0` (no row) by one of rank one. Between the
state :math:`x = (u, v)` before a step and a costate :math:`l = (l_u, l_v)` after it,

.. math:: l^\top A_i x = l^\top A_0 x - \langle r_i, u\rangle\langle r_i, m\rangle, \qquad
          m = (\kappa\alpha + \beta)\, l_u + \alpha\, l_v ,

so that what each of the rows would give at each place of an order is two products of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from resonax.learners import Momentum

__all__ = ["Pairs", "RowUpdates"]

_RESCALE = 16  # steps between two rescalings

Pairs = tuple[np.ndarray, np.ndarray]  # errors and velocities, or their costates, (..., size, k)


@dataclass(frozen=True)
class RowUpdates:
    """The update of each row; the numbers of the optimizer are one for each weight."""

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
        """Return the updates of the squared error; a last weight may have a plain step size."""
        size = features.shape[1]
        names = ("momentum", "alpha", "kappa", "beta", "weight_decay")
        numbers = [np.full(size, float(getattr(optimizer, name))) for name in names]
        if intercept_lr is not None:
            for numbers_of, plain in zip(numbers, (0.0, intercept_lr, 1.0, 0.0, 0.0), strict=True):
                numbers_of[-1] = plain
        return cls(np.sqrt(2.0) * np.asarray(features, dtype=float), *numbers)

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.rows.shape[1]

    @cached_property
    def gain(self) -> np.ndarray:
        """What multiplies a gradient in the next weights."""
        return self.kappa * self.alpha + self.beta

    @cached_property
    def _columns(self) -> tuple[np.ndarray, ...]:
        """The numbers of the optimizer, (size, 1): searches take many thousand steps."""
        numbers = (self.momentum, self.alpha, self.kappa, self.beta, self.decay, self.gain)
        return tuple(number[:, None] for number in numbers)

    def step(self, state: Pairs, places: np.ndarray | None) -> Pairs:
        """Return the states, (lanes, size, k), after one row in each lane, or after none."""
        here, velocity = state
        momentum, alpha, kappa, beta, decay, _ = self._columns
        gradient = decay * here
        if places is not None:
            row = self.rows[places][..., None]
            gradient = gradient + row * (row * here).sum(axis=-2, keepdims=True)
        velocity = momentum * velocity - alpha * gradient
        return here + kappa * velocity - beta * gradient, velocity

    def step_back(self, costate: Pairs, places: np.ndarray) -> Pairs:
        """Return the costates before one row in each lane: the transposed matrix."""
        first, second = costate
        momentum, _, kappa, _, decay, _ = self._columns
        row = self.rows[places][..., None]
        mixed = self.mixed(costate)
        pulled = row * (row * mixed).sum(axis=-2, keepdims=True) + decay * mixed
        return first - pulled, momentum * (kappa * first + second)

    def mixed(self, costate: Pairs) -> np.ndarray:
        """Return m, by which a costate meets a gradient."""
        first, second = costate
        _, alpha, _, _, _, gain = self._columns
        return gain * first + alpha * second

    def matrices(self, places: np.ndarray) -> np.ndarray:
        """Return the matrices of some rows, (k, 2 size, 2 size)."""
        start = np.broadcast_to(np.eye(2 * self.size), (len(places), *[2 * self.size] * 2))
        state = self.step((start[:, : self.size], start[:, self.size :]), places)
        return np.concatenate(state, axis=1)

    def follow(self, state: Pairs, words: np.ndarray) -> tuple[Pairs, np.ndarray]:
        """Return states after the rows of words, (lanes, steps), and the log of their scale."""
        scale = np.zeros(len(words))
        for first in range(0, words.shape[1], _RESCALE):
            for places in words[:, first : first + _RESCALE].T:
                state = self.step(state, places)
            largest = np.maximum(*(np.abs(part).max(axis=(1, 2)) for part in state))
            largest = np.maximum(largest, np.finfo(float).tiny)
            state = state[0] / largest[:, None, None], state[1] / largest[:, None, None]
            scale += np.log(largest)
        return state, scale

    def products(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the product of each word, (lanes, 2 size, 2 size), and the log of its scale."""
        start = np.broadcast_to(np.eye(2 * self.size), (len(words), *[2 * self.size] * 2))
        state, scale = self.follow((start[:, : self.size], start[:, self.size :]), words)
        return np.concatenate(state, axis=1), scale

    def rates(self, words: np.ndarray) -> np.ndarray:
        """Return the growth per step of words that are repeated for ever."""
        found, scale = self.products(words)
        radius = np.abs(np.linalg.eigvals(found)).max(axis=1)
        return (np.log(np.maximum(radius, np.finfo(float).tiny)) + scale) / words.shape[1]
