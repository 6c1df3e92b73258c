"""One guard, two instruments: which one is chosen, what each refuses, and what both can do."""

from __future__ import annotations

import copy
import io
import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from resonax import ArgumentError
from resonax.guards.report import RunReport
from resonax.torch import Guard, ResonanceWarning
from streams import switching

BOTH = pytest.mark.parametrize("instrument", ["tangent", "replay"])


@pytest.fixture(autouse=True)
def _alone():
    torch.set_num_threads(1)


def line(instrument: str | None = None, **options):
    torch.manual_seed(0)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.95)
    return model, optimizer, Guard(model, optimizer, instrument=instrument, **options)


def train(model, guard, rows):
    for x, y in rows:
        guard.step(lambda x, y: mse_loss(model(x), y), x, y)


# Both act within so few steps: `tangent` where all are followed, with two momenta to compare.
QUICKLY = {"tangent": {"budget": math.inf, "candidates": [0.8]}, "replay": {"spacing": 16}}


class Doubled(nn.Linear):
    def forward(self, x):
        return super().forward(x).square()


@pytest.mark.parametrize(
    ("model", "optimizer", "chosen"),
    [
        (nn.Linear(4, 1), "SGD", "tangent"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 1)), "SGD", "tangent"),
        (nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Unflatten(1, (2, 2))), "SGD", "tangent"),
        (nn.Linear(4, 1), "Adam", "replay"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), "SGD", "replay"),
        (nn.Sequential(nn.Linear(4, 1), nn.Tanh()), "SGD", "replay"),
        (nn.Sequential(nn.Linear(4, 1), nn.BatchNorm1d(1)), "SGD", "replay"),
        (nn.Sequential(nn.Dropout(), nn.Linear(4, 1)), "SGD", "replay"),
        (nn.ModuleList([nn.Linear(4, 1)]), "SGD", "replay"),
        (Doubled(4, 1), "SGD", "replay"),
    ],
)
def test_the_instrument_follows_from_the_model_and_the_optimizer(model, optimizer, chosen):
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01)
    guard = Guard(model, made)
    assert isinstance(guard, Guard)
    assert guard.instrument == chosen


def test_both_keep_a_run_that_its_own_momentum_loses(caplog):
    """Also with a log that raises."""

    def broken(record):
        raise OSError("disk full")

    rows = list(switching(150, 6, seed=3))
    for instrument, options in QUICKLY.items():
        caplog.clear()
        model, optimizer, guard = line(instrument, log=broken, **options)
        with guard:
            train(model, guard, rows)
            assert guard.report().momentum == guard.momentum < 0.95
        assert float(model.weight.detach().norm()) < 3
        report = guard.report()
        assert report.events
        assert report.step == len(rows)
        assert instrument == "replay" or "lowered from 0.95" in str(report)
        assert optimizer.param_groups[0]["momentum"] == 0.95
        assert sum("disk full" in one.getMessage() for one in caplog.records) == 1
        with pytest.raises(ArgumentError, match="this guard is closed"):
            train(model, guard, rows[:1])
    model, optimizer, guard = line()
    guard.__exit__(RuntimeError)
    for x, y in rows:
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()
    assert float(model.weight.detach().norm()) > 30


@BOTH
def test_parts_of_a_batch_make_one_step(instrument):
    ends = []
    for parts in (1, 2):
        model, _, guard = line(instrument)
        for x, y in switching(5, 6):
            x, y = x.expand(4, 5).clone(), y.expand(4, 1).clone()
            if parts == 2:
                guard.accumulate(x[:2], y[:2])
                x[:2], y[:2] = 9.0, 9.0  # as a loader does that fills one buffer again
            rest = slice(2, 4) if parts == 2 else slice(0, 4)
            guard.step(lambda x, y, m=model, p=parts: mse_loss(m(x), y) / p, x[rest], y[rest])
        assert guard.report().step == 5
        ends.append(model.weight.detach().clone())
    torch.testing.assert_close(*ends)


@BOTH
def test_every_report_tells_the_same_of_a_run(instrument):
    model, _, guard = line(instrument)
    train(model, guard, switching(5, period=6))
    report = guard.report()
    names = [name for name in vars(RunReport) if not name.startswith("_")]
    assert {"step", "momentum", "events", "plot"} <= set(names)
    assert all(hasattr(report, name) for name in names)
    assert str(report).startswith(f"step {report.step}, policy safe: momentum {report.momentum:g}")
    assert report.to_dict()["step"] == report.step == 5


