"""What every covariate process is: a law for the inputs of each step."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.algebra import matrix_sqrt
from resonax.checks import ArgumentError, check_number, check_numbers
from resonax.moments import Moments

__all__ = ["Process", "Spectrum", "State"]

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


class Process:
    """A covariate process. Subclasses are frozen dataclasses made by `value`.

    Two kinds. A process with a deterministic law gives ``moments(index)`` at any real index. A
    process with a random mean keeps a state: ``init(key)`` draws it from the stationary law, and
    ``step(key, state, index)`` gives the next state with the moments given that state. Loops use
    ``init`` and ``step``, which every process has.
    """

    name: ClassVar[str]
    random_mean: ClassVar[bool] = False
    pieces: ClassVar[int] = 1  # equal parts of a period inside which the law is smooth
    dim: int

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

    def init(self, key: Array) -> State:
        """Draw the state before step 0."""
        del key
        return ()

    def step(self, key: Array, state: State, index: ArrayLike) -> tuple[State, Moments]:
        """Return the state at a step, and the law of the inputs given it."""
        del key
        return state, self.moments(index)

    def stationary(self) -> Moments:
        """Return the law of an input at a random time: what the same rows shuffled would have."""
        raise NotImplementedError

    def spectrum(self, frequency: ArrayLike) -> Spectrum:
        """Return the power spectral density in closed form."""
        raise ArgumentError(f"{self.name} has no power spectral density in closed form")

    def path(self, key: Array, steps: int) -> Array:
        """Return a sample path of the mean, (steps, dim)."""
        init_key, walk_key = jax.random.split(key)

        def advance(state: State, index: Array) -> tuple[State, Array]:
            state, moments = self.step(jax.random.fold_in(walk_key, index), state, index)
            return state, moments.merged()[0]

        return jax.lax.scan(advance, self.init(init_key), jnp.arange(steps))[1]

    def sample(self, key: Array, steps: int, batch: int = 1) -> Array:
        """Return a sample path of the inputs, (steps, batch, dim)."""
        init_key, walk_key, draw_key = jax.random.split(key, 3)

        def advance(state: State, index: Array) -> tuple[State, Array]:
            state, moments = self.step(jax.random.fold_in(walk_key, index), state, index)
            return state, moments.sample(jax.random.fold_in(draw_key, index), (batch,))

        return jax.lax.scan(advance, self.init(init_key), jnp.arange(steps))[1]


def check_inputs(process: Any) -> None:
    """Check the fields that processes share: amplitude, variance, swing, dim, direction, period."""
    dim = process.dim
    if not isinstance(dim, int) or dim < 1:
        raise ArgumentError(f"dim must be a whole number of at least 1, got {dim!r}")
    names = {item.name for item in fields(process)}
    if "period" in names:
        check_number("period", process.period, low=1)
    if "amplitude" in names:
        check_number("amplitude", process.amplitude, low=0, high=1e6)
    if "swing" in names:
        check_number("swing", process.swing, low=0, high=20)
    if "phase" in names:
        check_number("phase", process.phase)
    variance = process.variance
    if isinstance(variance, np.ndarray | tuple | list):
        array = np.asarray(variance, dtype=float)
        check_numbers("variance", array, (dim,) if array.ndim == 1 else (dim, dim))
        check_number(
            "variance",
            np.linalg.eigvalsh(np.diag(array) if array.ndim == 1 else array),
            low=-1e-12,
            high=1e12,
        )
        if array.ndim == 2 and not np.allclose(array, array.T):
            raise ArgumentError("variance must be a symmetric matrix when it is a matrix")
    else:
        check_number("variance", variance, low=0, high=1e12)
    if "direction" in names and process.direction is not None:
        check_numbers("direction", process.direction, (dim,))
        if isinstance(process.direction, tuple | list | np.ndarray) and not np.any(
            process.direction
        ):
            raise ArgumentError("direction must not be the zero vector")


def unit_direction(direction: ArrayLike | None, dim: int) -> Array:
    """Return the direction in which a mean moves, of length 1; the first axis by default."""
    if direction is None:
        return jnp.eye(dim)[0]
    vector = jnp.asarray(direction, dtype=float)
    return vector / jnp.linalg.norm(vector)


def variance_root(variance: ArrayLike, dim: int) -> Array:
    """Return a root of the covariance given as a number, a diagonal or a matrix."""
    if isinstance(variance, tuple | list):
        variance = np.asarray(variance, dtype=float)
    array = jnp.asarray(variance, dtype=float)
    if array.ndim < 2:
        return jnp.sqrt(array) * jnp.eye(dim)
    return matrix_sqrt(array)
