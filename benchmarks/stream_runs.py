"""Train models of `stream_models.py`: constants and remedies side by side, and a guarded run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from stream_models import Model, NumpyLearner

OWN = 0.95
FIXED = ("0.95", "0.9", "0.85", "0.5")
PLAIN = (*FIXED, "clipping", "reset", "Adam")
AVERAGED = "0.95, averaged"
ROWS = 128  # least rows of the reservoir, as in `resonax.torch`


def averaged(average: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """Return the average of ``count`` weights."""
    from resonax.guards.averaging import share

    return average + share(count) * (weights - average)


def plain_runs(
    model: Model, start: np.ndarray, x: np.ndarray, y: np.ndarray, lr: float, judged: int = 1
) -> np.ndarray:
    """Train all of `PLAIN` on data (steps, runs, batch, dim).

    Returns excess errors of the judged steps, (steps, methods, runs); the last method is the
    average of the weights of the first.
    """
    weights = np.broadcast_to(start, (len(PLAIN), x.shape[1], len(start))).copy()
    momentum = np.array([float(m) if m in FIXED else OWN for m in PLAIN])[:, None, None]
    is_clipped = np.array([m == "clipping" for m in PLAIN])[:, None, None]
    is_reset = np.array([m == "reset" for m in PLAIN])[:, None]
    velocity, square = np.zeros_like(weights), np.zeros_like(weights[-1])
    adam, average = np.zeros_like(square), weights[0].copy()
    mean, errors = np.full(weights.shape[:2], np.inf), []
    for step in range(len(x)):
        loss, grad = model.gradient(weights, x[step], y[step])
        adam, square = 0.9 * adam + 0.1 * grad[-1], 0.999 * square + 0.001 * grad[-1] ** 2
        norm = np.sqrt((grad**2).sum(-1, keepdims=True))
        grad = np.where(is_clipped, grad / np.maximum(norm, 1), grad)
        keep = np.where(is_reset & (loss > 10 * mean), 0.0, 1.0)[..., None]
        mean = np.where(np.isinf(mean), loss, 0.99 * mean + 0.01 * loss)
        velocity = momentum * keep * velocity + grad
        change = -lr * velocity
        rate = lr / (1 - 0.9 ** (step + 1))
        change[-1] = -rate * adam / (np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-8)
        weights = weights + change
        average = averaged(average, weights[0], step + 1)
        if step % judged == 0:
            errors.append(model.excess(np.concatenate([weights, average[None]])))
    return np.nan_to_num(np.array(errors), nan=np.inf, posinf=np.inf)


def guarded_run(
    model: Model,
    start: np.ndarray,
    batches: Iterable[Any],
    lr: float,
    config: Any,
    judged_every: int = 1,
) -> tuple[np.ndarray, Any]:
    """Train one guarded run; excess errors of the weights and of those offered, and its state.

    Offered is what did best on the reservoir when that was last looked at: the weights, their
    average, or what was offered before.
    """
    from resonax.guards import replay
    from resonax.guards.rewind import act

    learner = NumpyLearner(model, start, lr, OWN)
    state = replay.init(config)
    average = offered = learner.weights
    count = 0
    errors: list[list[Any]] = []
    for step, batch in enumerate(batches):
        state = replay.before_step(state, config, learner, batch)
        used = config.candidates[state.place]
        learner.set(used)
        trained = replay.trained_on(state, config, learner, used, len(state.ladder.batches))
        state, is_due = replay.after_step(state, config, learner, learner.step(trained))
        if is_due:
            changes = len(state.decisions)
            state = act(state, config, learner)
            if len(state.decisions) > changes:
                judged = learner.loss_of(average, state.reservoir)
                count = count if judged < learner.loss(state.reservoir) else 0
        count += 1
        average = averaged(average, learner.weights, count)
        if is_looked_at(step + 1, config.spacing):
            held = (offered, average, learner.weights)
            offered = min(held, key=lambda one: learner.loss_of(one, state.reservoir))
        if step % judged_every == 0:
            errors.append([model.excess(learner.weights), model.excess(offered)])
    return np.nan_to_num(np.array(errors), nan=np.inf), state


def is_looked_at(step: int, spacing: int) -> bool:
    """Return whether what is offered is chosen anew: at powers of 2, and once in a spacing."""
    return step % spacing == 0 or (step < spacing and step & (step - 1) == 0)


def config_of(batch: int, seed: int, **options: Any) -> Any:
    """Return the guard's settings for batches of so many rows."""
    from resonax.guards.learner import default_candidates
    from resonax.guards.replay import ReplayConfig

    reservoir = max(16, -(-ROWS // batch))
    made = ReplayConfig(default_candidates(OWN), reservoir=reservoir, seed=seed)
    return replace(made, **options)


def numbers(errors: np.ndarray) -> dict[str, float]:
    """Return the mean error of all steps and of the last tenth, and the largest."""
    with np.errstate(over="ignore"):
        ends = {"whole": errors.mean(), "end": errors[-(len(errors) // 10) :].mean()}
    ends |= {"largest": errors.max()}
    return {key: min(float(value), 1e300) for key, value in ends.items()}
