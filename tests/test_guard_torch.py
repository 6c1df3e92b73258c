"""The guard around training loops of torch."""

from __future__ import annotations

import math
import warnings
import weakref

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from resonax.core.errors import ArgumentError
from resonax.guards.learner import Candidate
from resonax.torch import Guard, GuardWarning
from resonax.torch.batches import KeptBatch, mix_rows
from streams import switching


def small_network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 1)
    )


def rows(steps: int, seed: int = 0):
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(8, 5, generator=draw)
        yield x, x[:, :1] * 2 + 0.1 * torch.randn(8, 1, generator=draw)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.001, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.003),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.003, amsgrad=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.003),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
}


def loss_of(model: nn.Module, loss=mse_loss):
    return lambda x, y: loss(model(x), y)


def half(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return mse_loss(output, target) / 2


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_guard_that_does_nothing_changes_no_bit(name):
    """Judging, testing and mixing on the side leave weights, schedules and random numbers alone."""
    ends = []
    for guarded in (False, True):
        model = small_network()
        optimizer = OPTIMIZERS[name](model.parameters())
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
        guard = Guard(model, optimizer, policy="watch", spacing=8) if guarded else None
        torch.manual_seed(5)
        for x, y in rows(20):
            if guard is not None:
                guard.step(loss_of(model), x, y)
            else:
                optimizer.zero_grad()
                mse_loss(model(x), y).backward()
                optimizer.step()
            schedule.step()
        ends.append([*(one.detach().clone() for one in weights_of(model)), torch.rand(2)])
    assert guard is not None
    assert guard.report().work > 0.5
    assert repr(guard) == str(guard.report())
    for plain, watched in zip(*ends, strict=True):
        torch.testing.assert_close(plain, watched, rtol=0, atol=0)


IMAGES, LABELS = (torch.tensor(part) for part in load_digits(return_X_y=True))
IMAGES = (IMAGES / 16).float()


def cycles(steps: int, cycle: int, seed: int):
    """Digits, one class after the other in every cycle."""
    rng = np.random.default_rng(seed)
    places = [np.flatnonzero(LABELS.numpy() == label) for label in range(10)]
    for step in range(steps):
        chosen = rng.choice(places[step % cycle * 10 // cycle], 16)
        yield IMAGES[chosen], LABELS[chosen]


def classifier(*widths: int) -> nn.Module:
    torch.manual_seed(1)
    sizes = (64, *widths)
    hidden = [
        part for size in zip(sizes, widths, strict=False) for part in (nn.Linear(*size), nn.ReLU())
    ]
    return nn.Sequential(*hidden, nn.Linear(sizes[-1], 10))


def right(model: nn.Module) -> float:
    with torch.no_grad():
        return float((model(IMAGES).argmax(1) == LABELS).float().mean())


@pytest.mark.parametrize(("name", "widths", "steps"), [("sgd", (32,), 100), ("adam", (64, 64), 60)])
def test_a_network_on_classes_in_cycles_is_saved(name, widths, steps, caplog):
    found = {}
    for guarded in (False, True):
        model = classifier(*widths)
        optimizer = (
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.95)
            if name == "sgd"
            else torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
        )
        guard = Guard(model, optimizer, average=True, spacing=16) if guarded else None
        for x, y in cycles(steps, 20, seed=3):
            if guard is not None:
                guard.step(loss_of(model, cross_entropy), x, y)
            else:
                optimizer.zero_grad()
                cross_entropy(model(x), y).backward()
                optimizer.step()
        found[guarded] = right(model if guard is None else guard.offered())
    assert found[False] < 0.2
    assert found[True] > 0.75
    assert guard is not None
    report = guard.report()
    assert report.events
    assert "order" in report.events[0].text
    assert report.period == pytest.approx(20, rel=0.05)
    assert caplog.records[0].name == "resonax"


def test_the_average_is_offered_where_it_does_better_and_changes_no_weight():
    """Noise alone: the average of a linear model is nearer to the truth than its last weights."""
    ends = []
    for average in (False, True):
        torch.manual_seed(2)
        model = nn.Linear(5, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        guard = Guard(model, optimizer, average=average)
        for x, y in rows(120):
            guard.step(loss_of(model), x[:1], y[:1] + torch.randn(1, 1))
        ends.append([one.detach().clone() for one in model.parameters()])
    for plain, averaged in zip(*ends, strict=True):
        torch.testing.assert_close(plain, averaged, rtol=0, atol=0)
    truth = torch.tensor([[2.0, 0.0, 0.0, 0.0, 0.0]])
    average = guard.offered()
    assert average is guard.averaged
    near, far = ((one.weight - truth).norm() for one in (average.module, model))
    assert near < 0.5 * far


def test_what_was_offered_before_is_kept_while_the_run_is_worse():
    """Wrong outputs spoil the weights and their average, and not what is held."""
    torch.manual_seed(0)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    guard = Guard(model, optimizer, "watch", average=True, spacing=16)

    def go_on(first: int, last: int, wrong: float) -> None:
        for x, y in list(rows(last))[first:]:
            guard.step(loss_of(model), x, y + wrong)

    go_on(0, 48, wrong=0)
    good = [one.detach().clone() for one in guard.offered().parameters()]
    with pytest.warns(GuardWarning):
        go_on(48, 64, wrong=30)
    weights = [one.detach().clone() for one in model.parameters()]
    kept = guard.offered()
    assert kept is not model
    assert kept is not guard.averaged
    torch.testing.assert_close(list(kept.parameters()), good)
    torch.testing.assert_close(list(model.parameters()), weights, rtol=0, atol=0)
    guard.close()
    assert guard.offered() is kept


def test_the_report_says_prints_draws_and_gives_numbers():
    torch.manual_seed(0)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.95)
    seen = []
    guard = Guard(model, optimizer, log=seen.append)
    for x, y in switching(80, period=6, seed=5):
        guard.step(loss_of(model), x, y)
    report = guard.report()
    assert guard.momentum < 0.95
    assert optimizer.param_groups[0]["momentum"] == 0.95  # between steps it is the user's own
    assert f"step {report.events[0].step}: " in str(report)
    assert report.memory > 0
    assert seen[0]["step"] == report.events[0].step
    assert report.to_dict()["decisions"]
    figure = report.plot()
    assert len(figure.axes) == 2
    assert any(line.get_linewidth() == 0.9 for line in figure.axes[0].lines)  # a decision


def test_watching_warns_and_leaves_the_run_alone():
    torch.manual_seed(0)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.95)
    guard = Guard(model, optimizer, policy="watch")

    def run():
        for x, y in switching(80, period=6, seed=5):
            guard.step(loss_of(model), x, y)

    with pytest.warns(GuardWarning, match="order"):
        run()
    assert guard.momentum == 0.95


def test_parts_of_a_batch_are_accumulated_and_gradients_transformed():
    ends = []
    for guarded in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(5, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def clip(model=model):
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)

        guard = Guard(model, optimizer, transform=clip) if guarded else None
        for x, y in rows(10):
            if guard is not None:
                guard.accumulate(x[:4], y[:4])
                guard.step(loss_of(model, half), x[4:], y[4:])
            else:
                optimizer.zero_grad()
                for part in (slice(0, 4), slice(4, 8)):
                    (mse_loss(model(x[part]), y[part]) / 2).backward()
                clip()
                optimizer.step()
        ends.append(model.weight.detach().clone())
    torch.testing.assert_close(*ends, rtol=0, atol=0)


def test_mixed_rows_stay_together_with_their_targets():
    batches = [
        KeptBatch(len, (({"x": numbers[:, None].float(), "y": numbers},),), ({},), ())
        for numbers in (torch.arange(4) + 10 * k for k in range(5))
    ]
    mixed = mix_rows(batches, np.random.default_rng(0), None)
    x, y = (torch.cat([one.parts[0][0][name] for one in mixed]) for name in ("x", "y"))
    torch.testing.assert_close(x[:, 0], y.float())
    assert sorted(y.tolist()) == sorted(v for k in range(5) for v in range(10 * k, 10 * k + 4))
    assert y.tolist() != sorted(y.tolist())


def line(**options):
    """A linear model whose momentum resonates with a stream that switches every six steps."""
    torch.manual_seed(0)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.95)
    return model, optimizer, Guard(model, optimizer, **options)


