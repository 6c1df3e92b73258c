"""Losses that are not finite: of batches, which are set aside, or of a run that diverges."""

from __future__ import annotations

import logging
import math
import warnings

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import resonax
import resonax.jax
from resonax.guards.learner import Candidate
from resonax.torch import Guard

NAN = float("nan")


def batches(steps: int, bad=()):
    """Independent rows; those of some steps hold a number that is none."""
    rng = np.random.default_rng(0)
    for step in range(steps):
        x = rng.standard_normal((8, 3))
        y = x @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(8)
        if step in bad:
            x[3, 1] = NAN
        yield x, y


def train_torch(given, policy="safe", lr=0.02, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    guard = Guard(
        model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9), policy, **options
    )
    for x, y in given:
        x, y = torch.tensor(x).float(), torch.tensor(y).float()
        guard.step(lambda x, y: mse_loss(model(x)[:, 0], y), x, y)
    return np.concatenate([one.detach().ravel() for one in model.parameters()]), guard.report()


def train_jax(given, policy="safe", lr=0.02, **options):
    def loss_fn(params, batch):
        return jnp.mean((batch[0] @ params - batch[1]) ** 2)

    optimizer = optax.inject_hyperparams(optax.sgd)(lr, momentum=0.9)
    guard = resonax.jax.guard(loss_fn, optimizer, policy, **options)
    state = guard.init(jnp.zeros(3))
    for batch in given:
        state, _ = guard.update(state, batch)
    return np.asarray(state.params), guard.report(state)


class Own:
    """Least squares by SGD with momentum."""

    def __init__(self, lr: float):
        self.weights, self.velocity, self.momentum, self.lr = np.zeros(3), np.zeros(3), 0.9, lr

    def learn(self, x, y):
        gradient = 2 * x.T @ (x @ self.weights - y) / len(y)
        self.velocity = self.momentum * self.velocity + gradient
        self.weights = self.weights - self.lr * self.velocity


def train_own(given, policy="safe", lr=0.02, **options):
    guard = resonax.Guard(
        Own(lr),
        policy,
        learn=lambda model, x, y: model.learn(x, y),
        loss=lambda model, x, y: np.mean((x @ model.weights - y) ** 2),
        knob="momentum",
        lr="lr",
        **options,
    )
    for x, y in given:
        guard.learn(x, y)
    return guard.model.weights, guard.report()


TRAINERS = {"torch": train_torch, "jax": train_jax, "own": train_own}


@pytest.fixture(params=TRAINERS)
def train(request):
    return TRAINERS[request.param]


def lost(report):
    return [one for one in report.events if one.kind == "lost"]


def test_a_batch_without_a_finite_loss_is_set_aside_and_told_once(train):
    """Two of 150 independent batches: the order is not blamed, and the run ends as without them."""
    bad = {50, 70}
    with pytest.warns(resonax.torch.GuardWarning, match="the batch of step 51") as caught:
        weights, report = train(batches(150, bad))
    assert len(caught) == 1
    assert [one.step for one in lost(report)] == [64 if train is train_jax else 51]
    assert report.set_aside == 2
    assert "2 batches set aside, as their loss is not finite" in str(report)
    assert not report.decisions
    assert report.setting == report.own
    assert report.log.check() == ()
    good = [one for step, one in enumerate(batches(150)) if step not in bad]
    expected, _ = train(good)
    np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-4)


def test_a_loss_that_is_never_finite_is_told_at_the_first_step(train):
    with pytest.warns(
        resonax.torch.GuardWarning, match="loss of the first step is not finite"
    ) as caught:
        weights, report = train(batches(64, range(64)))
    assert len(caught) == 1
    assert [one.step for one in report.events] == [1]
    assert "no loss of this run was finite" in str(report)
    assert np.isfinite(weights).all()
    assert not report.decisions


def test_the_rest_of_a_run_is_learnt_whose_first_batch_has_no_finite_loss(train):
    with pytest.warns(resonax.torch.GuardWarning, match="first step"):
        weights, report = train(batches(150, {0}))
    assert report.set_aside == 1
    assert report.losses[-1] < 1
    assert np.isfinite(weights).all()


def test_a_run_that_is_watched_is_told_to_be_lost_and_its_order_is_not_blamed(train):
    with pytest.warns(resonax.torch.GuardWarning, match="batch of step 51") as caught:
        weights, report = train(batches(200, {50}), "watch")
    assert len(caught) == 1
    assert not np.isfinite(weights).all()  # watching changes nothing
    assert not report.decisions
    assert report.is_lost
    assert "the loss of this run is not finite any more" in str(report)
    assert report.log.check() == ()


def test_a_run_that_diverges_is_undone_and_no_batch_is_set_aside(train):
    """The step size is beyond 2/curvature in any order, until numbers end."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error", resonax.torch.GuardWarning)
        logging.getLogger("resonax").setLevel(logging.ERROR)
        weights, report = train(((3 * x, y) for x, y in batches(150)), lr=3.0)
    assert report.set_aside == 0
    assert report.decisions[0].why == "alarm"
    assert np.isfinite(weights).all()


@pytest.mark.parametrize("policy", ["safe", "fastest"])
def test_rows_without_a_finite_loss_are_not_mixed_with_others(policy):
    mixed = [Candidate(0.9, is_mixed=True)]
    with pytest.warns(resonax.torch.GuardWarning):
        weights, report = train_own(batches(300, range(1, 300, 40)), policy, candidates=mixed)
    assert 6 <= report.set_aside <= 8  # those that came after a change are looked at later
    assert np.isfinite(weights).all()
    assert math.isfinite(report.losses[-1])
    assert report.log.check() == ()


def test_a_mixed_run_finds_the_batch_whose_rows_spoil_those_of_others():
    """Ordered rows, which the guard mixes: a bad row may be drawn some steps after it came."""
    rng, given = np.random.default_rng(0), []
    for step in range(200):
        x = np.eye(3)[[step // 16 % 3]] * np.ones((8, 1)) + 1e-3 * rng.standard_normal((8, 3))
        x[:, 0] += 1.0
        given.append((x, np.full(8, [1.0, -1.0, 3.0][step // 16 % 3])))
    given[100][0][:] = NAN
    mixed = [Candidate(0.0, is_mixed=True)]
    with pytest.warns(resonax.torch.GuardWarning, match="batch of step 101"):
        weights, report = train_own(given, candidates=mixed, lr=0.1)
    assert report.candidate.is_mixed
    assert report.set_aside == 1
    assert np.isfinite(weights).all()
