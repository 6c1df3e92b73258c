"""A replay trains again what was trained, bit for bit, with whatever a loop does."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from resonax.core.errors import ArgumentError
from resonax.guards.learner import Candidate
from resonax.torch import Guard
from resonax.torch.learner import TorchLearner


class Lion(torch.optim.Optimizer):
    """Signs of a mean of gradients (Chen et al., 2023), with a momentum under its own name."""

    def __init__(self, params, lr: float = 1e-3, decay: float = 0.9):
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                mean = state.setdefault("mean", torch.zeros_like(weight))
                mean.mul_(group["decay"]).add_(weight.grad, alpha=1 - group["decay"])
                weight.sub_(group["lr"] * mean.sign())


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "sgd, foreach": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, foreach=True),
    "sgd, fused": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.001, momentum=0.9, centered=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.003),
    "adam, foreach": lambda p: torch.optim.Adam(p, lr=0.003, foreach=True),
    "adam, fused": lambda p: torch.optim.Adam(p, lr=0.003, fused=True),
    "adam, lr a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.003), foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.003, amsgrad=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.003),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.003),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.003),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.001),
    "lion": lambda p: Lion(p, lr=0.001),
}
if hasattr(torch.optim, "Adafactor"):  # from torch 2.5 on
    OPTIMIZERS["adafactor"] = lambda p: torch.optim.Adafactor(p, lr=0.01)
KNOBS = {"lion": "decay"}


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 1)
    )


def rows(steps: int, seed: int = 0):
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(8, 5, generator=draw)
        yield x, x[:, :1] * 2 + 0.1 * torch.randn(8, 1, generator=draw)


def in_two_groups(model: nn.Sequential) -> list[dict[str, object]]:
    return [{"params": model[0].parameters(), "lr": 0.002}, {"params": model[1:].parameters()}]


def noisy_loss(model: nn.Module):
    """Return a loss that changes its rows by random numbers of torch, numpy and Python."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        moved = x + 0.1 * torch.randn_like(x) + 0.1 * random.gauss(0, 1)
        return mse_loss(model(moved + 0.1 * np.random.randn()), y)  # noqa: NPY002, as users do

    return loss


