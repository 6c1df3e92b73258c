"""The guard inside the trainers of Lightning and Hugging Face.

A trainer must do what a loop of one's own with a guard does, to the last bit.
"""

from __future__ import annotations

import csv
import gc
import math
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import numpy as np
import pytest
import pytorch_lightning
import torch
import transformers
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.precision import MixedPrecision

import resonax.torch.lightning
import resonax.torch.transformers
from resonax import ArgumentError
from resonax.torch import Guard
from resonax.torch.trainers import guard_of
from streams import followed, switching

pytestmark = pytest.mark.filterwarnings("ignore:the guard (never|followed)")  # of short runs
mse = torch.nn.functional.mse_loss
ROWS = list(switching(130, 6, seed=3))
TANGENT = {"instrument": "tangent"}
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


@pytest.fixture(autouse=True)
def _alone():
    torch.set_num_threads(1)
    gc.freeze()  # what was made before: the trainer of transformers searches for garbage


class GuardedRun(NamedTuple):
    """What is left of a run."""

    weights: torch.Tensor
    guard: Any
    own: float  # momentum of the optimizer at the end
    logged: list[dict[str, float]]
    checkpoint: str


def fresh() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(5, 1)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **({"lr": 0.02, "momentum": 0.95} | options))


def faster(model):
    return sgd(model, lr=0.03)


def flat(model) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


class Skipping(torch.amp.GradScaler):
    """A scaler that leaves out every seventh step, as one that has met an overflow does."""

    count = 0

    def _maybe_opt_step(self, optimizer, *args, **kwargs):
        self.count += 1
        return super()._maybe_opt_step(optimizer, *args, **kwargs) if self.count % 7 else None


def by_hand(
    rows, *, parts=1, optimizer=sgd, scaler=None, dtype=torch.float32, **options
) -> GuardedRun:
    """The loop that a trainer should equal."""
    model = fresh()
    steps = optimizer(model)
    guard = Guard(model, steps, **options)
    scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)
    half = dtype != torch.float32
    for index, (x, y) in enumerate(rows):
        with torch.autocast("cpu", dtype, enabled=half, cache_enabled=False):
            loss = mse(model(x), y) / parts
        guard.observe(loss)
        scaler.scale(loss).backward()
        if (index + 1) % parts == 0:
            scaler.step(steps)
            scaler.update()
            steps.zero_grad()
            guard.forget()
    guard.close()
    return GuardedRun(flat(model), guard, guard.momentum, [], "")


def line(base: Any, optimizer: Any) -> Any:
    """A LightningModule, of either package."""

    class Line(base):
        def __init__(self):
            super().__init__()
            self.net = fresh()

        def training_step(self, batch, index):
            return mse(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return optimizer(self.net)

    return Line()


def by_lightning(
    rows, folder: Path, *, more=0, parts=1, optimizer=sgd, guarded=True, resume=None, scaler=None,
    **options,
) -> GuardedRun:  # fmt: skip
    callback = resonax.torch.lightning.GuardCallback(module="net", **(TANGENT | options))
    keeping = ModelCheckpoint(folder / "kept")
    trainer = lightning.Trainer(
        max_epochs=2 if more else 1,
        log_every_n_steps=30,
        accumulate_grad_batches=parts,
        logger=CSVLogger(folder, "", ""),
        callbacks=[keeping, *[callback] * guarded],
        plugins=scaler and [MixedPrecision("16-mixed", "cpu", scaler)],
        **QUIET,
    )
    module = line(lightning.LightningModule, optimizer)
    loader = torch.utils.data.DataLoader(rows[:more] if more else rows, batch_size=None)
    trainer.fit(module, loader, ckpt_path=resume)
    log = folder / "metrics.csv"
    records = csv.DictReader(log.read_text().splitlines() if log.exists() else [])
    logged = [{name: float(n) for name, n in row.items() if n} for row in records]
    own = trainer.optimizers[0].param_groups[0]["momentum"]
    return GuardedRun(flat(module), callback.guard, own, logged, keeping.best_model_path)


class Answer(torch.nn.Module):
    """A model with the manners of `transformers`."""

    def __init__(self):
        super().__init__()
        self.net = fresh()

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": mse(logits, labels), "logits": logits}


def arguments(folder: Path, **options) -> transformers.TrainingArguments:
    quiet: dict[str, Any] = {
        "disable_tqdm": True,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "per_device_train_batch_size": 1,
        "remove_unused_columns": False,
        "report_to": "none",
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "use_cpu": True,
    }
    return transformers.TrainingArguments(str(folder), **(quiet | options))


def first(rows):
    return rows[0]


def by_transformers(
    rows, folder: Path, *, more=0, parts=1, optimizer=sgd, guarded=True, resume=None, scaler=None,
    **options,
) -> GuardedRun:  # fmt: skip
    model = Answer()
    settings = arguments(
        folder,
        num_train_epochs=1,
        max_steps=len(rows) + more if more else -1,
        gradient_accumulation_steps=parts,
        logging_steps=60,
        save_strategy="epoch",
    )
    trainer = transformers.Trainer(
        model,
        settings,
        train_dataset=[{"x": x, "labels": y} for x, y in rows],
        data_collator=first,
        optimizers=(optimizer(model), None),
    )
    trainer.accelerator.scaler = scaler  # which it makes itself on a GPU only
    callback = resonax.torch.transformers.GuardCallback(trainer, **(TANGENT | options))
    if guarded:
        trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=resume)
    own = trainer.optimizer.param_groups[0]["momentum"]
    kept = str(folder / f"checkpoint-{trainer.state.global_step}")
    return GuardedRun(flat(model), callback.guard, own, trainer.state.log_history, kept)


