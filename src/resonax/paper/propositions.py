"""The paper's propositions and theorem: what the library says against `trajectories` by hand."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from resonax.algebra import double_precision
from resonax.checks import ArgumentError
from resonax.dynamics import Map, Setting
from resonax.learners import heavy_ball
from resonax.moments import Moments
from resonax.paper import trajectories as by_hand
from resonax.paper.judgement import Case, Claim
from resonax.processes import AR2, Sinusoid, Square, Switching
from resonax.stability.criteria import rates

__all__ = ["compute_propositions", "judge_propositions"]

Variable = tuple[tuple[str, ...], np.ndarray]  # names of the axes, and the numbers

_LEVEL = 1e-3  # chance that a true Proposition 1 is judged false

# Proposition 1: the paper's processes at three steps, or, where the mean is random, given that it
# is so many standard deviations from 0.
_DRAWN: tuple[Any, ...] = (
    Sinusoid(period=22),
    AR2(period=22),
    Square(period=22, variance=0.25, direction=np.array([3, -1, 2, 1, -2]), dim=5),
    Switching(period=22, variance=0.25, dim=5),
)
_STEPS = np.array([0.0, 5.0, 14.0])
_MEANS = np.array([-1.0, 0.3, 1.4])
_WEIGHTS = 6  # of the largest of these models
_NOISE = 0.1
_POINTS = ("target", "first", "second")

# Proposition 2: friction (1 - momentum) / sqrt(lr) and the period in time are held, so that every
# step size integrates one and the same equation. At lr 0.01: momentum 0.95, T 22; and 0.98, T 45.
_START = np.array([[1.0, -0.5], [0.3, 0.7]])  # error of the weights, and velocity
_PROBLEMS = (by_hand.Problem(0.5, 2.2, _START), by_hand.Problem(0.2, 4.5, _START))
_LR = 0.01 / 4.0 ** np.arange(5)
_PERIODS = 3  # over which the global error is taken
_PAIRS = ("SGDm and split integrator", "map and split integrator")

# Theorem 1: settings on both sides of 1, period and momentum, at lr 0.01.
_SINUSOIDS = ((22, 0.97), (22, 0.99), (20, 0.98), (45, 0.999), (22, 0.95), (30, 0.97))
_SQUARES = ((26, 0.95), (28, 0.97), (50, 0.99), (30, 0.95), (40, 0.95))
_TURNS = 200
_DYNAMICS = ("flow", "map")


def _limit(count: int) -> float:
    """Return what the largest of many standard normal scores exceeds with a chance of 0.001."""
    return NormalDist().inv_cdf(1 - _LEVEL / (2 * count))


@jax.jit
def _laws(setting: Setting) -> tuple[jax.Array, jax.Array]:
    """Return mean and B at each of the three steps, or means."""
    process: Any = setting.process
    if process.periodic:
        moments = jax.vmap(process.moments)(_STEPS)
    else:
        root = jnp.sqrt(process.variance) * jnp.eye(process.dim)[None]
        means = process.amplitude * jnp.ones(process.dim) * _MEANS[:, None, None]
        moments = jax.vmap(lambda mean: Moments(mean, root, jnp.ones(1)))(means)
    return moments.mean[:, 0], jax.vmap(setting.curvature)(moments)


def _gradients(seed: int, samples: int) -> dict[str, Variable]:
    """Draw gradients at three points; the first is the target, where only the noise is left."""
    random = np.random.default_rng(seed)
    shape = (len(_DRAWN), len(_STEPS), len(_POINTS), _WEIGHTS)
    mean, error, expected = np.full((3, *shape), np.nan)
    for row, process in enumerate(_DRAWN):
        setting = Setting(process, heavy_ball(0.01, 0.95), noise=_NOISE)
        points = np.vstack([np.zeros(setting.size), random.normal(size=(2, setting.size))])
        centers, curvatures = map(np.asarray, _laws(setting))
        for place, number in np.ndindex(len(_STEPS), len(_POINTS)):
            inputs = np.sqrt(process.variance) * random.normal(size=(samples, process.dim))
            inputs += centers[place]
            noise = np.sqrt(_NOISE) * random.normal(size=samples)
            cell = (row, place, number, slice(setting.size))
            mean[cell], error[cell] = by_hand.mean_gradient(inputs, points[number], noise)
            expected[cell] = curvatures[place] @ points[number]
    dims = ("process", "moment", "point", "weight")
    return {
        "gradient_mean": (dims, mean),
        "gradient_error": (dims, error),
        "gradient_expected": (dims, expected),
        "gradient_limit": ((), np.array(_limit(int(np.isfinite(expected).sum())))),
    }


@jax.jit
def _matrices(setting: Setting, index: jax.Array) -> jax.Array:
    return jax.vmap(lambda k: Map(setting).expected(setting.process.moments(k)))(index)


def _map_path(problem: by_hand.Problem, steps: int, lr: float, momentum: float) -> np.ndarray:
    """Return the same as `by_hand.sgdm_path` from the library's map."""
    root = np.sqrt(lr)
    units = np.array([[1.0], [root]])  # the map keeps sqrt(lr) times the velocity
    path = [(units * problem.start).ravel()]
    setting = Setting(Sinusoid(period=problem.period / root), heavy_ball(lr, momentum))
    for matrix in np.asarray(_matrices(setting, jnp.arange(float(steps)))):
        path.append(matrix @ path[-1])
    return np.array(path).reshape(-1, 2, 2) / units


