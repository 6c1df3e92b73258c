"""The paper's propositions and theorem: what the library says against `trajectories` by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from resonax.core.algebra import double_precision
from resonax.core.errors import ArgumentError
from resonax.core.moments import Moments
from resonax.dynamics import Map, Setting
from resonax.learners import heavy_ball
from resonax.paper import trajectories as by_hand
from resonax.paper.propositions_judges import (
    GRADIENT_SIGNIFICANCE,
    judge_all_solutions,
    judge_floquet,
    judge_gradient,
    judge_order,
    score_limit,
)
from resonax.store import Layout, Variable
from resonax.streams import AR2, Sinusoid, Square, Switching
from resonax.sweeps.experiment import Experiment, Judge, compute_at_once, drawn_by
from resonax.theory.verdict import rates

__all__ = ["compute_propositions", "propositions"]

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
_SIZES = tuple(process.dim + 1 for process in _DRAWN)  # weights of each model
_WEIGHTS = max(_SIZES)
_NOISE = 0.1
_POINTS = ("target", "first", "second")

# Proposition 2: friction (1 - momentum) / sqrt(lr) and the period in time are held, so that every
# step size integrates one and the same equation. At lr 0.01: momentum 0.95, T 22; and 0.98, T 45.
_START = np.array([[1.0, -0.5], [0.3, 0.7]])  # error of the weights, and velocity
_PROBLEMS = (by_hand.FlowProblem(0.5, 2.2, _START), by_hand.FlowProblem(0.2, 4.5, _START))
_LR = 0.01 / 4.0 ** np.arange(5)
_PERIODS = 3  # over which the global error is taken
_PAIRS = ("SGDm and split integrator", "map and split integrator")

# Theorem 1: settings on both sides of 1, period and momentum, at lr 0.01.
_SINUSOIDS = ((22, 0.97), (22, 0.99), (20, 0.98), (45, 0.999), (22, 0.95), (30, 0.97))
_SQUARES = ((26, 0.95), (28, 0.97), (50, 0.99), (30, 0.95), (40, 0.95))
_TURNS = 200
_STABLE_TURNS = 4  # later, the rounding of the start has grown along the unstable directions
_DYNAMICS = ("flow", "map")


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


def _gradients(seed: int, samples: int) -> dict[str, np.ndarray]:
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
    return {"gradient_mean": mean, "gradient_error": error, "gradient_expected": expected}


@jax.jit
def _matrices(setting: Setting, index: np.ndarray) -> jax.Array:
    return jax.vmap(lambda k: Map(setting).expected(setting.process.moments(k)))(index)


def _map_path(problem: by_hand.FlowProblem, steps: int, lr: float, momentum: float) -> np.ndarray:
    """Return the same as `by_hand.sgdm_path` from the library's map."""
    root = np.sqrt(lr)
    units = np.array([[1.0], [root]])  # the map keeps sqrt(lr) times the velocity
    path = [(units * problem.start).ravel()]
    setting = Setting(Sinusoid(period=problem.period / root), heavy_ball(lr, momentum))
    for matrix in np.asarray(_matrices(setting, np.arange(float(steps)))):
        path.append(matrix @ path[-1])
    return np.array(path).reshape(-1, 2, 2) / units


def _orders() -> dict[str, np.ndarray]:
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
        "global_error": far,
        "local_error": near,
        "local_error_fixed_momentum": held,
        "rounding": rounding,
    }


def _growth(seed: int) -> dict[str, np.ndarray]:
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
    stable = by_hand.stable_sizes(drive, starts[0], _STABLE_TURNS)
    return {"log_size": np.array(sizes), "log_radius": radius, "stable_log_size": stable}


def _layout() -> Layout:
    """Return what is stored.

    Proposition 1: ``gradient_mean``, its standard error and what is expected, for the ``weights``
    of each process. Proposition 2: errors over the step size, and rounding. Theorem 1: the
    logarithm of the size of the state after each period, and that of the radius; the same size for
    starts in the stable directions of the flow.
    """
    families = {"sinusoid": _SINUSOIDS, "square": _SQUARES}
    names = [f"{name} T={at[0]} μ={at[1]:g}" for name, of in families.items() for at in of]
    drawn = Variable(("process", "moment", "point", "weight"), "float64")
    over_lr = Variable(("problem", "lr"), "float64")
    return Layout(
        coords={
            "process": np.array([process.name for process in _DRAWN]),
            "moment": np.arange(len(_STEPS)),
            "point": np.array(_POINTS),
            "weight": np.arange(_WEIGHTS),
            "problem": np.arange(len(_PROBLEMS)),
            "lr": _LR,
            "pair": np.array(_PAIRS),
            "dynamics": np.array(_DYNAMICS),
            "setting": np.array(names),
            "start": np.arange(2),
            "turn": np.arange(_TURNS + 1),
            "stable_turn": np.arange(_STABLE_TURNS + 1),
        },
        chunks={},
        variables={
            "gradient_mean": drawn,
            "gradient_error": drawn,
            "gradient_expected": drawn,
            "gradient_limit": Variable((), "float64"),
            "global_error": over_lr,
            "local_error": over_lr,
            "local_error_fixed_momentum": over_lr,
            "rounding": Variable(("problem", "pair"), "float64"),
            "log_size": Variable(("dynamics", "setting", "start", "turn"), "float64"),
            "log_radius": Variable(("dynamics", "setting"), "float64"),
            "stable_log_size": Variable(("setting", "stable_turn"), "float64"),
        },
        labels={
            "weights": ("process", np.array(_SIZES)),
            "friction": ("problem", np.array([problem.friction for problem in _PROBLEMS])),
            "time_period": ("problem", np.array([problem.period for problem in _PROBLEMS])),
        },
    )


@double_precision
def compute_propositions(seed: int, samples: int) -> dict[str, np.ndarray]:
    """Return the numbers behind both propositions and the theorem, from so many gradients a point.

    Gradients are nan beyond the weights of a process.
    """
    if samples < 1000:  # fewer, and the mean is not close enough to normal
        raise ArgumentError(f"samples must be at least 1000, got {samples}")
    scores = len(_STEPS) * len(_POINTS) * sum(_SIZES)
    limit = np.array(score_limit(scores))
    return _gradients(seed, samples) | {"gradient_limit": limit} | _orders() | _growth(seed)


def propositions(scale: str) -> Experiment:
    """Return the record of this experiment."""
    samples = 20_000 if scale == "paper" else 4_000
    return Experiment(
        id="propositions",
        title="The propositions, checked by hand-written trajectories",
        caption="Left: drawn gradients against the linear form of Prop. 1. Middle: the error of "
        "SGD with momentum against the flow, which falls to first order. Right: the growth of long "
        "trajectories against the spectral radius, on both sides of 1.",
        specification={"id": "propositions", "samples": samples},
        layout=_layout(),
        compute=compute_at_once(partial(compute_propositions, samples=samples)),
        draw=drawn_by("resonax.figures.propositions:plot_propositions"),
        judges=(
            Judge(judge_gradient),
            Judge(judge_order),
            Judge(judge_floquet),
            Judge(judge_all_solutions),
        ),
        attributes={"samples": samples, "significance": GRADIENT_SIGNIFICANCE},
        paper="Prop. 1, Prop. 2, Thm. 1",
        seconds=10.0,
    )
