r"""Beam search with look-ahead for orders in which an error grows.

The size of a state :math:`x = (u, v)` is the energy :math:`x^\top (P \otimes I)\, x` of a common
norm. As the update of a row differs from that of no row by a matrix of rank one, the energies after
each of the rows are two products of matrices for all states of the beam. The best few rows of each
state are followed for some greedy steps more, and the states that are then largest stay.
"""

from __future__ import annotations

import numpy as np

from resonax.rows.row_updates import Pairs, RowUpdates

__all__ = ["beam_search", "repeating_parts"]

_TINY = np.finfo(float).tiny


def _energies(updates: RowUpdates, norm: np.ndarray, state: Pairs) -> np.ndarray:
    """Return the energy after each row, (lanes, rows)."""
    ahead = [part[..., 0] for part in updates.step(state, None)]
    pulled = state[0][..., 0] @ updates.rows.T
    gains = [updates.gain, updates.alpha]
    along = sum(gains[i] * norm[i, j] * ahead[j] for i in (0, 1) for j in (0, 1))
    own = sum(gains[i] * norm[i, j] * gains[j] for i in (0, 1) for j in (0, 1))
    still = sum(norm[i, j] * np.sum(ahead[i] * ahead[j], axis=1) for i in (0, 1) for j in (0, 1))
    found = -2 * pulled * (along @ updates.rows.T) + pulled**2 * (updates.rows**2 @ own)
    return np.maximum(np.asarray(still)[:, None] + found, _TINY)


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
        P, (2, 2), of the pair of weight and velocity.
    steps
        Rows to choose; at most all of them unless ``repeats``.
    beams, branches, depth
        States that are kept, rows tried for each, and greedy steps after which they are compared;
        1, 1 and 0 are greedy search.
    repeats
        Whether a row may come again.
    seed
        Of the states at the start.
    """
    rng = np.random.default_rng(seed)
    state: Pairs = (rng.normal(size=(beams, updates.size, 1)), np.zeros((beams, updates.size, 1)))
    used = np.zeros((beams, len(updates.rows)), dtype=bool)
    total, paths = np.zeros(beams), np.zeros((beams, 0), dtype=int)
    for _ in range(steps):
        size = _size(norm, state)
        state, total = (state[0] / size, state[1] / size), total + np.log(size[:, 0, 0])
        energy = _energies(updates, norm, state)
        rows = np.argsort(np.where(used, 0.0, energy), axis=1)[:, ::-1][:, :branches]
        parents = np.repeat(np.arange(beams), rows.shape[1])
        rows = rows.ravel()
        allowed = ~used[parents, rows]
        parents, rows = parents[allowed], rows[allowed]
        fresh = updates.step((state[0][parents], state[1][parents]), rows)
        taken = used[parents]
        if not repeats:
            taken[np.arange(len(rows)), rows] = True
        score = total[parents] + _ahead(updates, norm, fresh, taken, depth, repeats)
        best = _distinct(score, fresh, beams)
        state, used, total = (fresh[0][best], fresh[1][best]), taken[best], total[parents[best]]
        paths = np.column_stack([paths[parents[best]], rows[best]])
        beams = len(best)
    return paths[np.argmax(total + np.log(_size(norm, state)[:, 0, 0]))]


def _size(norm: np.ndarray, state: Pairs) -> np.ndarray:
    square = sum(
        norm[i, j] * np.sum(state[i] * state[j], axis=(1, 2)) for i in (0, 1) for j in (0, 1)
    )
    return np.sqrt(np.maximum(np.asarray(square), _TINY))[:, None, None]


def _ahead(
    updates: RowUpdates, norm: np.ndarray, state: Pairs, used: np.ndarray, depth: int, repeats: bool
) -> np.ndarray:
    """Return the log size of each state after some greedy steps."""
    used = used if repeats else used.copy()
    for _ in range(depth):
        rows = np.where(used, 0.0, _energies(updates, norm, state)).argmax(axis=1)
        state = updates.step(state, rows)
        if not repeats:
            used[np.arange(len(rows)), rows] = True
    return np.log(_size(norm, state)[:, 0, 0])


def _distinct(score: np.ndarray, state: Pairs, most: int) -> np.ndarray:
    """Return the places of the best states, of those in one direction only the best."""
    flat = np.concatenate(state, axis=1)[..., 0]
    flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    flat *= np.sign(flat[np.arange(len(flat)), np.abs(flat).argmax(axis=1)])[:, None]
    order = np.argsort(score)[::-1]
    _, first = np.unique(flat[order].round(2), axis=0, return_index=True)
    return order[np.sort(first)[:most]]


def repeating_parts(
    updates: RowUpdates, path: np.ndarray, longest: int, most: int = 8
) -> list[np.ndarray]:
    """Return parts of a path that grow most when repeated, of all lengths up to the longest."""
    found: list[tuple[float, np.ndarray]] = []
    for length in range(1, min(longest, len(path)) + 1):
        starts = np.arange(0, len(path) - length + 1, max(1, length // 4))
        words = path[starts[:, None] + np.arange(length)]
        rates = updates.rates(words)
        found.append((float(rates.max()), words[rates.argmax()]))
    return [word for _, word in sorted(found, key=lambda pair: -pair[0])[:most]]
