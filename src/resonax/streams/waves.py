"""Processes whose mean follows a periodic wave: sinusoid and square wave; and the iid baseline."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.core.errors import ArgumentError, shorten
from resonax.core.moments import Moments
from resonax.core.values import static, value
from resonax.streams.base import (
    Process,
    Spectrum,
    check_inputs,
    unit_direction,
    variance_root,
    whole_blocks,
)

__all__ = ["Iid", "Sinusoid", "Square", "shuffled"]

# Phases that stand for the stationary law of a wave: exact for polynomials of degree below it.
_PHASES = 64


@value
class Wave(Process):
    r"""A mean and a covariance that follow a wave :math:`w` of period :math:`T`, in -1..1.

    .. math:: \bar x_k = a\, w(k)\, u, \qquad \operatorname{Cov}_k = e^{s\, w(k)}\, C

    with amplitude :math:`a`, unit direction :math:`u`, swing :math:`s` of the logarithm of the
    covariance (0: constant) and covariance :math:`C`: a variance, one for each coordinate,
    or a matrix.
    """

    period: float
    amplitude: float = 0.5
    variance: ArrayLike = 1.0
    swing: float = 0.0
    phase: float = 0.0
    direction: ArrayLike | None = None
    dim: int = static(default=1)  # pyrefly: ignore[bad-override]

    signalled: ClassVar[bool] = True  # pyrefly: ignore[bad-override]

    def __post_init__(self) -> None:
        check_inputs(self)

    @property
    def cycle(self) -> float:
        return self.period

    @property
    def origin(self) -> float:
        return -self.period * self.phase / (2 * np.pi)

    @abstractmethod
    def wave(self, turns: ArrayLike) -> Array:
        """Return the wave at a time counted in periods."""

    def _moments(self, wave: Array) -> tuple[Array, Array]:
        mean = self.amplitude * wave * unit_direction(self.direction, self.dim)
        return mean, jnp.exp(0.5 * self.swing * wave) * variance_root(self.variance, self.dim)

    def wave_at(self, index: ArrayLike) -> Array:
        """Return the wave at a real index, in steps."""
        return self.wave(jnp.asarray(index) / self.period + self.phase / (2 * jnp.pi))

    def moments(self, index: ArrayLike) -> Moments:
        wave = jnp.asarray(self.wave_at(index))
        mean, root = self._moments(wave)
        return Moments(mean[None], root[None], jnp.ones(1), signal=wave[None])

    def stationary(self) -> Moments:
        waves = self.wave((jnp.arange(_PHASES) + 0.5) / _PHASES)
        mean, root = jax.vmap(self._moments)(waves)
        return Moments(mean, root, jnp.full(_PHASES, 1 / _PHASES), signal=waves)

    def harmonics(self) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers and powers of the harmonics of the wave in continuous time."""
        raise ArgumentError(f"the harmonics of {self.name} are not known in closed form")

    def lines(self) -> tuple[np.ndarray, np.ndarray]:
        """Return frequencies and powers of the wave itself, as seen once a step."""
        share = Fraction(float(self.period)).limit_denominator(64)
        if abs(float(share) - float(self.period)) < 1e-12:  # it repeats after whole steps
            # Filled up, as each length is compiled.
            filled = np.arange(max(4096, 1 << share.numerator.bit_length()))
            wave = np.asarray(_wave_at(self, filled), dtype=float)[: share.numerator]
            power = np.abs(np.fft.rfft(wave) / len(wave)) ** 2
            kept = power > 1e-12
            return np.flatnonzero(kept) / len(wave), power[kept]
        number, power = self.harmonics()
        frequency = (number / float(self.period)) % 1.0
        return np.minimum(frequency, 1.0 - frequency), power

    def spectrum(self, frequency: ArrayLike) -> Spectrum:
        frequency = np.asarray(frequency, dtype=float)
        root = np.asarray(_stationary_root(self))
        white = float(np.mean(np.sum(root**2, axis=(1, 2))))
        line_frequency, line_power = self.lines()
        flat = np.zeros_like(frequency)
        power = line_power * float(self.amplitude) ** 2
        return Spectrum(frequency, flat, flat + white, line_frequency, power)


