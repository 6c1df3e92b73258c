"""What a guard refuses in a sentence, and leaves as it was: gradients, optimizers, states."""

from __future__ import annotations

import copy
import gc
import importlib
import sys
import weakref

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import resonax
from resonax.core.errors import ArgumentError
from resonax.torch import Guard


def made(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, optimizer, Guard(model, optimizer, **options)


def train(model, guard, rows):
    for x, y in rows:
        guard.step(lambda x, y: mse_loss(model(x), y), x, y)


def learn(model, guard, steps=1):
    for _ in range(steps):
        x = torch.randn(8, 3)
        guard.step(lambda x, y: mse_loss(model(x), y), x, x[:, :1])


def test_gradients_of_a_backward_of_ones_own_are_refused_and_not_dropped():
    model, optimizer, guard = made()
    learn(model, guard, 2)
    before = [one.detach().clone() for one in model.parameters()]
    model(torch.ones(1, 3)).sum().backward()
    held = [one.grad.clone() for one in model.parameters()]
    with pytest.raises(ArgumentError, match=r"outside of guard\.step, which would drop them"):
        learn(model, guard)
    assert all(map(torch.equal, before, model.parameters()))
    assert all(map(torch.equal, held, [one.grad for one in model.parameters()]))
    optimizer.zero_grad()
    learn(model, guard)


def test_gradients_that_are_nobodys_are_no_matter():
    """Of a loop before the guard was made, and zeros; a guarded step leaves none."""
    model, optimizer, guard = made()
    learn(model, guard)
    guard.close()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    guard = Guard(model, optimizer)
    learn(model, guard, 40)  # over a test
    optimizer.zero_grad(set_to_none=False)
    learn(model, guard, 2)
    assert all(one.grad is None for one in model.parameters())
    x = torch.randn(8, 3)
    with pytest.raises(ArgumentError, match="without calling backward"):
        guard.step(lambda x, _: _with_backward(model(x).sum()), x, x[:, :1])
    learn(model, guard)


def _with_backward(loss):
    loss.backward(retain_graph=True)
    return loss


def test_an_optimizer_that_takes_the_place_of_another_is_refused():
    model, optimizer, guard = made()
    learn(model, guard)
    other = torch.optim.Adam(model.parameters())
    with pytest.raises(ArgumentError, match="keeps its optimizer"):
        guard.optimizer = other
    with pytest.raises(ArgumentError, match="keeps its model"):
        guard.model = nn.Linear(1, 1)
    model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(ArgumentError, match="guarded with another one"):
        other.step()
    other.zero_grad()
    stranger = nn.Linear(1, 1)
    torch.optim.Adam(stranger.parameters()).step()
    learn(model, guard)
    optimizer.param_groups[0]["params"] = [*stranger.parameters()]
    with pytest.raises(ArgumentError, match="other parameters than when the guard was made"):
        learn(model, guard)
    guard.close()
    other.step()


def test_a_run_has_one_guard_until_it_is_closed_or_deleted():
    model, optimizer, guard = made()
    with pytest.raises(ArgumentError, match="optimizer has a guard already"):
        Guard(model, optimizer)
    with pytest.raises(ArgumentError, match="model has a guard already"):
        Guard(model, torch.optim.Adam(model.parameters()))
    with pytest.raises(ArgumentError, match="model has a guard already"):
        Guard(model[0], torch.optim.Adam(model[0].parameters()))
    learn(model, guard)
    guard.close()
    guard = Guard(model, optimizer)
    learn(model, guard)
    del guard
    gc.collect()
    optimizer.zero_grad()
    optimizer.step()  # nobody refuses it
    seen = weakref.ref(model)
    Guard(model, optimizer)
    del model, optimizer
    gc.collect()
    assert seen() is None


def test_a_step_that_a_replay_cannot_see_is_refused():
    model, optimizer, guard = made()
    x, y = torch.ones(2, 3), torch.ones(2, 1)
    mse_loss(model(x), y).backward()
    before = model[0].weight.detach().clone()
    with pytest.raises(ArgumentError, match=r"makes the steps itself.*write guard\.step\("):
        optimizer.step()
    assert torch.equal(model[0].weight.detach(), before)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(mse_loss(model(x), y)).backward()
    with pytest.raises(ArgumentError, match="makes the steps itself"):
        scaler.step(optimizer)
    optimizer.zero_grad()
    train(model, guard, [(x, y)])  # and the guard's own steps go on
    guard.close()
    optimizer.step()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            lambda model: (lambda: model(ONES).mean(),),
            r"write guard\.step\(lambda x, y.*in place of",
        ),
        (lambda model: (model(ONES).mean(),), "not a Tensor"),
        (lambda _: (None, ONES), "not a NoneType"),
        (lambda model: (lambda x: model(x), ONES), r"one number.*got shape \(2, 1\)"),
        (lambda model: (lambda x: model(x).mean().item(), ONES), "one number, such as a mean"),
        (lambda model: (lambda x: model(x).mean().detach(), ONES), "outside of torch.no_grad"),
        (lambda _: (lambda x: nn.Linear(3, 1)(x).mean(), ONES), "depend on any parameter"),
    ],
)
def test_a_batch_or_a_loss_that_cannot_be_replayed_is_refused_and_changes_nothing(given, says):
    model, _, guard = made()
    with pytest.raises(ArgumentError, match=says):
        guard.step(*given(model))
    assert guard.report().step == 0
    learn(model, guard)


