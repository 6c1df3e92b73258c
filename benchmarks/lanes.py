"""Networks in lanes against the loop of jax: single runs, and the law of the response over seeds.

Run: python benchmarks/lanes.py [--quick]

The two loops draw the same random numbers and round otherwise. First, the same runs by both: how
far their test losses are apart after some steps, for several optimizers, as the median and the
largest of all runs. A network that leaves for another minimum, or that no longer learns, is
sensitive to the last digit, so that single runs part in the end. What a figure shows is their
law: second, how far the means of the same runs are apart, in standard errors; runs with other
seeds by the test of Kolmogorov and Smirnov, beside lanes against lanes, which shows what chance
makes of it; and the shares of runs that overflow.
"""

from __future__ import annotations

import argparse

import llvmlite
import numpy as np
from scipy import stats

import resonax as rx
from resonax.lanes import host_machine

OPTIMIZERS = {
    "heavy_ball": rx.heavy_ball(0.01, 0.95),
    "nesterov": rx.nesterov(0.01, 0.95),
    "sgd": rx.sgd(0.01),
    "adam": rx.adam(0.001, 0.95),
    "rmsprop": rx.rmsprop(0.001),
}
PERIODS = [0.0, 2.0, 8.0, 20.0, 60.0]


def responses(lanes: bool, optimizer: str, seed: int, runs: int, steps: int) -> np.ndarray:
    """Return the logarithm of the test loss in the last tenth of runs, (periods, runs)."""
    process = rx.Switching(period=6.0, dim=2, variance=0.1, amplitude=0.4**0.5)
    training = rx.Training(process, OPTIMIZERS[optimizer], rx.Network(), batch=10, noise=0.1)
    options = {"runs": runs, "steps": steps, "window": steps // 10, "seed": seed, "lanes": lanes}
    return rx.simulate(training, {"period": PERIODS}, **options).log_response[:, 0]


def show_runs(lengths: list[int], runs: int) -> None:
    """Print how far the two loops are apart in the same runs."""
    print("The same runs by both: difference of the log loss, median and largest")
    for optimizer in OPTIMIZERS:
        found = []
        for steps in lengths:
            ours, theirs = (responses(lanes, optimizer, 1, runs, steps) for lanes in (True, False))
            is_known = np.isfinite(ours) & np.isfinite(theirs)
            gaps = np.abs(ours[is_known] - theirs[is_known])
            found.append(f"{steps} steps: {np.median(gaps):.0e}, {gaps.max():.0e}")
        print(f"  {optimizer:10s} {'; '.join(found)}", flush=True)


def largest_shift(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return how far the means of the same runs are apart, in standard errors of a mean."""
    shifts = []
    for one, other in zip(ours, theirs, strict=True):
        is_known = np.isfinite(one) & np.isfinite(other)
        gap = (one[is_known] - other[is_known]).mean()
        shifts.append(abs(gap) * np.sqrt(is_known.sum()) / other[is_known].std())
    return max(shifts)


def least_pvalue(one: np.ndarray, other: np.ndarray) -> float:
    """Return the least p-value over periods; an overflow is infinite, and the largest."""
    pairs = zip(one, other, strict=True)
    return min(np.asarray(stats.ks_2samp(a, b)[1]).item() for a, b in pairs)


def show_laws(runs: int, steps: int) -> None:
    """Print how far the laws of the response are apart, with the same seeds and with others."""
    print(f"{runs} runs of {steps} steps for each of {len(PERIODS)} periods, lanes and jax")
    for optimizer in ("heavy_ball", "adam"):
        same, others = (responses(True, optimizer, seed, runs, steps) for seed in (21, 22))
        theirs = responses(False, optimizer, 21, runs, steps)
        pvalues = [f"{least_pvalue(others, found):.3f}" for found in (theirs, same)]
        over = [f"{np.isposinf(found).mean():.4f}" for found in (same, others, theirs)]
        print(f"  {optimizer}")
        print(f"    same seeds: means apart by {largest_shift(same, theirs):.1e} standard errors")
        print(f"    other seeds: least p-value of {len(PERIODS)} {pvalues[0]},")
        print(f"                 and {pvalues[1]} for lanes against lanes")
        print(f"    overflows {', '.join(over)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs and steps")
    quick = parser.parse_args().quick
    machine = host_machine()
    print(f"llvmlite {llvmlite.__version__}, {machine.cpu}, {machine.lanes(False)} lanes")
    show_runs([200] if quick else [200, 1000, 4000], 12 if quick else 24)
    show_laws(96 if quick else 240, 1000 if quick else 2000)


if __name__ == "__main__":
    main()
