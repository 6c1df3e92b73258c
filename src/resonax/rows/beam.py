r"""Beam search with look-ahead for orders in which an error grows.

A state :math:`x = (u, v)` is scored by its energy :math:`x^\top (P \otimes I)\, x`, with a 2 x 2
matrix :math:`P` for all weights. As the updates of rows differ by matrices of rank one, two matrix
products give the energies after each of the rows, for all states of the beam. For each state the
best few rows are tried, followed by some greedy steps, and the largest states are kept.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from resonax.rows.row_updates import Pairs, RowUpdates

__all__ = ["beam_search", "repeating_parts"]

_TINY = np.finfo(float).tiny


def _energies(updates: RowUpdates, norm: np.ndarray, state: Pairs) -> np.ndarray:
    r"""Return the energy of each state after each row, (states, rows).

    Row :math:`r` changes the state without a row, :math:`(u^0, v^0)`, by
    :math:`-\langle r, u\rangle (g r, \alpha r)`: the energy is a quadratic function of
    :math:`\langle r, u\rangle`.
    """
    without_row = [part[..., 0] for part in updates.step(state, None)]
    product = state[0][..., 0] @ updates.rows.T  # <r, u>
    gains = [updates.gain, updates.alpha]
    constant: Any = 0.0
    linear: Any = 0.0
    quadratic: Any = 0.0
    for i, j in itertools.product((0, 1), repeat=2):
        constant += norm[i, j] * np.sum(without_row[i] * without_row[j], axis=1)
        linear += gains[i] * norm[i, j] * without_row[j]
        quadratic += gains[i] * norm[i, j] * gains[j]
    change = -2 * product * (linear @ updates.rows.T) + product**2 * (updates.rows**2 @ quadratic)
    return np.maximum(np.asarray(constant)[:, None] + change, _TINY)


def beam_search(
    updates: RowUpdates,
    norm: np.ndarray,
    steps: int,
    *,
    beams: int = 32,
    branches: int = 4,
    depth: int = 6,
    repeats: bool = True,
    seed: int = 0,
) -> np.ndarray:
    """Return the rows, (steps,), along which the energy of some state grew most.

    Parameters
    ----------
    updates
        The rows.
    norm
        Matrix P, (2, 2), for the error and the velocity of a weight.
    steps
        Length of the word; at most the number of rows unless ``repeats``.
    beams
        States that are kept.
    branches
        Rows tried for each state.
    depth
        Greedy steps after which the states are compared.
    repeats
        Whether a row may occur more than once.
    seed
        Seed of the random states at the start.
    """
    rng = np.random.default_rng(seed)
    state: Pairs = (rng.normal(size=(beams, updates.size, 1)), np.zeros((beams, updates.size, 1)))
    used = np.zeros((beams, len(updates.rows)), dtype=bool)
    total, paths = np.zeros(beams), np.zeros((beams, 0), dtype=int)
    for _ in range(steps):
        size = _size(norm, state)
        state = state[0] / size, state[1] / size
        total = total + np.log(size[:, 0, 0])
        energy = _energies(updates, norm, state)
        rows = np.argsort(np.where(used, 0.0, energy), axis=1)[:, ::-1][:, :branches]
        parents = np.repeat(np.arange(beams), rows.shape[1])
        rows = rows.ravel()
        allowed = ~used[parents, rows]
        parents, rows = parents[allowed], rows[allowed]
        new_state = updates.step((state[0][parents], state[1][parents]), rows)
        new_used = used[parents]
        if not repeats:
            new_used[np.arange(len(rows)), rows] = True
        score = total[parents] + _look_ahead(updates, norm, new_state, new_used, depth, repeats)
        best = _best_distinct(score, new_state, beams)
        state, used, total = (
            (new_state[0][best], new_state[1][best]),
            new_used[best],
            total[parents[best]],
        )
        paths = np.column_stack([paths[parents[best]], rows[best]])
        beams = len(best)
    return paths[np.argmax(total + np.log(_size(norm, state)[:, 0, 0]))]


def _size(norm: np.ndarray, state: Pairs) -> np.ndarray:
    """Return the square roots of the energies, (states, 1, 1)."""
    square = sum(
        norm[i, j] * np.sum(state[i] * state[j], axis=(1, 2)) for i in (0, 1) for j in (0, 1)
    )
    return np.sqrt(np.maximum(np.asarray(square), _TINY))[:, None, None]


def _look_ahead(
    updates: RowUpdates, norm: np.ndarray, state: Pairs, used: np.ndarray, depth: int, repeats: bool
) -> np.ndarray:
    """Return the logarithm of the size of each state after some greedy steps."""
    used = used if repeats else used.copy()
    for _ in range(depth):
        rows = np.where(used, 0.0, _energies(updates, norm, state)).argmax(axis=1)
        state = updates.step(state, rows)
        if not repeats:
            used[np.arange(len(rows)), rows] = True
    return np.log(_size(norm, state)[:, 0, 0])


def _best_distinct(score: np.ndarray, state: Pairs, count: int) -> np.ndarray:
    """Return the indices of the best states, only one of those with nearly the same direction."""
    flat = np.concatenate(state, axis=1)[..., 0]
    flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    flat *= np.sign(flat[np.arange(len(flat)), np.abs(flat).argmax(axis=1)])[:, None]
    order = np.argsort(score)[::-1]
    _, first = np.unique(flat[order].round(2), axis=0, return_index=True)
    return order[np.sort(first)[:count]]


def repeating_parts(
    updates: RowUpdates, path: np.ndarray, max_length: int, count: int = 8
) -> list[np.ndarray]:
    """Return the parts of a word with the largest rates, at most one of each length."""
    found: list[tuple[float, np.ndarray]] = []
    for length in range(1, min(max_length, len(path)) + 1):
        starts = np.arange(0, len(path) - length + 1, max(1, length // 4))
        words = path[starts[:, None] + np.arange(length)]
        rates = updates.rates(words)
        found.append((float(rates.max()), words[rates.argmax()]))
    return [word for _, word in sorted(found, key=lambda pair: -pair[0])[:count]]
