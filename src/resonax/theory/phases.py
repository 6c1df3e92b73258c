"""What an optimizer makes of phases that alternate: a verdict, its interval, maps, excess loss."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from resonax.core.errors import ArgumentError, as_array, check_range, check_whole
from resonax.core.intervals import student_quantile, tail_of
from resonax.core.labels import LABELS, versions
from resonax.core.objects import Result
from resonax.learners.optimizers import Momentum
from resonax.theory.alternation import (
    ExcessMode,
    canonical,
    driven_orbit,
    growth,
    metric_of,
    phase_steps,
    settle,
)
from resonax.theory.subspace import (
    Phase,
    Reduced,
    Subspace,
    check_phases,
    memory_needed,
    subspaces,
)

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Alternation", "alternation"]

_LOG = logging.getLogger("resonax")
MARGIN = 1e-5  # rates below it are no growth: curvatures of networks come with rounding errors
_SETTLED_CHANGE, _SETTLED_SHARE = 2e-4, 0.05  # of a rate, below which it has settled
_SIZES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_BISECTIONS = 7
MOMENTA = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99)


@dataclass(frozen=True, repr=False)
class Alternation(Result):
    """What becomes of an error where phases alternate, by the linearised optimizer (Floquet).

    ``verdict`` is ``diverges`` where the interval of the rate lies above 0, ``converges`` where no
    error grows, and ``undecided`` where the interval holds both, or the rates still move as the
    subspace is enlarged.
    """

    verdict: str
    period: int
    rate: float  # per step, over the period
    low: float  # ends of its interval: of the sampling of the batches alone
    high: float
    names: tuple[str, ...]  # of the phases
    alone: tuple[float, ...]  # rate of each phase if it lasted for ever
    mixed: float  # rate with batches of all phases
    directions: int
    is_settled: bool  # whether more directions would change the rates
    safe: float | None  # the largest momentum up to which no period is unstable; None if none is
    excess: float | None  # loss above that of mixed batches, second moment fixed; None: diverges
    excess_settled: float | None  # the same, with the second moment as a state
    modes: tuple[ExcessMode, ...]  # the directions that carry the excess
    momentum_name: str  # momentum or beta1
    dataset: xr.Dataset  # rates and excess over period and momentum

    figure: ClassVar[str] = "resonax.figures.alternation:plot_alternation"

    def summary(self) -> dict[str, Any]:
        """Return the verdict, the rates and the excess."""
        shown = {"verdict": self.verdict, "period": self.period, "rate": self.rate}
        shown |= {"low": self.low, "high": self.high, "mixed": self.mixed}
        for name in ("excess", "excess_settled"):
            if (value := getattr(self, name)) is not None:
                shown[name] = value
        return {**shown, "directions": self.directions}

    def __str__(self) -> str:
        """Return the verdict in one sentence."""
        return f"{self.verdict}: {'; '.join(self._words())}"

    def _words(self) -> list[str]:
        unstable = [
            name for name, rate in zip(self.names, self.alone, strict=True) if rate > MARGIN
        ]
        both = "both" if len(self.names) == 2 else "all"
        if not self.is_settled:
            words = [
                f"at period {self.period} the rate still moves with the subspace, at least "
                f"{self.rate:+.3g} per step with {self.directions} directions"
            ]
        elif self.verdict == "diverges":
            steps = math.log(2) / self.rate
            words = [f"at period {self.period} an error doubles every {steps:.3g} steps"]
        elif self.verdict == "converges":
            words = [f"at period {self.period} no error grows"]
        else:
            words = [
                f"at period {self.period} the rate lies between {self.low:+.3g} and "
                f"{self.high:+.3g} per step"
            ]
        if unstable:
            words.append(f"{', '.join(unstable)} alone diverges already")
        elif self.mixed > MARGIN:
            words.append(f"each phase alone converges, {both} mixed diverge")
        else:
            words.append(f"each phase alone and {both} mixed converge")
        if self.safe is None:
            words.append(f"some period is unstable at every {self.momentum_name}")
        elif float(self.dataset.rate.max()) > MARGIN:
            words.append(f"below {self.momentum_name} {self.safe:.2g} no period is unstable")
        return words

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """Return the rate over the period with its interval, of each phase alone and of all."""
        alone = {
            f"{name} alone": (rate,) * 3 for name, rate in zip(self.names, self.alone, strict=True)
        }
        over = {f"period {self.period}": (self.rate, self.low, self.high)}
        return {**over, **alone, "mixed": (self.mixed,) * 3}


def _rates(rule: Momentum, reduced: Reduced) -> np.ndarray:
    """Return the rate over the period, of all phases mixed, and of each alone."""
    means = reduced.means
    mean = np.tensordot(reduced.shares, means, 1)
    alone = [growth(rule, curvature[None], (1,)) for curvature in means]
    return np.array([growth(rule, means, reduced.steps), growth(rule, mean[None], (1,)), *alone])


def _enlarge(
    phases: Sequence[Phase],
    rule: Momentum,
    metric: np.ndarray,
    most: int,
    keep_products: bool,
    advance: Callable[[int], None] | None,
) -> tuple[Subspace, np.ndarray, bool]:
    """Enlarge the subspace until the rates settle; return it, the rates, and whether they did."""
    sizes = [size for size in _SIZES if size < most] + [most]
    before, space = None, None
    for space in subspaces(
        phases, metric, sizes=sizes, keep_products=keep_products, advance=advance
    ):
        found = _rates(rule, space.reduced)
        if space.is_whole:
            return space, found, True
        if before is not None and space.reduced.size >= 24:
            moved = np.abs(found - before)
            if (moved <= np.maximum(_SETTLED_CHANGE, _SETTLED_SHARE * np.abs(found))).all():
                return space, found, True
        before = found
    assert space is not None
    return space, before, False  # pyrefly: ignore[bad-return]


def _interval(
    rule: Momentum, reduced: Reduced, rate: float, confidence: float
) -> tuple[float, float]:
    """Return the interval of a rate, by leaving out one batch of each phase at a time."""
    count = max(len(batches) for batches in reduced.curvature)
    if count < 2:
        return rate, rate
    others = []
    for batch in range(count):
        rest = reduced.without(batch)
        others.append(growth(rule, rest.means, rest.steps))
    error = math.sqrt((count - 1) * float(np.var(others)))
    half = error * float(student_quantile(count - 1, tail_of(confidence)))
    return rate - half, rate + half


def _varied(optimizer: Any, momentum: float, lr: float) -> Any:
    return replace(optimizer, momentum=momentum, lr=lr)


def _checked_axis(name: str, values: Any) -> np.ndarray:
    array = as_array(name, values)
    if array.ndim != 1 or array.size == 0 or (np.diff(array) <= 0).any():
        raise ArgumentError(f"{name} must be an increasing list of at least one number")
    check_range(name, array)
    return array


def _is_stable(optimizer: Any, momentum: float, lr: float, means: np.ndarray, many: list) -> bool:
    rule = canonical(_varied(optimizer, momentum, lr))[0]
    return all(growth(rule, means, steps) <= MARGIN for steps in many)


def _safe(
    optimizer: Any, lr: float, means: np.ndarray, many: list, rate: np.ndarray, momenta: np.ndarray
) -> float | None:
    """Return the largest momentum up to which no period is unstable, from a map and by halving."""
    unstable = (rate > MARGIN).any(axis=1)
    if not unstable.any():
        return float(momenta[-1])
    place = int(np.argmax(unstable))
    if place == 0:
        return None
    low, high = float(momenta[place - 1]), float(momenta[place])
    for _ in range(_BISECTIONS):
        middle = 1 - math.sqrt((1 - low) * (1 - high))
        if _is_stable(optimizer, middle, lr, means, many):
            low = middle
        else:
            high = middle
    return low


def alternation_map(
    space: Subspace,
    optimizer: Any,
    *,
    periods: Any,
    momenta: Any,
    lrs: Any,
    gradients: np.ndarray | None = None,
    square: np.ndarray | None = None,
    length: int = 512,
    advance: Callable[[int], None] | None = None,
) -> xr.Dataset:
    """Return rates and excess loss over lr, momentum and period, on a subspace that is known.

    Parameters
    ----------
    space, optimizer
        As for `alternation`; the optimizer's momentum and lr are replaced by the axes.
    periods, momenta, lrs
        Increasing lists.
    gradients, square
        The mean gradient of each phase and the second moment at the start: if given, the excess
        with the second moment as a state is computed, too, and that of the mean curvature.
    length
        Steps of the run of which that excess is predicted.
    advance
        Called with the number of cells just finished.
    """
    import xarray as xr  # takes long to load, and a rate does without

    base, form = canonical(optimizer)
    template = base if form is None else form
    name = "momentum" if form is None else "beta1"
    axes = {
        "lr": _checked_axis("lr", lrs),
        name: _checked_axis(name, momenta),
        "period": _checked_axis("period", periods),
    }
    reduced, shape = space.reduced, tuple(len(axis) for axis in axes.values())
    means = reduced.means
    given = gradients is not None and square is not None and form is not None
    names = ("rate", "excess", *(["excess_averaged", "excess_settled"] if given else []))
    found = {key: np.full(shape, np.nan) for key in names}
    for index in np.ndindex(*shape):
        lr, momentum, period = (axis[i] for axis, i in zip(axes.values(), index, strict=True))
        varied = _varied(template, float(momentum), float(lr))
        rule = canonical(varied)[0]
        steps = phase_steps(reduced.steps, int(period))
        own = reduced._replace(steps=steps)
        found["rate"][index] = growth(rule, means, steps)
        found["excess"][index] = driven_orbit(rule, own).excess
        if given:
            found["excess_averaged"][index] = driven_orbit(rule, own, is_averaged=True).excess
            orbit = settle(rule, varied, space, gradients, square, steps, length=length)  # pyrefly: ignore[bad-argument-type]
            found["excess_settled"][index] = orbit.excess
        if advance:
            advance(1)
    words = {
        "rate": "growth rate",
        "excess": "loss above mixed batches, second moment fixed; infinite where it diverges",
        "excess_averaged": "the same with the mean curvature of the phases in each",
        "excess_settled": "loss above mixed batches, second moment as a state",
    }
    symbols = {axis: LABELS[axis] for axis in axes}
    return xr.Dataset(
        {key: (tuple(axes), array, {"long_name": words[key]}) for key, array in found.items()},
        coords={
            axis: (axis, array, {"long_name": symbols[axis][0], "units": symbols[axis][2]})
            for axis, array in axes.items()
        },
        attrs={
            "title": "phases that alternate",
            "directions": reduced.size,
            **{f"version_{package}": number for package, number in versions().items()},
        },
    )


def alternation(
    phases: Sequence[Phase],
    optimizer: Any,
    *,
    square: np.ndarray | None = None,
    periods: Any = None,
    momenta: Any = None,
    lrs: Any = None,
    directions: int = 96,
    follow_square: bool = False,
    length: int = 512,
    confidence: float = 0.95,
    memory: float = 2**32,
    advance: Callable[[int], None] | None = None,
) -> Alternation:
    """Judge an optimizer on phases that alternate, by products with their curvatures.

    Parameters
    ----------
    phases
        In their order; a period is one turn through all of them.
    optimizer
        `heavy_ball`, `nesterov`, `sgd`, `adam`, `adamw`, `rmsprop`.
    square
        The second moment of the gradient of each weight, (n,), of an adaptive optimizer.
    periods, momenta, lrs
        Axes of the map: periods in steps, values of momentum (or beta1), step sizes.
    directions
        Most directions of the subspace; it is enlarged until the rates settle.
    follow_square
        Whether to predict the excess with the second moment as a state as well, which takes long.
    length
        Steps of the run of which that is predicted.
    confidence
        Of the interval.
    memory
        Bytes that the directions may take; fewer directions are used where they would take more.
        How much they may take is logged before.
    advance
        Called with the number of directions so far.

    Examples
    --------
    One weight, whose curvature changes every 11 steps:

    >>> from resonax import heavy_ball
    >>> phases = [
    ...     Phase(lambda v, h=h: h * v, np.array([[0.5 - place]]), 11)
    ...     for place, h in enumerate((1.0, 3.0))
    ... ]
    >>> print(alternation(phases, heavy_ball(lr=0.01, momentum=0.99), momenta=[0.9, 0.99]))
    diverges: at period 22 an error doubles every 40 steps; each phase alone and both mixed
    converge; below momentum 0.95 no period is unstable
    """
    weights = check_phases(phases)
    check_whole("directions", directions, low=1)
    check_whole("length", length, low=1)
    rule, form = canonical(optimizer)
    if form is None:
        metric = None
    elif square is None:
        raise ArgumentError(
            "an adaptive optimizer needs square, the second moment of the gradient of each weight"
        )
    else:
        square = np.asarray(square)
        if square.shape != (weights,) or not np.isfinite(square).all() or (square < 0).any():
            raise ArgumentError(f"square must be {weights} numbers of at least 0")
        metric = metric_of(form, square)
    keep = follow_square and form is not None
    each = memory_needed(weights, 1, len(phases), is_adaptive=keep)
    fit = int(memory // each)
    if fit < 2:
        raise ArgumentError(
            f"memory must be at least {2 * each} bytes: two directions of {weights} weights"
        )
    most = min(directions, fit, weights)
    _LOG.info("up to %d directions of %d weights: %.3g GiB", most, weights, most * each / 2**30)
    at_hand = metric if metric is not None else np.ones(weights)
    space, found, is_settled = _enlarge(phases, rule, at_hand, most, keep, advance)
    reduced = space.reduced
    rate, mixed, *alone = (float(number) for number in found)
    low, high = _interval(rule, reduced, rate, confidence)
    period = sum(reduced.steps)
    orbit = driven_orbit(rule, reduced)
    modes, settled = orbit.modes, None
    means = np.stack([np.mean(phase.gradients, 0) for phase in phases])
    if keep:
        ended = settle(rule, form, space, means, square, reduced.steps, length=length)  # pyrefly: ignore[bad-argument-type]
        modes, settled = ended.modes, ended.excess
    template = rule if form is None else form
    own = float(template.momentum)
    momenta = np.unique([*MOMENTA, own]) if momenta is None else momenta
    if periods is None:
        least = max(2, len(phases))
        periods = np.unique([period, *(least * 2 ** np.arange(9))])
    periods = _checked_axis("period", periods)
    dataset = alternation_map(
        space,
        optimizer,
        periods=periods,
        momenta=momenta,
        lrs=[float(template.lr)] if lrs is None else lrs,
        gradients=means if keep else None,
        square=square if keep else None,
        length=length,
    )
    name = str(dataset.rate.dims[1])
    many = [phase_steps(reduced.steps, int(one)) for one in periods]
    nearest = dataset.rate.sel(lr=float(template.lr), method="nearest").values
    safe = _safe(template, float(template.lr), reduced.means, many, nearest, dataset[name].values)
    if not is_settled or low <= MARGIN < high:
        word = "undecided"
    else:
        word = "diverges" if rate > MARGIN else "converges"
    return Alternation(
        word,
        period,
        rate,
        low,
        high,
        tuple(phase.name or f"phase {place}" for place, phase in enumerate(phases)),
        tuple(alone),
        mixed,
        reduced.size,
        is_settled,
        safe,
        orbit.excess if math.isfinite(orbit.excess) else None,
        settled if settled is not None and math.isfinite(settled) else None,
        modes,
        name,
        dataset,
    )
