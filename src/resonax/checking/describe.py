"""The settings, facts and notes of a check in words, and the dataset of its pictures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from resonax.checking.arguments import Stage
from resonax.checking.cause import STRETCHES, Rhythm, Shuffles, spectrum, stretch_of
from resonax.checking.remedies import Remedy, order_proof_line
from resonax.core.errors import ArgumentError
from resonax.learners import Linear
from resonax.rows.answers import OnMore, OnTheseRows, factor
from resonax.rows.intervals import BURST, TRANSIENT, measure
from resonax.rows.subject import Advance, Subject
from resonax.rows.surrogates import shuffled

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Findings",
    "ask_for_batch",
    "check_dataset",
    "facts_of",
    "model_of",
    "notes_of",
    "settings_of",
]


_LOSSES = {
    "squared": "squared error, gradient 2 (prediction - target) x features",
    "logistic": "logistic, gradient (chance - target) x features",
}


def model_of(subject: Subject, name: str, assumed: bool) -> str:
    """Return what is judged: the model, how it is trained, and how many rows make a step.

    ``assumed`` says that no batch was given.
    """
    optimizer, features = subject.optimizer, subject.model.features
    columns = subject.recording.inputs.shape[1]
    logistic = "logistic regression" if subject.is_logistic else "linear model"
    if isinstance(features, Linear):
        text = f"a {logistic} of {_count(columns, 'feature')}"
    else:
        size, kind = features.size(columns), type(features).__name__.lower()
        text = f"a {logistic} of {_count(size, f'{kind} feature')}"
    text += {"river": ", trained by river's SGD"}.get(name, ", trained by SGD")
    if optimizer.momentum:
        kind = "Nesterov momentum" if optimizer.lookahead else "momentum"
        text += f" with {kind} {float(optimizer.momentum):g} and step size"
    else:
        text += " with step size"
    rows = "one row" if subject.batch == 1 else f"{subject.batch:,} rows"
    text += f" {float(optimizer.lr):g}, {rows} per step"
    return f"{text} (assumed, as no batch was given)" if assumed else text


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' * (number != 1)}"


def ask_for_batch(remedies: Sequence[Remedy]) -> str:
    """Return the sentence that asks for the batch, which was not given."""
    found = next(remedy for remedy in remedies if remedy.name == "batch")
    text = "No batch was given, and another can have another verdict"
    if found.needed and found.value is not None:
        text += f" (from {found.value:,.0f} rows per step on, these rows are safe)"
    return f"{text}: give the one that you train with, batch=N."


def settings_of(subject: Subject, name: str) -> dict[str, Any]:
    """Return the settings of a check by name."""
    optimizer, features = subject.optimizer, subject.model.features
    return {
        "lr": float(optimizer.lr),
        "momentum": float(optimizer.momentum),
        "batch": subject.batch,
        "epochs": subject.epochs,
        "optimizer": name,
        "loss": subject.loss,
        "dampening": float(optimizer.dampening),
        "weight_decay": float(optimizer.weight_decay),
        "basis": type(features).__name__.lower(),
        "bias": isinstance(features, Linear) and features.bias,
        "intercept_lr": subject.model.intercept_lr,
        "confidence": subject.confidence,
        "seed": subject.seed,
    }


def facts_of(subject: Subject) -> tuple[tuple[str, str], ...]:
    """Return the facts on the rows and their preprocessing, as name and text."""
    recording = subject.recording
    rows, columns = recording.inputs.shape
    names = ", ".join(recording.names[:8]) + (", ..." if columns > 8 else "")
    size = subject.model.size(columns)
    return (
        ("source", recording.source),
        ("rows", f"{rows:,}"),
        ("columns", f"{columns}: {names}"),
        ("target", recording.target_name or "none: the growth does not depend on it"),
        ("weights", str(size)),
        ("steps", f"{subject.steps:,}"),
        ("loss", _LOSSES[subject.loss]),
        ("preprocessing", "; ".join(recording.notes) or "nothing"),
    )


def notes_of(
    subject: Subject, on_rows: OnTheseRows, on_more: OnMore, rows: tuple[int, int]
) -> tuple[str, ...]:
    """Return what a reader has to know before relying on the result."""
    notes = []
    if subject.is_logistic:
        worst = subject.with_largest_curvature().follow_exactly().log_growth
        notes.append(
            "The curvature of the logistic loss changes with the weights: the growth is that along "
            "the run which is trained here from zero weights. With the largest curvature it can "
            "have, a quarter of that of the rows (as at zero weights), the distance would end at "
            f"{factor(worst)} times what it was. The weights themselves grow at most in proportion "
            "to the steps, whatever the verdict: a distance that grows shows as swings of the fit."
        )
    elif subject.recording.two_valued:
        notes.append(
            "The target has two values, and the model is least squares: the loss for classes is "
            "the logistic one."
        )
    if on_rows.grows_later:
        assert on_rows.log_pass_radius is not None
        notes.append(
            "With more passes over these rows it would grow: each further one multiplies the "
            f"distance by {factor(on_rows.log_pass_radius)} in the end."
        )
    if on_rows.is_harmful == (on_more.verdict == "converges") and on_more.verdict != "undecided":
        notes.append(
            "These rows and further data differ: what happens here is certain, what would happen "
            "on other rows is judged from the growth along these."
        )
    width = on_more.high - on_more.low
    if on_more.verdict == "undecided" and width < 3 * TRANSIENT / on_more.steps:
        notes.append(
            f"The recording is short: {on_more.steps:,} steps cannot tell rates closer to 0 than "
            f"{TRANSIENT / on_more.steps:.1g} per step, so that further data may do otherwise."
        )
    if on_rows.verdict == "rises":
        notes.append(
            f"A rise of more than {BURST:.0f}-fold ruins the model on the way, as the noise of the "
            "targets is enlarged with it: the safe values stay below that."
        )
    if rows[1] - rows[0] < len(subject.recording.inputs):
        notes.append(
            f"Spectra, training curves and the rhythm are those of rows {rows[0] + 1:,} to "
            f"{rows[1]:,}, where the growth is strongest."
        )
    if subject.model.size(0) < subject.model.features.size(subject.recording.inputs.shape[1]):
        notes.append(
            "Some columns are combinations of others: weights do not move along the directions "
            "that no row has, and these were left out."
        )
    return tuple(notes)


_MAP_REACH = 32.0  # the map reaches from the user's step size over this factor, both ways
_CURVE_POINTS = 300  # of a training curve
_MAX_PRODUCTS = 300  # of columns, whose spectra are added


@dataclass(frozen=True)
class Findings:
    """What the pictures show."""

    grid: int  # points along each axis of the map
    shuffles: Shuffles
    rhythm: Rhythm | None
    rows: tuple[int, int]


def check_dataset(subject: Subject, found: Findings, learner: Any, stage: Stage) -> xr.Dataset:
    """Return map, spectra, surrogates and training curves, those of a given learner too."""
    import xarray as xr

    with stage("drawing the map", subject.steps) as advance:
        axes, rates = _map(subject, found.grid, advance)
    with stage("drawing", 0):
        data, coordinates, attributes = _other_pictures(subject, found, learner)
    data |= {name: (("momentum", "lr"), values) for name, values in rates.items()}
    data["order_proof"] = ("lr", order_proof_line(subject, axes["lr"]))
    return xr.Dataset(data, axes | coordinates, attributes)


def _map(
    subject: Subject, grid: int, advance: Advance | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the axes of the map over momentum and step size, and the rates with their ends."""
    momenta = 1 - np.geomspace(1.0, 1e-3, grid)
    lrs = float(subject.optimizer.lr) * np.geomspace(1 / _MAP_REACH, _MAP_REACH, grid)
    cells = (axis.ravel() for axis in np.meshgrid(momenta, lrs, indexing="ij"))
    everywhere = subject.at(dict(zip(("momentum", "lr"), cells, strict=True)))
    passed = everywhere.follow(everywhere.feed(), advance)
    found = measure(passed, subject.confidence, subject.epochs)
    rates = {name: getattr(found, name).reshape(grid, grid) for name in ("rate", "low", "high")}
    return {"momentum": momenta, "lr": lrs}, rates


