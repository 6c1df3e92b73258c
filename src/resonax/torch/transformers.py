"""A callback for the Trainer of Hugging Face transformers.

Its callbacks see neither the batches nor the logger, so that this one is given the trainer. It
wraps ``training_step``, through which every batch goes, and ``accelerator.backward``, where a
replay takes the loss as the trainer would differentiate it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim import Optimizer

from resonax.torch.trainers import (
    DrivenTraining,
    TrainerGuard,
    check_trainer_options,
    guard_of,
    replaced,
)
from resonax.torch.training import GuardOptions

try:
    from accelerate.optimizer import AcceleratedOptimizer
    from transformers.trainer import Trainer  # from the package, a checker would read every model
    from transformers.trainer_callback import TrainerCallback, TrainerControl
except ModuleNotFoundError as error:
    missing = str(error.name).split(".")[0]
    if missing not in ("accelerate", "transformers"):
        raise
    text = f'this callback needs {missing}: pip install "resonax[transformers]"'
    raise ModuleNotFoundError(text, name=missing) from None

__all__ = ["GuardCallback"]

_KEY = "resonax"  # of the guard's state, in the first group of a saved optimizer


class GuardCallback(TrainerCallback):
    """Guard the training of a `transformers.Trainer`.

    What the guard changes goes to the log of the trainer as ``resonax/momentum``,
    ``resonax/lr_factor`` and ``resonax/is_mixed``, its state into the ``optimizer.pt`` of the
    trainer's checkpoints. Accumulation, clipping, schedules and mixed precision are those of the
    trainer.

    Parameters
    ----------
    trainer
        The trainer; add the callback to it with ``trainer.add_callback``.
    policy
        ``watch``, ``safe`` or ``fastest``, see `resonax.torch.Guard`.
    **options
        Those of `resonax.torch.Guard` but for ``scaler`` and ``transform``.

    Attributes
    ----------
    guard
        The guard of the last training; None before.
    """

    def __init__(self, trainer: Trainer, policy: str = "safe", **options: Unpack[GuardOptions]):
        check_trainer_options(policy, options)
        self.guard: TrainerGuard | None = None
        self._trainer, self._policy, self._options = trainer, policy, options
        self._numbers: list[dict[str, float]] = []
        self._saved: dict[str, Any] | None = None  # the states of all ranks, for a checkpoint
        self._undo: list[Callable[[], object]] = []

    def on_train_begin(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        self._release(RuntimeError)  # from a training that an error ended
        trainer = self._trainer
        # Where each process trains a copy, the model is called through that.
        model: Any = trainer.model_wrapped if args.world_size > 1 else trainer.model
        optimizer: Any = trainer.optimizer
        if isinstance(optimizer, AcceleratedOptimizer):
            optimizer = optimizer.optimizer
        guard = guard_of(
            model,
            optimizer,
            self._policy,
            {**self._options, **_trainers_own(trainer)},
            devices=max(args.world_size, args.n_gpu),
            send=self._numbers.append,
            # What a checkpoint holds in a group comes back with the group.
            saved=optimizer.param_groups[0].pop(_KEY, None),
        )

        def save(_: Optimizer, found: dict[str, Any]) -> None:
            found["param_groups"][0][_KEY] = self._saved or guard.state_dict()

        self.guard, self._saved = guard, None
        self._undo = [
            optimizer.register_state_dict_post_hook(save).remove,
            _connect(trainer, guard.driven),
        ]

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        if self.guard is not None:
            self.guard.driven.finish()
        wanted = control.should_log
        while self._numbers:
            self._trainer.log(self._numbers.pop(0))
        control.should_log = wanted  # the guard's log does not replace the trainer's
        self._gather(args, control)

    def on_epoch_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        self._gather(args, control)

    def _gather(self, args: Any, control: TrainerControl) -> None:
        """Bring the states of all ranks to the first, which alone saves the optimizer."""
        self._saved = None
        if self.guard is not None and control.should_save and args.world_size > 1:
            self._saved = self.guard.saved()

    def on_train_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        self._release()

    def _release(self, kind: type[BaseException] | None = None) -> None:
        while self._undo:
            self._undo.pop()()
        if self.guard is not None:
            self.guard.__exit__(kind, None, None)


def _trainers_own(trainer: Trainer) -> GuardOptions:
    """Return the scaler of the trainer, and its clipping where it clips."""
    most = trainer.args.max_grad_norm or 0.0
    model: Any = trainer.model

    def clip() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), most)

    scaler = getattr(trainer.accelerator, "scaler", None)
    return {"scaler": scaler, "transform": clip if most > 0 else None}


def _connect(trainer: Any, driven: DrivenTraining) -> Callable[[], None]:
    """Give the guard each batch, and train on what it hands back; return what undoes it."""
    training_step = trainer.training_step

    def loss_fn(inputs: dict[str, Any], items: int | None, parts: int) -> Tensor:
        if torch.is_grad_enabled():
            return _differentiated(trainer, training_step, inputs, items, parts)
        with trainer.compute_loss_context_manager():  # to judge a state: the mean loss
            return trainer.compute_loss(trainer.model, trainer._prepare_inputs(inputs))

    def guarded_step(
        model: Any, inputs: Mapping[str, Any], items: Any = None, *rest: Any
    ) -> Tensor:
        count = None if items is None else int(items)
        parts = trainer.current_gradient_accumulation_steps
        used, count, _ = driven.begin(loss_fn, dict(inputs), count, parts)
        loss = training_step(model, used, count, *rest)
        driven.add(loss)
        return loss

    return replaced(trainer, "training_step", guarded_step)


def _differentiated(
    trainer: Any, training_step: Any, inputs: Any, items: int | None, parts: int
) -> Tensor:
    """Return the loss of a part of a batch as the trainer would differentiate it."""
    losses: list[Tensor] = []
    accelerator = trainer.accelerator
    undo = [
        replaced(accelerator, "backward", lambda loss, **_: losses.append(loss)),
        replaced(trainer, "current_gradient_accumulation_steps", parts),
    ]
    try:
        training_step(trainer.model_wrapped, dict(inputs), items)
    finally:
        while undo:
            undo.pop()()
    return losses[0] / accelerator.gradient_accumulation_steps