def train(model, guard, given):
    for x, y in given:
        guard.step(loss_of(model), x, y)


def test_a_run_is_kept_that_its_own_momentum_loses_also_with_a_log_that_raises(caplog):
    def broken(record):
        raise OSError("disk full")

    given = list(switching(150, 6, seed=3))
    model, optimizer, guard = line(log=broken, spacing=16)
    with guard:
        train(model, guard, given)
        assert guard.report().momentum == guard.momentum < 0.95
    assert float(model.weight.detach().norm()) < 3
    report = guard.report()
    assert report.events
    assert report.step == report.to_dict()["step"] == len(given)
    assert optimizer.param_groups[0]["momentum"] == 0.95
    assert sum("disk full" in one.getMessage() for one in caplog.records) == 1
    with pytest.raises(ArgumentError, match="this guard is closed"):
        train(model, guard, given[:1])
    model, optimizer, guard = line()
    guard.__exit__(RuntimeError)
    for x, y in given:
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()
    assert float(model.weight.detach().norm()) > 30


def test_a_part_of_a_batch_is_copied_when_it_is_given():
    """A loader may reuse the memory of a batch for the next one."""
    ends = []
    for parts in (1, 2):
        model, _, guard = line()
        for x, y in switching(5, 6):
            x, y = x.expand(4, 5).clone(), y.expand(4, 1).clone()
            if parts == 2:
                guard.accumulate(x[:2], y[:2])
                x[:2], y[:2] = 9.0, 9.0
            rest = slice(2, 4) if parts == 2 else slice(0, 4)
            guard.step(lambda x, y, m=model, p=parts: mse_loss(m(x), y) / p, x[rest], y[rest])
        assert guard.report().step == 5
        ends.append(model.weight.detach().clone())
    torch.testing.assert_close(*ends)


