"""Replay: train a learner on the rows, in their order or shuffled."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from resonax.core.errors import ArgumentError, as_array, check_numbers, check_whole
from resonax.core.objects import Result
from resonax.probing.adapters import Learner, adapt

__all__ = ["Replay", "in_batches", "is_bounded", "prepare", "quiet", "replay", "weight_norm"]

LIMIT = 1e12  # weights that grew by this factor have diverged
_SHOWN = 1000


@dataclass(frozen=True, eq=False, repr=False)
class Replay(Result):
    """A run of a learner: its errors, and the norm of its weights.

    ``overflow`` is the step in which the weights exceeded 1e12 times their first size, or all
    numbers; the run ends there. It is None where they stayed bounded.
    """

    errors: np.ndarray  # mean squared error of each batch, predicted before it was learned
    steps: np.ndarray  # up to 1000 steps, evenly spaced,
    norms: np.ndarray  # and the norm of the weights after each of them
    overflow: int | None

    figure: ClassVar[str] = "resonax.figures.replay:plot_replay"

    def summary(self) -> dict[str, Any]:
        """Return how far the run came, and its last error."""
        last = float(self.errors[-1]) if len(self.errors) else None
        steps = {"steps": len(self.errors), "bounded": self.bounded, "last_error": last}
        return steps if self.bounded else {**steps, "overflow": self.overflow}

    @property
    def bounded(self) -> bool:
        """Whether the weights stayed bounded."""
        return self.overflow is None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the warnings of a run that diverges, which is expected here."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def prepare(learner: Any, inputs: Any, target: Any) -> tuple[Learner, np.ndarray, np.ndarray]:
    """Return a copy of a learner, and its rows and targets as checked arrays."""
    table, wanted = as_array("inputs", inputs), as_array("target", target)
    table = table[:, None] if table.ndim == 1 else table
    check_numbers("inputs", table, (None, None))
    check_numbers("target", wanted, (len(table),))
    return adapt(learner, getattr(inputs, "columns", None)).fresh(), table, wanted


def in_batches(
    inputs: np.ndarray, target: np.ndarray, batch: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the rows in batches; an incomplete last one is left out, as in `Recorded`."""
    check_whole("batch", batch, low=1)
    if batch > len(inputs):
        raise ArgumentError(f"batch must be at most the {len(inputs)} rows of inputs, got {batch}")
    begins = range(0, len(inputs) - batch + 1, batch)
    return [(inputs[k : k + batch], target[k : k + batch]) for k in begins]


def weight_norm(state: np.ndarray, kinds: np.ndarray) -> float:
    """Return the norm of the weights in a state."""
    return float(np.linalg.norm(state[kinds == 0]))


def is_bounded(norm: float, first: float) -> bool:
    """Tell whether weights are finite and below the limit.

    A size before the first step below 1 counts as 1: weights that begin at zero may grow.
    """
    return norm <= LIMIT * max(first, 1.0)  # which nan is not


def replay(
    learner: Any, inputs: Any, target: Any, *, batch: int = 1, seed: int | None = None
) -> Replay:
    r"""Let a copy of a learner learn the rows once, each batch after predicting it.

    .. math:: e_k = \frac1n\sum_{i=1}^n \bigl(f_{\theta_k}(x_{k,i}) - y_{k,i}\bigr)^2, \qquad
              \theta_{k+1} = \mathrm{learn}(\theta_k, x_k, y_k)

    Parameters
    ----------
    learner
        Anything that `adapt` accepts; it stays as it is.
    inputs
        The rows, (rows, d); a data frame gives river the names of its columns.
    target
        What to predict, (rows,).
    batch
        Rows of one step.
    seed
        Seed by which the rows are shuffled; by default they come in their order.

    Examples
    --------
    >>> def step(weights, inputs, target):
    ...     return weights - 0.1 * inputs.T @ (inputs @ weights - target)
    >>> inputs = np.random.default_rng(0).normal(size=(300, 2))
    >>> learner = (step, np.zeros(2), lambda weights, inputs: inputs @ weights)
    >>> found = replay(learner, inputs, inputs @ [1.0, 2.0])
    >>> found.bounded, bool(found.errors[-1] < 1e-9), float(found.norms[-1].round(3))
    (True, True, 2.236)
    """
    learner, inputs, target = prepare(learner, inputs, target)
    if seed is not None:
        check_whole("seed", seed, low=0)
        order = np.random.default_rng(seed).permutation(len(inputs))
        inputs, target = inputs[order], target[order]
    batches = in_batches(inputs, target, batch)
    errors: list[float] = []
    norms: list[float] = []
    with quiet():
        overflow = _run(learner, batches, errors, norms)
    shown = np.linspace(0, len(batches) - 1, min(len(batches), _SHOWN)).round().astype(int)
    shown = shown[shown < len(norms)]
    return Replay(np.array(errors), shown, np.array(norms)[shown], overflow)


def _run(
    learner: Learner,
    batches: list[tuple[np.ndarray, np.ndarray]],
    errors: list[float],
    norms: list[float],
) -> int | None:
    """Fill the lists up to the step in which numbers overflow, and return it."""
    kinds = learner.kinds()
    first = weight_norm(learner.state(), kinds)
    for step, (inputs, target) in enumerate(batches):
        try:
            error = float(np.mean((learner.predict(inputs) - target) ** 2))
            if not np.isfinite(error):
                return step
            errors.append(error)
            learner.learn(inputs, target)
        except OverflowError:
            return step
        state = learner.state()
        kinds = kinds if len(kinds) == len(state) else learner.kinds()
        norm = weight_norm(state, kinds)
        if not is_bounded(norm, first):
            return step
        norms.append(norm)
    return None
