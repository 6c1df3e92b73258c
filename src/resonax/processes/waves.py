"""Processes whose mean follows a periodic wave: sinusoid and square wave; and the iid baseline."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.moments import Moments
from resonax.processes.base import (
    Process,
    Spectrum,
    check_inputs,
    unit_direction,
    variance_root,
)
from resonax.values import static, value

__all__ = ["Iid", "Sinusoid", "Square", "shuffled"]

# Phases that stand for the stationary law of a wave: exact for polynomials of degree below it.
_PHASES = 64


@value
class Wave(Process):
    r"""A mean and a covariance that follow a wave :math:`w` of period :math:`T`, in -1..1.

    .. math:: \bar x_k = a\, w(k)\, u, \qquad \operatorname{Cov}_k = e^{s\, w(k)}\, C

    with amplitude :math:`a`, unit direction :math:`u`, swing :math:`s` of the logarithm of the
    covariance (0: it stays still) and covariance :math:`C`: a variance, one for each coordinate,
    or a matrix.
    """

    period: float
    amplitude: float = 0.5
    variance: ArrayLike = 1.0
    swing: float = 0.0
    phase: float = 0.0
    direction: ArrayLike | None = None
    dim: int = static(default=1)

    def __post_init__(self) -> None:
        check_inputs(self)

    @property
    def cycle(self) -> float:
        return self.period

    @property
    def origin(self) -> float:
        return -self.period * self.phase / (2 * np.pi)

    def wave(self, turns: ArrayLike) -> Array:
        """Return the wave at a time counted in periods."""
        raise NotImplementedError

    def _moments(self, wave: Array) -> tuple[Array, Array]:
        mean = self.amplitude * wave * unit_direction(self.direction, self.dim)
        return mean, jnp.exp(0.5 * self.swing * wave) * variance_root(self.variance, self.dim)

    def moments(self, index: ArrayLike) -> Moments:
        turns = jnp.asarray(index) / self.period + self.phase / (2 * jnp.pi)
        mean, root = self._moments(self.wave(turns))
        return Moments(mean[None], root[None], jnp.ones(1))

    def stationary(self) -> Moments:
        waves = self.wave((jnp.arange(_PHASES) + 0.5) / _PHASES)
        mean, root = jax.vmap(self._moments)(waves)
        return Moments(mean, root, jnp.full(_PHASES, 1 / _PHASES))

    def lines(self) -> tuple[np.ndarray, np.ndarray]:
        """Return frequencies and powers of the wave itself, as sampled once a step."""
        raise NotImplementedError

    def spectrum(self, frequency: ArrayLike) -> Spectrum:
        frequency = np.asarray(frequency, dtype=float)
        root = np.asarray(self.stationary().root)
        white = float(np.mean(np.sum(root**2, axis=(1, 2))))
        line_frequency, line_power = self.lines()
        flat = np.zeros_like(frequency)
        power = line_power * float(self.amplitude) ** 2
        return Spectrum(frequency, flat, flat + white, line_frequency, power)


def _folded(frequency: np.ndarray) -> np.ndarray:
    """Return where a frequency appears when the signal is seen only once a step."""
    frequency = frequency % 1.0
    return np.minimum(frequency, 1.0 - frequency)


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

    def lines(self) -> tuple[np.ndarray, np.ndarray]:
        return _folded(np.array([1.0 / float(self.period)])), np.array([0.25])


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

    def lines(self) -> tuple[np.ndarray, np.ndarray]:
        period = float(self.period)
        if period == round(period):
            steps = round(period)
            wave = np.where(np.floor(2 * np.arange(steps) / period) % 2 == 0, 1.0, -1.0)
            power = np.abs(np.fft.rfft(wave) / steps) ** 2
            return np.arange(len(power)) / period, power
        # A period that is not a whole number: the odd harmonics, folded, with powers (2/(pi m))^2.
        harmonic = np.arange(1, 200, 2)
        return _folded(harmonic / period), (2 / (np.pi * harmonic)) ** 2


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
    dim: int = static(default=1)

    name: ClassVar[str] = "iid"

    def __post_init__(self) -> None:
        check_inputs(self)

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
        white = float(jnp.trace(self.moments(0).merged()[1]))
        none = np.zeros(0)
        flat = np.zeros_like(frequency)
        return Spectrum(frequency, flat, flat + white, none, none)


def shuffled(process: Process) -> Iid:
    """Return the same inputs in random order: every draw independent, from the stationary law.

    This is what the paper's sweeps mean by a period or a frequency of 0.
    """
    return Iid(law=process.stationary(), dim=process.dim)
