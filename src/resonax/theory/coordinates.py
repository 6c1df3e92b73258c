"""Coordinates of second moments: symmetric matrices of errors and velocities, by their symmetry."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Coordinates", "Layout", "symmetric_basis"]


def symmetric_basis(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a basis of the symmetric matrices, and the rows and columns of its coordinates."""
    row, column = np.triu_indices(size)
    basis = np.zeros((len(row), size, size))
    basis[np.arange(len(row)), row, column] = 1.0
    basis[np.arange(len(row)), column, row] = 1.0
    return basis, row, column


class Layout(NamedTuple):
    """Which weights a law treats alike.

    The law may be turned in the weights of ``turned`` without any change: the second moment is
    then a multiple of the identity there, without correlation to the weights of ``single``. Over
    a whole cycle that may hold for more of them, ``turned_over_cycle``.
    """

    single: tuple[int, ...]
    turned: tuple[int, ...] = ()
    turned_over_cycle: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of weights."""
        return len(self.single) + len(self.turned)

    @property
    def groups(self) -> np.ndarray:
        """For each weight, the number of those that share its mean square, (size,)."""
        together = self.turned_over_cycle or self.turned
        heads = [min(together) if i in together else i for i in range(self.size)]
        return np.unique(heads, return_inverse=True)[1]


class Coordinates(NamedTuple):
    """A basis of the second moments of errors and velocities that a layout allows."""

    basis: np.ndarray  # (n, 2 size, 2 size)
    row: np.ndarray  # with `column`: where each coordinate is read
    column: np.ndarray
    cycle_basis: np.ndarray  # (m, 2 size, 2 size), of those at the end of a cycle
    enter: np.ndarray  # (n, m): from the end of a cycle to the coordinates within
    leave: np.ndarray  # (m, n): the average over all that a cycle treats alike

    @classmethod
    def of(cls, layout: Layout) -> Coordinates:
        """Return the coordinates of a layout.

        Examples
        --------
        >>> Coordinates.of(Layout(single=(0, 5), turned=(1, 2, 3, 4))).basis.shape
        (13, 12, 12)
        """
        basis, row, column = _basis(layout.size, layout.single, layout.turned)
        ends = basis
        if layout.turned_over_cycle:
            left = tuple(i for i in range(layout.size) if i not in layout.turned_over_cycle)
            ends = _basis(layout.size, left, layout.turned_over_cycle)[0]
        inner = np.einsum("mij,nij->mn", ends, basis)
        norms = np.einsum("mij,mij->m", ends, ends)
        return cls(basis, row, column, ends, ends[:, row, column].T, inner / norms[:, None])


def _basis(
    size: int, single: tuple[int, ...], turned: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    places = np.array([*single, *(size + i for i in single)], dtype=int)
    small, row, column = symmetric_basis(len(places))
    parts = np.zeros((len(small), 2 * size, 2 * size))
    parts[np.ix_(np.arange(len(small)), places, places)] = small
    if not turned:
        return parts, places[row], places[column]
    alike = np.zeros((3, 2 * size, 2 * size))
    halves = ((0, 0), (0, 1), (1, 1))  # error with error, error with velocity, velocity
    for matrix, (left, right) in zip(alike, halves, strict=True):
        for i in turned:
            matrix[left * size + i, right * size + i] = 1.0
            matrix[right * size + i, left * size + i] = 1.0
    rows = [left * size + turned[0] for left, _ in halves]
    columns = [right * size + turned[0] for _, right in halves]
    basis = np.concatenate([parts, alike])
    return basis, np.append(places[row], rows), np.append(places[column], columns)
