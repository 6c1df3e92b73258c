"""A callback for the trainer of PyTorch Lightning."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from resonax.core.errors import ArgumentError, suggest
from resonax.torch.driven import DrivenReplay
from resonax.torch.instruments import GuardOptions, choose_instrument
from resonax.torch.trainers import TrainerGuard, check_trainer_options, guard_of, put_in_place

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

    Momentum and rates go to the loggers of the trainer as ``resonax/momentum`` and
    ``resonax/rate/0.95``, the state of the guard into its checkpoints. Accumulated batches,
    clipping, schedules and mixed precision are those of the trainer. When training ends the
    optimizer has the user's own momentum again. The `Trainer` may be that of `lightning`, or of
    `pytorch_lightning` if that is installed alone or is of version 2.6 or later.

    Parameters
    ----------
    policy
        ``watch``, ``safe`` or ``fastest``, see `resonax.torch.Guard`.
    instrument
        ``replay``, which calls ``training_step`` again in replays, there without its logs; or
        ``tangent``, the default for `torch.optim.SGD` on a model that is linear in its weights.
    module
        Name of the part that ``training_step`` calls, such as ``net``. ``tangent`` needs it, unless
        it calls the LightningModule itself, ``self(x)``: the loss is made of its outputs.
    **options
        Those of `resonax.torch.Guard` but for ``scaler`` and ``transform``.

    Attributes
    ----------
    guard
        The guard of the last training; None before.

    Examples
    --------
    >>> import lightning, torch
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
    >>> guarding = GuardCallback("safe", module="net", warmup=96)
    >>> trainer = lightning.Trainer(
    ...     accelerator="cpu", max_epochs=1, callbacks=[guarding], logger=False,
    ...     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    ... )
    >>> trainer.fit(Line(), DataLoader(torch.ones(100, 1)))
    >>> guarding.guard.report().step
    100
    """

    def __init__(
        self,
        policy: str = "safe",
        *,
        instrument: str | None = None,
        module: str = "",
        **options: Unpack[GuardOptions],
    ):
        check_trainer_options(policy, instrument, options)
        self.guard: TrainerGuard | None = None
        self._policy, self._module, self._options = policy, module, options
        self._instrument = instrument
        self._saved: dict[str, Any] | None = None
        self._called = False
        self._steps = 0  # of the trainer, up to the last one that is counted
        self._undo: list[Callable[[], object]] = []

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._saved = None  # of an earlier run; a checkpoint is loaded after this

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if len(trainer.optimizers) != 1:
            raise ArgumentError(f"a guard watches one optimizer, got {len(trainer.optimizers)}")
        optimizer, model = trainer.optimizers[0], self._part(pl_module)
        options: GuardOptions = self._options
        instrument = choose_instrument(self._instrument, model, optimizer)
        if instrument == "replay":
            if not pl_module.automatic_optimization:
                raise ArgumentError(
                    "with manual optimization call guard.step(loss_fn, x, y) of a "
                    "resonax.torch.Guard in training_step, in place of this callback"
                )
            model = pl_module
            options = {**options, **_trainers_own(trainer, pl_module)}

        def send(numbers: dict[str, float]) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=trainer.global_step)

        self.guard = guard_of(
            model,
            optimizer,
            self._policy,
            options,
            instrument=instrument,
            processes=trainer.world_size,
            send=send,
            saved=self._saved,
        )
        self._steps = trainer.global_step
        if self.guard.driven is not None:
            self._undo.append(_shown(trainer, pl_module, self.guard.driven))
            return
        # Not needed for the Hessian, which is made from the loss alone.
        self._called = self._options.get("curvature") == "hessian"

        def called(*_: Any) -> None:
            self._called = True
            hook.remove()

        hook = model.register_forward_hook(called)

    def on_before_zero_grad(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        if self.guard is not None and self.guard.driven is None:
            self.guard.forget()

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        if self.guard is None or self.guard.driven is not None:
            return
        if not self._called:
            names = ", ".join(name for name, _ in pl_module.named_children())
            raise ArgumentError(
                "training_step does not call the module that the guard watches; "
                f'name the one it calls, GuardCallback(module="...") with one of: {names}'
            )
        # By now the loss is divided by the number of parts of an accumulated batch, as it should
        # be, and multiplied by the scaler of mixed precision, which the update takes back.
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self.guard.observe(loss if scaler is None else loss / scaler.get_scale())

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if self.guard is not None and self.guard.driven is not None:
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
        return {} if self.guard is None else self.guard.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict  # the optimizer, and so the guard, does not exist yet

    def _part(self, pl_module: nn.Module) -> nn.Module:
        try:
            return pl_module.get_submodule(self._module)
        except AttributeError:
            names = [name for name, _ in pl_module.named_modules() if name]
            raise suggest("module", self._module, names) from None


def _trainers_own(trainer: Any, pl_module: Any) -> GuardOptions:
    """Return the scaler of the trainer, and the clipping of trainer and module."""

    def clip() -> None:
        pl_module.configure_gradient_clipping(
            trainer.optimizers[0],
            gradient_clip_val=trainer.gradient_clip_val,
            gradient_clip_algorithm=trainer.gradient_clip_algorithm,
        )

    return {"scaler": getattr(trainer.precision_plugin, "scaler", None), "transform": clip}


def _shown(trainer: Any, pl_module: Any, driven: DrivenReplay) -> Callable[[], None]:
    """Show the guard each batch, and train on what it hands back; return what undoes it."""
    training_step = pl_module.training_step

    def loss_fn(arguments: tuple[Any, ...], parts: int) -> Tensor:
        logs = [put_in_place(pl_module, name, _say_nothing) for name in ("log", "log_dict")]
        try:
            with trainer.precision_plugin.train_step_context():
                loss = _loss_of(training_step(*arguments))
        finally:
            while logs:
                logs.pop()()
        return loss / parts if torch.is_grad_enabled() else loss

    @functools.wraps(training_step)  # Lightning looks at its arguments
    def shown(*arguments: Any) -> Any:
        parts = trainer.accumulate_grad_batches
        used, _ = driven.begin(loss_fn, arguments, parts)
        output = training_step(*used)
        driven.add(_loss_of(output).detach() / parts)
        return output

    return put_in_place(pl_module, "training_step", shown)


def _say_nothing(*_: Any, **__: Any) -> None:
    """Stand for ``log`` in a replay, whose numbers are not of the run."""


def _loss_of(output: Any) -> Tensor:
    loss = output.get("loss") if isinstance(output, Mapping) else output
    if loss is None:
        raise ArgumentError(
            "training_step returned no loss, and a batch that is skipped cannot be trained on "
            "again; leave such batches out of the data"
        )
    return loss
