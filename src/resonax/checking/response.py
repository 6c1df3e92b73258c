"""The frequency response of a learner, and the rhythms of the data that are dangerous to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from resonax.checking.rhythms import Modulation, find_modulations
from resonax.core.errors import ArgumentError, check_number, check_range, check_whole, suggest
from resonax.core.objects import Result, plain_values
from resonax.learners import Features, Linear
from resonax.probing.copies import Readout, is_optimizer, linear_learner, make_copies
from resonax.probing.excitation import Advance, Rows, choose_mode
from resonax.probing.oscillator import critical_depth, dangerous_periods
from resonax.probing.period_sweep import (
    KINDS,
    STEPS,
    PeriodSweep,
    check_periods,
    draw_law,
    draw_rows,
    sweep_periods,
)
from resonax.probing.replay import prepare, quiet
from resonax.probing.response import Poles, ResponsePlan, Stage, measure_poles
from resonax.streams import Process, Recorded

__all__ = ["Response", "response"]


_FIT_POINTS = 400  # points of the fitted curve


@dataclass(frozen=True, eq=False, repr=False)
class Response(Result):
    """Natural period and damping of a learner, and what they mean for data with a rhythm.

    Periods are in steps. All numbers of the learner are None where ``reason`` says why.
    """

    natural_period: float | None  # undamped
    natural_period_low: float | None
    natural_period_high: float | None
    damped_period: float | None  # of the free oscillation
    damping: float | None
    damping_low: float | None
    damping_high: float | None
    dangerous_periods: tuple[float, ...]  # n/2 times the natural one, for n = 1, 2, 3
    depths: tuple[float | None, ...]  # of a rhythm from which on an error grows there; None: none
    rhythms: tuple[Modulation, ...]  # of the data, the most dangerous first
    reason: str | None  # why there are no numbers
    notes: tuple[str, ...]
    nonlinearity: float | None  # change of the response when the amplitude is doubled
    curvature: float | None  # the mean curvature that was excited
    dataset: xr.Dataset  # measured and fitted gains, and the sweep over periods

    figure: ClassVar[str] = "resonax.figures.response:plot_response"

    @classmethod
    def of(
        cls,
        poles: Poles,
        rhythms: list[tuple[float, float]],
        swept: PeriodSweep | None,
        curvature: float | None,
    ) -> Response:
        """Return the result of a measurement, compared with the rhythms of the data."""
        pair = None if poles.reason else poles.pair
        at, depths, needed = (), (), [None] * len(rhythms)
        numbers: list[float | None] = [None] * 7
        if pair is not None:
            own = (pair.natural_period, pair.damping)
            assert poles.period_interval is not None
            assert poles.damping_interval is not None
            numbers = [own[0], *poles.period_interval, pair.damped_period]
            numbers += [own[1], *poles.damping_interval]
            at = tuple(dangerous_periods(own[0]))
            depths = tuple(critical_depth(period, *own) for period in at)
            needed = [critical_depth(period, *own) for period, _ in rhythms]
        found = [Modulation(*one, least) for one, least in zip(rhythms, needed, strict=True)]
        found.sort(key=lambda one: -one.depth / (one.critical_depth or np.inf))
        return cls(
            *numbers,
            dangerous_periods=at,
            depths=depths,
            rhythms=tuple(found),
            reason=poles.reason,
            notes=poles.notes,
            nonlinearity=None if poles.gains is None else _finite(poles.gains.nonlinearity),
            curvature=curvature,
            dataset=_dataset(poles, swept),
        )

    @property
    def depth(self) -> float | None:
        """Relative depth from which on a rhythm of half the natural period makes an error grow."""
        return self.depths[0] if self.depths else None

    @property
    def sentence(self) -> str:
        """The comparison of the data with the learner, in one sentence."""
        rhythm = self.rhythms[0] if self.rhythms else None
        data = "no rhythm of the curvature was found in your data"
        if rhythm is not None:
            has = f"{rhythm.period:.3g} steps, in which the curvature swings by {rhythm.depth:.0%}"
            data = f"your data have a rhythm of {has}"
        if self.reason is not None:
            return f"{data}; this learner has no natural period, as {self.reason}"
        assert self.damping is not None
        if self.depth is None:
            return (
                f"{data}; this learner is damped too much ({self.damping:.2g}) to resonate with any"
            )
        period = self.dangerous_periods[0]
        own = f"this learner resonates at period {period:.3g} if the swing exceeds {self.depth:.0%}"
        if rhythm is None or rhythm.critical_depth is None:
            return f"{data}; {own}"
        there = f"at period {rhythm.period:.3g} if it exceeds {rhythm.critical_depth:.0%}"
        outcome = "an error" if rhythm.is_dangerous else "no error"
        return f"{data}; {own}, and {there}: {outcome} is predicted to grow"

    def summary(self) -> dict[str, Any]:
        """Return period, damping and depth, or the reason why there are none."""
        names = ("natural_period", "damping", "depth", "curvature", "nonlinearity", "reason")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        swept = kept.pop("dataset")
        kept |= {"depth": self.depth, "sentence": self.sentence, "sweep": None}
        kept["rhythms"] = [
            {**asdict(one), "is_dangerous": one.is_dangerous} for one in self.rhythms
        ]
        if "ratio" in swept:
            kept["sweep"] = {"period": swept.period.values, "ratio": swept.ratio.values}
        return plain_values(kept)

    def __str__(self) -> str:
        """Return the numbers, or why there are none, in a line; and the sentence in the next."""
        if self.natural_period is None:
            return f"no natural period: {self.reason}.\n{self.sentence}."
        return (
            f"natural period {self.natural_period:.4g} steps ({self.natural_period_low:.4g} to "
            f"{self.natural_period_high:.4g}), damping {self.damping:.3g} ({self.damping_low:.3g} "
            f"to {self.damping_high:.3g}).\n{self.sentence}."
        )


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _dataset(poles: Poles, swept: PeriodSweep | None) -> xr.Dataset:
    found: dict[str, Any] = {}
    if poles.gains is not None:
        gains, frequency = poles.gains, poles.gains.frequency
        found = {
            "frequency": ("frequency", frequency),
            "gain": ("frequency", np.abs(gains.mean)),
            "phase": ("frequency", np.unwrap(np.angle(gains.mean))),
            "error": ("frequency", gains.error),
        }
        if poles.pair is not None:
            dense = np.geomspace(frequency[0], frequency[-1], _FIT_POINTS)
            fitted = poles.pair.gain(dense)
            found |= {
                "fitted_frequency": ("fitted_frequency", dense),
                "fitted_gain": ("fitted_frequency", np.abs(fitted)),
                "fitted_phase": ("fitted_frequency", np.unwrap(np.angle(fitted))),
            }
    if swept is not None:
        found |= {"period": ("period", swept.periods), "ratio": ("period", swept.ratio)}
    return xr.Dataset(found)


_LAW_STEPS, _LAW_NUMBERS = 2**14, 2**23  # of a law that are sampled: its rows
_READOUT_ROWS = 32  # rows on which all copies predict
_MIN_ROWS = 16
_MAX_NUMBERS = 2**28  # of a law that are sampled: 2 GB
_COMPILED, _LOOPED = ResponsePlan(32, burn_in=2**14), ResponsePlan(8, burn_in=2**12)


@contextlib.contextmanager
def _no_progress(name: str, steps: int) -> Iterator[Advance]:
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
    confidence: float = 0.95,
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
        Anything that `replay` takes, which is not changed; or an optimizer (`heavy_ball`, `adam`,
        any of optax), which then trains a linear model. Pure learners written with jax are
        compiled.
    inputs
        The rows, (rows, d), or a process, of which rows are sampled.
    target
        What to predict, (rows,), or a function of the inputs, to which noise is added; by default
        there is nothing but noise.
    batch
        Rows of one step.
    model
        Features of the linear model that an optimizer trains; inputs and a bias by default. For a
        given learner they only serve to separate its curvatures.
    mode
        Along which curvature the labels are moved: 0 for the largest, 1 for the next, and so on;
        weights, one for each feature; or a function of the inputs.
    shuffle
        Whether the rows are drawn at random, which measures the learner apart from the order of its
        data; False for their own order.
    sweep
        Periods at which copies also learn rows in a rhythm, compared with random order: those of
        the process with that period, or the given rows arranged by ``kind``.
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
    confidence
        Confidence of the intervals.
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
    check_number("confidence", confidence, low=0, high=1, open_low=True, open_high=True)
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
        plan = replace(
            usual, periods=periods, length=length, excitation=excitation, confidence=confidence
        )
        plan = replace(
            plan,
            realisations=usual.realisations if realisations is None else realisations,
            burn_in=usual.burn_in if burn_in is None else burn_in,
        )
        plan.check(batch)
        stage = stage or _no_progress
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
    most = _MAX_NUMBERS // (_LAW_STEPS // 16 * process.dim)  # in the fewest steps
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
    if len(rows.inputs) < max(_MIN_ROWS, rows.batch):
        raise ArgumentError(
            f"inputs must have at least {max(_MIN_ROWS, rows.batch)} rows, got {len(rows.inputs)}"
        )
    chosen = rng.choice(len(rows.inputs), min(_READOUT_ROWS, len(rows.inputs)), replace=False)
    weights = rows.pattern[chosen]
    return Readout(rows.inputs[chosen], rows.target[chosen], weights / (weights @ weights))