KEPT: dict[str, Any] = {"budget": math.inf, "candidates": [0.8], "optimizer": faster}


@pytest.fixture(scope="module")
def kept_by_hand() -> GuardedRun:
    return by_hand(ROWS, **KEPT)


@pytest.fixture(scope="module")
def epochs_by_hand() -> GuardedRun:
    """An epoch of 100 rows, and the beginning of another one."""
    return by_hand(ROWS[:100] + ROWS[:30], **KEPT)


both = pytest.mark.parametrize("trained", [by_lightning, by_transformers])


@both
def test_a_guarded_run_is_kept_where_a_plain_one_is_lost(trained, tmp_path, kept_by_hand):
    plain = trained(ROWS, tmp_path / "plain", optimizer=faster, guarded=False)
    run = trained(ROWS, tmp_path / "guarded", **KEPT)
    assert plain.weights.norm() > 10
    assert run.weights.norm() < 2
    assert torch.equal(run.weights, kept_by_hand.weights)
    assert run.guard.report() == kept_by_hand.guard.report()
    (event,) = run.guard.report().events
    assert "lowered from 0.95 to 0.8" in event.text
    assert run.own == 0.95  # the user's, at the end
    logged = [row for row in run.logged if "resonax/momentum" in row]
    assert logged[-1]["resonax/momentum"] == 0.8
    assert logged[-1]["resonax/rate/0.95"] > 0
    lowered = [row["step"] for row in logged if row["resonax/momentum"] == 0.8]
    assert abs(lowered[0] - event.step) <= 1  # Lightning counts from 0
    assert {row["step"] for row in plain.logged} <= {row["step"] for row in run.logged}


@pytest.mark.slow
@both
def test_parts_of_a_batch_are_one_batch(trained, tmp_path):
    options = {"policy": "watch", "budget": math.inf, "candidates": [0.5]}
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(100, 8, 5, generator=draw)
    whole = [(x, x[:, :1]) for x in inputs]
    halves = [(part, part[:, :1]) for x in inputs for part in x.chunk(2)]
    one = trained(whole, tmp_path / "one", **options).guard.report()
    two = trained(halves, tmp_path / "two", parts=2, **options).guard.report()
    assert one.step == two.step == 100
    assert two == by_hand(halves, parts=2, **options).guard.report()
    rates = [[row.rate for row in report.candidates] for report in (one, two)]
    assert rates[0] == pytest.approx(rates[1], rel=1e-3)


