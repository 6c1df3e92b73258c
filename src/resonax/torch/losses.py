"""Checks of closures and losses at the first step, before a burst would fail on them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from resonax.core.errors import ArgumentError

__all__ = ["check_closure", "check_first", "check_graph", "check_no_backward"]


def check_closure(closure: object) -> None:
    """Raise `ArgumentError` for a loss, or anything else that cannot be called."""
    if isinstance(closure, Tensor) or not callable(closure):
        raise ArgumentError(
            "guard.step takes a function that returns the loss, such as "
            f"lambda: loss_fn(model(x), y), not a {type(closure).__name__}; in a loop of your own "
            "call guard.observe(loss) before loss.backward() instead"
        )


def check_no_backward(weights: Sequence[Tensor]) -> None:
    """Raise `ArgumentError` for a closure that has left gradients, which were zeroed before it."""
    if any(weight.grad is not None for weight in weights):
        raise ArgumentError(
            "the closure of guard.step must return the loss without calling backward, which "
            "guard.step does itself; take loss.backward() out of it"
        )


def check_graph(loss: object) -> None:
    """Raise `ArgumentError` for a loss that cannot be differentiated."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise ArgumentError(
            f"the loss must be a tensor of one number, such as a mean over the batch; got {got}"
        )
    if not loss.requires_grad:
        raise ArgumentError(
            "the guard needs the loss with its graph: outside of torch.no_grad(), and before "
            "detach() or item()"
        )


def check_first(loss: Tensor, weights: Sequence[Tensor]) -> None:
    """Raise `ArgumentError` for a loss after its ``backward``, or of something else."""
    try:
        slopes = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        if "second time" in str(error):
            raise ArgumentError(
                "guard.observe needs the loss before its backward: call it before loss.backward()"
            ) from None
        return  # an operation that cannot be differentiated twice; the first burst will warn
    if all(slope is None for slope in slopes):
        raise ArgumentError("the loss does not depend on any parameter of the optimizer")
