"""The guard in training loops of torch."""

from __future__ import annotations

import copy
import math
import warnings

import numpy as np
import pytest
import torch

from resonax import ArgumentError
from resonax.torch import Guard, ResonanceWarning
from resonax.torch.groups import Groups
from resonax.torch.products import gauss_newton, hessian, outputs_of
from resonax.torch.shadows import Shadows
from streams import followed, switching

mse = torch.nn.functional.mse_loss


@pytest.fixture(autouse=True)
def _alone():
    torch.manual_seed(0)
    torch.set_num_threads(1)


def linear(lr=0.01, **options):
    model = torch.nn.Linear(5, 1)
    return model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.95, **options)


def train(model, optimizer, guard, stream):
    for x, y in stream:
        if guard is not None:
            guard.step(lambda x=x, y=y: mse(model(x), y))
            continue
        optimizer.zero_grad()
        mse(model(x), y).backward()
        optimizer.step()


def distance(model):
    return math.sqrt(sum(float((weight.detach() ** 2).sum()) for weight in model.parameters()))


def test_products_are_those_of_the_matrices():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    x, y = torch.randn(4, 2), torch.tensor([0, 1, 1, 0])
    weights = list(model.parameters())
    output = model(x)
    loss = torch.nn.functional.cross_entropy(output, y)
    sizes = [weight.numel() for weight in weights]
    unit = torch.eye(sum(sizes))
    along = [
        part.reshape(-1, *weight.shape)
        for part, weight in zip(unit.split(sizes, dim=1), weights, strict=True)
    ]
    made = [torch.cat([part.flatten(1) for part in kind], 1) for kind in (
        gauss_newton(loss, [output], weights, along), hessian(loss, weights, along))]  # fmt: skip

    def whole(vector, last):
        parts = [
            part.reshape(w.shape) for part, w in zip(vector.split(sizes), weights, strict=True)
        ]
        names = dict(zip(dict(model.named_parameters()), parts, strict=True))
        outputs = torch.func.functional_call(model, names, (x,))
        return torch.nn.functional.cross_entropy(outputs, y) if last else outputs

    vector = torch.cat([weight.detach().flatten() for weight in weights])
    expected = torch.func.hessian(lambda v: whole(v, True))(vector)
    assert torch.allclose(made[1], expected, atol=1e-5)
    jacobian = torch.func.jacrev(lambda v: whole(v, False))(vector).flatten(0, 1)
    inner = torch.func.hessian(lambda z: torch.nn.functional.cross_entropy(z, y))(output.detach())
    expected = jacobian.T @ inner.reshape(8, 8) @ jacobian
    assert torch.allclose(made[0], expected, atol=1e-5)
    assert torch.linalg.eigvalsh(made[0]).min() > -1e-6
    one = gauss_newton(loss, [output], weights, [part[:1] for part in along])
    assert torch.allclose(torch.cat([part.flatten(1) for part in one], 1), expected[:1], atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"momentum": 0.8, "dampening": 0.3, "weight_decay": 0.2},
        {"momentum": 0.9, "maximize": True},
    ],
)
def test_shadows_move_as_the_difference_of_two_runs(options):
    """Groups with step sizes of their own, a schedule, and every option of SGD."""

    def make(model):
        groups = [{"params": [model.weight], "lr": 0.05}, {"params": [model.bias]}]
        optimizer = torch.optim.SGD(groups, lr=0.1, **options)
        return optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    sign = -1.0 if options.get("maximize") else 1.0
    model = torch.nn.Linear(3, 1, dtype=torch.float64)
    twin = copy.deepcopy(model)
    direction = [torch.randn_like(weight) for weight in model.parameters()]
    runs = [(module, *make(module)) for module in (model, twin)]

    def learn(x):
        for module, optimizer, schedule in runs:
            optimizer.zero_grad()
            (sign * module(x).square().mean()).backward()
            optimizer.step()
            schedule.step()

    learn(torch.randn(4, 3, dtype=torch.float64))  # torch makes its buffers, without dampening
    with torch.no_grad():
        for weight, step in zip(twin.parameters(), direction, strict=True):
            weight += step
    groups = Groups(runs[0][1])
    shadows = Shadows([part[None].clone() for part in direction], [])
    shadows.velocities = [torch.zeros_like(part) for part in shadows.places]
    scale = 1.0
    for _ in range(10):
        x = torch.randn(4, 3, dtype=torch.float64)
        output = model(x)
        loss = sign * output.square().mean()
        products = gauss_newton(loss, [output], groups.weights(), shadows.places)
        met = shadows.advance(products, groups.gains(np.array([options["momentum"]]), True))
        scale *= math.sqrt(float(met.after.places[0] + met.after.velocities[0]))
        learn(x)
        for a, b, place in zip(model.parameters(), twin.parameters(), shadows.places, strict=True):
            assert torch.allclose((b - a).detach(), scale * place[0], rtol=1e-9, atol=1e-12)


