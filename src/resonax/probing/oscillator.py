r"""A pole pair, fitted to a frequency response, and the rhythms that make its oscillation grow.

The model is a discrete transfer function of second order,

.. math:: G(z) = \frac{b_1 z + b_0}{z^2 + a_1 z + a_0}, \qquad z = e^{2\pi i f},

which is what momentum makes of one curvature :math:`\lambda` (see `momentum_poles`). Its poles
:math:`p = e^{s}` are those of an oscillator :math:`s^2 + 2\zeta\omega s + \omega^2 = 0`, sampled
once a step.

A curvature :math:`\lambda(1 + d\cos(2\pi t/T))` turns it into Mathieu's equation with damping,

.. math:: \ddot u + 2\zeta\omega\dot u + \omega^2(1 + d\cos(2\pi t/T))\,u = 0 .

It is unstable in tongues around :math:`2\pi/T = 2\omega/n`, which is :math:`T = nT_0/2` with the
natural period :math:`T_0 = 2\pi/\omega` and :math:`n = 1, 2, \dots`
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
    "jackknife",
    "momentum_poles",
]

_SWEEPS = 10  # of the linear fit that starts the nonlinear one
_FLOOR = 1e-9  # of a gain: what is known better counts no more
_SINGLE = 20.0  # units of chi-square that a second pole must explain
_DEEPEST = 2.0  # the first harmonic of a curvature that is never negative is at most twice its mean
_PIECES = 128  # of constant curvature in one period, a power of 2
_DEPTHS = 401


@dataclass(frozen=True)
class PolePair:
    r"""A transfer function :math:`(b_1 z + b_0)/(z^2 + a_1 z + a_0)`.

    Examples
    --------
    >>> pair = PolePair.of_poles(np.exp((-0.1 + 1j) * 0.14), np.exp((-0.1 - 1j) * 0.14))
    >>> round(pair.damped_period, 3), round(pair.damping, 4)
    (44.88, 0.0995)
    """

    a1: float
    a0: float
    b1: float = 1.0
    b0: float = 0.0

    @classmethod
    def of_poles(cls, one: complex, two: complex) -> PolePair:
        """Return the pair with these poles, both real or conjugate."""
        return cls(-complex(one + two).real, complex(one * two).real)

    @property
    def poles(self) -> tuple[complex, complex]:
        """Both poles, in the z plane."""
        root = np.sqrt(complex(self.a1**2 - 4 * self.a0))
        return (complex(-self.a1 + root) / 2, complex(-self.a1 - root) / 2)

    @property
    def exponents(self) -> tuple[complex, complex] | None:
        """Logarithms of the poles; None where one is not positive, as no oscillator has such."""
        one, two = self.poles
        if one.imag == 0 and min(one.real, two.real) <= 0:
            return None
        return complex(np.log(one)), complex(np.log(two))

    @property
    def natural_period(self) -> float:
        r"""Period without damping, :math:`2\pi/\omega`, in steps; nan where there is none."""
        found = self.exponents
        return math.nan if found is None else 2 * math.pi / math.sqrt(abs(found[0] * found[1]))

    @property
    def damping(self) -> float:
        r"""Damping ratio :math:`\zeta`: below 1 it oscillates, below 0 it grows; nan if none."""
        found = self.exponents
        if found is None:
            return math.nan
        return -(found[0] + found[1]).real / 2 / math.sqrt(abs(found[0] * found[1]))

    @property
    def damped_period(self) -> float:
        r"""Period of the free oscillation, :math:`2\pi/(\omega\sqrt{1-\zeta^2})`, in steps."""
        turn = abs(np.angle(self.poles[0]))
        return 2 * math.pi / float(turn) if turn > 0 else math.inf

    @property
    def memory(self) -> float:
        """Steps in which a free motion falls to 1/e, by the slower of the poles."""
        slowest = max(abs(pole) for pole in self.poles)
        return -1 / math.log(slowest) if 0 < slowest < 1 else math.inf

    def gain(self, frequency: np.ndarray) -> np.ndarray:
        """Return the transfer function at frequencies, in cycles per step."""
        z = np.exp(2j * np.pi * np.asarray(frequency))
        return (self.b1 * z + self.b0) / (z**2 + self.a1 * z + self.a0)


def momentum_poles(
    lr: float, momentum: float, curvature: float, *, nesterov: bool = False
) -> PolePair:
    r"""Return what momentum makes of one constant curvature :math:`\lambda`.

    Labels :math:`s_k` move the prediction :math:`u_k` of heavy ball by
    :math:`u_{k+1} = u_k + \mu(u_k - u_{k-1}) - \eta\lambda(u_k - s_k)`, so that

    .. math:: G(z) = \frac{\eta\lambda z}{z^2 - (1+\mu-\eta\lambda)z + \mu} , \qquad
              G(z) = \frac{\eta\lambda((1+\mu)z - \mu)}
                          {z^2 - (1+\mu)(1-\eta\lambda)z + \mu(1-\eta\lambda)}

    for heavy ball and for Nesterov. Adam, once its second moment :math:`v` has settled, is heavy
    ball with :math:`\mu = \beta_1` and the step size :math:`\eta(1-\beta_1)/\sqrt v`.

    Examples
    --------
    >>> pair = momentum_poles(0.01, 0.95, 2.0)
    >>> round(pair.natural_period, 2), round(pair.damping, 3)
    (43.83, 0.179)
    """
    step = lr * curvature
    if nesterov:
        kept = 1 - step
        ahead = step * (1 + momentum)
        return PolePair(-(1 + momentum) * kept, momentum * kept, ahead, -step * momentum)
    return PolePair(-(1 + momentum - step), momentum, step, 0.0)


def fit_pole_pair(
    frequency: np.ndarray, gain: np.ndarray, error: np.ndarray, start: PolePair | None = None
) -> PolePair:
    r"""Fit a pole pair to gains that are known up to standard errors, by least squares.

    Minimises :math:`\sum_i |G(z_i) - g_i|^2/\sigma_i^2`. Multiplied by its denominator the misfit
    is linear in the coefficients (Levy, IRE Trans. AC-4, 1959); dividing the weights by the
    denominator found before, again and again, undoes that (Sanathanan and Koerner, IEEE Trans.
    AC-8, 1963), and gives the start of a Levenberg-Marquardt search.

    Parameters
    ----------
    frequency
        Frequencies of the lines, in cycles per step, at least 4.
    gain
        Complex gains.
    error
        Their standard errors.
    start
        Where the search begins, in place of the linear fit.

    Examples
    --------
    >>> frequency = np.geomspace(0.002, 0.2, 20)
    >>> truth = momentum_poles(0.01, 0.95, 2.0)
    >>> pair = fit_pole_pair(frequency, truth.gain(frequency), np.full(20, 0.01))
    >>> abs(pair.damping - truth.damping) < 1e-9
    True
    """
    from scipy import optimize  # here: it takes longer to load than all the rest

    if len(frequency) < 4:
        raise ValueError("a pole pair has four coefficients, and needs as many lines")
    z = np.exp(2j * np.pi * frequency)
    square = z**2
    weight = 1 / np.maximum(error, _FLOOR * np.abs(gain))
    weight = weight / weight.max()
    first = _linear_fit(z, gain, weight) if start is None else start

    def misfit(numbers: np.ndarray) -> np.ndarray:
        a1, a0, b1, b0 = numbers.tolist()  # many calls: `PolePair.gain` takes twice as long
        rest = weight * ((b1 * z + b0) / (square + a1 * z + a0) - gain)
        return np.concatenate([np.real(rest), np.imag(rest)])

    begin: Any = [first.a1, first.a0, first.b1, first.b0]
    fine: Any = {"x_scale": "jac", "xtol": 1e-14, "ftol": 1e-14}
    found = optimize.least_squares(misfit, begin, method="lm", **fine)
    return PolePair(*map(float, found.x))


def is_single_decay(
    frequency: np.ndarray, gain: np.ndarray, error: np.ndarray, pair: PolePair
) -> bool:
    r"""Tell whether one real pole explains gains as well as a pole pair does.

    The sum of squares in units of the errors falls by a chi-square of two degrees of freedom from
    :math:`b/(z - a)` to a pair if there is nothing else; the level is 5e-5.
    """
    from scipy import optimize

    z = np.exp(2j * np.pi * frequency)
    scale = 1 / np.maximum(error, _FLOOR * np.abs(gain))

    def misfit(numbers: np.ndarray) -> np.ndarray:
        rest = scale * (numbers[0] / (z - numbers[1]) - gain)
        return np.concatenate([np.real(rest), np.imag(rest)])

    slowest = min(max(abs(pole) for pole in pair.poles), 0.999)
    single = optimize.least_squares(misfit, [1 - slowest, slowest], x_scale="jac")
    double = scale * np.abs(pair.gain(frequency) - gain)
    return 2 * single.cost - float(double @ double) < _SINGLE


def _linear_fit(z: np.ndarray, gain: np.ndarray, weight: np.ndarray) -> PolePair:
    scale = weight
    numbers = np.zeros(4)
    for _ in range(_SWEEPS):
        table = np.stack([-gain * z, -gain, z, np.ones_like(z)], axis=1) * scale[:, None]
        wanted = gain * z**2 * scale
        numbers = np.linalg.lstsq(
            np.concatenate([np.real(table), np.imag(table)]),
            np.concatenate([np.real(wanted), np.imag(wanted)]),
            rcond=None,
        )[0]
        scale = weight / np.maximum(np.abs(z**2 + numbers[0] * z + numbers[1]), 1e-12)
    return PolePair(*map(float, numbers))


def jackknife(whole: float, left_out: np.ndarray, level: float) -> tuple[float, float]:
    r"""Return the interval of a positive number from its values with one realisation left out.

    The logarithm has the variance :math:`\frac{R-1}{R}\sum_r(\ell_r - \bar\ell)^2` (Tukey, 1958);
    the interval is Student's with :math:`R-1` degrees of freedom.

    Examples
    --------
    >>> jackknife(2.0, np.array([2.0, 2.0, 2.0]), 0.95)
    (2.0, 2.0)
    """
    count = len(left_out)
    logs = np.log(left_out)
    # s / sqrt(R) = sqrt((R-1) mean d^2), the standard error of the jackknife.
    deviation = (count - 1) * float(logs.std(ddof=1))
    reach = math.exp(float(half_width(deviation, count, tail_of(level))))
    return float(whole / reach), float(whole * reach)


def dangerous_periods(natural_period: float, count: int = 3) -> list[float]:
    """Return the periods of the data that feed the oscillation: half the natural one times 1, 2, ..

    Examples
    --------
    >>> dangerous_periods(44.0)
    [22.0, 44.0, 66.0]
    """
    return [natural_period * n / 2 for n in range(1, count + 1)]


def critical_depth(period: float, natural_period: float, damping: float) -> float | None:
    r"""Return the least relative depth of a rhythm of the curvature at which an error grows.

    It is that of the matrix over one period of Mathieu's equation, whose spectral radius crosses 1
    (Floquet). Averaging gives its leading terms in the first tongue, and the bottom of the second:

    .. math:: d \approx 4\sqrt{\zeta^2 + \Bigl(\frac{T_0}{2T} - 1\Bigr)^2}, \qquad
              d \approx \sqrt{8\zeta} \quad\text{for } T = T_0 .

    None is returned where not even a depth of 2 makes it grow, the most that a curvature can have
    which is never negative.

    Parameters
    ----------
    period
        Of the rhythm, in steps.
    natural_period, damping
        Of the learner, in steps and as a ratio.

    Examples
    --------
    >>> round(critical_depth(22.0, 44.0, 0.05), 3)
    0.2
    >>> critical_depth(22.0, 44.0, 0.9) is None
    True
    """
    depths = np.linspace(0.0, _DEEPEST, _DEPTHS)
    grows = _radius(depths, period / natural_period, damping) > 1
    if not grows.any():
        return None
    high = float(depths[grows.argmax()])
    low = max(0.0, high - float(depths[1]))
    for _ in range(24):
        middle = (low + high) / 2
        if _radius(np.array([middle]), period / natural_period, damping)[0] > 1:
            high = middle
        else:
            low = middle
    return high


def _radius(depth: np.ndarray, ratio: float, damping: float) -> np.ndarray:
    """Return the spectral radius over one period, which lasts ``ratio`` natural periods.

    Time is in units of the natural frequency. On a piece of constant stiffness k the state moves by
    the exponential of (0, 1; -k, -2 zeta), in closed form.
    """
    step = 2 * np.pi * ratio / _PIECES
    phase = 2 * np.pi * (np.arange(_PIECES) + 0.5) / _PIECES
    stiffness = 1 + np.cos(phase)[:, None] * depth
    root = np.sqrt((damping**2 - stiffness).astype(complex))
    root = np.where(np.abs(root) * step < 1e-8, 1e-8 / step, root)  # sinh(x)/x is 1 to all digits
    even = np.exp(-damping * step) * np.real(np.cosh(root * step))
    slope: Any = np.sinh(root * step) / root
    odd = np.exp(-damping * step) * slope.real
    rows = [[even + damping * odd, odd], [-stiffness * odd, even - damping * odd]]
    product = np.moveaxis(np.array(rows), (0, 1), (2, 3))
    while len(product) > 1:  # neighbours, the later one on the left
        product = product[1::2] @ product[::2]
    return np.abs(np.linalg.eigvals(product[0])).max(axis=1)
