r"""The curvatures of the phases of a stream on a few directions of many weights.

A phase is a stretch of steps whose inputs have one law. Of a network of millions of weights its
curvature :math:`G_i` is known by products :math:`v \mapsto G_i v` alone. They are projected on
directions :math:`u_1, \dots, u_K` with :math:`u_j^\top D u_k = \delta_{jk}`, where :math:`D` is
what the optimizer divides by (1 for SGD, the root of the second moment for Adam), so that
:math:`A_i = U^\top G_i U` is the curvature as the optimizer sees it. The directions span a block
Krylov space: it starts at the differences of the gradients of the phases and a random direction,
and is enlarged by the mean of :math:`D^{-1} G_i` and by its differences from the mean in turn, so
that it finds the largest curvatures and what turns one phase's directions into the other's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError, check_whole

__all__ = [
    "Phase",
    "Reduced",
    "Subspace",
    "check_batches",
    "check_phases",
    "memory_needed",
    "subspaces",
]

_MAX_STARTS = 4  # differences of gradients at which the space starts, at most
_MIN_NEW_LENGTH = 1e-4  # of its length, below which a direction is one of those there are


@dataclass(frozen=True)
class Phase:
    """A stretch of steps whose inputs have one law, as seen from the weights of the moment.

    Parameters
    ----------
    product
        Takes a vector of n numbers and returns the products of the curvature of each batch with
        it, (batches, n). The curvature of the phase is their mean.
    gradients
        Of the loss on single batches, (samples, n): their mean is that of the phase, their spread
        the noise of a step.
    steps
        For which it lasts.
    name
        For messages.
    """

    product: Callable[[np.ndarray], np.ndarray]
    gradients: np.ndarray
    steps: int
    name: str = ""


class Reduced(NamedTuple):
    """The phases on the directions of a subspace."""

    curvature: tuple[np.ndarray, ...]  # of each phase, (batches, K, K)
    gradients: tuple[np.ndarray, ...]  # of each phase, (samples, K)
    steps: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of directions."""
        return self.curvature[0].shape[-1]

    @property
    def shares(self) -> np.ndarray:
        """Return the share of the steps of each phase."""
        return np.array(self.steps) / sum(self.steps)

    @property
    def means(self) -> np.ndarray:
        """Return the mean curvature of each phase, (phases, K, K)."""
        return np.stack([batches.mean(0) for batches in self.curvature])

    @property
    def slope(self) -> np.ndarray:
        """Return the mean gradient of all phases, (K,)."""
        return np.tensordot(self.shares, [rows.mean(0) for rows in self.gradients], 1)

    @property
    def forces(self) -> np.ndarray:
        """Return how far the mean gradient of each phase is from that of all, (phases, K)."""
        return np.stack([rows.mean(0) for rows in self.gradients]) - self.slope

    @property
    def noise(self) -> np.ndarray:
        """Return the covariance of the gradient of a batch in each phase, (phases, K, K)."""
        size = self.size
        empty = np.zeros((size, size))
        covariances = [
            np.cov(rows, rowvar=False).reshape(size, size) if len(rows) > 1 else empty
            for rows in self.gradients
        ]
        return np.stack(covariances)

    def head(self, size: int) -> Reduced:
        """Return the same on the first directions alone."""
        curvature = tuple(batches[:, :size, :size] for batches in self.curvature)
        return Reduced(curvature, tuple(rows[:, :size] for rows in self.gradients), self.steps)

    def without(self, batch: int) -> Reduced:
        """Return the same with one batch of each phase left out, where a phase has several."""
        curvature = tuple(
            np.delete(batches, batch % len(batches), 0) if len(batches) > 1 else batches
            for batches in self.curvature
        )
        return self._replace(curvature=curvature)