@jax.jit
def _stationary_root(process: Wave) -> Array:
    return process.stationary().root


@jax.jit
def _wave_at(process: Wave, index: Array) -> Array:
    return process.wave_at(index)


@value
class Sinusoid(Wave):
    r"""A sinusoidal mean, :math:`w(k) = \sin(2\pi k/T + \text{phase})`.

    Examples
    --------
    >>> process = Sinusoid(period=40, amplitude=0.5)
    >>> print(f"{float(process.moments(10.0).mean[0, 0]):.3f}")
    0.500
    """

    name: ClassVar[str] = "sinusoid"

    def wave(self, turns: ArrayLike) -> Array:
        return jnp.sin(2 * jnp.pi * jnp.asarray(turns))

    def harmonics(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([1]), np.array([0.25])


@value
class Square(Wave):
    r"""A mean that jumps: :math:`w(k) = 1` if :math:`\lfloor 2k/T \rfloor` is even, else -1.

    Examples
    --------
    >>> process = Square(period=6, amplitude=1.0)
    >>> [int(process.moments(k).mean[0, 0]) for k in range(6)]
    [1, 1, 1, -1, -1, -1]
    """

    name: ClassVar[str] = "square"
    pieces: ClassVar[int] = 2

    def wave(self, turns: ArrayLike) -> Array:
        return 1.0 - 2.0 * (jnp.floor(2 * jnp.asarray(turns)) % 2)

    def wave_at(self, index: ArrayLike) -> Array:
        index = jnp.asarray(index) + self.phase / (2 * jnp.pi) * self.period
        return 1.0 - 2.0 * (whole_blocks(index, self.period / 2) % 2)

    def harmonics(self) -> tuple[np.ndarray, np.ndarray]:
        number = np.arange(1, 2000, 2)
        return number, (2 / (np.pi * number)) ** 2


@value
class Iid(Process):
    """Inputs drawn independently at every step from one law: the baseline without any order.

    Either a Gaussian, given by amplitude (length of its mean), variance and direction, or the
    stationary law of another process, made by `shuffled`.

    Examples
    --------
    >>> Iid(amplitude=0.5, variance=4.0).moments(7).covariance.item()
    4.0
    """

    amplitude: float = 0.0
    variance: ArrayLike = 1.0
    direction: ArrayLike | None = None
    law: Moments | None = None
    dim: int = static(default=1)  # pyrefly: ignore[bad-override]

    name: ClassVar[str] = "iid"

    def __post_init__(self) -> None:
        check_inputs(self)

    @property
    def signalled(self) -> bool:  # pyrefly: ignore[bad-override]
        """Whether the mixture remembers the phase of its components."""
        return self.law is not None and self.law.signal is not None

    @property
    def cycle(self) -> float:
        return 1.0

    def moments(self, index: ArrayLike) -> Moments:
        del index
        if self.law is not None:
            return self.law
        mean = self.amplitude * unit_direction(self.direction, self.dim)
        root = variance_root(self.variance, self.dim)
        return Moments(mean[None], root[None], jnp.ones(1))

    def stationary(self) -> Moments:
        return self.moments(0)

    def spectrum(self, frequency: ArrayLike) -> Spectrum:
        frequency = np.asarray(frequency, dtype=float)
        white = float(_total_variance(self))
        none = np.zeros(0)
        flat = np.zeros_like(frequency)
        return Spectrum(frequency, flat, flat + white, none, none)


def shuffled(process: Process) -> Iid:
    """Return the same inputs in random order: every draw independent, from the stationary law.

    This is what the paper's sweeps mean by a period or a frequency of 0.
    """
    if not isinstance(process, Process):
        raise ArgumentError(f"a Process like Sinusoid(period=22) is needed, got {shorten(process)}")
    return _shuffled(process)


@jax.jit
def _shuffled(process: Process) -> Iid:
    return Iid(law=process.stationary(), dim=process.dim)


@jax.jit
def _total_variance(process: Iid) -> Array:
    return jnp.trace(process.moments(0).merged()[1])
