"""Copies, files and checkpoints of a guarded run: right, or refused in a sentence."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch.nn.functional import mse_loss

from resonax import ArgumentError
from resonax.torch import Guard
from streams import switching

ROWS = list(switching(100, 6, seed=6))
CUT = 80  # the guard has lowered the momentum by then


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def made(**options):
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.95)
    return model, optimizer, Guard(model, optimizer, spacing=16, **options)


def train(run, rows):
    model, _, guard = run
    for x, y in rows:
        guard.step(lambda x, y: mse_loss(model(x), y), x, y)


@pytest.fixture
def run():
    made_one = made()
    train(made_one, ROWS[:CUT])
    assert made_one[2].momentum < 0.95
    return made_one


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_deep_copy_and_a_loaded_guard_go_on_identically(run, order):
    copied = copy.deepcopy([run[place] for place in order])
    twin = tuple(copied[order.index(place)] for place in range(3))
    assert twin[2].model is twin[0]
    assert twin[2].optimizer is twin[1]
    assert twin[1].param_groups[0]["params"][0] is twin[0].weight
    file = io.BytesIO()
    torch.save([part.state_dict() for part in run], file)
    states = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    resumed = made()
    for part, state in zip(resumed, states, strict=True):
        part.load_state_dict(state)
    before = run[0].weight.detach().clone()
    train(twin, ROWS[CUT:])
    train(resumed, ROWS[CUT:])
    assert torch.equal(run[0].weight, before)  # the first run has not moved
    train(run, ROWS[CUT:])
    assert torch.equal(run[0].weight, twin[0].weight)
    assert torch.equal(run[0].weight, resumed[0].weight)
    assert str(run[2].report()) == str(twin[2].report()) == str(resumed[2].report())


def test_a_copy_of_the_guard_holds_a_run_of_its_own_and_a_closed_one_stays_closed(run):
    twin = copy.deepcopy(run[2])
    assert twin.model is not run[0]
    train((twin.model, twin.optimizer, twin), ROWS[:1])
    assert twin.report().step == run[2].report().step + 1
    run[2].close()
    closed = copy.deepcopy(run[2])
    assert closed.report() is run[2].report()
    with pytest.raises(ArgumentError, match="closed"):
        train((closed.model, closed.optimizer, closed), ROWS[:1])


def test_copies_and_files_of_the_model_know_nothing_of_the_guard(run):
    file = io.BytesIO()
    torch.save(run[0], file)
    assert b"resonax" not in file.getvalue()
    loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    x, before = ROWS[0][0], str(run[2].report())
    for model in (loaded, copy.deepcopy(run[0]), pickle.loads(pickle.dumps(run[0]))):
        assert torch.equal(model(x), run[0](x))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.95)
        model(x).sum().backward()
        optimizer.step()
    optimizer = copy.deepcopy(run[1])
    optimizer.step()
    assert str(run[2].report()) == before


def test_what_cannot_be_copied_is_refused(run):
    with pytest.raises(ArgumentError, match=r"copy.deepcopy\(\(model, optimizer, guard\)\)"):
        copy.copy(run[2])
    for save in (pickle.dumps, lambda guard: torch.save(guard, io.BytesIO())):
        with pytest.raises(ArgumentError, match="cannot be pickled: save guard"):
            save(run[2])
    guard = made(transform=lambda: None)[2]
    with pytest.raises(ArgumentError, match="with a transform cannot be copied"):
        copy.deepcopy(guard)
