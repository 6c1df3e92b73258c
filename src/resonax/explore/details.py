"""What a page shows of one setting beside its map: spectrum, safe values and single runs.

Functions here run in a thread of `work`: between two parts of the work they call their first
argument, which raises if nobody waits for the answer any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.optimize  # loaded with this module: two threads must not import at once
import scipy.special  # noqa: F401

from resonax.core.labels import LABELS
from resonax.core.objects import plain_values
from resonax.dynamics import Problem, Setting
from resonax.dynamics.build import build_setting
from resonax.explore.code import runs_code
from resonax.explore.schema import DEFAULT
from resonax.simulation import Training
from resonax.simulation.trajectories import trajectories
from resonax.spec.settings import check_setting
from resonax.streams import Iid, Sinusoid, Switching
from resonax.theory import rates
from resonax.theory.search import Nearest, growing_bands, nearest_safe

__all__ = ["find_safe", "find_spectrum", "follow_runs", "warm_details"]

CheckCancelled = Callable[..., None]
_FREQUENCIES = np.arange(1, 513) / 1024
_ADAPTIVE = "the verdict says whether an adaptive optimizer settles, diverges, or is undecided."
_PERIODS = np.arange(4, 257) / 2  # whole and half ones: the product of the updates is short


def find_spectrum(check: CheckCancelled, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the spectrum of the inputs, and the frequencies in which a rhythm like this grows."""
    problem: Problem = build_setting(check_setting(asked))[0]
    density = problem.process.spectrum(_FREQUENCIES)
    bands, why = _bands(check, problem)
    lines = zip(density.line_frequency, density.line_power, strict=True)
    return plain_values(
        {
            "frequencies": _FREQUENCIES,
            "power": density.input_density,
            "mean_power": density.mean_density,
            "lines": [{"frequency": place, "power": power} for place, power in lines if place > 0],
            "bands": bands,
            "missing": why,
            "sentence": why or _bands_sentence(bands or [], problem),
        }
    )


def _bands(
    check: CheckCancelled, problem: Problem
) -> tuple[list[dict[str, float]] | None, str | None]:
    """Return the bands of frequencies in which a rhythm of this strength makes an error grow.

    A random rhythm is replaced by a sinusoid with the same variance of the mean.
    """
    process = problem.process
    if not isinstance(problem, Setting):
        return None, f"Bands are computed for SGD alone: {_ADAPTIVE}"
    if isinstance(process, Iid):
        return None, "Independent inputs have no rhythm."
    if process.random_mean:
        strength = math.sqrt(2) * float(process.amplitude)  # pyrefly: ignore[missing-attribute]
        if isinstance(process, Switching):
            strength *= math.sqrt(process.dim)
        moving = Sinusoid(22.0, strength, process.variance, dim=process.dim)  # pyrefly: ignore[missing-attribute]
        problem = replace(problem, process=moving)
    found = rates(problem, {"period": _PERIODS}, "map", check)
    known = np.where(np.isfinite(found), found, -1.0)
    return [_band(low, high, known) for low, high in growing_bands(_PERIODS, known)][::-1], None


def _band(low: float, high: float, rate: np.ndarray) -> dict[str, float]:
    inside = np.flatnonzero((low <= _PERIODS) & (high >= _PERIODS))
    peak = inside[np.argmax(rate[inside])]
    return {
        "first": 1 / high,
        "last": 1 / low,
        "peak": 1 / float(_PERIODS[peak]),
        "rate": float(rate[peak]),
    }


def _bands_sentence(bands: list[dict[str, float]], problem: Problem) -> str:
    if not bands:
        return (
            f"At none of the periods from {_PERIODS[0]:g} to {_PERIODS[-1]:g} steps does a rhythm "
            "of this strength make the expected weights diverge."
        )
    widest = max(bands, key=lambda band: band["rate"])
    text = (
        f"The expected weights diverge most at periods of {1 / widest['last']:.3g} to "
        f"{1 / widest['first']:.3g} steps"
    )
    period = getattr(problem.process, "period", None)
    if period is None or problem.process.random_mean:
        return f"{text}."
    inside = any(band["first"] <= 1 / period <= band["last"] for band in bands)
    return (
        f"{text}; the period of {period:.4g} lies {'inside' if inside else 'outside'} the shading."
    )


def find_safe(check: CheckCancelled, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the nearest momentum, step size and batch with which training converges."""
    problem: Problem = build_setting(check_setting(asked))[0]
    names = ("momentum", "lr", "batch")
    if not isinstance(problem, Setting):
        why = f"Safe values are searched for SGD alone: {_ADAPTIVE}"
        return {"safe": None, "criterion": "level", "changes": [], "sentence": why}
    found = nearest_safe(problem, check)
    changes = [_change(name, found, asked) for name in names]
    word = "safe" if found.is_safe else "not safe"
    said = f"By the {found.criterion.replace('_', ' ')} criterion this setting is {word}."
    return {
        "safe": found.is_safe,
        "criterion": found.criterion,
        "changes": changes,
        "sentence": said,
    }


def _change(name: str, found: Nearest, asked: dict[str, Any]) -> dict[str, Any]:
    label = LABELS[name][0]
    if name not in found.values:
        why = {
            "momentum": "This optimizer has no momentum to lower.",
            "batch": "Where the inputs never repeat, each batch would be a simulation of its own.",
        }
        return {"name": name, "missing": why[name]}
    value = found.values[name]
    if value is None:
        return {"name": name, "missing": f"No {label} alone makes this setting converge."}
    value = int(value) if name == "batch" else value
    if found.is_safe:
        said = f"The {label} {value:.6g} is safe as it is."
    else:
        said = f"The nearest safe {label} is {value:.6g}."
        if name != "batch" and value > asked[name]:
            said += " It is larger: no smaller safe one is as near."
    return {"name": name, "value": value, "sentence": said, "setting": {**asked, name: value}}


def follow_runs(
    check: CheckCancelled, asked: dict[str, Any], steps: int, runs: int, seed: int
) -> dict[str, Any]:
    """Return a few runs over time, in order and with shuffled inputs."""
    training = Training.of(build_setting(check_setting(asked))[0])
    check()
    found = trajectories(training, runs=runs, steps=steps, seed=seed)
    ends = [float(np.median(part[:, -1])) for part in (found.in_order, found.shuffled)]
    return plain_values(
        {
            "steps": found.steps,
            "in_order": found.in_order,
            "shuffled": found.shuffled,
            "sentence": f"After {steps:,} steps the median distance of {runs} runs is "
            f"{_distance_text(ends[0])} in order and {_distance_text(ends[1])} with the same "
            "inputs shuffled.",
            "code": runs_code(asked, steps, runs, seed),
        }
    )


def _distance_text(log: float) -> str:
    if not math.isfinite(log) or abs(log) > 300:
        return "beyond all numbers" if log > 0 else "0"
    return f"{10**log:.2g}"


def warm_details(check: CheckCancelled) -> None:
    """Load and compile what the first page needs beside its map."""
    follow_runs(check, DEFAULT, 2000, 4, 0)
    find_spectrum(check, DEFAULT)
    find_safe(check, DEFAULT)
