"""Probe: the Lyapunov exponent of a real learner, from two copies with a small difference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError, check_number, check_whole
from resonax.core.intervals import batch_means, tail_of
from resonax.core.objects import Result
from resonax.probing.adapters import Learner
from resonax.probing.replay import LIMIT, in_batches, is_bounded, prepare, quiet, weight_norm

__all__ = ["Probe", "probe"]

_FEWEST = 64  # steps
_WARM = 32
_SLACK = 4.0  # factor by which the separation may leave its size before it is rescaled
_TRANSIENT = math.log(1000.0)
_PARTS = (4, 8, 16)  # few long and many short ones, over which the interval is taken

Batch = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, repr=False)
class Probe(Result):
    """Growth per step of a small difference between two runs, with its interval.

    The verdict is ``diverges`` where the interval lies above 0 or the weights exceeded their bound,
    ``converges`` where the interval lies below 0, and ``marginal`` where it holds 0.
    """

    verdict: str
    rate: float
    low: float
    high: float
    steps: int  # that were measured
    bounded: bool  # whether the weights of the run itself stayed bounded

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """Return the growth rate per step with its interval."""
        return {"learner": (self.rate, self.low, self.high)}

    def __str__(self) -> str:
        """Return the verdict with the rate and its interval."""
        ends = f"{self.low:+.3g} to {self.high:+.3g}"
        return f"{self.verdict}: a difference grows by {self.rate:+.3g} per step ({ends})"


class _Ruler(NamedTuple):
    """Distances between states, in units in which weights and buffers are comparable."""

    scale: np.ndarray  # of each coordinate
    moving: np.ndarray  # the weights that learning moves; only they are perturbed
    relative: float  # the wanted separation, in sizes of the state
    eps: float

    def size(self, state: np.ndarray) -> float:
        # The floor keeps a state that shrinks to nothing from taking the separation with it.
        return max(float(np.linalg.norm(state / self.scale)), 1e-3)

    def apart(self, here: np.ndarray, there: np.ndarray) -> float:
        return float(np.linalg.norm((there - here) / self.scale))

    def perturbed(self, here: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        direction = np.where(self.moving, rng.normal(size=len(here)), 0.0)
        length = self.relative * self.size(here) / np.linalg.norm(direction)
        return here + length * direction * self.scale


def _natural_separation(eps: float) -> float:
    """Return the relative separation for numbers that are rounded by eps.

    A ratio of separations is wrong by about eps/separation from rounding, and by about the
    separation from curvature. They balance at eps**0.5; it is chosen somewhat larger, as an update
    adds up many rounded numbers: 5e-7 in double precision, 2e-3 in single.
    """
    return eps**0.4


class _Run:
    """A learner in training: its state after each batch, None from where it diverged."""

    def __init__(self, learner: Learner):
        self.learner = learner
        self.kinds = learner.kinds()
        self.first = weight_norm(learner.state(), self.kinds)
        self.steps = 0

    def advance(self, batch: Batch) -> np.ndarray | None:
        self.steps += 1
        try:
            self.learner.learn(*batch)
        except OverflowError:
            return None
        state = self.learner.state()
        if len(state) != len(self.kinds):
            self.kinds = self.learner.kinds()
        bounded = is_bounded(weight_norm(state, self.kinds), self.first)
        return state if bounded and np.isfinite(state).all() else None


def _warm_up(run: _Run, batches: list[Batch], separation: float | None) -> _Ruler | None:
    """Learn some batches, and see which weights move and how large each kind of number gets.

    Libraries make their buffers in the first step. A weight that learning never moves, such as
    an intercept that is not fitted, would keep its perturbation for ever, at rate 0.
    """
    before, moved, power = np.zeros(0), np.zeros(0, bool), np.zeros(0)
    for batch in batches:
        state = run.advance(batch)
        if state is None:
            return None
        if not (run.kinds == 0).any():
            raise ArgumentError("learner must have weights that are real numbers, found none")
        mean = np.bincount(run.kinds, state**2) / np.bincount(run.kinds)
        if len(state) != len(before):
            moved, power = np.zeros(len(state), bool), mean
        else:
            moved, power = moved | (state != before), np.maximum(power, mean)
        before = state
    weights = run.kinds == 0
    moving = weights & moved if (weights & moved).any() else weights
    # A buffer that was always zero is measured like the weights, and zero weights in ones.
    root = np.sqrt(power)
    root = np.where(root > 0, root, root[0] or 1.0)
    eps = run.learner.eps()
    relative = separation or _natural_separation(eps)
    if relative < 8 * eps:
        raise ArgumentError(
            f"separation must be at least {8 * eps:.1g} for numbers of this learner"
        )
    return _Ruler(root[run.kinds], moving, relative, eps)


def _growth(
    run: _Run, batches: list[Batch], ruler: _Ruler, rng: np.random.Generator
) -> tuple[np.ndarray, bool]:
    """Return the logarithmic growth of the separation in each step, and whether all were taken."""

    def separate(there: np.ndarray) -> float:
        twin.learner.load(there)
        return ruler.apart(here, twin.learner.state())  # read back, as loading rounds

    here, growth = run.learner.state(), []
    twin = _Run(run.learner.fresh())
    before = separate(ruler.perturbed(here, rng))
    for batch in batches:
        following = run.advance(batch)
        if following is None:
            return np.array(growth), False
        here, there = following, twin.advance(batch)
        if len(here) != len(ruler.scale):
            raise ArgumentError("learner must keep the number of its weights, which changed")
        size = ruler.size(here)
        after = 0.0 if there is None else ruler.apart(here, there)
        # The twin alone can fail where a buffer must not be negative, which is no growth.
        growth.append(0.0 if there is None else math.log(max(after, ruler.eps * size) / before))
        if there is None or after <= ruler.eps * size:  # nothing but rounding is left of it
            twin = _Run(run.learner.fresh())
            before = separate(ruler.perturbed(here, rng))
            continue
        stretch = ruler.relative * size / after
        kept = 1 / _SLACK < stretch < _SLACK
        before = after if kept else separate(here + stretch * (there - here))
    return np.array(growth), True


def probe(
    learner: Any,
    inputs: Any,
    target: Any,
    *,
    batch: int = 1,
    separation: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    epochs: int = 1,
) -> Probe:
    r"""Measure how a small difference in the weights of a real learner grows along the rows.

    Two copies start with a small difference and learn the same batches. After each step the growth
    of their separation is recorded; when it is too large or too small it is rescaled (Benettin,
    Galgani, Giorgilli and Strelcyn, Meccanica 15, 1980):

    .. math:: \lambda = \frac1K \sum_{k=1}^{K} \log
              \frac{\lVert \xi'_{k+1} - \xi_{k+1} \rVert}{\lVert \xi'_k - \xi_k \rVert}

    with the weights and the buffers of the optimizer in :math:`\xi`, each kind in units of its own
    size. The first tenth, in which the difference turns into the direction that grows most, is not
    counted.

    In a linear model this is the growth of its error. In a network a rate above 0 can also mean a
    bounded but chaotic run, see ``bounded``; and as some changes of its weights do not change what
    it computes, a network that trains well is often ``marginal``, with a rate close to 0.

    Parameters
    ----------
    learner
        Anything that `adapt` accepts; it stays as it is.
    inputs
        The rows in their order, (rows, d); a data frame gives river the names of its columns.
    target
        What to predict, (rows,).
    batch
        Rows of one step.
    separation
        Distance of the copies, relative to the size of their state. By default the precision of
        the weights to the power 0.4: 5e-7 for double, 2e-3 for single.
    confidence
        Confidence of the interval.
    seed
        Seed of the direction in which the copies start apart.
    epochs
        How often the rows are learned, one pass after the other.

    Examples
    --------
    >>> def step(weights, inputs, target):
    ...     return weights - 0.1 * inputs.T @ (inputs @ weights - target)
    >>> inputs = np.random.default_rng(0).choice([-1.0, 1.0], size=(500, 1))
    >>> found = probe((step, np.zeros(1)), inputs, inputs[:, 0])
    >>> found.verdict, round(found.rate, 4)  # each step keeps 0.9 of the error
    ('converges', -0.1054)
    """
    check_number("confidence", confidence, low=0, high=1, open_low=True, open_high=True)
    check_whole("seed", seed, low=0)
    check_whole("epochs", epochs, low=1)
    if separation is not None:
        check_number("separation", separation, low=0, high=0.1, open_low=True)
    run, inputs, target = prepare(learner, inputs, target)
    batches = in_batches(inputs, target, batch) * epochs
    if len(batches) < _FEWEST:
        need = math.ceil(_FEWEST / epochs) * batch
        raise ArgumentError(
            f"inputs must have at least {need} rows for {_FEWEST} steps with batch {batch} and "
            f"epochs {epochs}, got {len(inputs)}"
        )
    with quiet():
        return _probe(_Run(run), batches, separation, confidence, np.random.default_rng(seed))


def _probe(
    run: _Run,
    batches: list[Batch],
    separation: float | None,
    confidence: float,
    rng: np.random.Generator,
) -> Probe:
    warm = min(len(batches) // 8, _WARM)
    growth, bounded = np.zeros(0), False
    ruler = _warm_up(run, batches[:warm], separation)
    if ruler is not None:
        growth, bounded = _growth(run, batches[warm:], ruler, rng)
    steps = len(growth)
    if steps < min(_PARTS):  # too fast to measure, but then it grew by the limit at least
        steps = run.steps
        growth = np.full(steps, math.log(LIMIT) / steps)
    kept = growth[len(growth) // 10 :]
    means, widths = batch_means(
        kept[:, None], np.ones(len(kept)), tail_of(confidence), _PARTS, neighbours=False
    )
    # What no stretch of this length can tell is added: the change of the norm as the direction
    # turns, which is taken to be a factor of at most 1000.
    rate, half = float(means[0]), float(widths[0]) + _TRANSIENT / len(kept)
    word = "marginal" if bounded else "diverges"
    if bounded and abs(rate) > half:
        word = "diverges" if rate > 0 else "converges"
    return Probe(word, rate, rate - half, rate + half, steps, bounded)
