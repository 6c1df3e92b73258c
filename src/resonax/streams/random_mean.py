"""Processes whose mean is itself random: AR(2) and switching."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.core.algebra import hermite_nodes, matrix_sqrt
from resonax.core.errors import check_number
from resonax.core.moments import Moments
from resonax.core.values import static, value
from resonax.streams.base import (
    Process,
    Spectrum,
    State,
    check_inputs,
    unit_direction,
    variance_root,
    whole_blocks,
)

__all__ = ["AR2", "Switching"]

_NODES = 32  # quadrature over a standard normal, for the stationary law
_SIGNAL_NODES = 12, 6  # the same, for the mean and the variance of switching
_HALVINGS = 64  # of a bracket: more than a double has digits


_root = functools.partial(jax.jit, static_argnames=("dim",))(variance_root)


def _white(process: AR2 | Switching) -> float:
    """Return the mean variance of the inputs around their mean, over all coordinates."""
    root = np.asarray(_root(process.variance, dim=process.dim))
    return float(np.sum(root**2) * np.exp(0.5 * float(process.swing) ** 2))


def _bisect(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return the root of a function that rises from below 0 to above 0."""

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        is_below = function(middle) < 0
        return jnp.where(is_below, middle, low), jnp.where(is_below, high, middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))
    return (low + high) / 2


@jax.jit
def _coefficients(period: Array, innovation: Array) -> tuple[Array, Array]:
    """Solve for the coefficients; see `AR2.coefficients`."""
    half = jnp.pi / jnp.asarray(period, dtype=float)
    share = jnp.asarray(innovation, dtype=float)

    def excess(log_gap: Array) -> Array:
        gap = jnp.exp(log_gap)
        room = gap**2 + 8 * (1 - gap) * jnp.sin(half) ** 2
        room *= gap**2 + 8 * (1 - gap) * jnp.cos(half) ** 2
        return log_gap + jnp.log(room) - jnp.log(share) - 3 * jnp.log(2 - gap)

    low = jnp.log(share) - 2.0  # the last factor is at most 4, so the gap exceeds share / 4
    phi2 = jnp.expm1(_bisect(excess, low, jnp.zeros_like(low)))
    return 4 * phi2 * jnp.cos(2 * half) / (phi2 - 1), phi2


@value
class AR2(Process):
    r"""A mean that follows a second-order autoregression: a noisy oscillation of period :math:`T`.

    .. math:: z_k = \varphi_1 z_{k-1} + \varphi_2 z_{k-2} + \xi_k, \quad \bar x_k = a\, z_k\, u,
              \quad \operatorname{Cov}_k = e^{s z_k}\, C

    :math:`z` has variance 1, so that ``amplitude`` is the standard deviation of the mean. The
    spectral density peaks exactly at :math:`1/T`, which ties :math:`\varphi_1` to
    :math:`\varphi_2`; ``innovation``, the variance of :math:`\xi` as a share of that of
    :math:`z`, sets the width of the peak and fixes :math:`\varphi_2`. The paper has a variance of
    0.1 and innovations of variance 1e-5: amplitude 0.316 and innovation 1e-4, the defaults.

    Examples
    --------
    >>> phi1, phi2 = AR2(period=1 / 0.045).coefficients()
    >>> print(f"{float(phi1):.5f} {float(phi2):.5f}")
    1.91997 -0.99936
    """

    period: float
    amplitude: float = 0.1**0.5
    variance: ArrayLike = 1.0
    swing: float = 0.0
    innovation: float = 1e-4
    direction: ArrayLike | None = None
    dim: int = static(default=1)  # pyrefly: ignore[bad-override]

    name: ClassVar[str] = "ar2"
    random_mean: ClassVar[bool] = True
    signalled: ClassVar[bool] = True  # pyrefly: ignore[bad-override]

    def __post_init__(self) -> None:
        check_inputs(self)
        check_number(
            "period", self.period, low=2, high=1e5
        )  # no frequency is above half a cycle a step

    def coefficients(self) -> tuple[Array, Array]:
        r"""Return :math:`\varphi_1, \varphi_2` of the peak frequency and the stationary variance.

        With :math:`\varphi_1 = 4\varphi_2\cos\omega/(\varphi_2-1)`, :math:`\omega = 2\pi/T`,
        the variance is 1 when :math:`s\,(1-\varphi_2) =
        (1+\varphi_2)\,((1-\varphi_2)^2-\varphi_1^2)`. The unknown is the logarithm of
        :math:`g = 1+\varphi_2`, as the roots lie close to the unit circle, and the last factor is
        written without a difference of nearly equal numbers:
        :math:`(g^2+8(1-g)\sin^2\tfrac\omega2)\,(g^2+8(1-g)\cos^2\tfrac\omega2)/(2-g)^2`.
        """
        return _coefficients(self.period, self.innovation)

    def _moments(self, latent: Array) -> tuple[Array, Array]:
        mean = self.amplitude * latent * unit_direction(self.direction, self.dim)
        return mean, jnp.exp(0.5 * self.swing * latent) * variance_root(self.variance, self.dim)

    @property
    def init_normals(self) -> int:
        return 2

    @property
    def step_normals(self) -> int:
        return 1

    def init(self, normals: Array) -> State:
        # Jointly from the stationary law: the lag-1 correlation is phi1 / (1 - phi2). Drawn
        # independently, the jump between the two values decays over thousands of steps only.
        phi1, phi2 = self.coefficients()
        correlation = phi1 / (1 - phi2)
        first, second = normals
        last = correlation * first + jnp.sqrt(1 - correlation**2) * second
        return last, first, phi1, phi2

    def step(self, normals: Array, state: State, index: ArrayLike) -> tuple[State, Moments]:
        del index
        last, before, phi1, phi2 = state
        latent = phi1 * last + phi2 * before + jnp.sqrt(self.innovation) * normals[0]
        return (latent, last, phi1, phi2), self.given(latent)

    def given(self, latent: Array) -> Moments:
        """Return the law of the inputs where the autoregression stands at a value."""
        mean, root = self._moments(latent)
        return Moments(mean[None], root[None], jnp.ones(1), signal=latent[None])

    def stationary(self) -> Moments:
        nodes, weights = hermite_nodes(_NODES)
        latent = jnp.asarray(nodes)
        mean, root = jax.vmap(self._moments)(latent)
        return Moments(mean, root, jnp.asarray(weights), signal=latent)

    def spectrum(self, frequency: ArrayLike) -> Spectrum:
        frequency = np.asarray(frequency, dtype=float)
        phi1, phi2 = (float(phi) for phi in self.coefficients())
        turn = np.exp(-2j * np.pi * frequency)
        mean = float(self.amplitude) ** 2 * float(self.innovation)
        mean = mean / np.abs(1 - phi1 * turn - phi2 * turn**2) ** 2
        return Spectrum(frequency, mean, mean + _white(self), np.zeros(0), np.zeros(0))