def test_a_large_weight_is_summed_term_by_term_with_the_same_result(monkeypatch):
    """Its terms are not held together, which would take memory."""
    model, optimizer = linear(dampening=0.3, weight_decay=0.1)
    by = Groups(optimizer).gains(np.array([0.95, 0.5]), True)
    drawn = [[torch.randn(2, *weight.shape) for weight in model.parameters()] for _ in range(3)]
    made = []
    for most in (2**16, 0):
        monkeypatch.setattr("resonax.torch.shadows._TOGETHER", most)
        places, velocities, products = copy.deepcopy(drawn)
        shadows = Shadows(places, velocities)
        found = shadows.advance(products, by)
        made.append([*found.before, *found.after, found.curvature, *shadows.places])
    for one, other in zip(*made, strict=True):
        assert np.array_equal(one, other)


def test_watch_changes_nothing_and_warns_once():
    ends, logs = [], []
    for guarded in (False, True):
        torch.manual_seed(0)
        model, optimizer = linear(lr=0.03)
        guard = None
        if guarded:
            guard = Guard(model, optimizer, policy="watch", budget=math.inf, log=logs.append)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(model, optimizer, guard, switching(110, 6))
        ends.append([weight.detach().clone() for weight in model.parameters()])
    for plain, watched in zip(*ends, strict=True):
        assert torch.equal(plain, watched)
    assert [warning.category for warning in caught] == [ResonanceWarning]
    assert "momentum 0.95 seems to grow by" in str(caught[0].message)
    assert guard is not None
    assert guard.momentum == 0.95
    assert any("event" in record for record in logs)


def test_a_warm_up_spares_the_swing():
    largest = {}
    for warmup in (0, 128):
        torch.manual_seed(0)
        model, optimizer = linear()
        guard, far = Guard(model, optimizer, warmup=warmup), 0.0
        draw = torch.Generator().manual_seed(1)
        for step in range(160):  # strong resonance: both 0.95 and 0.9 grow
            wave = torch.tensor([0.5 if step % 12 < 6 else -0.5, 0, 0, 0, 0])
            x = wave + 0.5 * torch.randn(5, 5, generator=draw)
            y = math.sqrt(0.1) * torch.randn(5, 1, generator=draw)
            guard.step(lambda x=x, y=y, model=model: 5 * mse(model(x), y))
            far = max(far, distance(model))
        largest[warmup] = far
        if warmup:
            assert guard.momentum < 0.95
            first = guard.report().events[0]
            assert (first.step, first.text.split(" (")[0]) == (
                128, "momentum raised from 0.75 to 0.85",
            )  # fmt: skip
            guard.close()
            assert optimizer.param_groups[0]["momentum"] == 0.95
    assert largest[0] > 20
    assert largest[128] < 4


@pytest.mark.slow
def test_safe_lets_the_momentum_rise_again():
    model, optimizer = linear()
    guard = Guard(model, optimizer, budget=math.inf, candidates=[0.8])
    train(model, optimizer, guard, switching(900, 6))
    assert guard.momentum == 0.8
    train(model, optimizer, guard, switching(3200, 1, seed=1))
    assert guard.momentum == 0.95
    assert [event.kind for event in guard.report().events] == ["momentum"] * 2


def test_fastest_finds_the_band():
    model, optimizer = linear()
    guard = Guard(model, optimizer, policy="fastest", budget=math.inf)
    for x, y in switching(170, 6):
        guard.step(lambda x=x, y=y: mse(model(x), y))
    assert guard.momentum in (0.85, 0.75)


