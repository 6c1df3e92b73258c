"""A callback for the Trainer of Hugging Face transformers.

Its callbacks see neither the loss nor the logger, so that this one is given the trainer. While it
trains, the guard looks at each loss where the trainer hands it to ``accelerator.backward``: there
it is what will be differentiated, whoever made it, and no scaler has touched it yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from torch import Tensor
from torch.optim import Optimizer

from resonax.guards.policy import checked_policy
from resonax.torch.groups import check_optimizer
from resonax.torch.guard import Guard
from resonax.torch.instruments import GuardOptions, check_options
from resonax.torch.trainers import guard_of

try:
    from accelerate.optimizer import AcceleratedOptimizer
    from transformers import Trainer, TrainerCallback, TrainerControl
except ModuleNotFoundError as error:
    missing = str(error.name).split(".")[0]
    if missing not in ("accelerate", "transformers"):
        raise
    text = f'this callback needs {missing}: pip install "resonax[transformers]"'
    raise ModuleNotFoundError(text, name=missing) from None

__all__ = ["GuardCallback"]

_KEY = "resonax"  # of the guard's state, in the first group of a saved optimizer


class GuardCallback(TrainerCallback):
    """Guard the training of a `transformers.Trainer` whose optimizer is `torch.optim.SGD`.

    Momentum and rates go to the log of the trainer as ``resonax/momentum`` and
    ``resonax/rate/0.95``, the state of the guard into the ``optimizer.pt`` of its checkpoints.
    When training ends the optimizer has the user's own momentum again.

    Parameters
    ----------
    trainer
        The trainer; add the callback to it with ``trainer.add_callback``.
    policy
        ``watch``, ``safe`` or ``fastest``, see `resonax.torch.Guard`.
    **options
        ``candidates``, ``budget``, ``burst``, ``search``, ``warmup``, ``curvature`` and ``log`` of
        `resonax.torch.Guard`.

    Attributes
    ----------
    guard
        The guard of the last training; None before.
    """

    def __init__(self, trainer: Trainer, policy: str = "safe", **options: Unpack[GuardOptions]):
        checked_policy(policy)
        check_options(options, "tangent")
        self.guard: Guard | None = None
        self._trainer, self._policy, self._options = trainer, policy, options
        self._numbers: list[dict[str, float]] = []
        self._undo: list[Callable[[], object]] = []

    def on_train_begin(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        self._release(RuntimeError)  # from a training that an error ended
        model: Any = self._trainer.model
        optimizer: Any = self._trainer.optimizer
        if isinstance(optimizer, AcceleratedOptimizer):
            optimizer = optimizer.optimizer
        check_optimizer(optimizer)
        # What a checkpoint holds in a group comes back with the group.
        saved = optimizer.param_groups[0].pop(_KEY, None)
        guard = guard_of(
            model,
            optimizer,
            self._policy,
            self._options,
            processes=max(args.world_size, args.n_gpu),
            send=self._numbers.append,
            saved=saved,
        )

        def save(_: Optimizer, found: dict[str, Any]) -> None:
            found["param_groups"][0][_KEY] = guard.state_dict()

        self.guard = guard
        self._undo = [
            optimizer.register_state_dict_post_hook(save).remove,
            _observed(self._trainer.accelerator, guard),
        ]

    def on_step_begin(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        if self.guard is not None:
            self.guard.forget()

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        wanted = control.should_log
        while self._numbers:
            self._trainer.log(self._numbers.pop(0))
        control.should_log = wanted  # the guard's log does not replace the trainer's

    def on_train_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        self._release()

    def _release(self, kind: type[BaseException] | None = None) -> None:
        while self._undo:
            self._undo.pop()()
        if self.guard is not None:
            self.guard.__exit__(kind, None, None)


def _observed(accelerator: Any, guard: Guard) -> Callable[[], None]:
    """Show the guard each loss before its backward; return what undoes it."""
    backward = accelerator.backward

    def observed(loss: Tensor, **kwargs: Any) -> None:
        guard.observe(loss / accelerator.gradient_accumulation_steps)  # as `backward` does
        backward(loss, **kwargs)

    def undo() -> None:
        accelerator.backward = backward

    accelerator.backward = observed
    return undo