@pytest.mark.parametrize(
    ("instrument", "options", "says"),
    [
        ("replay", {"warmup": 256}, r'warmup is an option of the instrument tangent.*="tangent"'),
        ("replay", {"curvature": "hessian"}, "curvature is an option of the instrument tangent"),
        ("tangent", {"mix": False}, r'mix is an option of the instrument replay.*="replay"'),
        ("tangent", {"average": True}, "average is an option of the instrument replay"),
        (None, {"spacing": 16}, "this guard uses tangent"),
        (None, {"bugdet": 1}, "did you mean 'budget'"),
        ("relpay", {}, "did you mean 'replay'"),
    ],
)
def test_options_of_the_other_instrument_are_refused_by_its_name(instrument, options, says):
    with pytest.raises(ArgumentError, match=says):
        line(instrument, **options)


def test_a_loop_that_a_replay_cannot_see_is_told_so():
    model, optimizer, guard = line("replay")
    x, y = torch.ones(2, 5), torch.ones(2, 1)
    with pytest.raises(ArgumentError, match=r"write guard\.step\(lambda x, y: .* in place of"):
        guard.step(lambda: mse_loss(model(x), y))
    with pytest.raises(ArgumentError, match=r"needs the batch, not the loss.*guard\.step"):
        guard.observe(mse_loss(model(x), y))
    with pytest.raises(ArgumentError, match="nothing to forget"):
        guard.forget()
    mse_loss(model(x), y).backward()
    before = model.weight.detach().clone()
    with pytest.raises(ArgumentError, match=r"makes the steps itself.*guard\.step\(.*tangent"):
        optimizer.step()
    assert torch.equal(model.weight.detach(), before)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(mse_loss(model(x), y)).backward()
    with pytest.raises(ArgumentError, match="makes the steps itself"):
        scaler.step(optimizer)
    optimizer.zero_grad()
    train(model, guard, [(x, y)])  # and the guard's own steps go on
    guard.close()
    optimizer.step()


def test_rows_of_another_shape_are_refused_before_they_are_trained_on():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 20))
    guard = Guard(model, torch.optim.AdamW(model.parameters()))

    def loss_fn(words):
        return nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())

    guard.step(loss_fn, torch.ones(4, 5, dtype=torch.int64))
    guard.step(loss_fn, torch.ones(3, 5, dtype=torch.int64))  # the last batch of an epoch
    with pytest.raises(ArgumentError, match=r"another shape than those before.*to one shape"):
        guard.step(loss_fn, torch.ones(4, 6, dtype=torch.int64))
    assert guard.report().step == 2


@BOTH
def test_a_run_that_was_never_seen_says_so(instrument):
    with pytest.warns(ResonanceWarning, match="never saw this run"):
        line(instrument)[2].close()
    with warnings.catch_warnings(action="error"):  # an error says what is wrong
        line(instrument)[2].__exit__(RuntimeError)


@pytest.mark.parametrize(("instrument", "steps"), [("tangent", 100), ("replay", 80)])
def test_a_warning_names_the_line_of_the_user(instrument, steps):
    model, _, guard = line(instrument, policy="watch", **QUICKLY[instrument])
    with warnings.catch_warnings(record=True, action="always") as caught:
        train(model, guard, switching(steps, 6, seed=3))
    assert caught
    assert {one.filename for one in caught} == {__file__}


@pytest.mark.parametrize(("instrument", "cut"), [("tangent", 100), ("replay", 80)])
def test_a_copy_and_a_loaded_guard_go_on_identically(instrument, cut):
    rows = list(switching(120, 6, seed=3))
    model, optimizer, guard = line(instrument, **QUICKLY[instrument])
    train(model, guard, rows[:cut])
    assert guard.momentum < 0.95
    twin, _, copied = copy.deepcopy((model, optimizer, guard))
    file = io.BytesIO()
    torch.save([part.state_dict() for part in (model, optimizer, guard)], file)
    states = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    resumed = line(instrument, **QUICKLY[instrument])
    for part, state in zip(resumed, states, strict=True):
        part.load_state_dict(state)
    for one, by in ((model, guard), (twin, copied), (resumed[0], resumed[2])):
        train(one, by, rows[cut : cut + 20])
    assert torch.equal(model.weight, twin.weight)
    assert torch.equal(model.weight, resumed[0].weight)
    assert str(guard.report()) == str(copied.report()) == str(resumed[2].report())


def test_the_state_of_the_other_instrument_is_refused():
    states = {name: line(name)[2].state_dict() for name in ("tangent", "replay")}
    for name, other in (("tangent", "replay"), ("replay", "tangent")):
        with pytest.raises(ArgumentError, match=f"with the instrument {other}, and .* {name}"):
            line(name)[2].load_state_dict(states[other])


def test_what_cannot_be_copied_is_refused():
    guard = line("replay", transform=lambda: None)[2]
    with pytest.raises(ArgumentError, match="with a transform cannot be copied"):
        copy.deepcopy(guard)
