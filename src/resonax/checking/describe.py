"""Settings, facts and notes of a check, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resonax.checking.confirm import Remedy
from resonax.learners import Linear
from resonax.rows.answers import OnMore, OnTheseRows, factor
from resonax.rows.intervals import BURST, TRANSIENT
from resonax.rows.subject import Subject

__all__ = ["ask_for_batch", "facts_of", "model_of", "notes_of", "settings_of"]


_LOSSES = {
    "squared": "squared error, gradient 2 (prediction - target) x features",
    "logistic": "logistic, gradient (chance - target) x features",
}


def model_of(subject: Subject, name: str, assumed: bool) -> str:
    """Return what is judged: the model, how it is trained, and how many rows make a step.

    ``assumed`` says that nobody gave the batch.
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
    """Return the sentence that asks for the batch that nobody gave."""
    found = next(remedy for remedy in remedies if remedy.name == "batch")
    text = "No batch was given, and another can have another verdict"
    if found.needed and found.value is not None:
        text += f" (from {found.value:,.0f} rows per step on, these rows are safe)"
    return f"{text}: give the one that you train with, batch=N."


def settings_of(subject: Subject, name: str) -> dict[str, Any]:
    """Return what was asked for."""
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
        "level": subject.level,
        "seed": subject.seed,
    }


def facts_of(subject: Subject) -> tuple[tuple[str, str], ...]:
    """Return what was read and what was done to it, as name and text."""
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
        worst = subject.at_bound().follow_exactly().log_growth
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
