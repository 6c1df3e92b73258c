"""A callback for the trainer of PyTorch Lightning."""

from __future__ import annotations

from typing import Any, Unpack

from torch import Tensor, nn
from torch.optim import Optimizer

from resonax.checks import ArgumentError, suggest
from resonax.guards.policy import checked_policy
from resonax.torch.guard import Guard
from resonax.torch.instruments import GuardOptions, check_options
from resonax.torch.trainers import guard_of

try:
    from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError:
    try:  # the same library under its older name
        from pytorch_lightning.callbacks import Callback
    except ModuleNotFoundError:
        text = 'this callback needs PyTorch Lightning: pip install "resonax[lightning]"'
        raise ModuleNotFoundError(text, name="lightning") from None

__all__ = ["GuardCallback"]


class GuardCallback(Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Guard the training of a LightningModule with one `torch.optim.SGD`.

    Momentum and rates go to the loggers of the trainer as ``resonax/momentum`` and
    ``resonax/rate/0.95``, the state of the guard into its checkpoints. Accumulated batches and
    mixed precision are those of the trainer. When training ends the optimizer has the user's own
    momentum again. The `Trainer` may be that of `lightning`, or of `pytorch_lightning` if that is
    installed alone or is of version 2.6 or later.

    Parameters
    ----------
    policy
        ``watch``, ``safe`` or ``fastest``, see `resonax.torch.Guard`.
    module
        Name of the part that ``training_step`` calls, such as ``net``, and whose outputs the loss
        is made of; not needed where it calls the LightningModule itself, ``self(x)``.
    **options
        ``candidates``, ``budget``, ``burst``, ``search``, ``warmup``, ``curvature`` and ``log`` of
        `resonax.torch.Guard`.

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

    def __init__(self, policy: str = "safe", *, module: str = "", **options: Unpack[GuardOptions]):
        checked_policy(policy)
        check_options(options, "tangent")
        self.guard: Guard | None = None
        self._policy, self._module, self._options = policy, module, options
        self._saved: dict[str, Any] | None = None
        self._called = False

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._saved = None  # of an earlier run; a checkpoint is loaded after this

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if len(trainer.optimizers) != 1:
            raise ArgumentError(f"a guard watches one optimizer, got {len(trainer.optimizers)}")
        model = self._part(pl_module)

        def send(numbers: dict[str, float]) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=trainer.global_step)

        self.guard = guard_of(
            model,
            trainer.optimizers[0],
            self._policy,
            self._options,
            processes=trainer.world_size,
            send=send,
            saved=self._saved,
        )
        # Not needed for the Hessian, which is made from the loss alone.
        self._called = self._options.get("curvature") == "hessian"

        def called(*_: Any) -> None:
            self._called = True
            hook.remove()

        hook = model.register_forward_hook(called)

    def on_before_zero_grad(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        if self.guard is not None:
            self.guard.forget()

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        if self.guard is None:
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

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if self.guard is not None:
            self.guard.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.guard is not None:
            self.guard.__exit__(type(exception), exception, None)  # the error says what is wrong

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
