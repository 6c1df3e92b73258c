r"""A second-order transfer function fitted to a frequency response, and parametric resonance.

The model of a learner is the discrete transfer function

.. math:: G(z) = \frac{b_1 z + b_0}{z^2 + a_1 z + a_0}, \qquad z = e^{2\pi i f},

that of SGD with momentum on a quadratic loss of one curvature :math:`\lambda` (see
`momentum_poles`). Its poles :math:`p = e^{s}` are those of a damped oscillator,
:math:`s^2 + 2\zeta\omega s + \omega^2 = 0`, sampled once a step.

If the curvature is :math:`\lambda(1 + d\cos(2\pi t/T))`, the oscillator obeys Mathieu's equation
with damping,

.. math:: \ddot u + 2\zeta\omega\dot u + \omega^2(1 + d\cos(2\pi t/T))\,u = 0 .

It is unstable in regions around :math:`2\pi/T = 2\omega/n`, which is :math:`T = nT_0/2` with the
natural period :math:`T_0 = 2\pi/\omega` and :math:`n = 1, 2, \dots`: the tongues of parametric
resonance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from resonax.core.intervals import half_width, tail_of

__all__ = [
    "PolePair",
    "critical_depth",
    "dangerous_periods",
    "fit_pole_pair",
    "is_single_decay",
    "jackknife_interval",
    "momentum_poles",
]

_ITERATIONS = 10  # of the reweighted linear fit that starts the nonlinear one
_MIN_RELATIVE_ERROR = 1e-9  # smaller errors of a gain give it no more weight
_MIN_CHI_SQUARE = 20.0  # by which a second pole must improve the fit
_MAX_DEPTH = (
    2.0  # the first harmonic of a curvature that is never negative is at most twice its mean
)
_PIECES = 128  # of a period, each with constant curvature; a power of 2
_GRID_SIZE = 401  # depths in which the critical one is bracketed
_BISECTIONS = 24


@dataclass(frozen=True)
class PolePair:
    r"""A transfer function :math:`(b_1 z + b_0)/(z^2 + a_1 z + a_0)`.

    Examples
    --------
    >>> pair = PolePair.from_poles(np.exp((-0.1 + 1j) * 0.14), np.exp((-0.1 - 1j) * 0.14))
    >>> round(pair.damped_period, 3), round(pair.damping, 4)
    (44.88, 0.0995)
    """

    a1: float
    a0: float
    b1: float = 1.0
    b0: float = 0.0

    @classmethod
    def from_poles(cls, first: complex, second: complex) -> PolePair:
        """Return the transfer function with two poles, both real or complex conjugates."""
        return cls(-complex(first + second).real, complex(first * second).real)

    @property
    def poles(self) -> tuple[complex, complex]:
        """Both poles in the z plane."""
        root = np.sqrt(complex(self.a1**2 - 4 * self.a0))
        return (complex(-self.a1 + root) / 2, complex(-self.a1 - root) / 2)

    @property
    def exponents(self) -> tuple[complex, complex] | None:
        """Logarithms of the poles; None if a real pole is not positive, as no oscillator has it."""
        first, second = self.poles
        if first.imag == 0 and min(first.real, second.real) <= 0:
            return None
        return complex(np.log(first)), complex(np.log(second))

    @property
    def natural_period(self) -> float:
        r"""Period without damping, :math:`2\pi/\omega`, in steps; nan if unknown."""
        exponents = self.exponents
        if exponents is None:
            return math.nan
        return 2 * math.pi / math.sqrt(abs(exponents[0] * exponents[1]))

    @property
    def damping(self) -> float:
        r"""Damping ratio :math:`\zeta`: oscillates below 1, grows below 0; nan if unknown."""
        exponents = self.exponents
        if exponents is None:
            return math.nan
        first, second = exponents
        return -(first + second).real / 2 / math.sqrt(abs(first * second))

    @property
    def damped_period(self) -> float:
        r"""Period of the free oscillation, :math:`2\pi/(\omega\sqrt{1-\zeta^2})`, in steps."""
        angle = abs(np.angle(self.poles[0]))
        return 2 * math.pi / float(angle) if angle > 0 else math.inf

    @property
    def time_constant(self) -> float:
        """Steps in which the free response falls to 1/e, by the slower of the poles."""
        radius = max(abs(pole) for pole in self.poles)
        return -1 / math.log(radius) if 0 < radius < 1 else math.inf

    def gain(self, frequency: np.ndarray) -> np.ndarray:
        """Return the transfer function at frequencies in cycles per step."""
        z = np.exp(2j * np.pi * np.asarray(frequency))
        return (self.b1 * z + self.b0) / (z**2 + self.a1 * z + self.a0)


def momentum_poles(
    lr: float, momentum: float, curvature: float, *, nesterov: bool = False
) -> PolePair:
    r"""Return the response of the prediction to the labels, under momentum and one curvature.

    With SGD with momentum and a constant curvature :math:`\lambda`, the labels :math:`s_k` move
    the prediction :math:`u_k` by
    :math:`u_{k+1} = u_k + \mu(u_k - u_{k-1}) - \eta\lambda(u_k - s_k)`, so that

    .. math:: G(z) = \frac{\eta\lambda z}{z^2 - (1+\mu-\eta\lambda)z + \mu} , \qquad
              G(z) = \frac{\eta\lambda((1+\mu)z - \mu)}
                          {z^2 - (1+\mu)(1-\eta\lambda)z + \mu(1-\eta\lambda)}

    without and with Nesterov's variant. Once its second moment :math:`v` is constant, Adam is SGD
    with the momentum :math:`\mu = \beta_1` and the step size :math:`\eta(1-\beta_1)/\sqrt v`.

    Examples
    --------
    >>> pair = momentum_poles(0.01, 0.95, 2.0)
    >>> round(pair.natural_period, 2), round(pair.damping, 3)
    (43.83, 0.179)
    """
    step = lr * curvature
    if nesterov:
        decay = 1 - step
        return PolePair(
            a1=-(1 + momentum) * decay,
            a0=momentum * decay,
            b1=step * (1 + momentum),
            b0=-step * momentum,
        )
    return PolePair(a1=-(1 + momentum - step), a0=momentum, b1=step, b0=0.0)


def fit_pole_pair(
    frequency: np.ndarray, gain: np.ndarray, error: np.ndarray, start: PolePair | None = None
) -> PolePair:
    r"""Fit a pole pair to measured complex gains by weighted least squares.

    Minimises :math:`\sum_i |G(z_i) - g_i|^2/\sigma_i^2` by Levenberg and Marquardt's method.
    It starts from a linear fit: multiplied by the denominator of :math:`G` the residual is linear
    in the coefficients (Levy, IRE Trans. AC-4, 1959). The weights of this fit are divided by the
    denominator that the last one found, and it is repeated (Sanathanan and Koerner, IEEE Trans.
    AC-8, 1963).

    Parameters
    ----------
    frequency
        At least four frequencies, in cycles per step.
    gain
        Complex gain at each frequency.
    error
        Standard error of each gain.
    start
        First guess, instead of the linear fit.

    Examples
    --------
    >>> frequency = np.geomspace(0.002, 0.2, 20)
    >>> truth = momentum_poles(0.01, 0.95, 2.0)
    >>> pair = fit_pole_pair(frequency, truth.gain(frequency), np.full(20, 0.01))
    >>> abs(pair.damping - truth.damping) < 1e-9
    True
    """
    from scipy import optimize  # takes long to load

    if len(frequency) < 4:
        raise ValueError("a pole pair has four coefficients: give at least four frequencies")
    z = np.exp(2j * np.pi * frequency)
    z_squared = z**2
    weight = _weights(gain, error)
    weight = weight / weight.max()
    first = _linear_fit(z, gain, weight) if start is None else start

    def residuals(coefficients: np.ndarray) -> np.ndarray:
        a1, a0, b1, b0 = coefficients.tolist()  # not `PolePair.gain`, which takes twice as long
        return _as_real(weight * ((b1 * z + b0) / (z_squared + a1 * z + a0) - gain))

    first_guess: Any = [first.a1, first.a0, first.b1, first.b0]
    options: Any = {"x_scale": "jac", "xtol": 1e-14, "ftol": 1e-14}
    solution = optimize.least_squares(residuals, first_guess, method="lm", **options)
    return PolePair(*map(float, solution.x))


def _weights(gain: np.ndarray, error: np.ndarray) -> np.ndarray:
    return 1 / np.maximum(error, _MIN_RELATIVE_ERROR * np.abs(gain))


def _as_real(numbers: np.ndarray) -> np.ndarray:
    """Return real parts followed by imaginary parts, for real least squares."""
    return np.concatenate([np.real(numbers), np.imag(numbers)])


def is_single_decay(
    frequency: np.ndarray, gain: np.ndarray, error: np.ndarray, pair: PolePair
) -> bool:
    r"""Test whether one real pole explains the gains as well as a pole pair does.

    If :math:`G(z) = b/(z - a)`, the weighted sum of squares falls by a chi-square variable of two
    degrees of freedom when a pole pair is fitted instead. A second pole is accepted at the
    significance level 5e-5.
    """
    from scipy import optimize

    z = np.exp(2j * np.pi * frequency)
    weight = _weights(gain, error)

    def residuals(coefficients: np.ndarray) -> np.ndarray:
        b, a = coefficients
        return _as_real(weight * (b / (z - a) - gain))

    radius = min(max(abs(pole) for pole in pair.poles), 0.999)
    single = optimize.least_squares(residuals, [1 - radius, radius], x_scale="jac")
    pair_residuals = weight * np.abs(pair.gain(frequency) - gain)
    single_chi_square = 2 * single.cost  # scipy's cost is half the sum of squares
    pair_chi_square = float(pair_residuals @ pair_residuals)
    return single_chi_square - pair_chi_square < _MIN_CHI_SQUARE


def _linear_fit(z: np.ndarray, gain: np.ndarray, weight: np.ndarray) -> PolePair:
    """Fit by repeated linear least squares; see `fit_pole_pair`."""
    scale = weight
    coefficients = np.zeros(4)  # a1, a0, b1, b0
    for _ in range(_ITERATIONS):
        design = np.stack([-gain * z, -gain, z, np.ones_like(z)], axis=1) * scale[:, None]
        target = gain * z**2 * scale
        coefficients = np.linalg.lstsq(_as_real(design), _as_real(target), rcond=None)[0]
        denominator = z**2 + coefficients[0] * z + coefficients[1]
        scale = weight / np.maximum(np.abs(denominator), 1e-12)
    return PolePair(*map(float, coefficients))


def jackknife_interval(
    estimate: float, left_out: np.ndarray, confidence: float
) -> tuple[float, float]:
    r"""Return the jackknife confidence interval of a positive estimate, on a logarithmic scale.

    ``left_out`` are the estimates without one of the R realisations each. With their logarithms
    :math:`\ell_r` that of the estimate has the variance
    :math:`\frac{R-1}{R}\sum_r(\ell_r - \bar\ell)^2` (Tukey, 1958); the interval uses Student's t
    with :math:`R-1` degrees of freedom.

    Examples
    --------
    >>> jackknife_interval(2.0, np.array([2.0, 2.0, 2.0]), 0.95)
    (2.0, 2.0)
    """
    count = len(left_out)
    logs = np.log(left_out)
    # `half_width` divides by sqrt(R): s / sqrt(R) is the standard error of the jackknife.
    deviation = (count - 1) * float(logs.std(ddof=1))
    factor = math.exp(float(half_width(deviation, count, tail_of(confidence))))
    return float(estimate / factor), float(estimate * factor)


def dangerous_periods(natural_period: float, count: int = 3) -> list[float]:
    """Return the periods of parametric resonance: 1, 2, ... times half the natural period.

    Examples
    --------
    >>> dangerous_periods(44.0)
    [22.0, 44.0, 66.0]
    """
    return [natural_period * n / 2 for n in range(1, count + 1)]


def critical_depth(period: float, natural_period: float, damping: float) -> float | None:
    r"""Return the smallest relative depth of a periodic curvature at which the oscillation grows.

    There the spectral radius of the monodromy matrix of Mathieu's equation exceeds 1 (Floquet).
    Averaging gives the leading terms in the first tongue, and of the minimum in the second:

    .. math:: d \approx 4\sqrt{\zeta^2 + \Bigl(\frac{T_0}{2T} - 1\Bigr)^2}, \qquad
              d \approx \sqrt{8\zeta} \quad\text{for } T = T_0 .

    None is returned if it does not even grow at a depth of 2, the largest of a curvature that is
    never negative.

    Parameters
    ----------
    period
        Period of the curvature, in steps.
    natural_period
        Natural period of the learner, in steps.
    damping
        Damping ratio of the learner.

    Examples
    --------
    >>> round(critical_depth(22.0, 44.0, 0.05), 3)
    0.2
    >>> critical_depth(22.0, 44.0, 0.9) is None
    True
    """
    ratio = period / natural_period
    depths = np.linspace(0.0, _MAX_DEPTH, _GRID_SIZE)
    is_unstable = _radius(depths, ratio, damping) > 1
    if not is_unstable.any():
        return None
    high = float(depths[is_unstable.argmax()])
    low = max(0.0, high - float(depths[1]))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _radius(np.array([middle]), ratio, damping)[0] > 1:
            high = middle
        else:
            low = middle
    return high


def _radius(depth: np.ndarray, ratio: float, damping: float) -> np.ndarray:
    """Return the spectral radius over one period, which lasts ``ratio`` natural periods.

    The natural frequency is 1. The curvature is constant in each of `_PIECES` parts of the period,
    over which the state (u, u') is multiplied by the exponential of ((0, 1), (-k, -2 zeta)) t:

        exp(-zeta t) ((c + zeta s, s), (-k s, c - zeta s)),
        c = cosh(r t),  s = sinh(r t) / r,  r = sqrt(zeta^2 - k)
    """
    duration = 2 * np.pi * ratio / _PIECES
    phase = 2 * np.pi * (np.arange(_PIECES) + 0.5) / _PIECES
    curvature = 1 + np.cos(phase)[:, None] * depth
    root = np.sqrt((damping**2 - curvature).astype(complex))
    # For a smaller root sinh(r t) / r is t to all digits, and 0 / 0 is avoided.
    root = np.where(np.abs(root) * duration < 1e-8, 1e-8 / duration, root)
    decay = np.exp(-damping * duration)
    c = decay * np.real(np.cosh(root * duration))
    s: Any = decay * np.real(np.sinh(root * duration) / root)
    matrix = np.array([[c + damping * s, s], [-curvature * s, c - damping * s]])
    product = np.moveaxis(matrix, (0, 1), (2, 3))  # (pieces, depths, 2, 2)
    while len(product) > 1:  # multiply neighbours, the later one on the left
        product = product[1::2] @ product[::2]
    return np.abs(np.linalg.eigvals(product[0])).max(axis=1)
