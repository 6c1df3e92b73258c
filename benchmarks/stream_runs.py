"""Train models of `stream_models.py`: constants and remedies side by side, and a guarded run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from stream_models import Model, NumpyLearner

from resonax.guards import replay
from resonax.guards.averaging import preferred, share
from resonax.guards.calm import calm_steps
from resonax.guards.learner import default_candidates
from resonax.guards.replay import ReplayConfig, ReplayState
from resonax.guards.rewind import act

OWN = 0.95
FIXED = ("0.95", "0.9", "0.85", "0.5")
PLAIN = (*FIXED, "clipping", "reset", "Adam")
AVERAGED = "0.95, averaged"
ROWS = 128  # least rows of the reservoir, as in `resonax.torch`


def plain_runs(
    model: Model, start: np.ndarray, x: np.ndarray, y: np.ndarray, lr: float, judged: int = 1
) -> np.ndarray:
    """Train all of `PLAIN` on data (steps, runs, batch, dim), with JAX.

    Returns excess errors of the first of every ``judged`` steps, (steps, methods, runs); the last
    method is the average of the weights of the first.
    """
    with jax.enable_x64(True):
        steps = np.arange(1, len(x) + 1)
        shares = np.array([share(count) for count in steps.tolist()])
        inputs = [part.reshape(-1, judged, *part.shape[1:]) for part in (steps, shares, x, y)]
        weights = np.broadcast_to(start, (len(PLAIN), x.shape[1], len(start)))
        state = _begin(jnp.asarray(weights))

        def step(state: _Plain, one: Any) -> tuple[_Plain, None]:
            return _plain_step(model, lr, state, one), None

        def block(state: _Plain, inputs: Any) -> tuple[_Plain, Any]:
            first, _ = step(state, [part[0] for part in inputs])
            error = model.excess(jnp.concatenate([first.weights, first.average[None]]))
            return jax.lax.scan(step, first, [part[1:] for part in inputs])[0], error

        _, errors = jax.jit(lambda *given: jax.lax.scan(block, *given))(state, inputs)
        return np.nan_to_num(np.asarray(errors), nan=np.inf, posinf=np.inf)


class _Plain(NamedTuple):
    """State of all of `PLAIN`, (methods, runs, weights), and of Adam, the last of them."""

    weights: Any
    velocity: Any
    mean: Any  # of the losses
    adam: Any
    square: Any
    average: Any  # of the first


def _begin(weights: Any) -> _Plain:
    zeros = jnp.zeros_like(weights)
    mean = jnp.full(weights.shape[:2], jnp.inf)
    return _Plain(weights, zeros, mean, zeros[-1], zeros[-1], weights[0])


def _plain_step(model: Model, lr: float, state: _Plain, inputs: Any) -> _Plain:
    """Train all of `PLAIN` on one batch of each run."""
    step, share, x, y = inputs
    momentum = np.array([float(m) if m in FIXED else OWN for m in PLAIN])[:, None, None]
    is_clipped = np.array([m == "clipping" for m in PLAIN])[:, None, None]
    is_reset = np.array([m == "reset" for m in PLAIN])[:, None]
    loss, grad = model.gradient(state.weights, x, y)
    adam = 0.9 * state.adam + 0.1 * grad[-1]
    square = 0.999 * state.square + 0.001 * grad[-1] ** 2
    norm = jnp.sqrt((grad**2).sum(-1, keepdims=True))
    grad = jnp.where(is_clipped, grad / jnp.maximum(norm, 1), grad)
    keep = jnp.where(is_reset & (loss > 10 * state.mean), 0.0, 1.0)[..., None]
    mean = jnp.where(jnp.isinf(state.mean), loss, 0.99 * state.mean + 0.01 * loss)
    velocity = momentum * keep * state.velocity + grad
    rate = lr / (1 - 0.9**step)
    last = -rate * adam / (jnp.sqrt(square / (1 - 0.999**step)) + 1e-8)
    weights = state.weights + (-lr * velocity).at[-1].set(last)
    average = state.average + share * (weights[0] - state.average)
    return _Plain(weights, velocity, mean, adam, square, average)


def guarded_run(
    model: Model,
    start: np.ndarray,
    batches: Iterable[Any],
    lr: float,
    config: Any,
    judged_every: int = 1,
) -> tuple[np.ndarray, Any]:
    """Train one guarded run; excess errors of the weights and of those offered, and its state.

    Offered is what `preferred` found when that was last looked at: the average of the weights, the
    weights, or what was offered before.
    """
    learner, state = NumpyLearner(model, start, lr, OWN), replay.init(config)
    average = offered = learner.weights
    batches, count, error = list(batches), 0, float(model.excess(offered))
    path, given = [], []  # all weights, and the error of those offered
    while len(path) < len(batches):
        state, is_due, made = _advance(state, config, learner, batches)
        average = _continued(average, made[:-1], count)
        count += len(made) - 1
        if is_due:
            changes = len(state.decisions)
            state = act(state, config, learner)
            if len(state.decisions) > changes:
                judged = learner.loss_of(average, state.reservoir)
                count = count if judged < learner.loss(state.reservoir) else 0
        average = _continued(average, [learner.weights], count)
        count += 1
        path += [*made[:-1], learner.weights]
        given += [error] * (len(made) - 1)
        if is_looked_at(state.step, config.spacing):
            held = (average, learner.weights, offered)
            offered = held[preferred(learner.losses_of(np.stack(held), state.reservoir))]
            error = float(model.excess(offered))
        given.append(error)
    errors = [model.excess(np.stack(path[::judged_every])), given[::judged_every]]
    return np.nan_to_num(np.stack(errors, axis=1), nan=np.inf), state


def _advance(
    state: ReplayState, config: ReplayConfig, learner: NumpyLearner, batches: list[Any]
) -> tuple[ReplayState, bool, list[np.ndarray]]:
    """Train until something is looked at; the state, whether something is due, all weights."""
    state, spacing = replay.with_snapshot(state, config, learner), config.spacing
    used, first = config.candidates[state.place], state.step
    learner.set(used)
    calm = calm_steps(state, config)
    if used.is_mixed:  # nothing is due before the spacing or the wait ends
        calm = min(spacing - first % spacing, max(state.hold - first, 1)) - 1
    stop = first + 1
    while stop <= first + calm and not is_looked_at(stop, spacing):
        stop += 1
    taken = batches[first:stop]
    state = replay.with_batches(state, config, learner, taken)
    losses, path = [], []
    for back in range(len(taken) - 1, -1, -1):
        count = len(state.ladder.batches) - back
        losses.append(learner.step(replay.trained_on(state, config, learner, used, count)))
        path.append(learner.weights)
    state = replay.count_steps(state, config, losses)
    return *replay.look(state, config, learner), path


def _continued(average: np.ndarray, weights: list[np.ndarray], count: int) -> np.ndarray:
    """Return the average of ``count`` weights and of those that follow."""
    if not weights:
        return average
    shares = np.array([share(count + place) for place in range(1, len(weights) + 1)])
    kept = np.append(np.cumprod(1 - shares[::-1])[::-1], 1.0)  # of each, by those after it
    return kept[0] * average + (kept[1:] * shares) @ np.stack(weights)


def is_looked_at(step: int, spacing: int) -> bool:
    """Return whether what is offered is chosen anew: at powers of 2, and once in a spacing."""
    return step % spacing == 0 or (step < spacing and step & (step - 1) == 0)


def config_of(batch: int, seed: int, **options: Any) -> Any:
    """Return the guard's settings for batches of so many rows."""
    reservoir = max(16, -(-ROWS // batch))
    made = ReplayConfig(default_candidates(OWN), reservoir=reservoir, seed=seed)
    return replace(made, **options)


def numbers(errors: np.ndarray) -> dict[str, float]:
    """Return the mean error of all steps and of the last tenth, and the largest."""
    with np.errstate(over="ignore"):
        ends = {"whole": errors.mean(), "end": errors[-(len(errors) // 10) :].mean()}
    ends |= {"largest": errors.max()}
    return {key: min(float(value), 1e300) for key, value in ends.items()}
