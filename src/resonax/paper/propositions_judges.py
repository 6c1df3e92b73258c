"""Claims of the propositions and the theorem. Thresholds stand here, each with its reason."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from resonax.paper.trajectories import growth_per_turn
from resonax.sweeps.experiment import Datasets
from resonax.sweeps.judgement import Case, Claim

__all__ = [
    "GRADIENT_SIGNIFICANCE",
    "judge_all_solutions",
    "judge_floquet",
    "judge_gradient",
    "judge_order",
    "score_limit",
]

GRADIENT_SIGNIFICANCE = 1e-3  # chance that a true Proposition 1 is judged false


def score_limit(count: int) -> float:
    """Return what the largest of many standard normal scores exceeds with a chance of 0.001."""
    return NormalDist().inv_cdf(1 - GRADIENT_SIGNIFICANCE / (2 * count))


def judge_gradient(data: Datasets) -> Claim:
    """Judge Proposition 1: the expected gradient is linear in the weights."""
    dataset = data["propositions"]
    used = dataset.gradient_expected.copy(data=np.ones(dataset.gradient_expected.shape, bool))
    used = (used & (dataset.weight < dataset.weights)).values
    mean, error = dataset.gradient_mean.values, dataset.gradient_error.values
    scores = np.abs(mean - dataset.gradient_expected.values) / error
    # At the same weights, unless they are the target, the gradient must differ between steps.
    one, other = np.array([0, 0, 1]), np.array([1, 2, 2])
    change = np.abs(mean[:, one, 1:] - mean[:, other, 1:])
    change /= np.hypot(error[:, one, 1:], error[:, other, 1:])
    limit = score_limit(int(used.sum()))
    return Claim(
        id="gradient-is-linear",
        claim="The expected gradient of the squared error is B_k (θ - θ*), linear in the weights, "
        "with a matrix that moves with the inputs (Prop. 1).",
        quantity=f"drawn gradients less B (θ - θ*), standard errors, largest of {used.sum()}",
        reason="The change between steps is that of the mean gradient at the same weights, the "
        "largest of each process and of these the least. The largest of so many standard "
        "normal scores exceeds the limit with a chance of "
        f"{GRADIENT_SIGNIFICANCE:g} (Bonferroni); a change counts when it exceeds the same limit.",
        cases=(
            Case("drawn against B (θ - θ*)", float(scores[used].max()), "<=", limit),
            Case("change between steps", float(np.nanmax(change, (1, 2, 3)).min()), ">", limit),
        ),
        significance=GRADIENT_SIGNIFICANCE,
    )


def judge_order(data: Datasets) -> Claim:
    """Judge Proposition 2: SGDm is a first-order integrator of the flow."""
    dataset = data["propositions"]
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
        significance=0.0,
        note="The friction (1-μ)/sqrt(η) is held while η falls, so that there is one equation to "
        "converge to. With μ held instead the friction grows, and the error of one step falls in "
        "the end only as sqrt(η), unless the start is at rest.",
    )


def judge_floquet(data: Datasets) -> Claim:
    """Judge Theorem 1: growth by the spectral radius per period."""
    dataset = data["propositions"]
    flow, discrete = growth_per_turn(dataset.sel(dynamics=["flow", "map"]).log_size.values)
    radius, exact = dataset.sel(dynamics=["flow", "map"]).log_radius.values[..., None]
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
        significance=0.0,
        note="Starts are random. That all other solutions diverge where ρ > 1 is judged by "
        "all-other-solutions.",
    )


def judge_all_solutions(data: Datasets) -> Claim:
    """Judge the other half of Theorem 1: where the radius is above 1, all solutions diverge."""
    dataset = data["propositions"].sel(dynamics="flow")
    unstable = dataset.isel(setting=np.flatnonzero(dataset.log_radius.values > 0))
    path = unstable.stable_log_size.transpose("setting", "stable_turn").values
    growth = (path[:, -1] - path[:, 0]) / (path.shape[1] - 1)
    random = growth_per_turn(unstable.log_size.transpose("setting", "start", "turn").values)
    pairs = zip(unstable.setting.values, growth, strict=True)
    return Claim(
        id="all-other-solutions",
        claim="Where ρ > 1 all solutions other than the solution at rest diverge (Thm. 1).",
        quantity="growth per period of solutions of the flow that start in stable directions",
        reason="A solution diverges if its size grows. Solutions that start in the span of the "
        "multipliers below 1 are followed for a few periods, as long as rounding does not matter; "
        "there is no chance in the figures.",
        cases=(
            *(Case(f"{label}, stable directions", float(each), ">", 0.0) for label, each in pairs),
            Case("the same from random starts, least", float(random.min()), ">", 0.0, False),
        ),
        significance=0.0,
        note="Friction makes the product of all multipliers less than 1, so that some are below 1 "
        "wherever ρ > 1, and the solutions along them converge. They are a null set: almost every "
        "solution diverges."
        if (growth < 0).any()
        else "",
    )
