"""What every covariate process is: a law for the inputs of each step."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.core.algebra import matrix_sqrt
from resonax.core.errors import (
    ArgumentError,
    check_covariance,
    check_direction,
    check_range,
    check_whole,
)
from resonax.core.moments import Moments
from resonax.core.values import Varied

__all__ = ["Process", "Spectrum", "State", "walk_on"]

State = Any


class Spectrum(NamedTuple):
    """Power over frequency (cycles per step, 0 to 1/2), summed over the coordinates of the input.

    Densities are two-sided: their integral over -1/2..1/2, plus twice the line powers (once at
    frequencies 0 and 1/2), is the variance. Lines are the part of a strictly periodic mean.
    """

    frequency: np.ndarray
    mean_density: np.ndarray
    input_density: np.ndarray
    line_frequency: np.ndarray
    line_power: np.ndarray


class Process(Varied, ABC):
    """A covariate process. Subclasses are frozen dataclasses made by `value`.

    Two kinds. A process with a deterministic law gives ``moments(index)`` at any real index. A
    process with a random mean keeps a state: ``init`` draws it from the stationary law, and
    ``step`` gives the next state with the moments given that state. Both are pure functions of
    ``init_normals`` and ``step_normals`` standard normal numbers, which the caller draws as it
    likes. Loops use ``init`` and ``step``, which every process has.
    """

    name: ClassVar[str]
    random_mean: ClassVar[bool] = False
    signalled: ClassVar[bool] = False  # whether a signal moves its law, which a target may follow
    pieces: ClassVar[int] = 1  # equal parts of a period inside which the law is smooth
    dim: int

    def grouped(self, batch: int) -> Process:
        """Return the process with ``batch`` rows a step where its rows are given, else itself."""
        del batch
        return self

    @property
    def periodic(self) -> bool:
        """Whether the law of the inputs repeats."""
        return not self.random_mean

    @property
    def cycle(self) -> float:
        """Steps after which the law repeats."""
        raise ArgumentError(f"the process {self.name} never repeats: it has no cycle")

    @property
    def origin(self) -> float:
        """An index at which a smooth piece of the period begins."""
        return 0.0

    def moments(self, index: ArrayLike) -> Moments:
        """Return the law of the inputs at a real index, in steps."""
        raise ArgumentError(f"the mean of {self.name} is random: it has no law fixed in advance")

    @property
    def init_normals(self) -> int:
        """Standard normal numbers that `init` takes."""
        return 0

    @property
    def step_normals(self) -> int:
        """Standard normal numbers that `step` takes."""
        return 0

    def init(self, normals: Array) -> State:
        """Return the state before step 0."""
        del normals
        return ()

    def step(self, normals: Array, state: State, index: ArrayLike) -> tuple[State, Moments]:
        """Return the state at a step, and the law of the inputs given it."""
        del normals
        return state, self.moments(index)

    def draw_init(self, key: Array) -> State:
        """Draw the state before step 0 with a key."""
        return self.init(jax.random.normal(key, (self.init_normals,), float))

    def draw_step(self, key: Array, state: State, index: ArrayLike) -> tuple[State, Moments]:
        """Draw the state at a step with a key."""
        return self.step(self.draw_normals(key), state, index)

    def draw_normals(self, key: Array) -> Array:
        """Draw the standard normal numbers that `step` takes."""
        return jax.random.normal(key, (self.step_normals,), float)

    @abstractmethod
    def stationary(self) -> Moments:
        """Return the law of an input at a random real time: what is left without the order."""

    def mixture(self) -> Moments:
        """Return the stationary law as components that each have the signal of their rows."""
        return self.stationary()

    def spectrum(self, frequency: ArrayLike) -> Spectrum:
        """Return the power spectral density in closed form."""
        raise ArgumentError(f"{self.name} has no power spectral density in closed form")

    def path(self, key: Array, steps: int) -> Array:
        """Return a sample path of the mean, (steps, dim)."""
        return _walk(self, key, steps=steps, batch=0)[1]

    def sample(self, key: Array, steps: int, batch: int = 1) -> Array:
        """Return a sample path of the inputs, (steps, batch, dim)."""
        return _walk(self, key, steps=steps, batch=batch)[0]


@functools.partial(jax.jit, static_argnames=("steps", "batch"))
def _walk(process: Process, key: Array, *, steps: int, batch: int) -> tuple[Array, Array]:
    return walk_on(process, key, jnp.arange(steps), batch)[1]


def walk_on(
    process: Process, key: Array, indices: Array, batch: int, state: State | None = None
) -> tuple[State, tuple[Array, Array]]:
    """Return the state after some steps in a row, the inputs of each and their means.

    The first index is 0, or ``state`` is the state after the steps before it.
    """
    init_key, walk_key, draw_key = jax.random.split(key, 3)

    def one(state: State, index: Array) -> tuple[State, tuple[Array, Array]]:
        state, moments = process.draw_step(jax.random.fold_in(walk_key, index), state, index)
        inputs = moments.sample(jax.random.fold_in(draw_key, index), (batch,))
        return state, (inputs, moments.merged()[0])

    return jax.lax.scan(one, _resumed(process, init_key, indices, state), indices)


def _resumed(process: Process, key: Array, indices: Array, state: State | None) -> State:
    """Return the state before the first of some steps."""
    fresh = process.draw_init(key)
    if state is None:
        return fresh
    return jax.tree.map(lambda new, old: jnp.where(indices[0] == 0, new, old), fresh, state)


def check_inputs(process: Any) -> None:
    """Check the fields that processes share, and turn what a person writes into one form.

    Whole numbers become floats, so that ``period=22`` and ``period=22.0`` compile once; lists and
    tuples become arrays.
    """
    check_whole("dim", process.dim, low=1, high=1000)
    for item in fields(process):
        given = getattr(process, item.name)
        if item.name in ("period", "amplitude", "swing", "phase", "innovation"):
            check_range(item.name, given)
        if isinstance(given, int) and not item.metadata.get("static"):
            object.__setattr__(process, item.name, float(given))
    if not hasattr(process.variance, "aval"):
        object.__setattr__(process, "variance", check_covariance(process.variance, process.dim))
    direction = getattr(process, "direction", None)
    if direction is not None and not hasattr(direction, "aval"):
        object.__setattr__(process, "direction", check_direction(direction, process.dim))


def whole_blocks(index: ArrayLike, length: ArrayLike) -> Array:
    """Return how many whole blocks of a length have passed, ``floor(index / length)``.

    A compiled quotient may round to the wrong side of a whole number (49 times 1/49 is below 1);
    the products that decide here do not.
    """
    index = jnp.asarray(index, dtype=float)
    count = jnp.floor(index / length)
    count = count + ((count + 1) * length <= index)
    return count - (count * length > index)


def unit_direction(direction: ArrayLike | None, dim: int) -> Array:
    """Return the direction in which a mean moves, of length 1; the first axis by default."""
    if direction is None:
        return jnp.eye(dim)[0]
    vector = jnp.asarray(direction, dtype=float)
    vector = vector / jnp.max(jnp.abs(vector))  # first, so that no square is too small or large
    return vector / jnp.linalg.norm(vector)


def variance_root(variance: ArrayLike, dim: int) -> Array:
    """Return a root of the covariance given as a number, a diagonal or a matrix."""
    array = jnp.asarray(variance, dtype=float)
    if array.ndim < 2:
        return jnp.sqrt(array) * jnp.eye(dim)
    return matrix_sqrt(array)
