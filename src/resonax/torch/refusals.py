"""What a guard refuses in a sentence, before anything has changed."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from inspect import signature
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from resonax.core.errors import ArgumentError

__all__ = [
    "SHOWN",
    "check_alone",
    "check_loss",
    "check_loss_function",
    "check_no_backward",
    "check_no_gradients",
    "check_optimizer",
    "check_unsharded",
    "check_used",
    "forget_guard",
    "remember_guard",
]

SHOWN = "guard.step(lambda x, y: loss_fn(model(x), y), x, y)"


def check_optimizer(model: object, optimizer: object) -> None:
    """Raise `ArgumentError` for what cannot be rewound and trained again step by step."""
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(
            f"model must be a torch.nn.Module, got {type(model).__name__}: resonax.Guard takes "
            "models of river and scikit-learn, resonax.jax.guard those of JAX"
        )
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentError(f"optimizer must be of torch.optim, got {type(optimizer).__name__}")
    closure = signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise ArgumentError(
            f"{type(optimizer).__name__} calls the loss again within a step and cannot be guarded: "
            "use an optimizer whose step needs no closure, such as SGD or Adam"
        )
    held = set(map(id, model.parameters()))
    trained = [id(one) for group in optimizer.param_groups for one in group["params"]]
    outside = sum(one not in held for one in trained)
    if outside == len(trained):
        raise ArgumentError(
            "the optimizer trains no parameter of this model; make it from model.parameters()"
        )
    if outside:
        raise ArgumentError(
            f"{outside} of the {len(trained)} parameters of the optimizer are not in this model, "
            "and could not be rewound; give the module that holds them all"
        )


_ENGINES = ("ZeroRedundancyOptimizer", "DeepSpeedEngine", "PipelineEngine", "Pipe", "PipelineStage")


def check_unsharded(model: object, optimizer: object) -> None:
    """Raise `ArgumentError` for a model or an optimizer of which a process has a part only.

    They are known by the names of their classes, so that nothing is imported for it.

    Examples
    --------
    >>> class DeepSpeedEngine(torch.nn.Module): ...
    >>> check_unsharded(DeepSpeedEngine(), None)
    Traceback (most recent call last):
    resonax.ArgumentError: a guard rewinds whole models, and DeepSpeedEngine gives each process a
    part of one: train with torch.nn.parallel.DistributedDataParallel, or without a guard
    """
    is_module = isinstance(model, torch.nn.Module)
    modules = [*model.modules()] if is_module else [model]
    weights = [*model.parameters()] if is_module else []
    for one in (optimizer, *modules, *weights):
        for kind in type(one).__mro__:
            is_engine = kind.__name__ in _ENGINES or (
                one is optimizer and kind.__module__.partition(".")[0] == "deepspeed"
            )
            if is_engine or kind.__name__ in ("FullyShardedDataParallel", "FSDPModule", "DTensor"):
                raise ArgumentError(
                    f"a guard rewinds whole models, and {kind.__name__} gives each process a part "
                    "of one: train with torch.nn.parallel.DistributedDataParallel, or without a "
                    "guard"
                )


def check_loss_function(loss_fn: object) -> None:
    """Raise `ArgumentError` for a loss, or anything else that cannot be called."""
    if isinstance(loss_fn, Tensor) or not callable(loss_fn):
        raise ArgumentError(
            f"guard.step takes a function of the batch and the batch, such as {SHOWN}, "
            f"not a {type(loss_fn).__name__}"
        )


def check_loss(loss: Any) -> Tensor:
    """Return a loss, or raise `ArgumentError` for one that cannot be differentiated."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise ArgumentError(
            "the loss function must return a tensor of one number, such as a mean over the batch; "
            f"got {got}"
        )
    if not loss.requires_grad:
        raise ArgumentError(
            "the loss function must return the loss with its graph: outside of torch.no_grad(), "
            "and before detach() or item()"
        )
    return loss


def check_no_backward(weights: Sequence[Tensor]) -> None:
    """Raise `ArgumentError` for a loss function that has left gradients, zeroed before it."""
    if any(weight.grad is not None for weight in weights):
        raise ArgumentError(
            "the loss function of guard.step must return the loss without calling backward, which "
            "guard.step does itself; take loss.backward() out of it"
        )


def check_used(weights: Sequence[Tensor]) -> None:
    """Raise `ArgumentError` for a loss that has left no gradients."""
    if all(weight.grad is None for weight in weights):
        raise ArgumentError("the loss does not depend on any parameter of the optimizer")


def check_no_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Raise `ArgumentError` for gradients that a step of the guard would drop."""
    gradients = (one.grad for group in optimizer.param_groups for one in group["params"])
    for one in gradients:
        # Those that `zero_grad` set to zero are nobody's.
        if one is not None and bool((one.coalesce().values() if one.is_sparse else one).any()):
            raise ArgumentError(
                "gradients were computed outside of guard.step, which would drop them: leave out "
                "your own backward(), clip by transform=, and discard these by "
                "optimizer.zero_grad()"
            )


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
    weights = set(map(id, model.parameters()))
    for guard in list(_guards):
        if guard.optimizer is optimizer:
            raise ArgumentError("this optimizer has a guard already; close() that one first")
        if not weights.isdisjoint(guard.guarded):
            raise ArgumentError("this model has a guard already; close() that one first")


def remember_guard(guard: _Guarded) -> None:
    """Add a guard to those that are open, without keeping it alive."""
    if not _hooks:
        _hooks.append(register_optimizer_step_pre_hook(_refuse_others))
    _guards.add(guard)


def forget_guard(guard: _Guarded) -> None:
    """Remove a guard that is closed."""
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