@pytest.mark.parametrize(
    ("steps", "splits", "warmup"),
    [(110, (50, 75), 0), (105, (60,), 96)],  # before a burst, in one, and in a warm-up
)
def test_a_resumed_run_goes_on_identically(steps, splits, warmup):
    batches = list(switching(steps, 6))

    def made():
        torch.manual_seed(3)
        model, optimizer = linear(nesterov=True)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
        guard = Guard(model, optimizer, budget=2.0, burst=32, warmup=warmup)
        return model, optimizer, schedule, guard

    def go(run, rows):
        model, _, schedule, guard = run
        for x, y in rows:
            guard.step(lambda x=x, y=y: mse(model(x), y))
            schedule.step()

    whole, saved = made(), {}
    for step, row in enumerate(batches):
        if step in splits:
            assert whole[3].probing == (step != 50)
            saved[step] = copy.deepcopy([part.state_dict() for part in whole])
        go(whole, [row])
    assert whole[3].report().probed >= 32
    for split in splits:
        second = made()
        for part, state in zip(second, saved[split], strict=True):
            part.load_state_dict(state)
        go(second, batches[split:])
        assert torch.equal(whole[0].weight, second[0].weight)
        assert whole[3].report() == second[3].report()
        assert str(whole[3].state_dict()) == str(second[3].state_dict())


def test_a_loop_of_ones_own_with_accumulation_is_one_with_larger_batches():
    found = []
    for parts in (1, 2):
        torch.manual_seed(0)
        model, optimizer = linear()
        guard = Guard(model, optimizer, policy="watch", budget=math.inf, candidates=[0.5])
        draw = torch.Generator().manual_seed(1)
        for _ in range(40):
            x = torch.randn(8, 5, generator=draw)
            optimizer.zero_grad()
            for part in x.chunk(parts):
                loss = mse(model(part), part[:, :1]) / parts
                guard.observe(loss)
                loss.backward()
            optimizer.step()
        found.append(followed(guard))
    assert found[0].all()
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_a_step_that_was_skipped_leaves_nothing_behind():
    reports = []
    for skips in (False, True):
        torch.manual_seed(0)
        model, optimizer = linear()
        guard = Guard(model, optimizer, policy="watch", budget=math.inf)
        for step, (x, y) in enumerate(switching(50, 6)):
            if skips and step % 5 == 4:  # as a scaler does that met an overflow
                guard.observe(mse(model(3 * x), y))
                guard.forget()
            optimizer.zero_grad()
            loss = mse(model(x), y)
            guard.observe(loss)
            loss.backward()
            optimizer.step()
        reports.append(guard.report())
    assert reports[0] == reports[1]


def test_mixed_precision_with_a_scaler():
    model, optimizer = linear()
    scaler = torch.amp.GradScaler("cpu")
    guard = Guard(model, optimizer, policy="watch", budget=math.inf, scaler=scaler)
    draw = torch.Generator().manual_seed(1)
    for _ in range(100):
        x = torch.randn(8, 5, generator=draw)

        def loss(x=x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(x)
            return mse(output.float(), x[:, :1])

        guard.step(loss)
    found = guard.report().candidates
    assert found[0].verdict == "converges"
    assert found[0].rate == pytest.approx(0.5 * math.log(0.95), abs=0.01)


def test_networks_with_frozen_parts_groups_and_batch_norm():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout(0.1),
        torch.nn.Flatten(), torch.nn.Linear(144, 10),
    )  # fmt: skip
    model[0].weight.requires_grad_(False)
    groups = [
        {"params": model[:4].parameters(), "momentum": 0.5},
        {"params": model[5].parameters()},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=1e-3)
    guard = Guard(model, optimizer, instrument="tangent", budget=math.inf, candidates=[0.5, 0.0])
    x, y = torch.randn(16, 1, 8, 8), torch.randint(10, (16,))
    for _ in range(98):
        guard.step(lambda: torch.nn.functional.cross_entropy(model(x), y))
    assert all(row.rate is not None for row in guard.report().candidates)
    assert optimizer.param_groups[0]["momentum"] <= 0.5


