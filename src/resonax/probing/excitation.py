r"""Excite the labels of a learner, and read its frequency response off its predictions.

Two copies learn the same rows with the labels :math:`y_k \pm \epsilon s_k g(x_k)`. Half the
difference of their predictions, over :math:`\epsilon`, follows a linear recursion that :math:`s`
drives: to change the labels adds a force, where to change the inputs would change the curvature.
The curvature of a linear model is :math:`2E[\phi\phi^\top]`. Each of its eigenvectors :math:`v`
with eigenvalue :math:`\lambda` is a mode, with a natural period of its own; the scaled coordinate
:math:`\langle v, \phi(x)\rangle / \sqrt{\lambda/2}` has mean square 1. As the pattern :math:`g` it
drives that mode alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from resonax.core.errors import ArgumentError, as_array, check_number, check_numbers, shorten
from resonax.probing.copies import ERROR, PROJECTION, Copies

__all__ = [
    "Advance",
    "Gains",
    "Rows",
    "choose_mode",
    "lines_for",
    "measure_gains",
    "multisine",
    "settle",
]

_PER_DECADE = 12  # lines, evenly on the logarithm of the frequency
_HIGHEST = 0.25  # cycles per step
_PHASES = 32  # random ones of which those with the lowest crest are taken
_BLOCK = 1024  # steps that are drawn at once, and no more than have so many numbers
_NUMBERS = 2**24
_ALIKE = 1.5  # ratio of curvatures up to which modes respond together
_MAX_MODES = 6  # modes that are measured together
_NONE = 1e-9  # relative to the largest: such a curvature is none

Advance = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Mode:
    """The pattern by which labels are moved, and the modes of about the same period."""

    pattern: np.ndarray  # (rows,), of mean square 1
    modes: np.ndarray  # (rows, modes): scaled coordinates, that of the pattern first
    curvature: float | None  # 2 E[(v phi)^2] for a unit vector v; None if the pattern has none

    def modulation(self, batch: int) -> np.ndarray:
        """Return the curvature of each batch along the modes, (steps, modes, modes), of mean I."""
        steps = len(self.modes) // batch
        kept = self.modes[: steps * batch].reshape(steps, batch, -1)
        return np.einsum("kni,knj->kij", kept, kept) / batch


def choose_mode(
    mode: int | np.ndarray | Callable[[np.ndarray], np.ndarray],
    inputs: np.ndarray,
    features: np.ndarray,
) -> Mode:
    """Return a mode: by the rank of its curvature, by weights of features, or as a function.

    Parameters
    ----------
    mode
        0 for the eigenvector of the largest curvature, 1 for the next one, and so on; weights, one
        for each feature; or a function of the inputs, (rows, d) -> (rows,).
    inputs
        The rows, (rows, d).
    features
        Their features, (rows, p).

    Examples
    --------
    >>> inputs = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> choose_mode(1, inputs, inputs).curvature  # the mean of y^2 is 1/2
    1.0
    """
    if callable(mode):
        return _single(as_array("mode", mode(inputs)), None)
    if not isinstance(mode, int | np.integer):
        weights = as_array("mode", mode)
        check_numbers("mode", weights, (features.shape[1],))
        pattern = features @ weights
        return _single(pattern, 2 * float((pattern**2).mean() / max(weights @ weights, 1e-300)))
    values, vectors = np.linalg.eigh(features.T @ features / len(features))
    order = np.argsort(-values)
    order = order[values[order] > _NONE * values[order[0]]]
    if not len(order):
        raise ArgumentError("inputs must not all be zero")
    check_number("mode", int(mode), low=0, high=len(order) - 1)
    own = order[int(mode)]
    apart = np.abs(np.log(values[order] / values[own]))
    near = np.flatnonzero(apart < np.log(_ALIKE))
    near = near[np.lexsort((order[near] != own, apart[near]))]  # its own first
    chosen = order[near[:_MAX_MODES]]
    modes = features @ vectors[:, chosen] / np.sqrt(values[chosen])
    return Mode(modes[:, 0], modes, 2 * float(values[own]))


def _single(pattern: np.ndarray, curvature: float | None) -> Mode:
    size = float(np.sqrt((pattern**2).mean()))
    if not np.isfinite(size) or size == 0 or pattern.ndim != 1:
        raise ArgumentError(
            f"mode must give a number for each row, not all zero, got {shorten(pattern)}"
        )
    return Mode(pattern / size, pattern[:, None] / size, curvature)


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that copies learn: in their own order, or drawn at random."""

    inputs: np.ndarray  # (rows, d)
    target: np.ndarray  # (rows,)
    pattern: np.ndarray  # (rows,): g, of mean square 1
    batch: int
    shuffle: bool

    def draw(self, copies: int, rng: np.random.Generator) -> Callable[[int], np.ndarray]:
        """Return a function that gives the rows, (steps, copies, batch), of the next steps.

        Shuffled rows are drawn with replacement. In their own order each copy begins at another
        row, and begins anew after the last one.
        """
        count = len(self.inputs)
        if self.shuffle:
            return lambda steps: rng.integers(count, size=(steps, copies, self.batch))
        places = rng.integers(count, size=copies)

        def following(steps: int) -> np.ndarray:
            nonlocal places
            within = np.arange(steps * self.batch).reshape(steps, 1, self.batch)
            found = (places[:, None] + within) % count
            places = (places + steps * self.batch) % count
            return found

        return following

    def block(self, copies: int, steps: int) -> int:
        """Return how many steps of so many copies are drawn at once, a power of 2 if they are."""
        block = min(steps, _BLOCK)
        while block > 1 and block * copies * self.batch * self.inputs.shape[1] > _NUMBERS:
            block = -(-block // 2)
        return block


@dataclass(frozen=True, eq=False)
class Gains:
    """Measured frequency response: one row for each realisation."""

    frequency: np.ndarray  # (lines,), in cycles per step
    gain: np.ndarray  # (realisations, lines), complex
    doubled: np.ndarray  # (lines,): that of the first realisation with twice the amplitude
    growth: float  # of the size of the response, from one of the first periods to the last

    @property
    def is_finite(self) -> bool:
        """Whether no copy diverged."""
        return bool(np.isfinite(self.gain).all() and np.isfinite(self.doubled).all())

    @property
    def mean(self) -> np.ndarray:
        """Mean over the realisations."""
        return self.gain.mean(axis=0)

    @property
    def error(self) -> np.ndarray:
        """Standard error of the mean, its variance averaged over five neighbouring lines.

        It changes smoothly with the frequency, and so few realisations tell that of one line badly.
        """
        variance = self.gain.var(axis=0, ddof=1) / len(self.gain)
        logs = np.log(np.maximum(variance, 1e-300))
        return np.exp(np.convolve(np.pad(logs, 2, mode="edge"), np.full(5, 0.1), "valid"))

    @property
    def nonlinearity(self) -> float:
        """Relative change of the response when the amplitude is doubled: 0 for a linear learner."""
        first = self.gain[0]
        return float(np.linalg.norm(self.doubled - first) / np.linalg.norm(first))


def lines_for(length: int) -> np.ndarray:
    """Return the excited harmonics of a period of so many steps, about 12 for each decade."""
    highest = int(_HIGHEST * length)
    count = int(_PER_DECADE * np.log10(highest))
    return np.unique(np.geomspace(1, highest, count).round().astype(int))


def multisine(lines: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    """Return one period of equal cosines with random phases, of mean square 1.

    Of 32 draws of the phases that with the smallest maximum is taken.

    Examples
    --------
    >>> signal = multisine(np.array([1, 3, 9, 20]), 64, np.random.default_rng(0))
    >>> float((signal**2).mean().round(12)), bool(abs(signal).max() < 2.5)
    (1.0, True)
    """
    spectrum = np.zeros((_PHASES, length // 2 + 1), complex)
    spectrum[:, lines] = np.exp(2j * np.pi * rng.random((_PHASES, len(lines))))
    signals = np.fft.irfft(spectrum, length, axis=1)
    signals /= np.sqrt((signals**2).mean(axis=1, keepdims=True))
    return signals[np.abs(signals).max(axis=1).argmin()]


def settle(
    copies: Copies, rows: Rows, steps: int, rng: np.random.Generator, advance: Advance
) -> float:
    """Let the first copy learn without excitation; return the root mean square of its last errors.

    nan is returned where it diverged.
    """
    draw, errors, block = rows.draw(1, rng), np.zeros(0), rows.block(1, steps)
    for _ in range(-(-steps // block)):
        chosen = draw(block)
        errors = copies.advance(rows.inputs[chosen], rows.target[chosen])[:, 0, ERROR]
        advance(block)
    return float(np.sqrt(errors[len(errors) // 2 :].mean()))


def measure_gains(
    copies: Copies,
    rows: Rows,
    *,
    length: int,
    periods: int,
    realisations: int,
    epsilon: float,
    rng: np.random.Generator,
    advance: Advance,
) -> Gains:
    r"""Measure the response of a settled learner at the lines of a multisine of ``length`` steps.

    Each realisation has its own phases and its own rows. The first period is left out, in which the
    transient decays; over whole periods a Fourier transform has no leakage.

    Parameters
    ----------
    copies
        Its first copy has settled.
    rows
        What is learned.
    length
        Steps of a period, a power of 2.
    periods
        Periods that are measured.
    realisations
        Pairs of copies; one more pair of twice the amplitude shares all of the first.
    epsilon
        Amplitude of the excitation, in units of the labels.
    rng
        Of phases and rows.
    advance
        Called with the number of steps that were made.
    """
    lines = lines_for(length)
    signals = np.stack([multisine(lines, length, rng) for _ in range(realisations)], axis=1)
    pair = np.append(np.arange(realisations), 0)  # the last one repeats the first, doubled
    both = np.tile(pair, 2)
    force = signals[:, both]
    size = np.append(np.full(realisations, epsilon), 2 * epsilon)
    force = force * np.concatenate([size, -size])
    pairs = copies.fork(2 * len(pair))
    draw, block = rows.draw(realisations, rng), rows.block(2 * len(pair), length)
    spectra, powers = [], []
    for period in range(periods + 1):
        found = []
        for start in range(0, length, block):
            chosen = draw(block)
            # What copies share is looked up once, and repeated as a whole.
            inputs, target, pattern = (
                np.take(part, chosen, axis=0)[:, both]
                for part in (rows.inputs, rows.target, rows.pattern)
            )
            now = force[start : start + block, :, None] * pattern
            seen = pairs.advance(inputs, target + now)
            found.append(seen[..., PROJECTION])
            advance(block)
        read = np.concatenate(found)
        apart = (read[:, : len(pair)] - read[:, len(pair) :]) / (2 * size)
        powers.append(np.median((apart**2).mean(axis=0)))
        if period:
            spectra.append(np.fft.rfft(apart, axis=0)[lines])
    gain = np.mean(spectra, axis=0) / np.fft.rfft(signals[:, pair], axis=0)[lines]
    first = powers[min(1, periods - 1)]
    growth = float(np.sqrt(powers[-1] / first)) if first > 0 else 1.0
    return Gains(lines / length, gain[:, :-1].T, gain[:, -1], growth)