def _other_pictures(
    subject: Subject, found: Findings, learner: Any
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the variables, coordinates and attributes of the other pictures."""
    data: dict[str, Any] = {"shuffled": ("shuffle", found.shuffles.rates)}
    coordinates: dict[str, Any] = {}
    part = stretch_of(subject, found.rows)
    frequency, columns, products = _spectra(part)
    coordinates["period"] = 1 / frequency  # in steps
    data["power"] = ("period", columns)
    data["power_products"] = ("period", products)
    attributes: dict[str, Any] = {"rows": list(found.rows)}
    if found.rhythm is not None:
        rhythm = found.rhythm
        attributes["rate"] = rhythm.rate
        coordinates |= {"band": rhythm.bands.center, "stretch": STRETCHES}
        data |= {
            "without_values": ("band", rhythm.bands.values),
            "without_size": ("band", rhythm.bands.size),
            "randomised": ("surrogate", rhythm.randomised),
            "stretched": ("stretch", rhythm.stretched),
        }
        if rhythm.period is not None:
            attributes["without"] = rhythm.without
            bands = _tongues(part, rhythm.period)
            data["tongues"] = (("tongue", "edge"), np.array(bands).reshape(-1, 2))
    if part.recording.target is not None:
        orders = _orders(part)
        step, errors = _curves(part, orders)
        coordinates |= {"step": step, "order": list(orders)}
        data["error"] = (("order", "step"), errors)
        if learner is not None:
            replayed, bounded = _replayed(part, orders, learner, step)
            data["learner_error"] = (("order", "step"), replayed)
            data["learner_bounded"] = ("order", bounded)
    return data, coordinates, attributes


def _spectra(part: Subject) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return frequencies per step, and the power of the columns and of their products."""
    rows = part.model.apply(part.recording.inputs).astype(float)
    steps = len(rows) // part.batch
    rows = rows[: steps * part.batch].reshape(steps, part.batch, -1)
    first, second = np.triu_indices(rows.shape[2])
    if len(first) > _MAX_PRODUCTS:  # of many columns only the squares
        first = second = np.arange(rows.shape[2])
    frequency, power = spectrum(rows.mean(axis=1))
    power_products = np.zeros_like(power)
    for i, j in zip(first, second, strict=True):  # one by one, as together they are large
        power_products += spectrum((rows[..., i] * rows[..., j]).mean(axis=1)[:, None])[1]
    return frequency, power, power_products


def _tongues(part: Subject, period: float) -> list[tuple[float, float]]:
    """Return the bands of periods in which a pure rhythm of this strength would resonate.

    The strength is that of the line in the spectrum, in one column of variance 1: the paper's
    first experiment with the data's own numbers.
    """
    from resonax.dynamics import Setting
    from resonax.streams import Sinusoid
    from resonax.theory.map import map_rates
    from resonax.theory.search import growing_bands

    rows = part.recording.inputs.astype(float)
    rows = rows / np.sqrt(np.mean(rows**2, axis=0))
    phase = np.exp(-2j * np.pi * np.arange(len(rows)) / (period * part.batch))
    line = np.max(2 * np.abs(phase @ rows / len(rows)) ** 2)  # variance of the largest line
    share = float(np.clip(line, 0.05, 0.95))
    part = part.with_largest_curvature() if part.is_logistic else part
    numbers = {"momentum": float(part.optimizer.momentum), "lr": float(part.optimizer.lr)}
    setting = Setting(
        Sinusoid(period=period, amplitude=math.sqrt(2 * share), variance=1 - share),
        part.optimizer.at(numbers),
        batch=part.batch,
    )
    try:
        # At whole and half periods the product of the updates is short.
        low, high = max(2.0, math.floor(period / 4) / 2), math.ceil(period * 16) / 2
        periods = np.arange(low, high + 0.5, max(0.5, round((high - low) / 240) / 2))
        # Not by `rates`, which refuses periods longer than a process may have.
        grown = map_rates(setting.grouped, {"period": periods})
    except ArgumentError:
        return []
    if not np.isfinite(grown).all():
        return []
    return growing_bands(periods, grown)


def _orders(part: Subject) -> dict[str, np.ndarray]:
    rows = len(part.recording.inputs)
    random = shuffled(rows, 1, np.random.default_rng([part.seed, 5]))
    return {"chronological": np.arange(rows), "shuffled": random}


def _curves(part: Subject, orders: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return steps, and the logarithm of the squared error in each order, base 10."""
    squares = part.train(list(orders.values())).log_loss
    assert squares is not None
    curves = squares.T  # (orders, blocks)
    count = curves.shape[1]
    edges = np.linspace(0, count, min(count, _CURVE_POINTS) + 1).astype(int)[:-1]
    sums = np.logaddexp.reduceat(curves, edges, axis=1)
    means = sums - np.log(np.diff(np.append(edges, count)))
    middle = (edges + np.append(edges[1:], count)) / 2 * part.steps / count
    return middle, means / math.log(10)


def _replayed(
    part: Subject, orders: dict[str, np.ndarray], learner: Any, step: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the same curves of a learner of another library, and whether it stayed bounded.

    A curve ends, with NaN, where its run did.
    """
    from resonax.probing.replay import replay

    inputs, target = part.recording.inputs, part.recording.target
    assert target is not None
    edges = np.linspace(0, part.steps, len(step) + 1).round().astype(int)
    curves, bounded = [], []
    for order in orders.values():
        found = replay(learner, inputs[order], target[order], batch=part.batch)
        parts = (found.errors[first:last] for first, last in itertools.pairwise(edges))
        means = [part.mean() if len(part) else np.nan for part in parts]
        curves.append(np.log10(np.maximum(means, np.finfo(float).tiny)))
        bounded.append(found.bounded)
    return np.array(curves), np.array(bounded)