def test_a_momentum_that_the_user_changes_is_the_users_own():
    model, optimizer = linear()
    guard = Guard(model, optimizer)
    x = torch.randn(4, 5)
    for step in range(40):
        optimizer.param_groups[0]["momentum"] = 0.85 + 0.0025 * step
        guard.step(lambda: mse(model(x), x[:, :1]))
        assert optimizer.param_groups[0]["momentum"] == 0.85 + 0.0025 * step
    assert guard.report().own_momentum == pytest.approx(0.9475)


def test_a_lost_run_is_reported_with_its_beginning():
    model, optimizer = linear()
    guard = Guard(model, optimizer, policy="watch", budget=0.0)
    x = torch.randn(8, 5)

    def learn(steps, scale):
        for _ in range(steps):
            guard.step(lambda: mse(model(scale * torch.randn(8, 5)), x[:, :1]))

    learn(300, 1.0)
    with pytest.warns(ResonanceWarning, match=r"growth began at about step (2[789]|30)\d"):
        learn(60, 20.0)
    assert [event.kind for event in guard.report().events][-1] == "lost"


def test_a_batch_of_nonsense_does_not_spoil_what_is_known():
    model, optimizer = linear()
    guard = Guard(model, optimizer, policy="watch", budget=math.inf, candidates=[0.5])
    train(model, optimizer, guard, switching(100, 1))
    with pytest.warns(ResonanceWarning, match="not finite"):
        train(model, optimizer, guard, [(torch.full((1, 5), math.nan), torch.zeros(1, 1))] * 8)
    rates = [row.rate for row in guard.report().candidates]
    assert all(rate is not None and math.isfinite(rate) for rate in rates)


def test_what_cannot_be_analysed_is_refused_by_name():
    model = torch.nn.Linear(2, 1)
    with pytest.raises(ArgumentError, match=r"Adam cannot be analysed.*torch\.optim\.SGD.*replay"):
        Guard(model, torch.optim.Adam(model.parameters()), instrument="tangent")
    with pytest.raises(ArgumentError, match=r"model must be a torch\.nn\.Module, got function"):
        Guard(lambda x: x, torch.optim.SGD(model.parameters(), 0.1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for wrong, match in (
        ({"policy": "save"}, "did you mean 'safe'"),
        ({"curvature": "fisher"}, "unknown curvature 'fisher'"),
        ({"burst": 2}, "burst must be"),
        ({"budget": -1}, "budget must be"),
    ):
        with pytest.raises(ArgumentError, match=match):
            Guard(model, optimizer, **wrong)
    guard = Guard(model, optimizer)
    with pytest.raises(ArgumentError, match="one number"):
        guard.observe(torch.zeros(3))
    with pytest.raises(ArgumentError, match="has a guard already"):
        Guard(model, optimizer)
    with pytest.warns(ResonanceWarning, match="its optimizer made no step"):
        guard.close()
    other = Guard(model, optimizer, candidates=[0.5])
    with pytest.raises(ArgumentError, match="has the candidates"):
        other.load_state_dict(guard.state_dict())


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # noqa: ARG004
        return 2 * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):  # noqa: ARG004
        return 2 * grad


@pytest.mark.parametrize("warmup", [0, 96])
def test_a_model_without_second_derivatives_is_only_listened_to(warmup):
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return Once.apply(super().forward(x))

    model = Doubled(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    guard = Guard(model, optimizer, instrument="tangent", budget=math.inf, warmup=warmup)
    x = torch.randn(4, 5)
    with pytest.warns(ResonanceWarning, match="no second derivatives"):
        train(model, None, guard, [(x, x[:, :1])] * 50)
    assert guard.momentum == 0.9
    train(model, None, guard, [(x, x[:, :1])] * 50)
    assert guard.momentum == 0.9
    assert not guard.probing


def test_outputs_of_common_kinds():
    z = torch.ones(2, requires_grad=True)
    scalar = z.sum()
    assert outputs_of({"loss": scalar, "logits": z}) == [z]
    assert outputs_of((scalar, [z])) == [z]
    assert outputs_of(scalar) == [scalar]
    assert outputs_of(None) == []