class Subspace(NamedTuple):
    """Directions among all weights, and what is known of the phases there."""

    reduced: Reduced
    directions: np.ndarray  # (K, n)
    products: np.ndarray | None  # of the mean curvature of each phase with them, (phases, K, n)
    metric: np.ndarray  # D, (n,)
    is_whole: bool  # whether every direction that the phases can reach is in it


def check_phases(phases: Sequence[Phase]) -> int:
    """Return the number of weights; raise `ArgumentError` for phases that do not fit together."""
    if not phases:
        raise ArgumentError("phases must hold at least one phase")
    size = np.shape(phases[0].gradients)[-1] if np.ndim(phases[0].gradients) == 2 else 0
    for place, phase in enumerate(phases):
        name = phase.name or f"phase {place}"
        shape = np.shape(phase.gradients)
        if len(shape) != 2 or not shape[0] or not shape[1]:
            raise ArgumentError(f"gradients of {name} must be a table, samples by weights")
        if shape[1] != size:
            raise ArgumentError(f"{name} has {shape[1]} weights, the first phase has {size}")
        if not np.isfinite(phase.gradients).all():
            raise ArgumentError(
                f"a gradient of {name} is not finite: take the weights of an earlier step"
            )
        check_whole(f"steps of {name}", phase.steps, low=1)
    return size


def check_batches(
    batches_by_phase: Mapping[str, Sequence[object]], steps: int | Sequence[int]
) -> tuple[int, ...]:
    """Return the steps of each phase; raise `ArgumentError` for what holds no phases."""
    if not isinstance(batches_by_phase, Mapping) or len(batches_by_phase) < 2:
        raise ArgumentError(
            "batches_by_phase must be a dictionary of two phases or more, with a list of batches "
            "for each"
        )
    for name, batches in batches_by_phase.items():
        if not isinstance(batches, Sequence) or not len(batches):
            raise ArgumentError(f"batches of {name} must be a list of at least one batch (x, y)")
    count = len(batches_by_phase)
    lengths = tuple(steps) if isinstance(steps, Sequence) else (steps,) * count
    if len(lengths) != count:
        raise ArgumentError(f"steps must be one number or {count}, one for each phase")
    for length in lengths:
        check_whole("steps", length, low=1)
    return lengths


def memory_needed(weights: int, directions: int, phases: int, *, is_adaptive: bool) -> int:
    """Return the bytes that the directions take, in 32 bits.

    Examples
    --------
    >>> memory_needed(3_000_000, 64, 2, is_adaptive=True) / 2**30  # GiB
    2.14...
    """
    return 4 * weights * directions * (1 + phases * is_adaptive)


def _products(phase: Phase, vector: np.ndarray) -> np.ndarray:
    found = np.asarray(phase.product(vector))
    found = found[None] if found.ndim == 1 else found
    if found.ndim != 2 or found.shape[1] != len(vector):
        raise ArgumentError(
            f"a product of {phase.name or 'a phase'} must have {len(vector)} numbers for each "
            f"batch, got shape {found.shape}"
        )
    if not np.isfinite(found).all():
        raise ArgumentError(
            f"a product of {phase.name or 'a phase'} is not finite: take the weights of an "
            "earlier step"
        )
    return found


