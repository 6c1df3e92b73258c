"""Parameters and an optax optimizer as a learner that can be rewound and trained again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from resonax.core.errors import ArgumentError
from resonax.guards.learner import MOST_COPIES, Candidate, mean_loss
from resonax.guards.phases import Phased, projected
from resonax.jax import batches as kept
from resonax.jax import hyperparameters
from resonax.jax.batches import KeptBatch
from resonax.jax.hyperparameters import Hyperparameters

__all__ = ["JaxLearner", "Programs", "Saved", "compile_programs"]

_JOINED = 2**24  # bytes up to which batches are judged at once


class Saved(NamedTuple):
    """All that a step changes. Arrays of jax never change, so that a copy costs nothing."""

    params: Any
    opt_state: Any
    model_state: Any


class Programs(NamedTuple):
    """The two compiled functions of a guard: a step of training, and the losses on batches."""

    train: Callable[..., tuple[Saved, Array]]
    judge: Callable[..., Array]


def _called(function: Callable[..., Any], saved: Saved, params: Any, batch: tuple[Any, ...]) -> Any:
    """Return the loss and the next model state; the function gets what the run has."""
    data, key, step = batch
    model_state = () if saved.model_state is None else (saved.model_state,)
    keys = () if key is None else (jax.random.fold_in(key, step),)
    made = function(params, *model_state, data, *keys)
    loss, after = made if model_state else (made, None)
    if jnp.shape(loss):
        raise ArgumentError(
            f"loss_fn must return the loss of the batch, one number, got {jnp.shape(loss)}"
        )
    return loss, after


def compile_programs(
    loss_fn: Callable[..., Any],
    eval_fn: Callable[..., Any],
    optimizer: optax.GradientTransformationExtraArgs,
    name: str | None,
) -> Programs:
    """Return the compiled functions of a guard; ``name`` is the momentum's, if it is not usual."""

    @jax.jit
    def train(
        saved: Saved, batch: tuple[Any, ...], own: Hyperparameters, momentum: Array, factor: Array
    ) -> tuple[Saved, Array]:
        names = hyperparameters.momentum_names(saved.opt_state, name)
        before = hyperparameters.lowered(own, names, momentum)
        opt_state = hyperparameters.write(saved.opt_state, before)
        objective = jax.value_and_grad(
            lambda one: _called(loss_fn, saved, one, batch), has_aux=True
        )
        (loss, model_state), grads = objective(saved.params)
        updates, opt_state = optimizer.update(grads, opt_state, saved.params, value=loss)
        updates = jax.tree.map(lambda one: one * jnp.asarray(factor, one.dtype), updates)
        after = zip(names, hyperparameters.read(opt_state), own, strict=True)
        restored = tuple(
            held if key is None else {**held, key: jnp.asarray(mine[key])}
            for key, held, mine in after
        )
        params = optax.apply_updates(saved.params, updates)
        return Saved(params, hyperparameters.write(opt_state, restored), model_state), loss

    @jax.jit
    def judge(saved: Saved, data: Any, key: Any, steps: Array | np.ndarray) -> Array:
        def loss(batch: tuple[Any, Any]) -> Array:
            return _called(eval_fn, saved, saved.params, (batch[0], key, batch[1]))[0]

        each = jax.vmap if kept.byte_size(data) <= _JOINED else _mapped
        return each(loss)((data, steps))

    return Programs(train, judge)


def _mapped(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda stacked: jax.lax.map(function, stacked)


class JaxLearner(Phased):
    """A run at a moment; it lives within one `update`, and is all that changes there.

    A candidate's factor multiplies the update of the optimizer, whatever schedule made it. Its
    momentum is in force during a step only: between steps the state has the user's own.
    ``judged`` is the number of batches for which the loss is compiled.
    """

    def __init__(self, programs: Programs, saved: Saved, judged: int = 1):
        self.programs, self.saved, self.judged = programs, saved, judged
        self.candidate = Candidate(1.0)

    def save(self) -> Saved:
        """Return the state of the run."""
        return self.saved

    def load(self, saved: Saved) -> None:
        """Go on from another state."""
        self.saved = saved

    def set(self, candidate: Candidate) -> None:
        """Train with this candidate from now on."""
        self.candidate = candidate

    def step(self, batch: KeptBatch) -> Array:
        """Train on a batch; the loss is not waited for."""
        momentum, factor = self.candidate.momentum, self.candidate.lr
        self.saved, loss = self.programs.train(
            self.saved, batch[:3], batch.own, momentum, float(factor)
        )
        return loss

    def loss(self, batches: Sequence[KeptBatch]) -> float:
        """Return the mean loss on batches."""
        return mean_loss(self.losses(batches))

    def losses(self, batches: Sequence[KeptBatch]) -> list[float]:
        """Return the loss on each batch."""
        if len({kept.count_rows(one.data) for one in batches}) > 1:
            return [loss for one in batches for loss in self.losses([one])]
        count = 1 if len(batches) == 1 else max(self.judged, len(batches))
        filled = [*batches, *[batches[0]] * (count - len(batches))]
        data, steps = kept.stacked([one.data for one in filled]), [one.step for one in filled]
        judged = self.programs.judge(self.saved, data, batches[0].key, np.array(steps))
        return np.asarray(judged)[: len(batches)].tolist()

    def mix(
        self,
        batches: Sequence[KeptBatch],
        rng: np.random.Generator,
        like: Sequence[KeptBatch] | None = None,
    ) -> Sequence[KeptBatch]:
        """Return the rows of batches in random order."""
        return kept.mix_rows(batches, rng, like)

    def size(self, batch: KeptBatch) -> int:
        """Return the bytes of a batch."""
        return kept.byte_size(batch.data)

    def sketches(self, batches: Sequence[KeptBatch]) -> np.ndarray:
        """Return random projections of the mean row of each batch."""
        return projected(np.stack([kept.mean_row(one.data) for one in batches]))

    def row_counts(self, batches: Sequence[KeptBatch]) -> list[int]:
        """Return the number of rows of each batch."""
        return [kept.count_rows(one.data) for one in batches]

    def saved_size(self, saved: Saved) -> int:
        """Return the bytes of a snapshot."""
        return kept.byte_size(saved)

    def replay_size(self, saved: Sequence[Any], batches: Sequence[Any]) -> int:
        """Return the bytes of the copies that a replay holds at most."""
        return MOST_COPIES * max(map(self.saved_size, saved), default=0)
