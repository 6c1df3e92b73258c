"""What a guard of torch says, and what it refuses in a sentence."""

from __future__ import annotations

import importlib
import math
import re
import sys
import warnings

import pytest
import torch

from recordings import RECORDINGS
from resonax import ArgumentError
from resonax.torch import Guard
from streams import followed, switching

mse = torch.nn.functional.mse_loss


@pytest.fixture(autouse=True)
def _alone():
    torch.manual_seed(0)
    torch.set_num_threads(1)


def linear(**options):
    model = torch.nn.Linear(5, 1)
    return model, torch.optim.SGD(model.parameters(), **({"lr": 0.03, "momentum": 0.95} | options))


def train(guard, rows):
    for x, y in rows:
        guard.step(lambda x=x, y=y: mse(guard.model(x), y))


@pytest.fixture(scope="module")
def hourly():
    """Six hours of temperature, and the next one."""
    values = torch.tensor(RECORDINGS["san-francisco"]()[0][:, 0], dtype=torch.float32)
    values = ((values - values.mean()) / values.std())[2990:]
    return list(zip(values.unfold(0, 6, 1)[:400, None], values[6:406, None, None], strict=True))


@pytest.mark.parametrize("seed", [0, 2])
def test_watch_warns_where_safe_acts_on_a_network_and_safe_says_so(seed, hourly, caplog):
    """The same rows and seeds; until ``safe`` acts the two runs are one."""
    runs = {}
    for policy in ("safe", "watch"):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.95)
        told = []
        guard = Guard(
            model, optimizer, policy, instrument="tangent", candidates=[0.85, 0.5], search=128,
            log=told.append,
        )  # fmt: skip
        with warnings.catch_warnings(record=True, action="always") as caught:
            for row in hourly:
                train(guard, [row])
                if told and "event" in told[-1]:
                    break
        runs[policy] = guard.report(), [str(one.message) for one in caught], guard.momentum
    (safe, silent, lowered), (watch, said, own) = runs["safe"], runs["watch"]
    assert safe.candidates == watch.candidates
    assert (safe.events[0].step, safe.events[0].momentum) == (
        watch.events[0].step, watch.events[0].momentum,
    )  # fmt: skip
    assert 0 < safe.events[0].step < 400
    assert (silent, len(said)) == ([], 1)
    assert said[0].startswith(f"step {watch.step}: momentum 0.95 ")
    assert (lowered, own) == (0.95, 0.95)  # the next step is made with the lower one
    assert [record.getMessage() for record in caplog.records] == [
        f"step {safe.step}: {safe.events[0].text}"
    ]


def test_a_log_that_raises_does_not_end_the_training(caplog):
    model, optimizer = linear()
    calls = []

    def broken(record):
        calls.append(record)
        raise OSError("disk full")

    guard = Guard(model, optimizer, candidates=[0.8], budget=0.5, burst=32, search=64, log=broken)
    train(guard, switching(330, 6))
    assert len(calls) > 1
    assert guard.report().step == 330
    complaints = [one.getMessage() for one in caplog.records if "disk full" in one.getMessage()]
    assert complaints == [
        f"step {calls[0]['step']}: the log of the guard raised OSError: disk full; "
        "the training goes on"
    ]


def unguarded(guard, rows):
    """A loop that does not show its losses."""
    for x, y in rows:
        guard.optimizer.zero_grad()
        mse(guard.model(x), y).backward()
        guard.optimizer.step()


@pytest.mark.parametrize(
    ("options", "learn", "steps", "says"),
    [
        ({}, train, 20, "never looked at this run of 20 steps.* comes after 3475 steps"),
        ({"budget": 0.0}, train, 4, "never comes with budget 0"),
        ({}, train, 0, "its optimizer made no step"),
        ({"budget": math.inf}, unguarded, 20, "follow 19 steps and was shown no loss.*observe"),
        ({"budget": math.inf}, train, 40, "followed 39 of 40 steps and knows no rate yet"),
        ({"budget": math.inf}, train, 100, None),
    ],
)
def test_a_run_that_was_never_looked_at_says_so(options, learn, steps, says):
    model, optimizer = linear(lr=0.01)
    with warnings.catch_warnings(record=True, action="always") as caught:  # noqa: SIM117
        with Guard(model, optimizer, candidates=[0.5], **options) as guard:
            learn(guard, switching(steps, 1))
            before = str(guard.report())
    said = [str(one.message) for one in caught]
    assert len(said) == (says is not None)
    if says is not None:
        assert re.search(says, said[0])
        assert re.search(says, before) or steps == 0
        assert str(guard.report()).count(said[0]) == 1
        assert guard.report().events[-1].kind == "unseen"
    assert optimizer.param_groups[0]["momentum"] == 0.95
    with pytest.raises(ArgumentError, match="this guard is closed; make a new one"):
        train(guard, switching(1, 1))
    with pytest.raises(RuntimeError, match="mine"), Guard(model, optimizer):  # and only that
        raise RuntimeError("mine")


