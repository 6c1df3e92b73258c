"""One linear problem in 64 bits through every adapter of the guard by replay: one set of decisions.

The learners are written independently: NumPy by hand, torch and JAX by their own derivatives.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import resonax.jax
from linear_learner import LinearLearner, switching_rows
from resonax import Guard
from resonax.guards import guarded_run
from resonax.guards.learner import default_candidates
from resonax.guards.state import GuardConfig
from resonax.torch.learner import TorchLearner

LR, MOMENTUM = 0.03, 0.95


def rows():
    """Rows in so clear an order that every adapter finds it: each projects gradients by its own."""
    return switching_rows(160, period=6, seed=0)


def by_copies():
    """`resonax.Guard` on the learner by hand, with its step and its names."""
    guard = Guard(
        LinearLearner(LR, MOMENTUM),
        learn=lambda model, x, y: model.step((x, y)),
        loss=lambda model, x, y: model.loss([(x, y)]),
        knob="momentum",
        lr="lr",
    )
    for batch in rows():
        guard.learn(*batch)
    return guard._run.state.decisions, guard.model.weights


@functools.cache
def by_hand():
    learner = LinearLearner(LR, MOMENTUM)
    return guarded(learner, lambda batch: batch), learner.weights


def guarded(learner, kept):
    run = guarded_run.with_reservoir(guarded_run.init(GuardConfig(default_candidates(MOMENTUM))), 1)
    for batch in rows():
        run, _ = guarded_run.update(run, learner, kept(batch))
    return run.state.decisions


def by_torch():
    weights = torch.nn.Linear(6, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        weights.weight[0] = torch.as_tensor(LinearLearner(LR, MOMENTUM).weights)
    optimizer = torch.optim.SGD(weights.parameters(), lr=LR, momentum=MOMENTUM)
    learner = TorchLearner(weights, optimizer)

    def loss_fn(x, y):
        return torch.mean((weights(x)[:, 0] - y) ** 2)

    def kept(batch):
        part = tuple(map(torch.as_tensor, batch))
        return learner.keep(loss_fn, (part,))

    return guarded(learner, kept), weights.weight.detach().numpy()[0]


def by_jax():
    def loss_fn(params, batch):
        return jnp.mean((batch[0] @ params - batch[1]) ** 2)

    with jax.enable_x64(True):
        optimizer = optax.inject_hyperparams(optax.sgd)(LR, momentum=MOMENTUM)
        guard = resonax.jax.guard(loss_fn, optimizer, log_changes=False)
        state = guard.init(LinearLearner(LR, MOMENTUM).weights)
        for batch in rows():
            state, _ = guard.update(state, batch)
        return state.run.state.decisions, np.asarray(state.params)


@pytest.mark.parametrize("other", [by_copies, by_torch, by_jax])
def test_every_adapter_takes_the_same_decisions(other):
    wanted, weights = by_hand()
    found, ends = other()
    assert wanted
    assert [one[:5] for one in found] == [one[:5] for one in wanted]
    for one, like in zip(found, wanted, strict=True):
        assert [each[0] for each in one.tried] == [each[0] for each in like.tried]
        np.testing.assert_allclose(numbers(one), numbers(like), rtol=1e-6)
    np.testing.assert_allclose(ends, weights, rtol=1e-6)


def numbers(decision):
    return [decision.own, *decision.mixed, *(loss for _, loss in decision.tried)]
