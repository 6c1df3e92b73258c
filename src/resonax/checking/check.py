"""Will momentum blow up on these data? The check of a recording, before training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resonax.checking.basis import choose_basis
from resonax.checking.examine import examine
from resonax.checking.optimizers import build_optimizer
from resonax.checking.result import Check
from resonax.checking.series import worst_series
from resonax.checking.stages import Stage, Tell
from resonax.core.errors import ArgumentError
from resonax.learners import Features, Momentum
from resonax.probing.adapters import adapt
from resonax.recordings.recording import Recording, read_recording
from resonax.rows.intervals import LEAST_STEPS
from resonax.rows.subject import Subject, prepare
from resonax.spec.checks import check_numbers

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

__all__ = ["check"]


def check(
    source: str | Path | pd.DataFrame | ArrayLike | Recording,
    target: str | int | ArrayLike | None = None,
    *,
    lr: float,
    momentum: float,
    batch: int | None = None,
    features: str | Iterable[str | int] | None = None,
    order_by: str | int | None = None,
    group_by: str | int | None = None,
    horizon: int | None = None,
    drop_missing: bool = False,
    separator: str | None = None,
    decimal: str | None = None,
    loss: str = "squared",
    optimizer: str | Momentum = "heavy_ball",
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    basis: Features | Callable[[int], Features] | None = None,
    bias: bool = True,
    intercept_lr: float | None = None,
    standardise: bool = True,
    epochs: int = 1,
    grid: int = 32,
    level: float = 0.95,
    seed: int = 0,
    learner: Any = None,
    stage: Stage | None = None,
    tell: Tell | None = None,
) -> Check:
    r"""Say whether a linear model trained by SGD with momentum diverges on these rows, and why.

    The loss is the squared error, with the gradient :math:`2(\hat y - y)\,\phi`. The growth does
    not depend on the target; with one, the model is also trained, to confirm what is predicted.
    With the logistic loss, :math:`(\sigma(z) - y)\,\phi`, it does: the curvature is that along the
    trained run.

    Parameters
    ----------
    source
        A CSV, TSV, Parquet, NPY or NPZ file, a data frame, an array of rows x columns, or what
        `read_recording` made of one of them; then all that is said of the data is said there.
    target
        Name or index of the column to predict, or its values.
    lr, momentum
        Step size and momentum.
    batch
        Rows of one update. Without it one is assumed, which is said, as the verdict depends on it.
    features
        Columns to learn from; all but the target by default.
    order_by
        Column of numbers or dates to sort the rows by.
    group_by
        Column that tells several series apart. Each is a run of its own, from the start: neither
        a difference nor a batch nor a target crosses from one to the next. All that is found is of
        the one where an error grows most, and a note says of how many it grows.
    horizon
        Predict the target column this many rows later; the column is then a feature as well.
    drop_missing
        Leave out rows with missing values.
    separator, decimal
        Of a text file: one character, and ``.`` or ``,``; guessed by default, which is noted.
    loss
        ``squared``, or ``logistic`` for a target of two values, of any kind.
    optimizer
        ``heavy_ball`` (also ``torch`` and ``optax``, which are the same without dampening),
        ``nesterov``, ``sgd``, ``river``, whose linear models train the bias without momentum, or
        a `Momentum`.
    dampening, weight_decay
        Of optimizers that have them.
    basis
        Features of the columns, or what makes them for a number of columns; `Linear` by default.
    bias
        Whether a linear model has one.
    intercept_lr
        Step size of a bias that is trained without momentum; for ``river`` 0.01, as there.
    standardise
        Bring all columns to mean 0 and variance 1 first.
    epochs
        Passes over the rows.
    grid
        Points along each axis of the map over momentum and step size.
    level
        Confidence level of the interval.
    seed
        Of shuffles and surrogates.
    learner
        One of your own, as for `replay`: it is trained on the prepared rows, in their order and
        shuffled, and its curves are drawn over the prediction.
    stage
        ``stage(name, steps)`` gives a context in which progress is shown.
    tell
        ``tell(name, finding)`` is told what is found as soon as it is: ``verdict`` (on these rows,
        and on more), ``shuffled`` (the growth of random orders), ``rhythm`` (its period and kind)
        and ``remedies``.

    Examples
    --------
    >>> import numpy as np
    >>> hours = np.arange(4000)
    >>> rng = np.random.default_rng(0)
    >>> x = 1.2 * np.sin(2 * np.pi * hours / 24) + 0.5 * rng.normal(size=4000)
    >>> found = check(x, lr=0.01, momentum=0.95, grid=8)
    >>> found.verdict, found.cause, round(found.period)
    ('diverges', 'order', 24)
    """
    assumed, batch = batch is None, 1 if batch is None else batch
    check_numbers(
        optimizer,
        lr=lr,
        momentum=momentum,
        batch=batch,
        epochs=epochs,
        grid=grid,
        seed=seed,
        level=level,
        intercept_lr=intercept_lr,
        dampening=dampening,
        weight_decay=weight_decay,
        loss=loss,
    )
    chosen, intercept_lr, name = build_optimizer(
        optimizer, lr, momentum, intercept_lr, dampening=dampening, weight_decay=weight_decay
    )
    recording = (
        source
        if isinstance(source, Recording)
        else read_recording(
            source,
            target,
            features=features,
            order_by=order_by,
            group_by=group_by,
            horizon=horizon,
            drop_missing=drop_missing,
            separator=separator,
            decimal=decimal,
            standardise=standardise,
            labels=loss == "logistic",
        )
    )
    if (loss == "logistic") != bool(recording.classes):
        raise ArgumentError("the logistic loss needs a recording that was read with labels")
    model, intercept_lr = choose_basis(basis, bias, recording, intercept_lr)
    if learner is not None:
        adapt(learner)  # an unusable one fails before the work
        if recording.target is None:
            raise ArgumentError("a learner needs a target to learn: name one")

    def make(part: Recording) -> Subject:
        made = prepare(part, model, chosen, batch, epochs, intercept_lr=intercept_lr)
        return replace(made, level=level, seed=seed, loss=loss)

    series = worst_series(recording, make, batch * max(8, math.ceil(LEAST_STEPS / epochs)))
    return examine(
        series,
        recording,
        name=name,
        assumed=assumed,
        grid=grid,
        learner=learner,
        stage=stage,
        tell=tell,
    )
