"""A callback for the trainer of PyTorch Lightning."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import torch
from torch import Tensor

from resonax.core.errors import ArgumentError
from resonax.torch.trainers import (
    DrivenTraining,
    TrainerGuard,
    check_trainer_options,
    guard_of,
    replaced,
)
from resonax.torch.training import GuardOptions

try:
    from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError:
    try:  # the same library under its older name
        from pytorch_lightning.callbacks import Callback
    except ModuleNotFoundError:
        text = 'this callback needs PyTorch Lightning: pip install "resonax[lightning]"'
        raise ModuleNotFoundError(text, name="lightning") from None

__all__ = ["GuardCallback"]


class GuardCallback(Callback):  # pyrefly: ignore[invalid-inheritance]
    """Guard the training of a LightningModule with one optimizer.

    Replays call ``training_step`` again, without its logs. What the guard changes goes to the
    loggers of the trainer as ``resonax/momentum``, ``resonax/lr_factor`` and ``resonax/is_mixed``,
    its state into the trainer's checkpoints. Accumulated batches, clipping, schedules and mixed
    precision are those of the trainer. The `Trainer` may be that of `lightning`, or of
    `pytorch_lightning` if that is installed alone or is of version 2.6 or later.

    Parameters
    ----------
    policy
        ``watch``, ``safe`` or ``fastest``, see `resonax.torch.Guard`.
    **options
        Those of `resonax.torch.Guard` but for ``scaler`` and ``transform``.

    Attributes
    ----------
    guard
        The guard of the last training; None before.

    Examples
    --------
    >>> import lightning, torch
    >>> from torch import nn
    >>> from torch.optim import SGD
    >>> from torch.utils.data import DataLoader
    >>> class Line(lightning.LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.net = nn.Linear(1, 1)
    ...
    ...     def training_step(self, batch, index):
    ...         return self.net(batch).square().mean()
    ...
    ...     def configure_optimizers(self):
    ...         return SGD(self.net.parameters(), lr=0.01, momentum=0.9)
    >>> guarding = GuardCallback("safe")
    >>> trainer = lightning.Trainer(
    ...     accelerator="cpu", max_epochs=1, callbacks=[guarding], logger=False,
    ...     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    ... )
    >>> trainer.fit(Line(), DataLoader(torch.ones(100, 1)))
    >>> guarding.guard.report().step
    100
    """

    def __init__(self, policy: str = "safe", **options: Unpack[GuardOptions]):
        check_trainer_options(policy, options)
        self.guard: TrainerGuard | None = None
        self._policy, self._options = policy, options
        self._saved: dict[str, Any] | None = None
        self._steps = 0  # of the trainer, up to the last one that is counted
        self._undo: list[Callable[[], object]] = []

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._saved = None  # of an earlier run; a checkpoint is loaded after this

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if len(trainer.optimizers) != 1:
            raise ArgumentError(f"a guard watches one optimizer, got {len(trainer.optimizers)}")
        if not pl_module.automatic_optimization:
            raise ArgumentError(
                "with manual optimization call guard.step(loss_fn, x, y) of a "
                "resonax.torch.Guard in training_step, in place of this callback"
            )

        def send(numbers: dict[str, float]) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=trainer.global_step)

        # Where each process trains a copy, the module is called through that.
        called = trainer.strategy.model
        self.guard = guard_of(
            pl_module if trainer.world_size == 1 else called,
            trainer.optimizers[0],
            self._policy,
            {**self._options, **_trainers_own(trainer, pl_module)},
            devices=trainer.world_size,
            send=send,
            saved=self._saved,
        )
        self._steps = trainer.global_step
        self._undo.append(_connect(trainer, pl_module, self.guard.driven))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if self.guard is not None:
            steps, self._steps = self._steps, trainer.global_step
            if self._steps > steps:  # and not a part of a batch that is accumulated
                self.guard.driven.finish()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._release()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._release(type(exception))  # the error says what is wrong

    def _release(self, kind: type[BaseException] | None = None) -> None:
        while self._undo:
            self._undo.pop()()
        if self.guard is not None:
            self.guard.__exit__(kind, None, None)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.guard is None else self.guard.saved()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict or None  # the optimizer, and so the guard, does not exist yet


def _trainers_own(trainer: Any, pl_module: Any) -> GuardOptions:
    """Return the scaler of the trainer, and the clipping of trainer and module."""

    def clip() -> None:
        pl_module.configure_gradient_clipping(
            trainer.optimizers[0],
            gradient_clip_val=trainer.gradient_clip_val,
            gradient_clip_algorithm=trainer.gradient_clip_algorithm,
        )

    return {"scaler": getattr(trainer.precision_plugin, "scaler", None), "transform": clip}


def _connect(trainer: Any, pl_module: Any, driven: DrivenTraining) -> Callable[[], None]:
    """Give the guard each batch, and train on what it hands back; return what undoes it."""
    training_step = pl_module.training_step

    def loss_fn(arguments: tuple[Any, ...], parts: int) -> Tensor:
        undo = [replaced(pl_module, name, _ignore) for name in ("log", "log_dict")]
        undo.append(replaced(pl_module, "training_step", training_step))
        try:
            if torch.is_grad_enabled():  # by way of the strategy, which reduces the gradients
                return _loss_of(trainer.strategy.training_step(*arguments)) / parts
            with trainer.precision_plugin.train_step_context():
                return _loss_of(training_step(*arguments))
        finally:
            while undo:
                undo.pop()()

    @functools.wraps(training_step)  # Lightning looks at its arguments
    def guarded_step(*arguments: Any) -> Any:
        parts = trainer.accumulate_grad_batches
        used, _ = driven.begin(loss_fn, arguments, parts)
        output = training_step(*used)
        driven.add(_loss_of(output).detach() / parts)
        return output

    return replaced(pl_module, "training_step", guarded_step)


def _ignore(*_: Any, **__: Any) -> None:
    """Replace ``log`` in a replay, whose numbers are not those of the run."""


def _loss_of(output: Any) -> Tensor:
    loss = output.get("loss") if isinstance(output, Mapping) else output
    if loss is None:
        raise ArgumentError(
            "training_step returned no loss, and a batch that is skipped cannot be trained on "
            "again; leave such batches out of the data"
        )
    return loss
