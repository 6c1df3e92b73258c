"""Copies, files and checkpoints of a guarded run: right, or refused in a sentence."""

from __future__ import annotations

import copy
import functools
import io
import math
import pickle
import weakref

import pytest
import torch

from resonax import ArgumentError
from resonax.torch import Guard, ResonanceWarning
from streams import switching

mse = torch.nn.functional.mse_loss
ROWS = list(switching(120, 6, seed=2))  # the momentum is lowered at the 97th


@pytest.fixture(autouse=True)
def _alone():
    torch.manual_seed(0)
    torch.set_num_threads(1)


def made(momentum=0.95, **options):
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=momentum)
    options = {"budget": math.inf, "candidates": [0.8]} | options
    return model, optimizer, Guard(model, optimizer, **options)


@functools.cache
def lost():
    """Where the run ends without a guard."""
    model, optimizer, guard = made()
    guard.__exit__(RuntimeError)
    for x, y in ROWS:
        optimizer.zero_grad()
        mse(model(x), y).backward()
        optimizer.step()
    return float(model.weight.detach().norm())


def step(run, row):
    model, _, guard = run
    x, y = row
    guard.step(lambda: mse(model(x), y))


def loop(run, row):
    """One step of a loop of one's own."""
    model, optimizer, guard = run
    optimizer.zero_grad()
    loss = mse(model(row[0]), row[1])
    guard.observe(loss)
    loss.backward()
    optimizer.step()


def in_burst(run, learn, least=10):
    """Train until shadows have been followed for a while; return the rows that are left."""
    for index, row in enumerate(ROWS):
        learn(run, row)
        if index > least and run[2].probing and run[2].report().probed > least:
            return ROWS[index + 1 :]
    raise AssertionError


@pytest.mark.parametrize("learn", [step, loop])
def test_a_deep_copy_of_all_is_a_second_guarded_run(learn):
    run = made()
    rest = in_burst(run, learn, 80)  # shortly before the momentum is lowered
    before, twins = run[0].weight.detach().clone(), []
    for order, few in (((0, 1, 2), len(rest)), ((2, 1, 0), 20)):
        copied = copy.deepcopy([run[place] for place in order])
        twin = tuple(copied[order.index(place)] for place in range(3))
        assert twin[2].model is twin[0]
        assert twin[2].optimizer is twin[1]
        assert twin[1].param_groups[0]["params"][0] is twin[0].weight
        for row in rest[:few]:
            learn(twin, row)
        assert torch.equal(run[0].weight, before)  # the first run has not moved
        twins.append((few, twin))
    for count, row in enumerate(rest, 1):
        learn(run, row)
        for few, twin in twins:
            if count == few:
                assert torch.equal(run[0].weight, twin[0].weight)
                assert run[2].report() == twin[2].report()
    assert twins[0][1][2].momentum == run[1].param_groups[0]["momentum"] == 0.8
    assert run[0].weight.norm() < 3 < lost()
    twin = twins[0][1]
    twin[2].close()
    assert twin[1].param_groups[0]["momentum"] == 0.95
    assert run[1].param_groups[0]["momentum"] == 0.8


def test_a_copy_of_the_guard_holds_a_run_of_its_own_and_a_closed_one_stays_closed():
    run = made()
    in_burst(run, step)
    twin = copy.deepcopy(run[2])
    assert twin.model is not run[0]
    step((twin.model, twin.optimizer, twin), ROWS[0])
    assert twin.report().step == run[2].report().step + 1
    run[2].__exit__(RuntimeError)
    with pytest.raises(ArgumentError, match="closed"):
        step((None, None, copy.deepcopy(run[2])), ROWS[0])


@pytest.mark.parametrize("learn", [step, loop])
def test_copies_and_files_of_the_model_know_nothing_of_the_guard(learn):
    run = made()
    in_burst(run, learn)
    file = io.BytesIO()
    torch.save(run[0], file)
    assert b"resonax" not in file.getvalue()
    loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    x = ROWS[0][0]
    probed = run[2].report()
    for model in (loaded, copy.deepcopy(run[0]), pickle.loads(pickle.dumps(run[0]))):
        assert torch.equal(model(x), run[0](x))
        if learn is step:
            assert not model._forward_hooks
        optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.95)
        model(x).sum().backward()
        optimizer.step()
    optimizer = copy.deepcopy(run[1])
    optimizer.step()
    assert run[2].report() == probed


def test_what_cannot_be_copied_is_refused():
    run = made()
    with pytest.raises(ArgumentError, match=r"copy.deepcopy\(\(model, optimizer, guard\)\)"):
        copy.copy(run[2])
    for save in (pickle.dumps, lambda guard: torch.save(guard, io.BytesIO())):
        with pytest.raises(ArgumentError, match="cannot be pickled: save guard"):
            save(run[2])