def all_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return copies of weights, buffers and the state of the optimizer."""
    states = [optimizer.state.get(one, {}) for one in model.parameters()]
    held = [torch.as_tensor(value) for state in states for value in state.values()]
    return [one.detach().clone() for one in (*model.parameters(), *model.buffers(), *held)]


def assert_same(one: list[Tensor], two: list[Tensor]) -> None:
    assert len(one) == len(two)
    for mine, other in zip(one, two, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0, equal_nan=True)


def assert_replayed(guard: Guard) -> None:
    """Train again from the oldest snapshot: the end is where the run is, in every bit."""
    learner, history = guard._training.learner, guard._training.run.state.history
    ends = all_of(guard.model, guard.optimizer)
    scale = None if learner.scaler is None else learner.scaler.state_dict()
    assert len(history.batches) > 8
    learner.load(history.snapshots[0].saved)
    assert any(
        not torch.equal(one, end) for one, end in zip(guard.model.parameters(), ends, strict=False)
    )
    with guard._training.making_steps():
        for batch in history.batches:
            learner.step(batch)
    assert_same(all_of(guard.model, guard.optimizer), ends)
    assert scale is None or learner.scaler.state_dict() == scale


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_is_replayed_bit_for_bit_with_all_that_a_loop_may_do(name):
    """Groups, a schedule, dropout, batch norm, three sources of random numbers, parts, clipping."""
    model = network()
    optimizer = OPTIMIZERS[name](in_two_groups(model))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    loss = noisy_loss(model)

    def clip():
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    guard = Guard(model, optimizer, transform=clip, knob=KNOBS.get(name), spacing=16)
    for x, y in rows(15):
        torch.rand(3), random.random(), np.random.rand(2)  # noqa: NPY002, the loop draws too
        guard.accumulate(x[:3], y[:3])
        guard.step(loss, x[3:], y[3:])
        schedule.step()
    assert_replayed(guard)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_candidate_lowers_momentum_and_step_size_during_a_step_only(name):
    model = network()
    optimizer = OPTIMIZERS[name](in_two_groups(model))
    learner = TorchLearner(model, optimizer, knob=KNOBS.get(name))
    seen, knob = [], learner.groups.knob
    optimizer.register_step_pre_hook(lambda *_: seen.append(_values(optimizer, knob)))
    before = _values(optimizer, knob)
    learner.set(Candidate(0.25, lr=0.1))
    (x, y), *_ = rows(1)
    learner.step(learner.keep(lambda x, y: mse_loss(model(x), y), ((x, y),)))
    for (lr, momentum), (own_lr, own) in zip(seen[0], before, strict=True):
        assert lr == pytest.approx(0.1 * own_lr)
        assert momentum == min(own, 0.25)
    assert _values(optimizer, knob) == before


def _values(optimizer, knob) -> list[tuple[float, float]]:
    return [
        (float(group["lr"]), 0.0 if knob is None else float(knob.get(group)))
        for group in optimizer.param_groups
    ]


def test_a_gradient_scaler_is_replayed_with_the_steps_that_it_skipped():
    """The first gradients overflow; clipping sees them unscaled, as in a loop without a guard."""
    ends = []
    for guarded in (True, False):
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=4)

        def loss(x, y, model=model):
            return 64 * mse_loss(model(x), y)

        def clip(model=model):
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)

        guard = Guard(model, optimizer, scaler=scaler, transform=clip) if guarded else None
        torch.manual_seed(3)
        for x, y in rows(24):
            if guard is not None:
                guard.step(loss, x, y)
                continue
            optimizer.zero_grad()
            scaler.scale(loss(x, y)).backward()
            scaler.unscale_(optimizer)
            clip()
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() < 2.0**126
        ends.append(all_of(model, optimizer))
        if guard is not None:
            assert_replayed(guard)
    assert_same(*ends)


@pytest.mark.parametrize(
    "backend",
    ["eager", *(pytest.param(one, marks=pytest.mark.slow) for one in ("aot_eager", "inductor"))],
)
def test_a_compiled_model_is_replayed(backend):
    model = torch.compile(network(), backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    guard = Guard(model, optimizer, spacing=16)
    for x, y in rows(18):  # over a test
        guard.step(lambda x, y: mse_loss(model(x), y), x, y)
    assert guard.report().work > 0.5
    assert_replayed(guard)


@pytest.mark.parametrize("where", ["cpu", "pinned"])
def test_snapshots_may_live_elsewhere(where):
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    guard = Guard(model, optimizer, snapshots=where)
    for x, y in rows(12):
        guard.step(noisy_loss(model), x, y)
    assert_replayed(guard)


def test_batches_beyond_the_limit_shorten_the_look_back():
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    guard = Guard(model, optimizer, memory=300_000, spacing=16, budget=10.0)
    for x, y in rows(80):
        guard.step(lambda x, y: mse_loss(model(x), y), x, y)
    history = guard._training.run.state.history
    assert history.size <= 300_000
    assert 16 <= len(history.batches) < 48  # of 10.2 kB each, with the states of random numbers
    assert guard.report().memory < 600_000
    assert guard.report().log.check() == ()
    assert_replayed(guard)


@pytest.mark.parametrize("first", [50, 70])
def test_a_loss_that_draws_late_is_replayed_with_the_numbers_that_it_drew(first):
    """Dropout, and numbers of numpy and Python, from a step on; the loop draws always."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    learner = TorchLearner(model, optimizer)
    kept, saved = [], None
    for step, (x, y) in enumerate(rows(first + 20)):
        torch.rand(2), random.random(), np.random.standard_normal()  # noqa: NPY002
        loss = noisy_loss(model) if step >= first else (lambda x, y: mse_loss(model(x), y))
        model.train(step >= first)  # no dropout before
        if step == first - 10:
            saved = learner.save()
        kept.append(learner.keep(loss, ((x, y),)))
        learner.step(kept[-1])
    assert saved is not None
    end, drawn = all_of(model, optimizer), learner.random_state()
    torch.manual_seed(7), random.seed(7), np.random.seed(7)  # noqa: NPY002
    learner.load(saved)
    for step, batch in enumerate(kept[first - 10 :], first - 10):
        model.train(step >= first)
        learner.step(batch)
    assert_same(all_of(model, optimizer), end)
    again = learner.random_state()
    assert torch.equal(again.torch[0], drawn.torch[0])
    assert again[1:] == drawn[1:]


def test_a_knob_that_is_not_there_is_refused_in_a_sentence():
    model = network()
    adam = torch.optim.Adam(model.parameters())
    with pytest.raises(ArgumentError, match="did you mean 'betas'"):
        Guard(model, adam, knob="beta")
    with pytest.raises(ArgumentError, match="must name a number"):
        Guard(model, adam, knob=("betas", 2))
    with pytest.raises(ArgumentError, match="snapshots"):
        Guard(model, adam, snapshots="gpu")
    with Guard(model, adam, knob=("betas", 1)) as guard:
        guard.step(lambda x, y: mse_loss(model(x), y), *next(rows(1)))
        assert guard.momentum == 0.999
    guard = Guard(model, adam)
    adam.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(ArgumentError, match="after the last parameter group"):
        guard.step(lambda x, y: mse_loss(model(x), y), *next(rows(1)))