def subspaces(
    phases: Sequence[Phase],
    metric: np.ndarray | None = None,
    *,
    sizes: Sequence[int] = (16, 24, 36, 54, 81),
    keep_products: bool = False,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Subspace]:
    """Yield subspaces of growing size, each of which holds the one before.

    Parameters
    ----------
    phases
        In their order.
    metric
        What the optimizer divides the gradient of each weight by, 1 if not given.
    sizes
        Numbers of directions at which to yield; it ends where the space cannot grow.
    keep_products
        Whether to keep the products as well, which the theory of the second moment needs.
    seed
        Of the random direction.
    advance
        Called with the number of directions so far.

    Examples
    --------
    >>> phases = [Phase(lambda v: np.array([2.0, 1.0]) * v, np.array([[1.0, 0.0]]), 4)]
    >>> [space] = subspaces(phases, sizes=[8])
    >>> space.is_whole, np.linalg.eigvalsh(space.reduced.means[0]).round(6).tolist()
    (True, [1.0, 2.0])
    """
    weights = check_phases(phases)
    kind = np.result_type(*(phase.gradients for phase in phases), np.float32)
    divisor = np.ones(weights, kind) if metric is None else np.asarray(metric, kind)
    if divisor.shape != (weights,) or not (divisor > 0).all():
        raise ArgumentError(f"metric must be {weights} numbers above 0, one for each weight")
    most = min(max(sizes), weights)
    random = np.random.default_rng(seed)
    directions = np.empty((most, weights), kind)  # pages are taken as they are written
    products = np.empty((len(phases), most if keep_products else 0, weights), kind)
    shares = np.array([phase.steps for phase in phases]) / sum(phase.steps for phase in phases)
    means = np.stack([np.mean(phase.gradients, 0, dtype=kind) for phase in phases])
    starts = list((means - np.tensordot(shares, means, 1))[:-1][:_MAX_STARTS] / divisor)
    starts.append(random.standard_normal(weights) / np.sqrt(divisor))
    recent: list[np.ndarray] = []  # products of the phases with directions not yet followed
    curvature = [np.zeros((0, most, most)) for _ in phases]
    size, turn, is_whole = 0, 0, False

    def unit(candidate: np.ndarray) -> np.ndarray | None:
        """Return what a vector adds to the directions, of length 1; None if it is nothing."""
        known = directions[:size]
        length = np.sqrt(candidate @ (divisor * candidate))
        if not length > 0:
            return None
        candidate = candidate / length
        for _ in range(3):  # what rounding leaves of the first time is removed
            candidate = candidate - (known @ (divisor * candidate)) @ known
            rest = np.sqrt(candidate @ (divisor * candidate))
            if rest < _MIN_NEW_LENGTH:
                return None
            candidate /= rest
            if rest > 0.7:
                break
        return candidate

    def follow() -> np.ndarray | None:
        """Return the next direction, None where the space holds all that can be reached."""
        nonlocal turn
        while starts:
            if (found := unit(starts.pop(0))) is not None:
                return found
        while recent:
            of_phases, turn = recent.pop(0), turn + 1
            mean = np.tensordot(shares, of_phases, 1)
            others = [(each - mean) for each in of_phases[:-1]]
            ways = [mean, *others]
            first = (turn // 2) % len(ways)  # directions of a block go the same way
            for way in ways[first:] + ways[:first]:
                if (found := unit(way / divisor)) is not None:
                    return found
        for _ in range(3):  # directions that curvature does not connect with those there are
            found = unit(random.standard_normal(weights).astype(kind) / np.sqrt(divisor))
            if found is not None:
                return found
        return None

    for wanted in sorted({min(size, most) for size in sizes}):
        while size < wanted:
            if (found := follow()) is None:
                is_whole = True
                break
            directions[size] = found
            of_phases = []
            for place, phase in enumerate(phases):
                batches = _products(phase, found.astype(kind))
                if len(curvature[place]) == 0:
                    curvature[place] = np.zeros((len(batches), most, most))
                row = batches @ directions[: size + 1].T
                curvature[place][:, size, : size + 1] = row
                curvature[place][:, : size + 1, size] = row
                of_phases.append(batches.mean(0))
            recent.append(np.stack(of_phases))
            if keep_products:
                products[:, size] = of_phases
            size += 1
            if advance:
                advance(size)
        is_whole = is_whole or size == weights
        known = directions[:size]
        reduced = Reduced(
            tuple(batches[:, :size, :size] for batches in curvature),
            tuple((phase.gradients @ known.T).astype(float) for phase in phases),
            tuple(phase.steps for phase in phases),
        )
        kept = products[:, :size] if keep_products else None
        yield Subspace(reduced, known, kept, divisor, is_whole)
        if is_whole:
            return