def _orders() -> dict[str, Variable]:
    """Compare SGDm with the split integrator step by step, and with the exact flow over lr."""
    far, near, held = np.empty((3, len(_PROBLEMS), len(_LR)))
    rounding = np.empty((len(_PROBLEMS), len(_PAIRS)))
    for row, problem in enumerate(_PROBLEMS):
        fixed = 1 - problem.friction * np.sqrt(_LR[0])
        split = by_hand.split_path(problem, 1000, np.sqrt(_LR[0]))
        runs = [path(problem, 1000, _LR[0], fixed) for path in (by_hand.sgdm_path, _map_path)]
        away = np.linalg.norm(np.array(runs) - split, axis=(2, 3))
        rounding[row] = np.max(away / np.linalg.norm(split, axis=(1, 2)), axis=1)
        for column, lr in enumerate(_LR):
            root = np.sqrt(lr)
            steps = round(_PERIODS * problem.period / root)
            errors = by_hand.flow_errors(problem, steps, lr, 1 - problem.friction * root)
            far[row, column], near[row, column] = errors.max(), errors[1]
            # For comparison: with the momentum held instead, the equation changes with lr.
            stiff = problem._replace(friction=(1 - fixed) / root)
            held[row, column] = by_hand.flow_errors(stiff, 1, lr, fixed)[1]
    return {
        "global_error": (("problem", "lr"), far),
        "local_error": (("problem", "lr"), near),
        "local_error_fixed_momentum": (("problem", "lr"), held),
        "rounding": (("problem", "pair"), rounding),
    }


def _growth(seed: int) -> dict[str, Variable]:
    """Follow long trajectories of the flow and of SGDm, and ask the library for their radius."""
    pairs = np.array(_SINUSOIDS + _SQUARES)
    square = np.arange(len(pairs)) >= len(_SINUSOIDS)
    drive = by_hand.Drive(square, np.where(square, 0.25, 1.0), pairs[:, 0], pairs[:, 1], _LR[0])
    starts = np.random.default_rng(seed).normal(size=(2, 2, 2))
    sizes = [follow(drive, starts, _TURNS) for follow in (by_hand.flow_sizes, by_hand.sgdm_sizes)]
    radius = np.empty((len(_DYNAMICS), len(pairs)))
    for kind, process in ((False, Sinusoid(period=22)), (True, Square(period=22, variance=0.25))):
        setting = Setting(process, heavy_ball(_LR[0], 0.95))
        values = {"period": pairs[square == kind, 0], "momentum": pairs[square == kind, 1]}
        for row, criterion in enumerate(_DYNAMICS):
            radius[row, square == kind] = rates(setting, values, criterion) * values["period"]
    return {
        "log_size": (("dynamics", "setting", "start", "turn"), np.array(sizes)),
        "log_radius": (("dynamics", "setting"), radius),
    }