@value
class Switching(Process):
    r"""A mean drawn anew every :math:`T` steps and held in between.

    .. math:: \bar x_k = a\, \xi_{\lfloor k/T \rfloor}, \quad \xi_i \sim \mathcal N(0, I), \quad
              \operatorname{Cov}_k = e^{s \zeta_{\lfloor k/T \rfloor}}\, C

    ``amplitude`` is the standard deviation of each coordinate of the mean: the square root of the
    paper's :math:`v`.

    Examples
    --------
    >>> path = Switching(period=3, dim=2).path(jax.random.key(0), 6)
    >>> bool((path[0] == path[2]).all()), bool((path[2] == path[3]).any())
    (True, False)
    """

    period: float
    amplitude: float = 0.5
    variance: ArrayLike = 0.25
    swing: float = 0.0
    dim: int = static(default=1)  # pyrefly: ignore[bad-override]

    name: ClassVar[str] = "switching"
    random_mean: ClassVar[bool] = True
    signalled: ClassVar[bool] = True  # pyrefly: ignore[bad-override]

    def __post_init__(self) -> None:
        check_inputs(self)

    @property
    def step_normals(self) -> int:
        return self.dim + 1

    def init(self, normals: Array) -> State:
        del normals
        return jnp.zeros(self.dim + 1)  # replaced at step 0, which starts a block

    def step(self, normals: Array, state: State, index: ArrayLike) -> tuple[State, Moments]:
        index = jnp.asarray(index)
        block, before = (whole_blocks(at, self.period) for at in (index, index - 1))
        state = jnp.where(block > before, normals, state)
        return state, self.given(state)

    def given(self, state: State) -> Moments:
        """Return the law of the inputs of a block, given what was drawn for it."""
        mean, root = self.amplitude * state[:-1], variance_root(self.variance, self.dim)
        root = jnp.exp(0.5 * self.swing * state[-1]) * root
        return Moments(mean[None], root[None], jnp.ones(1), signal=state[:1])

    def stationary(self) -> Moments:
        nodes, weights = hermite_nodes(_NODES)
        root = variance_root(self.variance, self.dim)
        scale = jnp.exp(self.swing * jnp.asarray(nodes))[:, None, None]
        spread = scale * (root @ root.T) + self.amplitude**2 * jnp.eye(self.dim)
        mean = jnp.zeros((_NODES, self.dim))
        return Moments(mean, matrix_sqrt(spread), jnp.asarray(weights))

    def mixture(self) -> Moments:
        # Given the first coordinate of what was drawn, which is the signal, the rest is normal.
        (signal, share), (log, part) = (hermite_nodes(count) for count in _SIGNAL_NODES)
        signal, log = (jnp.asarray(grid).ravel() for grid in np.meshgrid(signal, log))
        first, root = jnp.eye(self.dim)[0], variance_root(self.variance, self.dim)
        spread = jnp.exp(self.swing * log)[:, None, None] * (root @ root.T)
        spread += self.amplitude**2 * (jnp.eye(self.dim) - jnp.outer(first, first))
        mean = self.amplitude * signal[:, None] * first
        weight = jnp.asarray(np.outer(part, share).ravel())
        return Moments(mean, matrix_sqrt(spread), weight, signal=signal)

    def spectrum(self, frequency: ArrayLike) -> Spectrum:
        # Two steps a lag apart share a block with probability 1 - lag/T, whatever the period.
        frequency = np.asarray(frequency, dtype=float)
        period = float(self.period)
        lag = np.arange(1, int(np.ceil(period)))
        kept = np.maximum(1 - lag / period, 0.0)
        shape = 1 + 2 * np.cos(2 * np.pi * frequency[..., None] * lag) @ kept
        mean = float(self.amplitude) ** 2 * self.dim * shape
        return Spectrum(frequency, mean, mean + _white(self), np.zeros(0), np.zeros(0))
