"""What a guard refuses: several processes, gradients of others, and two that train one model."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from resonax.core.errors import ArgumentError
from resonax.torch.groups import dense_values

__all__ = ["Gradients", "check_alone", "check_one_process", "forget_guard", "remember_guard"]


def check_one_process() -> None:
    """Raise `ArgumentError` where several processes train together.

    Each would see a part of the batch, decide by itself, and go on with weights of its own.
    """
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return
    count = distributed.get_world_size()
    if count > 1:
        raise ArgumentError(
            f"a guard works in one process, and torch.distributed has {count}: train in one "
            "process, or without a guard"
        )


class Gradients:
    """The gradients that the last step left, so that those of somebody else are noticed.

    Each tensor counts its changes in place.
    """

    def __init__(self, optimizer: torch.optim.Optimizer):
        self._optimizer = optimizer
        self._left: list[tuple[Tensor | None, int]] = []
        self.remember()

    def _now(self) -> list[Tensor | None]:
        return [one.grad for group in self._optimizer.param_groups for one in group["params"]]

    def remember(self) -> None:
        """Take the gradients as they are now."""
        self._left = [(one, 0 if one is None else one._version) for one in self._now()]

    def check(self) -> None:
        """Raise `ArgumentError` if somebody else has computed gradients, which would be dropped."""
        for now, (left, version) in zip(self._now(), self._left, strict=False):
            if now is None or (now is left and now._version == version):
                continue
            if bool(dense_values(now.detach()).any()):  # not those that `zero_grad` set to zero
                raise ArgumentError(
                    "gradients were computed or changed outside of guard.step, which would drop "
                    "them: leave out your own backward(), clip by transform=, and discard these "
                    "by optimizer.zero_grad()"
                )
        self._left = []


class _Guarded(Protocol):
    """What is asked of a guard."""

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    @property
    def guarded(self) -> frozenset[int]: ...


_guards: weakref.WeakSet[Any] = weakref.WeakSet()  # those that are not closed
_hooks: list[Any] = []


def check_alone(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise `ArgumentError` for a model or an optimizer that has a guard already."""
    weights = {id(one) for one in model.parameters()}
    for guard in list(_guards):
        if guard.optimizer is optimizer:
            raise ArgumentError("this optimizer has a guard already; close() that one first")
        if not weights.isdisjoint(guard.guarded):
            raise ArgumentError("this model has a guard already; close() that one first")


def remember_guard(guard: _Guarded) -> None:
    """Take note of a guard that watches a run from now on; it is not kept alive."""
    if not _hooks:
        _hooks.append(register_optimizer_step_pre_hook(_refuse_others))
    _guards.add(guard)


def forget_guard(guard: _Guarded) -> None:
    """Take note that a guard is closed."""
    _guards.discard(guard)


def _refuse_others(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Raise `ArgumentError` for a step of an optimizer that took the place of a guarded one."""
    if not _guards:
        return
    trained = [id(one) for group in optimizer.param_groups for one in group["params"][:1]]
    for guard in list(_guards):
        if guard.optimizer is not optimizer and not guard.guarded.isdisjoint(trained):
            raise ArgumentError(
                "this optimizer trains weights that are guarded with another one: close() that "
                "guard, and make a new one with this optimizer"
            )
