"""The audit of a loader: what it finds, that it changes nothing, and what it refuses."""

from __future__ import annotations

import copy
import json
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import resonax as rx
from resonax.cli.app import _run
from resonax.guards.batch_order import components, find_order, order_p, parts_of, repeats
from resonax.reports.audit import write_audit
from resonax.torch import audit

STEPS = 128


def rows(count: int = 1024, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Four classes, one after the other."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(4).repeat_interleave(count // 4)
    return nn.functional.one_hot(y, 4) + 0.8 * torch.randn(count, 4, generator=generator), y


def learner(lr: float = 0.1, momentum: float = 0.9, kind: type = torch.optim.SGD):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.1), nn.BatchNorm1d(4), nn.Linear(4, 4))
    given = {"momentum": momentum} if kind is torch.optim.SGD else {"betas": (momentum, 0.99)}
    return model, kind(model.parameters(), lr=lr, **given)


def quick(loader, *given, steps: int = STEPS, **options):
    return audit(loader, *given, steps=steps, progress=False, **options)


def loss_of(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


# The test of the order.


def test_random_orders_are_called_random_at_the_level():
    """Exchangeable batches with heavy tails: at most the level, by a binomial bound."""
    rng, found = np.random.default_rng(0), 0
    for seed in range(60):
        numbers = rng.standard_normal((64, 3)) * rng.exponential(size=(64, 1)) ** 2
        found += find_order(components(numbers), significance=0.1, seed=seed).order != "random"
    assert found <= 8


def test_p_is_uniform_in_random_orders():
    rng = np.random.default_rng(1)
    ps = [order_p(rng.standard_normal((48, 2)), np.zeros(48), rng, 99) for _ in range(200)]
    assert abs(np.mean(ps) - 0.5) < 0.07
    assert np.mean(np.array(ps) <= 0.1) < 0.17


@pytest.mark.parametrize(
    ("name", "signal", "period"),
    [
        ("sorted", np.eye(8)[np.arange(256) // 32], None),
        ("alternating", np.arange(256)[:, None] % 2, 2),
        ("cycle", np.eye(8)[np.arange(256) % 32 // 4], 32),
        ("day", np.sin(2 * np.pi * np.arange(256) / 24)[:, None], 24),
        ("drift", np.arange(256)[:, None] / 128, None),
        ("walk", np.random.default_rng(0).standard_normal((256, 1)).cumsum(0) / 8, None),
    ],
)
def test_orders_are_found_with_their_rhythm(name, signal, period):
    noise = 0.3 * np.random.default_rng(0).standard_normal((256, max(4, signal.shape[1])))
    noise[:, : signal.shape[1]] += signal
    found = find_order(components(noise))
    assert found.order == "ordered", name
    if period is not None:
        assert found.period == pytest.approx(period, rel=0.02)
    shuffled = np.random.default_rng(1).permutation(noise)
    assert find_order(components(shuffled)).order == "random"


def test_the_buffer_is_that_of_the_shuffling():
    """Sorted rows after a shuffle within blocks: within those it looks random, beyond not."""
    rng = np.random.default_rng(0)
    for size in (4, 16):
        blocks = np.arange(256).reshape(-1, size)
        order = np.concatenate([rng.permutation(one) for one in blocks])
        found = find_order(components(order[:, None] / 8 + rng.standard_normal((256, 1))))
        assert size / 2 <= found.buffer <= 4 * size


def test_batches_that_are_all_alike_are_no_evidence():
    assert find_order(components(np.ones((64, 3)))).order == "random"


def test_parts_are_those_of_the_rhythm_or_of_what_is_alike():
    labels = np.eye(3)[np.arange(96) // 8 % 3] + 0.05 * np.random.default_rng(0).normal(
        size=(96, 3)
    )
    for period in (None, 24.0):
        parts = parts_of(labels, period, most=3)
        assert sorted(place for part in parts for place in part) == list(range(96))
        assert {len({place // 8 % 3 for place in part}) for part in parts} == {1}


def test_epochs_that_are_the_same_are_told_from_others():
    rng = np.random.default_rng(0)
    epochs, first = np.repeat([0, 1], 20), rng.permutation(20).tolist()
    assert repeats(first + first, epochs, 0.01, rng)
    assert repeats(first + rng.permutation(20).tolist(), epochs, 0.01, rng) is False
    assert repeats(first, epochs[:20], 0.01, rng) is None


# The audit of a loader.


@pytest.fixture(scope="module")
def harmed():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return quick(as_tuples()[::2], model, loss_of, optimizer, steps=64, budget=80)


def test_classes_one_after_the_other_are_forgotten(harmed):
    found = harmed
    assert (found.order, found.harm, found.cause) == ("ordered", "harmful", "forgetting")
    assert found.lost_steps.low > 0.05 * 64
    assert found.found.repeats
    assert any(cure.kind == "buffer" for cure in found.cures)
    assert all(cure.lost is not None and cure.lost < found.lost_steps.lost for cure in found.cures)
    text = str(found)
    assert text.startswith("ordered, harmful: ")
    assert "resonance" not in text
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["cause"] == "forgetting"
    assert plain["lost_steps"]["steps"] == 64


def test_a_shuffled_loader_is_random_and_without_harm():
    model, optimizer = learner()
    loader = DataLoader(TensorDataset(*rows()), batch_size=16, shuffle=True)
    found = quick(loader, model, loss_of, optimizer)
    assert (found.order, found.harm, found.cause) == ("random", "none", None)
    assert found.found.repeats is False
    assert not found.cures


@pytest.mark.parametrize("seed", [0, 15])
def test_a_run_that_fails_by_chance_does_not_make_a_shuffled_loader_harmful(seed):
    """Inputs with heavy tails: of five runs one or two end above the loss at the start."""
    torch.manual_seed(seed)
    y = torch.randint(0, 4, (int(torch.randint(600, 4000, ())),))
    x = nn.functional.one_hot(y, 6) + torch.randn(len(y), 6)
    x = x * torch.distributions.Exponential(1.0).sample((len(y), 1)) ** 2
    order = y.argsort()
    data = TensorDataset(x[order], y[order])
    loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=bool(seed % 2))
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    found = quick(loader, model, nn.CrossEntropyLoss(), optimizer, steps=192, seed=seed)
    assert (found.order, found.harm, found.cause) == ("random", "none", None)


def test_too_large_a_step_is_not_blamed_on_the_order():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
    x, y = rows()
    loader = DataLoader(TensorDataset(x, nn.functional.one_hot(y).float()), 16, shuffle=True)
    found = quick(loader, model, nn.MSELoss(), optimizer)
    assert (found.order, found.harm, found.cause) == ("random", "harmful", "step")
    assert found.cures[0].kind == "lr"
    assert found.cures[0].value < 5.0


def test_nothing_of_the_caller_is_changed():
    """Model, optimizer, gradients, loader and all random generators, bit for bit."""
    model, optimizer = learner(kind=torch.optim.Adam)
    x, y = rows()
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, generator=generator)
    for batch, _ in zip(loader, range(3), strict=False):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002

    def state():
        inner = [one for entry in optimizer.state.values() for one in entry.values()]
        return (
            copy.deepcopy(
                [
                    *model.state_dict().values(),
                    *(one.grad for one in model.parameters()),
                    *inner,
                    torch.get_rng_state(),
                    generator.get_state(),
                    x,
                    y,
                ]
            ),
            optimizer.param_groups[0]["betas"],
            model.training,
            random.getstate(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002
        )

    before = state()
    quick(loader, model, loss_of, optimizer, steps=64)
    for one, two in zip(before[0], state()[0], strict=True):
        assert torch.equal(one, two)
    assert before[1:] == state()[1:]


class Stream(IterableDataset):
    """Batches as dictionaries, with a state that a reading advances."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self):
        x, y = rows()
        for first in range(0, len(y), 16):
            self.read += 1
            yield {"x": x[first : first + 16], "y": y[first : first + 16], "name": None}


def as_tuples() -> list:
    x, y = rows()
    return list(zip(x.split(16), y.split(16), strict=True))


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Stream(), batch_size=None),
        Stream(),
        as_tuples(),
        [(x.numpy(), y.numpy()) for x, y in as_tuples()],
        [{"x": x.tolist(), "y": y.tolist()} for x, y in as_tuples()],
        DataLoader(TensorDataset(*rows()), batch_size=16),
        iter(as_tuples()),
    ],
    ids=["DataLoader of a stream", "stream", "list", "arrays", "lists", "DataLoader", "iterator"],
)
def test_any_iterable_of_batches_is_read(loader):
    found = quick(loader, steps=64)
    assert (found.order, found.harm) == ("ordered", None)
    if isinstance(loader, Stream):
        assert loader.read == 0


def test_set_epoch_that_was_forgotten_is_found_and_called_it_is_not():
    data = TensorDataset(*rows(600))
    sampler = torch.utils.data.distributed.DistributedSampler(data, 2, 0, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    assert quick(loader, steps=80).order == "repeated"
    assert quick(loader, steps=80, set_epoch=sampler.set_epoch).order == "random"


def test_ranks_are_compared_and_train_together():
    x, y = rows()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    batches = list(zip(x[order].split(8), y[order].split(8), strict=True))
    same = quick(batches[:64], ranks=[batches[:64]], steps=64)
    other = quick(batches[:64], ranks=[batches[64:]], steps=64)
    assert (same.same_ranks, other.same_ranks) == (True, False)
    model, optimizer = learner(lr=0.01)
    found = quick(batches[:64], model, loss_of, optimizer, ranks=[batches[64:]], steps=64)
    assert found.same_ranks is False


def test_batches_of_other_shapes_are_mixed_whole_and_that_is_said():
    def ragged(model, batch):
        return (
            model(batch[0].mean(dim=1)).logsumexp(1).mean()
            - model(batch[0].mean(dim=1))[:, 0].mean()
        )

    torch.manual_seed(0)
    batches = [(torch.randn(8, 3 + step // 8 % 4, 4),) for step in range(64)]
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    found = quick(batches, model, ragged, optimizer, steps=64)
    assert found.order == "ordered"
    assert not found.by_rows
    assert any("whole batches" in note for note in found.notes)


def with_loss(loss):
    model, optimizer = learner()
    return model, loss, optimizer


REFUSED = {
    "ended after 10 batches": lambda: quick(iter(as_tuples()[:10]), steps=64),
    "gives no batches": lambda: quick([], steps=64),
    "must give batches": lambda: quick(7, steps=64),
    "without tensors": lambda: quick(["a", "b"] * 40, steps=64),
    "hold different things": lambda: quick([*as_tuples()[:63], (torch.ones(16),)], steps=64),
    "tensor of one number": lambda: quick(
        as_tuples(), *with_loss(lambda model, batch: model(batch[0])), steps=64
    ),
    "not finite at the weights": lambda: quick(
        as_tuples(), *with_loss(lambda model, batch: loss_of(model, batch) + torch.inf), steps=64
    ),
    "no parameter of this model": lambda: quick(
        as_tuples(), learner()[0], loss_of, learner()[1], steps=64
    ),
    "no parameters": lambda: quick(as_tuples(), nn.ReLU(), loss_of, learner()[1], steps=64),
    "give the optimizer": lambda: quick(as_tuples(), learner()[0], loss_of, steps=64),
    "ranks disagree": lambda: quick(iter(as_tuples()), ranks=[as_tuples()[:50] * 2], steps=80),
    "at least 64": lambda: quick(as_tuples(), steps=10),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_audited_is_refused_in_a_sentence(words):
    with pytest.raises(rx.ArgumentError, match=words) as caught:
        REFUSED[words]()
    assert "\n" not in str(caught.value)


def test_a_loss_of_another_model_is_refused():
    mine, _ = learner()
    model, optimizer = learner()
    with pytest.raises(rx.ArgumentError, match="does not depend on the model"):
        quick(as_tuples(), model, lambda _, batch: loss_of(mine, batch), optimizer, steps=64)
    assert all(one.grad is None for one in mine.parameters())


def test_it_is_drawn_reported_and_stored(tmp_path, harmed):
    found = harmed
    page = write_audit(found, tmp_path / "audit.html").read_text()
    assert "<h1" in page
    assert "forgetting" in page or "unclear" in page
    assert found.plot().axes
    loaded = rx.load(found.save(tmp_path / "audit.json"))
    assert loaded.to_dict() == found.to_dict()
    assert quick(as_tuples(), steps=64).plot().axes


# The command line.

TRAIN = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    y = torch.arange(4).repeat_interleave(256)
    x = nn.functional.one_hot(y, 4) + 0.8 * torch.randn(1024, 4)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return list(zip(x.split(16), y.split(16))), model, nn.CrossEntropyLoss(), optimizer

def only_batches():
    return make()[0]

number = 3

def fail():
    raise ValueError("no data")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_training.py").write_text(TRAIN)
    (tmp_path / "my_broken.py").write_text("def (")
    table = np.random.default_rng(0).standard_normal((160, 2))
    lines = [f"{a:.6f},{a + b:.6f}" for a, b in table]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y", *lines]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_command_ends_with_the_status_of_the_audit(folder, capsys):
    code, _ = _run(["audit", "my_training:only_batches", "--steps", "64", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["order"], found["harm"]) == (0, "ordered", None)
    given = ["--steps", "64", "--budget", "16", "--html", "a.html", "--plot", "a.png"]
    code, _ = _run(["audit", "my_training:make", *given])
    assert code == 1
    assert capsys.readouterr().out.startswith("ordered, harmful")
    assert (folder / "a.html").exists()
    assert (folder / "a.png").exists()


def test_files_are_checked_by_training_for_adam_and_networks(folder, capsys):
    given = ["rows.csv", "--target", "y", "--lr", "0.01", "--batch", "2"]
    code, _ = _run(["check", *given, "--optimizer", "adam", "--model", "mlp", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["order"], found["settings"]["model"]) == (0, "random", "mlp")
    assert "measured by training, not proved" in found["notes"][0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["audit", "my_training"], "module:function"),
        (["audit", "my_training:nothing"], "my_training has no nothing"),
        (["audit", "no_such_module:make"], "there is no module no_such_module"),
        (["audit", "my_training:number"], "must be a function"),
        # Before anything of the user's is imported.
        (["audit", "my_training:fail", "--steps", "32"], "steps must be"),
        (["audit", "my_training:fail", "--budget", "8"], "budget must be"),
        (["audit", "my_training:fail"], "line 19: ValueError: no data"),
        (["audit", "my_broken:make"], "my_broken.py, line 1: SyntaxError"),
        (["audit", "my_training:make", "--html", "a.txt"], "--html must end in"),
        (["check", "rows.csv", "--target", "y", "--optimizer", "adam"], "--lr is needed"),
        (["check", "rows.csv", "--lr", "0.1", "--model", "mlp"], "--target"),
        (["check", "rows.csv", "--target", "y", "--lr", "0.1", "--model", "cnn"], "unknown model"),
        (
            ["check", "rows.csv", "--target", "y", "--lr", "0.1", "--optimizer", "adam",
             "--momentum", "0.5"],
            "adam takes --beta1 in place of --momentum",
        ),
    ],
)  # fmt: skip
def test_bad_commands_are_one_sentence(folder, words, sentence):
    code, said = _run(words)
    assert code == 2
    assert sentence in said