@pytest.mark.parametrize(
    ("trained", "dtype"), [(by_lightning, torch.float16), (by_transformers, torch.float32)]
)
def test_a_scaler_is_taken_back_and_steps_that_it_skips_do_not_count(trained, dtype, tmp_path):
    options = {"policy": "watch", "budget": math.inf, "candidates": [0.5]}
    draw = torch.Generator().manual_seed(1)
    rows = [(x, x[:, :1]) for x in torch.randn(48, 8, 5, generator=draw)]
    run = trained(rows, tmp_path, scaler=Skipping("cpu"), **options)
    hand = by_hand(rows, scaler=Skipping("cpu"), dtype=dtype, **options)
    assert 38 < run.guard.report().step <= 48 - 48 // 7
    assert torch.equal(run.weights, hand.weights)
    assert run.guard.report() == hand.guard.report()
    assert followed(run.guard).all()
    assert np.array_equal(followed(run.guard), followed(hand.guard))


@pytest.mark.filterwarnings("ignore:The dirpath has changed")  # of Lightning's checkpoints
@both
def test_a_resumed_run_goes_on_identically(trained, tmp_path, epochs_by_hand):
    whole, rows = epochs_by_hand, ROWS[:100]
    half = trained(rows, tmp_path / "half", **KEPT)
    assert half.guard.state_dict()["shadows"] is not None
    assert [event.momentum for event in half.guard.report().events] == [0.8]
    second = trained(rows, tmp_path / "second", more=30, resume=half.checkpoint, **KEPT)
    assert second.guard.report().step == 130
    assert torch.equal(whole.weights, second.weights)
    assert whole.guard.report() == second.guard.report()
    assert second.own == 0.95


def adam(model):
    return torch.optim.Adam(model.parameters())


@both
def test_what_cannot_be_guarded_is_refused(trained, tmp_path):
    with pytest.raises(ArgumentError, match=r"Adam cannot be analysed.*torch\.optim\.SGD"):
        trained(ROWS[:60], tmp_path, optimizer=adam)
    with pytest.raises(ArgumentError, match="unknown option 'bugdet', did you mean 'budget'"):
        trained(ROWS[:60], tmp_path, bugdet=1)
    with pytest.raises(ArgumentError, match="did you mean 'safe'"):
        trained(ROWS[:60], tmp_path, policy="save")


def test_several_processes_are_refused():
    model = fresh()
    with pytest.raises(ArgumentError, match="works in one process on one device, got 2"):
        guard_of(model, sgd(model), "safe", {}, instrument="tangent", processes=2, send=print)


def test_a_saved_guard_knows_the_momentum_with_which_its_run_began():
    """A schedule had moved the user's own momentum when the checkpoint was made."""

    def made(saved=None):
        model = fresh()
        optimizer = sgd(model, momentum=0.95 if saved is None else 0.9)
        guard = guard_of(
            model, optimizer, "safe", {}, instrument="tangent", processes=1, send=print, saved=saved
        )
        return optimizer, guard

    optimizer, guard = made()
    optimizer.param_groups[0]["momentum"] = 0.9
    optimizer.step()
    resumed, other = made(guard.state_dict())
    resumed.step()
    assert resumed.param_groups[0]["momentum"] == 0.9
    assert other.report().own_momentum == 0.9
    assert other.report().candidates == guard.report().candidates


def test_lightning_under_its_older_name(tmp_path):
    callback = resonax.torch.lightning.GuardCallback(module="net")
    trainer = pytorch_lightning.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, callbacks=[callback], **QUIET
    )
    module = line(pytorch_lightning.LightningModule, sgd)
    trainer.fit(module, torch.utils.data.DataLoader(ROWS[:40], batch_size=None))
    assert callback.guard is not None
    assert callback.guard.report() == by_hand(ROWS[:40]).guard.report()
    assert torch.equal(flat(module), by_hand(ROWS[:40]).weights)


def fit(module, callback, rows=ROWS[:40], **options):
    settings = QUIET | {"logger": False, "enable_checkpointing": False, "max_epochs": 1} | options
    trainer = lightning.Trainer(callbacks=[callback], **settings)
    trainer.fit(module, torch.utils.data.DataLoader(rows, batch_size=None))
    return trainer