ONES = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"instrument": "tangent"}, "instrument belonged to the tangent method, which is gone"),
        ({"warmup": 256}, "warmup belonged to the tangent method"),
        ({"bugdet": 1}, "did you mean 'budget'"),
        ({"policy": "save"}, "did you mean 'safe'"),
        ({"candidates": [1.5]}, "momentum in"),
        ({"spacing": 2}, "spacing must be at least 8"),
        ({"snapshots": "gpu"}, "snapshots"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, says):
    with pytest.raises(ArgumentError, match=says):
        made(**options)


def test_a_model_and_an_optimizer_that_do_not_belong_together_are_refused():
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizer = torch.optim.SGD(other.parameters(), 0.1, momentum=0.9)
    with pytest.raises(ArgumentError, match=r"trains no parameter of this model; make it from"):
        Guard(model, optimizer)
    optimizer.add_param_group({"params": model.parameters()})
    with pytest.raises(ArgumentError, match=r"2 of the 4 parameters .* could not be rewound"):
        Guard(model, optimizer)
    with pytest.raises(ArgumentError, match="optimizer must be of torch"):
        Guard(model, object())
    Guard(nn.ModuleList([model, other]), optimizer)


def test_an_optimizer_that_calls_the_loss_again_is_refused():
    model = nn.Linear(3, 1)
    with pytest.raises(ArgumentError, match="LBFGS calls the loss again within a step"):
        Guard(model, torch.optim.LBFGS(model.parameters()))


def test_models_of_torch_and_jax_are_sent_to_their_own_guards():
    import optax

    model, optimizer, _ = made()
    with pytest.raises(ArgumentError, match=r"resonax\.torch\.Guard\(model, optimizer\)"):
        resonax.Guard(model)
    for given in ((lambda: 0, optax.sgd(0.1)), (optax.adam(0.1),)):
        with pytest.raises(ArgumentError, match=r"resonax\.jax\.guard"):
            resonax.Guard(*given)
    with pytest.raises(ArgumentError, match=r"resonax\.Guard takes"):
        Guard(object(), optimizer)


def _paths(value, path=()):
    """Return the path to every value in a state."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _paths(one, (*path, name))
    elif isinstance(value, (list, tuple)):
        for place in range(min(len(value), 2)):  # further ones are alike
            yield from _paths(value[place], (*path, place))


def _damaged(value, path, kind):
    """Return a copy of a state with something else at a path, or nothing."""
    if not path:
        return {
            "none": None,
            "word": "damaged",
            "short": value[:-1]
            if isinstance(value, (list, tuple, torch.Tensor)) and len(value)
            else -7,
        }[kind]
    name, *rest = path
    if isinstance(value, dict):
        if kind == "gone" and not rest:
            return {one: held for one, held in value.items() if one != name}
        return value | {name: _damaged(value[name], rest, kind)}
    items = list(value)
    items[name : name + 1] = (
        [] if kind == "gone" and not rest else [_damaged(items[name], rest, kind)]
    )
    return type(value)(items)


@pytest.fixture(scope="module")
def saved():
    model, _, guard = made(average=True, spacing=8)
    learn(model, guard, 20)
    return guard.state_dict()


@pytest.mark.parametrize("kind", ["gone", "none", "word", "short"])
def test_a_damaged_state_is_refused_and_changes_nothing(kind, saved):
    model, _, guard = made(average=True, spacing=8)
    learn(model, guard, 10)
    before, weights = str(guard.state_dict()), [one.detach().clone() for one in model.parameters()]
    count, right = 0, str(saved)
    for path in _paths(saved):
        wrong = _damaged(saved, path, kind)
        if str(wrong) == right:
            continue
        with pytest.raises(ArgumentError):
            guard.load_state_dict(wrong)
        count += 1
    assert count > 80
    assert str(guard.state_dict()) == before
    assert all(map(torch.equal, weights, model.parameters()))
    learn(model, guard)
    guard.load_state_dict(copy.deepcopy(saved))
    assert guard.report().step == 20


@pytest.mark.parametrize("wrong", [None, "state", [], {}, {"format": 1}])
def test_what_is_no_state_is_refused(wrong):
    _, _, guard = made()
    with pytest.raises(ArgumentError):
        guard.load_state_dict(wrong)


def test_the_state_of_another_optimizer_is_refused(saved):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    guard = Guard(model, torch.optim.Adam(model.parameters()), candidates=(0.5,) * 20)
    with pytest.raises(ArgumentError, match="of another optimizer"):
        guard.load_state_dict(saved)


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
