"""Settings, facts and notes of a check, in words."""

from __future__ import annotations

from typing import Any

from resonax.learners import Linear
from resonax.passes.answers import OnMore, OnTheseRows, factor
from resonax.passes.intervals import TRANSIENT
from resonax.passes.subject import Subject

__all__ = ["facts_of", "notes_of", "settings_of"]


_LOSSES = {
    "squared": "squared error, gradient 2 (prediction - target) x features",
    "logistic": "logistic, gradient (chance - target) x features",
}


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
        ("done", "; ".join(recording.notes) or "nothing"),
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
            "have, a quarter of that of the rows (as at zero weights), an error would end at "
            f"{factor(worst)} of what it was. The weights themselves grow at most in proportion to "
            "the steps, whatever the verdict: an error that grows shows as swings of the fit."
        )
    elif subject.recording.two_valued:
        notes.append(
            "The target has two values, and the model is least squares: the loss for classes is "
            "the logistic one."
        )
    if on_rows.grows_later:
        assert on_rows.log_pass_radius is not None
        notes.append(
            f"With more passes over these rows it would grow: each further one multiplies an error "
            f"by {factor(on_rows.log_pass_radius)} in the end."
        )
    if {on_rows.verdict, on_more.verdict} == {"converges", "diverges"}:
        notes.append(
            "These rows and more of the same differ: what happens here is certain, what would "
            "happen on other rows is judged from the growth along these."
        )
    if on_more.verdict == "marginal" and on_more.high - on_more.low < 3 * TRANSIENT / on_more.steps:
        notes.append(
            f"The recording is short: {on_more.steps:,} steps cannot tell rates closer to 0 than "
            f"{TRANSIENT / on_more.steps:.1g} per step, so that more of the same may do otherwise."
        )
    if on_rows.verdict == "marginal":
        notes.append(
            f"An error ends smaller, but in some stretch of the rows it grows "
            f"{factor(on_rows.log_rise)} fold first: the safe values leave room for less."
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
