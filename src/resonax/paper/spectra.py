"""The paper's processes in time and frequency: a sample path, its density, and where that peaks."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from resonax.core.algebra import double_precision
from resonax.core.errors import ArgumentError
from resonax.paper.spectra_judges import judge_spectral_peaks
from resonax.store import Layout, Variable
from resonax.streams import AR2, Process, Sinusoid, Spectrum, Square, Switching
from resonax.streams.base import State, walk_on
from resonax.sweeps.experiment import Experiment, Judge, compute_at_once, drawn_by

__all__ = ["SIGNALS", "Signal", "compute_spectra", "spectra"]

# A segment holds a whole number of every period that the paper shows, so that each line, and each
# valley of the switching mean, falls on a frequency of the estimate and does not leak.
_SEGMENT = 1200
_PATH_PARTS = 10  # of a path, each with its own estimate, for the intervals
_BLOCK = 48_000  # steps that are drawn at once, whatever the scale
_KEPT_STEPS = 300  # steps of the path that are kept for the picture
_GRID = 2**16  # frequencies that resolve the narrowest peak, that of AR(2) at 0.05, by far


class Signal(NamedTuple):
    """One process at one frequency; ``symbol`` says whether f or T is given."""

    process: Process
    symbol: str
    period: float

    @property
    def name(self) -> str:
        """The name of its panel."""
        number = 1 / self.period if self.symbol == "f" else self.period
        return f"{self.process.name} {self.symbol}={number:g}"


_FAMILIES: tuple[tuple[Process, str, tuple[float, ...]], ...] = (
    (Sinusoid(period=20), "f", (0.01, 0.03, 0.05)),
    (AR2(period=20), "f", (0.01, 0.03, 0.05)),
    (Square(period=50, variance=0.25), "T", (50, 100, 150)),
    (Switching(period=50, variance=0.25), "T", (10, 30, 50)),
)


def _signal(family: Process, symbol: str, number: float) -> Signal:
    period = 1 / number if symbol == "f" else float(number)
    return Signal(replace(family, period=period), symbol, period)  # pyrefly: ignore[bad-specialization]


SIGNALS = tuple(
    _signal(family, symbol, number) for family, symbol, numbers in _FAMILIES for number in numbers
)


@functools.partial(jax.jit, static_argnames=("number",))
def _draw(
    family: Process, periods: np.ndarray, seed: int, first: int, states: State, *, number: int
) -> tuple[State, jax.Array]:
    """Return the states after a block of steps, and the input and the mean behind it.

    These are (periods, 2, steps). Paths of any length are made of blocks: one program serves all.
    """
    keys = jax.random.split(jax.random.key(seed), len(SIGNALS))
    keys = keys[number * len(periods) : (number + 1) * len(periods)]
    indices = first + jnp.arange(_BLOCK)

    def each(period: jax.Array, key: jax.Array, state: State) -> tuple[State, jax.Array]:
        process = replace(family, period=period)  # pyrefly: ignore[bad-specialization]
        state, (inputs, mean) = walk_on(process, key, indices, 1, state)
        return state, jnp.stack([inputs[:, 0, 0], mean[:, 0]])

    return jax.vmap(each)(jnp.asarray(periods), keys, states)


def _paths(number: int, seed: int, steps: int) -> np.ndarray:
    """Return the paths of a family of processes, (periods, 2, steps)."""
    family, count = _FAMILIES[number][0], len(SIGNALS) // len(_FAMILIES)
    periods = np.array([one.period for one in SIGNALS[number * count :][:count]])
    state = jax.eval_shape(family.draw_init, jax.random.key(0))
    states = jax.tree.map(lambda leaf: np.zeros((count, *leaf.shape), leaf.dtype), state)
    blocks = []
    for first in range(0, steps, _BLOCK):
        states, block = _draw(family, periods, seed, first, states, number=number)
        blocks.append(np.asarray(block))
    return np.concatenate(blocks, axis=-1)[..., :steps]


def _through_window(spectrum: Spectrum, density: np.ndarray, window: np.ndarray) -> np.ndarray:
    r"""Return what Welch's estimate is on average, given the density and the lines.

    With the autocovariance :math:`r_j = \int S(\nu)\cos(2\pi\nu j)\,d\nu + \sum_l 2p_l
    \cos(2\pi\nu_l j)` and the autocorrelation :math:`c_j` of the window :math:`w`,

    .. math:: E[\hat S(\nu)] = \frac{1}{\sum w^2} \sum_j c_j r_j e^{-2\pi i\nu j} .

    Lines get a height this way, and peaks narrower than the window the width that is seen.
    """
    count = len(window)
    lag = np.arange(count)
    covariance = np.fft.irfft(density)[:count]
    once = np.isin(spectrum.line_frequency, [0.0, 0.5])
    power = np.where(once, 1.0, 2.0) * spectrum.line_power
    covariance += np.cos(2 * np.pi * np.outer(lag, spectrum.line_frequency)) @ power
    taper = np.fft.irfft(np.abs(np.fft.rfft(window, 2 * count)) ** 2)[:count] / np.sum(window**2)
    # Lags j and -j give twice the real part; lag 0 counts once.
    seen = 2 * np.fft.fft(taper * covariance).real - taper[0] * covariance[0]
    return np.maximum(seen[: count // 2 + 1], 0.0)  # rounding may leave a zero just below


def _layout() -> Layout:
    """Return what is stored.

    Densities are two-sided, as in `Spectrum`: of the input (one sample a step), and of its mean.
    ``closed_form`` is the average of the estimate by theory, and ``part_density`` the estimate from
    each of ten parts of the path. ``peak`` is where a process says its peak is, 0 for switching.
    """
    names = np.array([signal.process.name for signal in SIGNALS])
    periods = np.array([signal.period for signal in SIGNALS])
    over = ("panel", "series", "frequency")
    return Layout(
        coords={
            "panel": np.array([signal.name for signal in SIGNALS]),
            "part": np.arange(_PATH_PARTS),
            "series": np.array(["input", "mean"]),
            "step": np.arange(_KEPT_STEPS),
            "frequency": np.arange(_SEGMENT // 2 + 1) / _SEGMENT,
        },
        chunks={},
        variables={
            "path": Variable(("panel", "series", "step"), "float64"),
            "density": Variable(over, "float64"),
            "part_density": Variable(("part", *over), "float64"),
            "closed_form": Variable(over, "float64"),
        },
        labels={
            "process": ("panel", names),
            "symbol": ("panel", np.array([signal.symbol for signal in SIGNALS])),
            "period": ("panel", periods),
            "peak": ("panel", np.where(names == "switching", 0.0, 1 / periods)),
        },
    )


@double_precision
def compute_spectra(seed: int, steps: int) -> dict[str, np.ndarray]:
    """Return paths, estimated densities and closed forms of the paper's twelve panels.

    Densities are estimated from paths of so many steps, by Welch's method with a Hann window: at
    least ten of its segments of 1200 steps.
    """
    if steps < 10 * _SEGMENT:
        raise ArgumentError(f"steps must be at least {10 * _SEGMENT}, got {steps}")
    paths = np.concatenate([_paths(number, seed, steps) for number in range(len(_FAMILIES))])
    window = np.asarray(scipy.signal.get_window("hann", _SEGMENT))
    half = _SEGMENT // 2 + 1
    options: Any = {"window": window, "noverlap": _SEGMENT // 2, "detrend": False}
    _, density = scipy.signal.welch(paths, return_onesided=False, **options)
    pieces = np.split(paths[..., : steps // _PATH_PARTS * _PATH_PARTS], _PATH_PARTS, axis=-1)
    parts = [scipy.signal.welch(piece, return_onesided=False, **options)[1] for piece in pieces]
    fine = [signal.process.spectrum(np.arange(_GRID // 2 + 1) / _GRID) for signal in SIGNALS]
    closed = [
        [_through_window(found, one, window) for one in (found.input_density, found.mean_density)]
        for found in fine
    ]
    return {
        "path": paths[..., :_KEPT_STEPS],
        "density": density[..., :half],
        "part_density": np.array(parts)[..., :half],
        "closed_form": np.array(closed),
    }


def spectra(scale: str) -> Experiment:
    """Return the record of this experiment."""
    steps = 240_000 if scale == "paper" else 48_000
    return Experiment(
        id="spectra",
        title="The inputs over time and frequency",
        caption="A sample path (left) and the power spectral density (right) of the inputs and of "
        "their mean, for each process at three settings. Densities are estimated by Welch's method "
        "and lie on the closed form; the marks are where the process says its peak is.",
        specification={"id": "spectra", "steps": steps},
        layout=_layout(),
        compute=compute_at_once(functools.partial(compute_spectra, steps=steps)),
        draw=drawn_by("resonax.figures.spectra:plot_spectra"),
        judges=(Judge(judge_spectral_peaks),),
        attributes={"steps": steps, "segment": _SEGMENT, "window": "hann"},
        paper="Appendix, details of the experiments",
        cells=len(SIGNALS),
        seconds=10.0,
    )