def test_lightning_needs_the_part_that_makes_the_outputs():
    made = resonax.torch.lightning.GuardCallback
    module = line(lightning.LightningModule, sgd)
    with pytest.raises(ArgumentError, match=r"does not call the module.*one of: net"):
        fit(module, made(instrument="tangent"))
    with pytest.raises(ArgumentError, match="unknown module 'nett', did you mean 'net'"):
        fit(module, made(module="nett"))
    hessian = made(instrument="tangent", curvature="hessian", budget=math.inf, candidates=[0.5])
    fit(line(lightning.LightningModule, sgd), hessian)
    named = made(module="net", budget=math.inf, candidates=[0.5])
    fit(line(lightning.LightningModule, sgd), named)
    assert hessian.guard is not None
    assert named.guard is not None
    found = [followed(one.guard) for one in (hessian, named)]
    assert found[0].all()
    assert found[0] == pytest.approx(found[1], rel=1e-3)  # the same for a linear model


def test_lightning_shows_the_outputs_of_a_network():
    """Of them the Gauss-Newton product is made; without them it would be the Hessian."""

    def bent():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(5, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))

    def by_steps(curvature):
        model = bent()
        guard = Guard(model, sgd(model), **TANGENT, curvature=curvature, **options)
        for x, y in ROWS[:40]:
            guard.step(lambda x=x, y=y: mse(model(x), y))
        return followed(guard)

    options = {"budget": math.inf, "candidates": [0.5]}
    module = line(lightning.LightningModule, sgd)
    module.net = bent()
    callback = resonax.torch.lightning.GuardCallback(module="net", **TANGENT, **options)
    fit(module, callback)
    assert followed(callback.guard) == pytest.approx(by_steps("gauss-newton"), rel=1e-3)
    assert followed(callback.guard) != pytest.approx(by_steps("hessian"), rel=1e-2)


def test_lightning_with_two_optimizers_is_refused():
    module = line(lightning.LightningModule, lambda net: [sgd(net), sgd(net)])
    module.automatic_optimization = False
    with pytest.raises(ArgumentError, match="one optimizer, got 2"):
        fit(module, resonax.torch.lightning.GuardCallback(module="net"))


def test_an_error_leaves_the_optimizer_as_it_was():
    class Broken(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if index == 5:
                raise RuntimeError("broken")

    callback = resonax.torch.lightning.GuardCallback("fastest", module="net", candidates=[0.5])
    module = line(lightning.LightningModule, sgd)
    trainer = lightning.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, callbacks=[callback, Broken()],
        **QUIET,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="broken"):
        trainer.fit(module, torch.utils.data.DataLoader(ROWS[:20], batch_size=None))
    assert not module.net._forward_hooks
    assert trainer.optimizers[0].param_groups[0]["momentum"] == 0.95


def test_transformers_begins_anew_after_an_error(tmp_path):
    class Broken(transformers.TrainerCallback):
        broken = False

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 5 and not self.broken:
                self.broken = True
                raise RuntimeError("broken")

    model = Answer()
    trainer = transformers.Trainer(
        model,
        arguments(tmp_path, num_train_epochs=1),
        train_dataset=[{"x": x, "labels": y} for x, y in ROWS[:20]],
        data_collator=first,
        optimizers=(sgd(model), None),
    )
    callback = resonax.torch.transformers.GuardCallback(trainer, instrument="tangent")
    trainer.add_callback(callback)
    trainer.add_callback(Broken())
    with pytest.raises(RuntimeError, match="broken"):
        trainer.train()
    trainer.train()
    assert callback.guard is not None
    assert callback.guard.report().step == 20
    assert not model._forward_hooks
    assert trainer.accelerator.backward.__name__ == "backward"


def test_a_transformer_and_a_loss_that_the_trainer_makes(tmp_path):
    """The loss of a language model is divided by all tokens of the accumulated batch."""
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8, attn_implementation="eager",
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randint(16, (8,), generator=draw) for _ in range(40)]
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    settings = arguments(
        tmp_path, max_steps=20, gradient_accumulation_steps=2, label_smoothing_factor=0.1
    )
    trainer = transformers.Trainer(
        model,
        settings,
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        optimizers=(sgd(model), None),
    )
    callback = resonax.torch.transformers.GuardCallback(
        trainer, "watch", instrument="tangent", budget=math.inf, candidates=[0.5]
    )
    trainer.add_callback(callback)
    trainer.train()
    assert callback.guard is not None
    report = callback.guard.report()
    assert (report.step, report.probed) == (20, 19)  # the first step is never followed
    assert [event.kind for event in report.events] == ["unseen"]  # 19 steps tell no rate
