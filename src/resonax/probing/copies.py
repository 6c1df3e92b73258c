"""Many copies of one learner, each on its own rows, and what they predict on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from resonax.learners import Features
from resonax.probing.adapters import Learner, Pure
from resonax.probing.replay import LIMIT

__all__ = ["Copies", "Readout", "is_optimizer", "linear_learner", "make_copies"]

PROJECTION, ERROR = 0, 1  # what is read of each copy before each step


class Readout(NamedTuple):
    """Rows on which all copies predict before every step, and what is read of the predictions."""

    inputs: np.ndarray  # (m, d)
    target: np.ndarray  # (m,)
    weights: np.ndarray  # (m,)

    def read(self, predictions: Any, stack: Callable[..., Any]) -> Any:
        """Return the weighted sum of predictions, and their mean squared error."""
        rest = predictions - self.target
        return stack([predictions @ self.weights, (rest * rest).mean()])


class Copies(Protocol):
    """Copies that learn side by side.

    ``advance`` takes inputs (steps, copies, n, d) and targets (steps, copies, n), and returns what
    is read before each step, (steps, copies, 2); nan from where the numbers of a copy end.
    ``fork`` returns that many new copies of the first copy. ``eps`` is the relative rounding error
    of their weights, known once they have learned something.
    """

    is_compiled: bool

    def eps(self) -> float: ...
    def advance(self, inputs: np.ndarray, target: np.ndarray) -> np.ndarray: ...
    def fork(self, copies: int) -> Copies: ...


class _Looped:
    """Copies of any learner, one after the other."""

    is_compiled = False

    def __init__(self, learners: list[Learner], readout: Readout):
        self.learners: list[Learner | None] = list(learners)
        self.readout = readout

    def eps(self) -> float:
        first = self.learners[0]
        return first.eps() if first else np.nan

    def advance(self, inputs: np.ndarray, target: np.ndarray) -> np.ndarray:
        found = np.full((*inputs.shape[:2], 2), np.nan)
        for place, learner in enumerate(self.learners):
            if learner is None:
                continue
            try:
                for step in range(len(inputs)):
                    seen = self.readout.read(learner.predict(self.readout.inputs), np.stack)
                    if not np.abs(seen).max() < LIMIT**2:
                        raise OverflowError
                    found[step, place] = seen
                    learner.learn(inputs[step, place], target[step, place])
            except OverflowError:
                self.learners[place] = None
        return found

    def fork(self, copies: int) -> _Looped:
        first = self.learners[0]
        return _Looped([first.fresh() for _ in range(copies)] if first else [], self.readout)


class _Compiled:
    """Copies of a pure learner that jax can trace: all at once, in a compiled loop."""

    is_compiled = True

    def __init__(self, state: Any, run: Callable[..., Any], double: bool):
        self.state, self.run, self.double = state, run, double

    def eps(self) -> float:
        return float(np.finfo(np.float64 if self.double else np.float32).eps)

    def advance(self, inputs: np.ndarray, target: np.ndarray) -> np.ndarray:
        dtype = np.float64 if self.double else np.float32
        with jax.enable_x64(self.double):
            self.state, found = self.run(self.state, inputs.astype(dtype), target.astype(dtype))
            return np.asarray(found, dtype=float)

    def fork(self, copies: int) -> _Compiled:
        state = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[:1], copies, 0), self.state)
        return _Compiled(state, self.run, self.double)


def make_copies(learner: Learner, readout: Readout, batch: int) -> Copies:
    """Return a set of one copy; `Copies.fork` makes more of it.

    A pure learner is compiled where jax can trace it and its state keeps its types.
    """
    if isinstance(learner, Pure) and learner.function is not None:
        found = _compiled(learner, readout, batch)
        if found is not None:
            return found
    return _Looped([learner.fresh()], readout)


def _compiled(learner: Pure, readout: Readout, batch: int) -> _Compiled | None:
    step, predict = learner.step, learner.function
    assert predict is not None
    floats = [np.asarray(part).dtype for part in learner.parts]
    double = any(dtype == np.float64 for dtype in floats)
    dtype = np.float64 if double else np.float32
    seen = Readout(*(part.astype(dtype) for part in readout))

    def one(state: Any, inputs: Any, target: Any) -> tuple[Any, Any]:
        found = seen.read(predict(state, seen.inputs).reshape(len(seen.inputs)), jnp.stack)
        return step(state, inputs, target), found

    def each(state: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
        return jax.vmap(one)(state, *now)  # one function for all runs: it is traced once

    @jax.jit
    def run(state: Any, inputs: Any, target: Any) -> tuple[Any, Any]:
        return jax.lax.scan(each, state, (inputs, target))

    with jax.enable_x64(double):
        types = [jax.dtypes.canonicalize_dtype(dtype) for dtype in floats]
        parts = [np.asarray(part, kind) for part, kind in zip(learner.parts, types, strict=True)]
        state = learner.tree.unflatten([part[None] for part in parts])
        rows = np.zeros((1, 1, batch, readout.inputs.shape[1]), dtype)
        try:
            after, _ = jax.eval_shape(run, state, rows, rows[..., 0])
        except (TypeError, ValueError, AttributeError):  # not written for jax, or changes its types
            return None
        kept = jax.tree.map(lambda a, b: a.dtype == b.dtype and a.shape == b.shape, after, state)
    return _Compiled(state, run, double) if all(jax.tree.leaves(kept)) else None


def is_optimizer(thing: Any) -> bool:
    """Tell whether a thing is an optimizer alone: of optax, or one that gives its transform."""
    return isinstance(thing, optax.GradientTransformation) or hasattr(thing, "transform")


def linear_learner(optimizer: Any, features: Features, dim: int) -> tuple[Any, Any, Any]:
    """Return (step, state, predict) of a linear model that begins at zero, in double precision.

    The loss is the mean of the squared errors of a batch, without a factor 1/2.

    Examples
    --------
    >>> from resonax.learners import Linear, heavy_ball
    >>> step, state, predict = linear_learner(heavy_ball(0.1, 0.5), Linear(bias=False), 1)
    >>> with jax.enable_x64(True):
    ...     weights, _ = step(state, jnp.ones((1, 1)), jnp.ones(1))
    >>> weights.tolist()
    [0.2]
    """
    is_transform = isinstance(optimizer, optax.GradientTransformation)
    transform: Any = optimizer if is_transform else optimizer.transform()

    def predict(state: Any, inputs: Any) -> Any:
        return features.apply(inputs) @ state[0]

    def step(state: Any, inputs: Any, target: Any) -> Any:
        weights, memory = state
        slope = jax.grad(lambda w: jnp.mean((features.apply(inputs) @ w - target) ** 2))(weights)
        moves, memory = transform.update(slope, memory, weights)
        return optax.apply_updates(weights, moves), memory

    with jax.enable_x64(True):
        weights = jnp.zeros(features.size(dim))
        return step, (weights, transform.init(weights)), predict