def test_a_model_and_an_optimizer_that_do_not_belong_together_are_refused():
    model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(other.parameters(), 0.1, momentum=0.9)
    with pytest.raises(ArgumentError, match=r"trains no parameter of this model; make it from"):
        Guard(model, optimizer)
    optimizer.add_param_group({"params": model.parameters()})
    with pytest.raises(ArgumentError, match=r"2 of the 4 parameters .* or curvature=.hessian"):
        Guard(model, optimizer)
    guard = Guard(torch.nn.ModuleList([model, other]), optimizer, instrument="tangent")
    x = torch.ones(1, 2)
    with pytest.raises(ArgumentError, match="does not depend on any parameter"):
        guard.step(lambda: torch.nn.Linear(2, 1)(x).square().mean())
    guard.step(lambda: (model(x) - other(x)).square().mean())
    guard.__exit__(RuntimeError)
    Guard(model, optimizer, curvature="hessian").step(lambda: (model(x) - other(x)).square().mean())


def test_what_is_shown_by_mistake_gets_a_sentence():
    model, optimizer = linear()
    x, y = torch.ones(4, 5), torch.ones(4, 1)

    def backward_inside():
        loss = mse(model(x), y)
        loss.backward()
        return loss

    guard = Guard(model, optimizer)
    for closure, match in (
        (backward_inside, r"must return the loss without calling backward.*take loss.backward"),
        (mse(model(x), y), r"takes a function that returns the loss.*not a Tensor.*observe"),
        (None, "not a NoneType"),
        (lambda: mse(model(x), y).item(), "must be a tensor of one number, such as a mean"),
        (lambda: model(x) - y, r"got shape \(4, 1\)"),
        (lambda: mse(model(x), y).detach(), r"with its graph: outside of torch.no_grad"),
    ):
        with pytest.raises(ArgumentError, match=match):
            guard.step(closure)
    loss = backward_inside()
    with pytest.raises(ArgumentError, match="before its backward"):
        guard.observe(loss)
    assert guard.report().step == 0


@pytest.mark.parametrize(
    ("module", "missing", "says"),
    [
        ("resonax.torch", ["torch"], r"needs PyTorch: pip install .resonax\[torch\]"),
        (
            "resonax.torch.lightning",
            ["lightning.pytorch.callbacks", "pytorch_lightning.callbacks"],
            r"needs PyTorch Lightning: pip install .resonax\[lightning\]",
        ),
        (
            "resonax.torch.transformers",
            ["accelerate"],
            r"needs accelerate: pip install .resonax\[transformers\]",
        ),
    ],
)
def test_a_missing_package_gets_a_sentence(module, missing, says, monkeypatch):
    for name in missing:
        for loaded in [one for one in sys.modules if one.startswith(f"{name}.")]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ModuleNotFoundError, match=says):
        importlib.import_module(module)


def test_sparse_gradients_are_those_of_a_dense_table():
    found = []
    for sparse in (False, True):
        torch.manual_seed(0)
        table = torch.nn.Embedding(9, 3, sparse=sparse)
        model = torch.nn.Sequential(table, torch.nn.Flatten(), torch.nn.Linear(6, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        guard = Guard(model, optimizer, instrument="tangent", budget=math.inf, candidates=[0.5])
        draw = torch.Generator().manual_seed(0)
        for _ in range(40):
            x = torch.randint(9, (8, 2), generator=draw)
            guard.step(lambda x=x, model=model: mse(model(x), x[:, :1].float()))
        found.append(followed(guard))
        assert guard.report().probed == 39
    assert found[0].all()
    assert found[0] == pytest.approx(found[1], rel=1e-3)