def test_a_run_that_was_never_seen_says_so():
    with pytest.warns(GuardWarning, match="never saw this run"):
        line()[2].close()
    with warnings.catch_warnings(action="error"):  # an error says what is wrong
        line()[2].__exit__(RuntimeError)


def test_a_warning_names_the_line_of_the_user():
    model, _, guard = line(policy="watch", spacing=16)
    with warnings.catch_warnings(record=True, action="always") as caught:
        train(model, guard, switching(150, 6, seed=3))
    assert caught
    assert {one.filename for one in caught} == {__file__}


def test_a_guard_that_is_closed_releases_its_batches():
    model, _, guard = line()
    batches = []

    def loss(x, y):
        batches.append(weakref.ref(x))
        return mse_loss(model(x), y)

    for x, y in rows(20):
        guard.step(loss, x, y)
    assert sum(one() is not None for one in batches) == 20
    guard.close()
    assert not any(one() is not None for one in batches)


def test_sparse_gradients_are_those_of_a_dense_table():
    ends = []
    for sparse in (False, True):
        torch.manual_seed(0)
        table = nn.Embedding(9, 3, sparse=sparse)
        model = nn.Sequential(table, nn.Flatten(), nn.Linear(6, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        guard = Guard(model, optimizer)
        draw = torch.Generator().manual_seed(0)
        for _ in range(40):  # over a test of the order
            x = torch.randint(9, (8, 2), generator=draw)
            guard.step(loss_of(model), x, x[:, :1].float())
        ends.append(table.weight.detach().clone())
    torch.testing.assert_close(*ends)


def test_candidates_may_be_momenta_or_settings():
    model = nn.Linear(5, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    guard = Guard(model, sgd, candidates=[0.5, Candidate(0.0, 0.1)])
    assert math.isclose(guard.momentum, 0.9)


@pytest.mark.parametrize("kind", ["pixels", "tokens"])
def test_a_rhythm_of_any_kind_of_batches_is_found(kind):
    torch.manual_seed(0)
    if kind == "pixels":
        model, given = classifier(16), list(cycles(128, 20, seed=0))
    else:
        model = nn.Sequential(nn.Embedding(300, 4), nn.Flatten(), nn.Linear(32, 10))
        given = [
            (torch.randint(150, (16, 8)) + 150 * (step % 20 < 10), torch.randint(10, (16,)))
            for step in range(128)
        ]
    guard = Guard(model, torch.optim.SGD(model.parameters(), lr=0.01), spacing=64)
    learner = guard._training.learner
    loss = loss_of(model, cross_entropy)
    found = learner.phases([learner.keep(loss, ((x, y),)) for x, y in given])
    assert found.period == pytest.approx(20, rel=0.03)
    assert found.rows == pytest.approx(320, rel=0.03)
    assert not learner.phases([learner.keep(loss, (given[0],))] * 64).period


@pytest.mark.parametrize("mix", [True, "batches"])
def test_batches_that_cannot_be_mixed_come_as_wholes_in_another_order(mix):
    """Two tasks in turn: images of 64 or of 32 numbers, or of one shape that must not be mixed."""
    torch.manual_seed(0)
    wide, narrow, head = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 10)
    model = nn.ModuleList([wide, narrow, head])

    def loss_fn(x, y):
        made = wide(x) if x.shape[1] == 64 else narrow(x)
        return cross_entropy(head(torch.relu(made)), y)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    guard = Guard(model, optimizer, spacing=16, mix=mix)
    for step, (x, y) in enumerate(cycles(100, 40, seed=3)):
        guard.step(loss_fn, x[:, :32] if mix is True and step % 40 >= 20 else x, y)
    assert guard.setting != Candidate(0.9)
    batches = guard._training.run.state.history.batches

    def sums(kept):
        return [one.parts[0][0].sum().item() for one in kept]

    mixed = sums(guard._training.learner.mix(batches, np.random.default_rng(0)))
    assert sorted(mixed) == sorted(sums(batches))
    assert mixed != sums(batches)
