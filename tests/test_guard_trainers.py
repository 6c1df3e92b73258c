"""The guard inside the trainers of Lightning and Hugging Face.

A trainer must do what a loop of one's own with a guard does, to the last bit, and a replay what the
trainer did.
"""

from __future__ import annotations

import gc
import warnings
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
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import resonax.torch.lightning
import resonax.torch.transformers
from resonax import ArgumentError
from resonax.torch import Guard
from resonax.torch.trainers import guard_of

IMAGES, LABELS = (torch.tensor(part) for part in load_digits(return_X_y=True))
IMAGES = (IMAGES / 16).float()


@pytest.fixture(autouse=True)
def _alone():
    torch.set_num_threads(1)
    gc.freeze()  # what was made before: the trainer of transformers searches for garbage


def cycles(steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Digits, one class after the other: all of them in 20 steps."""
    rng = np.random.default_rng(3)
    places = [np.flatnonzero(LABELS.numpy() == label) for label in range(10)]
    rows = (rng.choice(places[step % 20 // 2], 16) for step in range(steps))
    return [(IMAGES[chosen], LABELS[chosen]) for chosen in rows]


ROWS = cycles(50)


def network(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 10))


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.03, fused=True)  # the quickest


def decay(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)


def right(model: nn.Module) -> float:
    with torch.no_grad():
        return float((model.eval()(IMAGES).argmax(1) == LABELS).float().mean())


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


class Settings(NamedTuple):
    """What a trainer does around its steps."""

    rows: int = 50
    epochs: int = 1
    parts: int = 1
    clip: float = 0.0
    decays: bool = False
    dropout: float = 0.0
    guarded: bool = True
    resume: str | None = None
    others: tuple[Any, ...] = ()  # callbacks, for either trainer: called with the guard


ONCE = Settings()


class GuardedRun(NamedTuple):
    """What is left of a run."""

    net: nn.Module
    guard: Any
    own: tuple[float, float]  # beta1 and step size at the end
    checkpoint: str


class Digits(lightning.LightningModule):
    def __init__(self, settings: Settings):
        super().__init__()
        self.net, self.settings = network(settings.dropout), settings

    def training_step(self, batch, index):
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return {"loss": loss}

    def configure_optimizers(self):
        optimizer = adam(self.net)
        if not self.settings.decays:
            return optimizer
        schedule = {"scheduler": decay(optimizer), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}


class AfterBatch(lightning.Callback):
    """Call a function after each step."""

    def __init__(self, call, guarding):
        self.call, self.guarding = call, guarding

    def on_train_batch_end(self, trainer, *_):
        if (trainer.fit_loop.batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self.call(self.guarding.guard)


class AfterStep(transformers.TrainerCallback):
    """The same for the other trainer."""

    def __init__(self, call, guarding):
        self.call, self.guarding = call, guarding

    def on_step_end(self, *_, **__):
        self.call(self.guarding.guard)


def by_lightning(folder: Path, settings: Settings = ONCE, **options) -> GuardedRun:
    guarding = resonax.torch.lightning.GuardCallback(**options)
    keeping = ModelCheckpoint(folder)
    others = [AfterBatch(one, guarding) for one in settings.others]
    trainer = lightning.Trainer(
        max_epochs=settings.epochs,
        accumulate_grad_batches=settings.parts,
        gradient_clip_val=settings.clip or None,
        callbacks=[keeping, *[guarding] * settings.guarded, *others],
        logger=False,
        accelerator="cpu",
        devices=1,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Digits(settings)
    loader = torch.utils.data.DataLoader(ROWS[: settings.rows], batch_size=None)
    torch.manual_seed(2)
    trainer.fit(module, loader, ckpt_path=settings.resume)
    assert "training_step" not in vars(module)
    group = trainer.optimizers[0].param_groups[0]
    own = group["betas"][0], group["lr"]
    return GuardedRun(module.net, guarding.guard, own, keeping.best_model_path)


class Answer(nn.Module):
    """A model with the manners of `transformers`."""

    def __init__(self, dropout: float):
        super().__init__()
        self.net = network(dropout)

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


def first(rows):
    return rows[0]


def by_transformers(folder: Path, settings: Settings = ONCE, **options) -> GuardedRun:
    arguments = transformers.TrainingArguments(
        str(folder),
        num_train_epochs=settings.epochs,
        gradient_accumulation_steps=settings.parts,
        max_grad_norm=settings.clip,
        lr_scheduler_type="constant",
        per_device_train_batch_size=1,
        train_sampling_strategy="sequential",
        save_strategy="epoch",
        logging_strategy="no",
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
        seed=2,
    )
    model = Answer(settings.dropout)
    optimizer = adam(model)
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=[{"x": x, "labels": y} for x, y in ROWS[: settings.rows]],
        data_collator=first,
        optimizers=(optimizer, decay(optimizer) if settings.decays else None),
    )
    guarding = resonax.torch.transformers.GuardCallback(trainer, **options)
    for one in [guarding] * settings.guarded + [AfterStep(o, guarding) for o in settings.others]:
        trainer.add_callback(one)
    trainer.train(resume_from_checkpoint=settings.resume)
    assert "training_step" not in vars(trainer)
    own = optimizer.param_groups[0]["betas"][0], optimizer.param_groups[0]["lr"]
    kept = str(folder / f"checkpoint-{trainer.state.global_step}")
    return GuardedRun(model.net, guarding.guard, own, kept)


BOTH = pytest.mark.parametrize("trained", [by_lightning, by_transformers])


@pytest.fixture(scope="module")
def by_hand() -> tuple[nn.Module, Guard]:
    """A loop of one's own, for two epochs."""
    torch.set_num_threads(1)
    model = network()
    guard = Guard(model, adam(model), spacing=8)
    for x, y in ROWS * 2:
        guard.step(lambda x, y: cross_entropy(model(x), y), x, y)
    return model, guard


def test_without_a_guard_the_network_ends_at_chance():
    model = network()
    optimizer = adam(model)
    for x, y in ROWS * 2:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    assert right(model) < 0.2


@BOTH
@pytest.mark.filterwarnings("ignore:The dirpath has changed")  # of Lightning's checkpoints
def test_a_trainer_does_what_a_guarded_loop_does_and_goes_on_from_a_checkpoint(
    trained, tmp_path, by_hand
):
    """The checkpoint is made after the guard has gone back, and while it mixes rows."""
    half = trained(tmp_path / "half", spacing=8)
    assert half.guard.setting.is_mixed
    again = Settings(epochs=2, resume=half.checkpoint)
    run = trained(tmp_path / "whole", again, spacing=8)
    model, guard = by_hand
    assert right(run.net) > 0.8
    assert torch.equal(flat(run.net), flat(model))
    assert run.guard.report().step == 100
    assert [one.text for one in run.guard.report().events] == [
        one.text for one in guard.report().events
    ]
    assert run.own == (0.9, 0.03)


@BOTH
@pytest.mark.filterwarnings("ignore::resonax.torch.GuardWarning")
def test_a_watched_trainer_is_left_alone_and_a_replay_is_what_it_did(trained, tmp_path):
    """With dropout, parts of a batch, clipping and a schedule."""
    settings = Settings(rows=24, parts=2, clip=0.5, decays=True, dropout=0.2)
    plain = trained(tmp_path / "plain", settings._replace(guarded=False))
    apart = []

    def replay(guard):
        if guard.report().step != 11:
            return
        training = guard.driven
        learner, history = training.learner, training.run.state.history
        now, random = learner.save(), learner.random_state()
        weights = flat(learner.model)
        learner.load(history.snapshots[0].saved)
        with training.making_steps():
            for batch in history.since(history.snapshots[0]):
                learner.step(batch)
        apart.append(float((flat(learner.model) - weights).abs().max()))
        learner.load(now)
        learner.set_random_state(random)

    options = {"policy": "watch", "candidates": [0.5], "spacing": 8}
    run = trained(tmp_path / "watched", settings._replace(others=(replay,)), **options)
    assert run.guard.report().step == 12
    assert run.guard.report().work > 1
    assert torch.equal(flat(run.net), flat(plain.net))
    assert run.own == plain.own
    assert apart == [0.0]


@BOTH
def test_an_error_in_a_trainer_leaves_the_optimizer_as_it_was(trained, tmp_path):
    seen = []

    def broken(guard):
        seen.append(guard)
        if guard.report().step == 10:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        trained(tmp_path, Settings(others=(broken,)), spacing=8)
    assert seen[0].setting.is_mixed
    group = seen[0].optimizer.param_groups[0]
    assert (group["betas"][0], group["lr"]) == (0.9, 0.03)


@BOTH
def test_what_is_the_trainers_own_is_refused(trained, tmp_path):
    for options, match in (
        ({"scaler": None}, "scaler is the trainer's own"),
        ({"warmup": 256}, "warmup belonged to the tangent method"),
        ({"bugdet": 1}, "did you mean 'budget'"),
        ({"policy": "save"}, "did you mean 'safe'"),
    ):
        with pytest.raises(ArgumentError, match=match):
            trained(tmp_path, **options)


def test_several_devices_of_one_process_are_refused():
    model = network()
    with pytest.raises(ArgumentError, match="over 2 devices without DistributedDataParallel"):
        guard_of(model, adam(model), "safe", {}, devices=2, send=print)


QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def test_lightning_needs_a_loss_one_optimizer_and_automatic_optimization():
    class Silent(Digits):
        def training_step(self, batch, index):
            return None

    class Manual(Digits):
        def __init__(self):
            super().__init__(ONCE)
            self.automatic_optimization = False

    class Two(Manual):
        def configure_optimizers(self):
            return [adam(self.net), adam(self.net)]

    for module, match in (
        (Silent(ONCE), "returned no loss"),
        (Manual(), r"guard\.step"),
        (Two(), "one optimizer, got 2"),
    ):
        callback = resonax.torch.lightning.GuardCallback()
        trainer = lightning.Trainer(max_steps=2, callbacks=[callback], **QUIET)
        with pytest.raises(ArgumentError, match=match):
            trainer.fit(module, torch.utils.data.DataLoader(ROWS, batch_size=None))


def test_lightning_under_its_older_name_and_its_loggers(tmp_path):
    class Line(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch, index):
            return cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return adam(self.net)

    callback = resonax.torch.lightning.GuardCallback(spacing=8)
    logger = CSVLogger(tmp_path, "", "")
    trainer = pytorch_lightning.Trainer(
        max_epochs=1, log_every_n_steps=5, callbacks=[callback], **(QUIET | {"logger": logger})
    )
    trainer.fit(Line(), torch.utils.data.DataLoader(ROWS[:20], batch_size=None))
    assert callback.guard is not None
    assert callback.guard.report().step == 20
    logger.save()
    assert "resonax/is_mixed" in (tmp_path / "metrics.csv").read_text()


class Skipping(torch.amp.GradScaler):
    """A scaler that leaves out every seventh step, as one that has met an overflow does."""

    count = 0

    def _maybe_opt_step(self, optimizer, *args, **kwargs):
        self.count += 1
        return super()._maybe_opt_step(optimizer, *args, **kwargs) if self.count % 7 else None


def test_a_scaler_of_lightning_is_the_guards_too():
    """A watched run is the plain one, with the steps that the scaler leaves out."""
    ends = []
    for guarded in (False, True):
        callback = resonax.torch.lightning.GuardCallback("watch", candidates=[0.5], spacing=8)
        trainer = lightning.Trainer(
            max_epochs=1,
            callbacks=[callback] * guarded,
            plugins=[MixedPrecision("16-mixed", "cpu", Skipping("cpu"))],
            **QUIET,
        )
        module = Digits(ONCE)
        with warnings.catch_warnings(action="ignore"):
            trainer.fit(module, torch.utils.data.DataLoader(ROWS[:20], batch_size=None))
        ends.append(flat(module.net))
    assert callback.guard is not None
    assert 0 < callback.guard.report().step <= 20
    assert torch.equal(*ends)


def test_transformers_begins_anew_after_an_error(tmp_path):
    class Broken(transformers.TrainerCallback):
        broken = False

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 5 and not self.broken:
                self.broken = True
                raise RuntimeError("broken")

    model = Answer(0.0)
    arguments = transformers.TrainingArguments(
        str(tmp_path), num_train_epochs=1, per_device_train_batch_size=1, disable_tqdm=True,
        remove_unused_columns=False, report_to="none", save_strategy="no", use_cpu=True,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=[{"x": x, "labels": y} for x, y in ROWS[:20]],
        data_collator=first,
        optimizers=(adam(model), None),
    )
    callback = resonax.torch.transformers.GuardCallback(trainer)
    trainer.add_callback(callback)
    trainer.add_callback(Broken())
    with pytest.raises(RuntimeError, match="broken"):
        trainer.train()
    trainer.train()
    assert callback.guard is not None
    assert callback.guard.report().step == 20
    assert trainer.accelerator.backward.__name__ == "backward"


def test_a_transformer_and_a_loss_that_the_trainer_makes(tmp_path):
    """The loss of a language model is divided by all tokens of the accumulated batch."""
    ends = []
    for guarded in (False, True):
        config = transformers.GPT2Config(
            n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8, bos_token_id=0,
            eos_token_id=0,
        )  # fmt: skip
        draw = torch.Generator().manual_seed(0)
        rows = [torch.randint(16, (8,), generator=draw) for _ in range(40)]
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config)
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=20, gradient_accumulation_steps=2, label_smoothing_factor=0.1,
            per_device_train_batch_size=1, disable_tqdm=True, report_to="none",
            save_strategy="no", logging_strategy="no", use_cpu=True,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model,
            arguments,
            train_dataset=[{"input_ids": row, "labels": row} for row in rows],
            optimizers=(torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.95), None),
        )
        callback = resonax.torch.transformers.GuardCallback(trainer, "watch", spacing=8)
        if guarded:
            trainer.add_callback(callback)
        with warnings.catch_warnings(action="ignore"):
            trainer.train()
        ends.append(flat(model))
    assert callback.guard is not None
    assert callback.guard.report().step == 20
    assert callback.guard.report().work > 1
    assert torch.equal(*ends)
