"""SGD with momentum on a target that moves, in plain NumPy: rows are drawn one by one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Moving(NamedTuple):
    """One weight and a bias, or the weight alone, and how inputs and target move."""

    kind: str
    period: float
    amplitude: float = 0.5
    variance: float = 1.0
    swing: float = 0.0
    innovation: float = 1e-2
    drift: tuple[float, ...] = (1.0, 0.0)  # of slope and bias
    square: float = 0.0  # of x^2, which the model omits
    bias: bool = True
    lr: float = 0.02
    momentum: float = 0.9
    nesterov: bool = False
    decay: float = 0.0
    batch: int = 4
    noise: float = 0.2
    is_shuffled: bool = False  # every row from a phase of its own


def signals(case: Moving, steps: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Return what moves inputs and target, (steps, runs)."""
    k = np.arange(steps)
    if case.kind == "sinusoid":
        return np.repeat(np.sin(2 * np.pi * k / case.period)[:, None], runs, axis=1)
    if case.kind == "square":
        return np.repeat(np.where((2 * k // case.period) % 2, -1.0, 1.0)[:, None], runs, axis=1)
    if case.kind == "switching":
        blocks = np.floor(k / case.period).astype(int)
        return rng.normal(size=(blocks[-1] + 1, runs))[blocks]
    phi1, phi2 = autoregression(case.period, case.innovation)
    lag = phi1 / (1 - phi2)
    path = np.empty((steps + 2, runs))
    path[0] = rng.normal(size=runs)
    path[1] = lag * path[0] + np.sqrt(1 - lag**2) * rng.normal(size=runs)
    for step in range(2, steps + 2):
        drawn = np.sqrt(case.innovation) * rng.normal(size=runs)
        path[step] = phi1 * path[step - 1] + phi2 * path[step - 2] + drawn
    return path[2:]


def autoregression(period: float, innovation: float) -> tuple[float, float]:
    """Return the coefficients of variance 1 whose density peaks at the period, by bisection."""
    low, high = -1 + 1e-9, -1e-9
    for _ in range(200):
        phi2 = (low + high) / 2
        phi1 = 4 * phi2 * np.cos(2 * np.pi / period) / (phi2 - 1)
        share = (1 + phi2) * ((1 - phi2) ** 2 - phi1**2) / (1 - phi2)
        low, high = (phi2, high) if share < innovation else (low, phi2)
    return float(phi1), float(phi2)


class Settled(NamedTuple):
    """Means over the last steps and all runs."""

    rms: float  # distance from the best weights of the step
    lag: float  # loss above that of those
    orbit: float  # root mean square of the motion of the mean weights, for a fixed law


def settle(case: Moving, steps: int, last: int, runs: int, seed: int) -> Settled:
    """Train runs from the best weights and return where they are in the last steps."""
    rng = np.random.default_rng(seed)
    path = signals(case, steps, runs, rng)
    size = 1 + case.bias
    drift = np.array(case.drift[:size])
    weights, velocity = np.zeros((runs, size)), np.zeros((runs, size))
    distances, losses, means = [], [], []
    for step, now in enumerate(path):
        of_rows = np.repeat(now[:, None], case.batch, axis=1)
        if case.is_shuffled:
            of_rows = np.sin(2 * np.pi * rng.random((runs, case.batch)))
        center, spread = case.amplitude * of_rows, case.variance * np.exp(case.swing * of_rows)
        x = center + np.sqrt(spread) * rng.normal(size=of_rows.shape)
        features = np.stack([x, np.ones_like(x)][:size], axis=-1)
        y = of_rows * (features @ drift) + case.square * x**2
        if step >= steps - last:
            best = moving_best(case, of_rows[:, 0], drift)
            distances.append((((weights - best) ** 2).sum(axis=1)).mean())
            losses.append(loss(case, weights, best, of_rows[:, 0]).mean())
            means.append(weights.mean(axis=0))
        miss = (features * weights[:, None]).sum(-1) - y
        miss -= np.sqrt(case.noise) * rng.normal(size=x.shape)
        gradient = 2 * (features * miss[..., None]).mean(axis=1) + case.decay * weights
        velocity = case.momentum * velocity - case.lr * gradient
        move = velocity
        if case.nesterov:
            move = case.momentum * velocity - case.lr * gradient
        weights = weights + move
    center = np.array(means) - np.mean(means, axis=0)
    return Settled(
        float(np.sqrt(np.mean(distances))),
        float(np.mean(losses)),
        float(np.sqrt((center**2).sum(axis=1).mean())),
    )


def moving_best(case: Moving, now: np.ndarray, drift: np.ndarray) -> np.ndarray:
    """Return the least-squares weights at some signals: of x^2 on x and 1, by hand."""
    center, spread = case.amplitude * now, case.variance * np.exp(case.swing * now)
    best = now[:, None] * drift
    if case.bias:  # x^2 = spread - center^2 + 2 center x + what no line explains
        return best + case.square * np.stack([2 * center, spread - center**2], axis=1)
    third = center**3 + 3 * center * spread
    return best + case.square * (third / (center**2 + spread))[:, None]


def loss(case: Moving, weights: np.ndarray, best: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Return the expected loss of some weights above that of the best ones of the step."""
    center, spread = case.amplitude * now, case.variance * np.exp(case.swing * now)
    gap = weights - best
    if not case.bias:
        return gap[:, 0] ** 2 * (center**2 + spread)
    return (gap[:, 0] * center + gap[:, 1]) ** 2 + gap[:, 0] ** 2 * spread