@double_precision
def compute_propositions(seed: int, samples: int) -> xr.Dataset:
    """Return the numbers behind both propositions and the theorem.

    Parameters
    ----------
    seed
        Of all draws.
    samples
        Gradients drawn at each step and point.

    Returns
    -------
    xarray.Dataset
        Proposition 1: ``gradient_mean``, its standard error ``gradient_error`` and
        ``gradient_expected`` over ``(process, moment, point, weight)``, empty where a model has
        fewer weights. Proposition 2: ``global_error`` and ``local_error`` over ``(problem, lr)``,
        and ``rounding(problem, pair)``. Theorem 1: ``log_size(dynamics, setting, start, turn)`` of
        the state after each period and ``log_radius(dynamics, setting)``.
    """
    if samples < 1000:  # fewer, and the mean is not close enough to normal
        raise ArgumentError(f"samples must be at least 1000, got {samples}")
    families = {"sinusoid": _SINUSOIDS, "square": _SQUARES}
    return xr.Dataset(
        _gradients(seed, samples) | _orders() | _growth(seed),
        coords={
            "process": np.array([process.name for process in _DRAWN]),
            "moment": np.arange(len(_STEPS)),
            "point": np.array(_POINTS),
            "weight": np.arange(_WEIGHTS),
            "problem": np.arange(len(_PROBLEMS)),
            "friction": ("problem", np.array([problem.friction for problem in _PROBLEMS])),
            "time_period": ("problem", np.array([problem.period for problem in _PROBLEMS])),
            "lr": _LR,
            "pair": np.array(_PAIRS),
            "dynamics": np.array(_DYNAMICS),
            "setting": np.array(
                [f"{name} T={at[0]} μ={at[1]:g}" for name, of in families.items() for at in of]
            ),
            "start": np.arange(2),
            "turn": np.arange(_TURNS + 1),
        },
        attrs={"samples": str(samples), "level": f"{_LEVEL:g}", "seed": str(seed)},
    )


def _judge_gradient(dataset: xr.Dataset) -> Claim:
    used = np.isfinite(dataset.gradient_expected.values)
    mean, error = dataset.gradient_mean.values, dataset.gradient_error.values
    scores = np.abs(mean - dataset.gradient_expected.values) / error
    # At the same weights, unless they are the target, the gradient must differ between steps.
    one, other = np.array([0, 0, 1]), np.array([1, 2, 2])
    change = np.abs(mean[:, one, 1:] - mean[:, other, 1:])
    change /= np.hypot(error[:, one, 1:], error[:, other, 1:])
    limit = _limit(int(used.sum()))
    return Claim(
        id="gradient-is-linear",
        claim="The expected gradient of the squared error is B_k (θ - θ*), linear in the weights, "
        "with a matrix that moves with the inputs (Prop. 1).",
        quantity=f"drawn gradients less B (θ - θ*), standard errors, largest of {used.sum()}",
        reason="The change between steps is that of the mean gradient at the same weights, the "
        "largest of each process and of these the least. The largest of so many standard "
        "normal scores exceeds the limit with a chance of "
        f"{_LEVEL:g} (Bonferroni); a change counts when it exceeds the same limit.",
        cases=(
            Case("drawn against B (θ - θ*)", float(scores[used].max()), "<=", limit),
            Case("change between steps", float(np.nanmax(change, (1, 2, 3)).min()), ">", limit),
        ),
        level=_LEVEL,
    )


