"""The frequency response of a learner, and the rhythms of the data that are dangerous to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from resonax.checking.modulation import find_modulations
from resonax.checking.response_result import Response
from resonax.core.errors import ArgumentError, check_number, check_range, check_whole, suggest
from resonax.learners import Features, Linear
from resonax.probing.copies import Readout, is_optimizer, linear_learner, make_copies
from resonax.probing.excitation import Advance, Rows, choose_mode
from resonax.probing.period_sweep import (
    KINDS,
    STEPS,
    check_periods,
    draw_law,
    draw_rows,
    sweep_periods,
)
from resonax.probing.replay import prepare, quiet
from resonax.probing.response import ResponsePlan, Stage, measure_poles
from resonax.streams import Process, Recorded

__all__ = ["response"]

_LAW_STEPS, _LAW_NUMBERS = 2**14, 2**23  # of a law that are sampled: its rows
_WATCHED = 32  # rows on which all copies predict
_LEAST_ROWS = 16
_MOST_NUMBERS = 2**28  # of a law that are sampled: 2 GB
_COMPILED, _LOOPED = ResponsePlan(32, burn_in=2**14), ResponsePlan(8, burn_in=2**12)


@contextlib.contextmanager
def _silent(name: str, steps: int) -> Iterator[Advance]:
    del name, steps
    yield lambda _: None


def response(
    learner: Any,
    inputs: Any,
    target: Any = None,
    *,
    batch: int = 1,
    model: Features | None = None,
    mode: int | np.ndarray | Callable[[np.ndarray], np.ndarray] = 0,
    shuffle: bool = True,
    sweep: Any = None,
    kind: str = "sinusoid",
    noise: float = 1.0,
    realisations: int | None = None,
    periods: int = 4,
    length: int | None = None,
    excitation: float | None = None,
    burn_in: int | None = None,
    level: float = 0.95,
    seed: int = 0,
    stage: Stage | None = None,
) -> Response:
    r"""Measure the natural period and damping of a learner, and the rhythms it resonates with.

    Pairs of copies learn the same rows with the labels :math:`y_k \pm \epsilon s_k g(x_k)`. The
    multisine :math:`s` excites periods from 4 steps to ``length``; half the difference of the
    predictions over :math:`\epsilon`, transformed over whole periods, gives the transfer function,
    and a pole pair fitted to it the period and the damping. A rhythm of the curvature of period
    :math:`nT_0/2` with the natural period :math:`T_0` is dangerous: for :math:`n = 1` from a depth
    of about four times the damping on. See ``docs/response.md`` for the derivation.

    Parameters
    ----------
    learner
        Anything that `replay` takes, it stays as it is; or an optimizer (`heavy_ball`, `adam`, any
        of optax), which then trains a linear model. Pure learners written with jax are compiled.
    inputs
        The rows, (rows, d), or a process, of which rows are sampled.
    target
        What to predict, (rows,), or a function of the inputs, to which noise is added; by default
        there is nothing but noise.
    batch
        Rows of one step.
    model
        Features of the linear model that an optimizer trains; inputs and a bias by default. For a
        given learner they only serve to tell its curvatures apart.
    mode
        Along which curvature the labels are moved: 0 for the largest, 1 for the next, and so on;
        weights, one for each feature; or a function of the inputs.
    shuffle
        Whether the rows are drawn at random, which measures the learner apart from the order of its
        data; False for their own order.
    sweep
        Periods at which copies also learn rows in a rhythm, held against random order: those of the
        process with that period, or the given rows arranged by ``kind``.
    kind
        sinusoid or switching, how a sweep arranges given rows.
    noise
        Variance of the noise that is added to labels which are not given.
    realisations
        Pairs of copies; by default 8, and 32 for a compiled learner.
    periods
        Periods of the excitation that are measured.
    length
        Steps of such a period, a power of 2; by default as many as the result needs.
    excitation
        Its amplitude, relative to the learner's own error; by default the precision of its
        numbers to the power 0.4.
    burn_in
        Steps before the excitation; by default 4096, and 16384 for a compiled learner.
    level
        Confidence level of the intervals.
    seed
        Seed of rows and phases.
    stage
        ``stage(name, steps)`` gives a context in which progress is shown.

    Examples
    --------
    >>> import resonax as rx
    >>> found = rx.response(rx.heavy_ball(0.01, 0.95), rx.Iid(variance=1.0), batch=4)
    >>> print(f"{found.natural_period:.0f} steps, damping {found.damping:.2f}")
    44 steps, damping 0.18
    """
    check_number("level", level, low=0, high=1, open_low=True, open_high=True)
    check_whole("seed", seed, low=0)
    check_whole("batch", batch, low=1)
    if kind not in KINDS:
        raise suggest("kind of sweep", kind, KINDS)
    wanted = None if sweep is None else check_periods(sweep)
    rng = np.random.default_rng(seed)
    is_law = isinstance(inputs, Process)
    if is_law and not (target is None or callable(target)):
        raise ArgumentError("target must be a function of the inputs where these are a process")
    label = _labeller(target, noise)
    table = _sampled(inputs, batch, rng) if is_law else inputs
    basis = model or Linear()
    if is_optimizer(learner):
        learner = linear_learner(learner, basis, _columns(table))
    is_given = target is not None and not callable(target)
    adapted, table, labels = prepare(learner, table, target if is_given else label(table, rng))
    along = choose_mode(mode, table, _features(basis, table))
    rows = Rows(table, labels, along.pattern, batch, shuffle)
    with quiet():
        copies = make_copies(adapted, _readout(rows, rng), batch)
        usual = _COMPILED if copies.is_compiled else _LOOPED
        plan = replace(usual, periods=periods, length=length, excitation=excitation, level=level)
        plan = replace(
            plan,
            realisations=usual.realisations if realisations is None else realisations,
            burn_in=usual.burn_in if burn_in is None else burn_in,
        )
        plan.check(batch)
        stage = stage or _silent
        swept = None
        if wanted is not None:
            draw = draw_law(inputs, batch, label) if is_law else draw_rows(rows, kind)
            with stage("sweeping over periods", STEPS * (len(wanted) + 1)) as advance:
                swept = sweep_periods(copies.fork(1), draw, wanted, batch, rng, advance)
        poles = measure_poles(copies, rows, plan, rng, stage)
    with stage("looking for rhythms", 0):
        rhythms = find_modulations(along.modulation(batch))
    return Response.of(poles, rhythms, swept, along.curvature)


def _features(basis: Features, table: np.ndarray) -> np.ndarray:
    import jax

    with jax.enable_x64(True):
        return np.asarray(basis.apply(table))  # pyrefly: ignore[bad-argument-type]


def _columns(table: Any) -> int:
    shape = np.shape(table)
    return shape[1] if len(shape) > 1 else 1


def _sampled(process: Process, batch: int, rng: np.random.Generator) -> np.ndarray:
    """Return rows of a process in their order, (rows, d): all of them, where they are given."""
    import jax

    if isinstance(process, Recorded):
        return np.asarray(process.data, float).reshape(-1, process.dim)
    most = _MOST_NUMBERS // (_LAW_STEPS // 16 * process.dim)  # in the fewest steps
    if batch > most:
        raise ArgumentError(f"batch must be at most {most} for dim {process.dim}, got {batch}")
    key = jax.random.key(int(rng.integers(2**31)))
    steps = int(np.clip(_LAW_NUMBERS // (batch * process.dim), _LAW_STEPS // 16, _LAW_STEPS))
    return np.asarray(process.sample(key, steps, batch), float).reshape(-1, process.dim)


def _labeller(target: Any, noise: float) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Return what labels the rows of a law: a function of the inputs, and noise."""
    check_range("noise", noise)

    def label(inputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        clean = 0.0 if target is None else np.asarray(target(np.asarray(inputs)), float)
        return clean + np.sqrt(noise) * rng.normal(size=len(inputs))

    return label


def _readout(rows: Rows, rng: np.random.Generator) -> Readout:
    """Return rows on which all copies predict, weighted by the pattern."""
    if len(rows.inputs) < max(_LEAST_ROWS, rows.batch):
        raise ArgumentError(
            f"inputs must have at least {max(_LEAST_ROWS, rows.batch)} rows, got {len(rows.inputs)}"
        )
    chosen = rng.choice(len(rows.inputs), min(_WATCHED, len(rows.inputs)), replace=False)
    weights = rows.pattern[chosen]
    return Readout(rows.inputs[chosen], rows.target[chosen], weights / (weights @ weights))