def kept_alive(run, passes):
    """Count the graphs of forward passes that live on after their outputs are gone."""
    x = ROWS[0][0]
    outputs = [run[0](x) for _ in range(passes)]
    alive = [weakref.ref(output) for output in outputs]
    del outputs
    return sum(one() is not None for one in alive)


def test_forward_passes_between_steps_keep_no_graphs():
    run = made()
    for row in ROWS[:20]:
        step(run, row)
    assert run[2].probing
    assert kept_alive(run, 50) == 0
    probed = run[2].report().probed
    step(run, ROWS[20])
    assert run[2].report().probed == probed + 1
    run = made()
    for row in ROWS[:20]:
        loop(run, row)
    assert run[2].probing
    assert kept_alive(run, 50) == 0  # none of them, for nobody says which are of a loss
    with pytest.warns(ResonanceWarning, match="more than 16 forward passes came before this loss"):
        loop(run, ROWS[20])
    probed = run[2].report().probed
    assert kept_alive(run, 5) == 5
    loop(run, ROWS[21])
    assert run[2].report().probed == probed + 1


def test_a_loss_of_many_passes_can_be_followed_by_step():
    model, _, guard = made()
    for row in ROWS[:20]:
        guard.step(lambda row=row: sum(mse(model(row[0]), row[1]) for _ in range(20)) / 20)
    assert guard.report().probed == 19


def test_a_checkpoint_is_plain_and_a_guard_made_after_the_optimizer_knows_the_own_momentum():
    run = made(candidates=None)
    for row in ROWS[:100]:
        step(run, row)
    lowered = run[2].momentum
    assert lowered < 0.95
    file = io.BytesIO()
    torch.save([part.state_dict() for part in run], file)
    states = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    model = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.95)
    model.load_state_dict(states[0])
    optimizer.load_state_dict(states[1])
    assert optimizer.param_groups[0]["momentum"] == lowered
    guard = Guard(model, optimizer, budget=math.inf)
    assert guard.report().own_momentum == guard.momentum == 0.95  # of a guard that knows nothing
    guard.load_state_dict(states[2])
    assert guard.momentum == optimizer.param_groups[0]["momentum"] == lowered
    for row in ROWS[100:]:
        step(run, row)
        step((model, optimizer, guard), row)
    assert torch.equal(model.weight, run[0].weight)
    assert guard.report() == run[2].report()
    guard.close()
    assert optimizer.param_groups[0]["momentum"] == 0.95
    assert "resonax_momentum" not in optimizer.param_groups[0]


@pytest.fixture(scope="module")
def saved():
    """What a guard in a burst writes."""
    torch.set_num_threads(1)
    run = made()
    in_burst(run, step)
    return run[2].state_dict()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda _: {}, "no state of a guard of this version"),
        (lambda state: [state], "no state of a guard of this version"),
        (lambda state: state | {"format": 1}, "no state of a guard of this version"),
        (lambda state: {k: state[k] for k in state if k != "met"}, "lacks met"),
        (lambda state: state | {"state": state["state"][:-1]}, "damaged"),
        (lambda state: state | {"state": [*state["state"][:-1], -3]}, "damaged"),
        (lambda state: state | {"candidates": [0.95, 0.8, 0.5]}, "damaged"),
        (lambda state: state | {"candidates": [0.8, 0.95]}, "damaged"),
        (lambda state: state | {"own": [0.95, 0.9]}, "had 2 parameter groups, this .* 1"),
        (lambda state: state | {"used": ["large"]}, "a saved momentum must be"),
        (lambda state: state | {"shadows": [state["shadows"][0]]}, "damaged"),
        (lambda state: state | {"shadows": [[torch.ones(2)], [torch.ones(2)]]}, "other parameters"),
        (lambda state: state | {"met": [[1.0]]}, "damaged"),
        (lambda state: state | {"events": [{"day": 1}]}, "damaged"),
        (lambda state: state | {"probed": None}, "damaged"),
        (lambda state: state | {"losses": ["high"]}, "damaged"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, match, saved):
    good = copy.deepcopy(saved)
    other = made()
    step(other, ROWS[0])
    before = str(other[2].state_dict()), other[1].param_groups[0]["momentum"]
    with pytest.raises(ArgumentError, match=match):
        other[2].load_state_dict(change(good))
    assert (str(other[2].state_dict()), other[1].param_groups[0]["momentum"]) == before
    other[2].load_state_dict(good)
    assert str(other[2].state_dict()) == str(good)