def _judge_order(dataset: xr.Dataset) -> Claim:
    lr = np.log(dataset.lr.values)
    # First order in the step h = sqrt(lr) means an error that falls as h at a fixed time, and as
    # h^2 = lr after a single step: slopes of 1/2 and 1 over log(lr).
    far, near, held = (
        np.log(dataset[name].values)
        for name in ("global_error", "local_error", "local_error_fixed_momentum")
    )
    order = 2 * np.polyfit(lr, far.T, 1)[0], np.polyfit(lr, near.T, 1)[0]
    last = (held[:, -1] - held[:, -2]) / (lr[-1] - lr[-2])
    off = [float(np.abs(slope - 1).max()) for slope in (*order, last)]
    worst = zip(dataset.pair.values, dataset.rounding.values.max(0), strict=True)
    return Claim(
        id="first-order",
        claim="SGDm is the split Euler integrator of the equation with a step of h = sqrt(η), and "
        "of first order (Prop. 2).",
        quantity="difference over 1000 steps; order of the error, off 1",
        reason="1000 steps may each lose a few units of the last place, 2e-16. An exponent fitted "
        "over a factor of 256 in η carries corrections of higher order of a few hundredths; a "
        "method of another order is off by 1.",
        cases=(
            *(Case(str(pair), float(each), "<=", 1e-12) for pair, each in worst),
            Case("exponent of h at a fixed time, off 1", off[0], "<=", 0.1),
            Case("exponent of η after one step, off 1", off[1], "<=", 0.1),
            Case("exponent of η after one step at fixed μ, off 1", off[2], "<=", 0.1, False),
        ),
        level=0.0,
        note="The friction (1-μ)/sqrt(η) is held while η falls, so that there is one equation to "
        "converge to. With μ held instead the friction grows, and the error of one step falls in "
        "the end only as sqrt(η), unless the start is at rest.",
    )


def _judge_floquet(dataset: xr.Dataset) -> Claim:
    flow, discrete = by_hand.growth_per_turn(dataset.sel(dynamics=list(_DYNAMICS)).log_size.values)
    radius, exact = dataset.sel(dynamics=list(_DYNAMICS)).log_radius.values[..., None]
    off, of_map, between = (
        np.abs(growth / log - 1).max(-1)
        for growth, log in ((flow, radius), (discrete, exact), (discrete, radius))
    )
    cases = [
        Case(f"{label}, log ρ = {log:+.3f}", float(each), "<=", 0.01)
        for label, log, each in zip(dataset.setting.values, radius[:, 0], off, strict=True)
    ]
    cases.sort(key=lambda case: -case.measured)  # the worst first, as it stands for the claim
    rarer = min(np.sum(radius > 0), np.sum(radius < 0))
    return Claim(
        id="floquet",
        claim="The error grows or falls by the spectral radius ρ per period (Thm. 1).",
        quantity="growth over 200 periods against log ρ, off 1, the worse of two starts",
        reason="A wrong sign is off by 2 or about so; what the swing of complex multipliers leaves "
        "after 200 periods is below a hundredth.",
        cases=(
            *cases,
            Case("settings on the rarer side of ρ = 1", float(rarer), ">=", 2.0),
            Case("SGDm over the exact radius of its map", float(of_map.max()), "<=", 0.01, False),
            Case("SGDm over ρ of the flow", float(between.max()), "<", 1.0, False),
        ),
        level=0.0,
        note="By the theorem all other solutions diverge where ρ > 1. Those that start in the span "
        "of the multipliers below 1 do not, if there are any; a random start is never there.",
    )


def judge_propositions(dataset: xr.Dataset) -> list[Claim]:
    """Judge `gradient-is-linear`, `first-order` and `floquet` from `compute_propositions`."""
    return [_judge_gradient(dataset), _judge_order(dataset), _judge_floquet(dataset)]
