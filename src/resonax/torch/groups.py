"""The parameter groups of an optimizer, and the momentum that a guard gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from resonax.core.errors import ArgumentError
from resonax.guards.shadows import Gains, gains

__all__ = ["Groups", "check_module", "check_optimizer", "check_ownership", "dense_values"]

_KNOWN = "torch.optim.SGD (momentum, dampening, nesterov, weight_decay, maximize, schedules)"


def dense_values(tensor: Tensor) -> Tensor:
    """Return the numbers of a tensor that are kept: all, or those of a sparse one, summed."""
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def check_module(model: object, optimizer: object) -> None:
    """Raise `ArgumentError` for what is no module and no optimizer of torch."""
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(
            f"model must be a torch.nn.Module, got {type(model).__name__}: resonax.Guard takes "
            "models of river and scikit-learn, resonax.jax.guard those of JAX"
        )
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentError(f"optimizer must be of torch.optim, got {type(optimizer).__name__}")


def check_optimizer(optimizer: object) -> None:
    """Raise `ArgumentError` for an optimizer that cannot be analysed."""
    if not isinstance(optimizer, torch.optim.SGD):
        raise ArgumentError(
            f"{type(optimizer).__name__} cannot be analysed, as its update is not linear in the "
            f'gradient; use {_KNOWN}, or instrument="replay"'
        )
    for group in optimizer.param_groups:
        if group.get("differentiable"):
            raise ArgumentError("an SGD with differentiable=True cannot be analysed")


def check_ownership(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, curvature: str
) -> None:
    """Raise `ArgumentError` for an optimizer whose parameters are not those of the model."""
    held = {id(weight) for weight in model.parameters()}
    trained = [
        id(weight)
        for group in optimizer.param_groups
        for weight in group["params"]
        if weight.requires_grad
    ]
    outside = sum(place not in held for place in trained)
    if outside == len(trained):
        raise ArgumentError(
            "the optimizer trains no parameter of this model; make it from model.parameters()"
        )
    if outside and curvature == "gauss-newton":
        raise ArgumentError(
            f"{outside} of the {len(trained)} parameters of the optimizer are not in this model, "
            "whose outputs would not show their curvature; give the module that holds them all, "
            'or curvature="hessian"'
        )


# The user's own momentum of a group and the one that a guard has put in its place, as schedules
# keep their `initial_lr` there: it goes where the lowered momentum goes, into checkpoints too.
_KEY = "resonax_momentum"


class Groups:
    """Momentum of each group: the user's own, and the one in use, at most a candidate's."""

    def __init__(self, optimizer: torch.optim.SGD):
        self.optimizer = optimizer
        self.own, self.used = [], []
        for group in optimizer.param_groups:
            self._add(group)

    def _add(self, group: dict[str, Any]) -> None:
        momentum = float(group["momentum"])
        own, used = group.get(_KEY, (momentum, momentum))
        self.own.append(float(own) if momentum == used else momentum)
        self.used.append(momentum)

    def apply(self, cap: float | None) -> None:
        """Give every group its own momentum, or the cap where that is smaller.

        A momentum that somebody else has set since, such as a schedule, is the user's own.
        """
        for place, group in enumerate(self.optimizer.param_groups):
            if place == len(self.own):  # a group that was added
                self._add(group)
            if group["momentum"] != self.used[place]:
                self.own[place] = float(group["momentum"])
            used = self.own[place] if cap is None else min(self.own[place], cap)
            if used == 0 and group["momentum"] != 0:
                for weight in group["params"]:  # torch would use it again later, outdated
                    self.optimizer.state[weight].pop("momentum_buffer", None)
            group["momentum"] = self.used[place] = used
            group.pop(_KEY, None)
            if used != self.own[place]:
                group[_KEY] = [self.own[place], used]

    def weights(self) -> list[Tensor]:
        """Return the parameters that are trained."""
        groups = self.optimizer.param_groups
        return [weight for group in groups for weight in group["params"] if weight.requires_grad]

    def velocities(self) -> list[Tensor | None]:
        """Return the velocity of each of them, which torch keeps with the sign of the gradient."""
        state = self.optimizer.state
        return [state.get(weight, {}).get("momentum_buffer") for weight in self.weights()]

    def gains(self, candidates: np.ndarray, top: bool) -> list[tuple[Gains, float]]:
        """Return coefficients and sign of the gradient for each parameter.

        ``top``: whether the first candidate stands for the user's own momentum as it is now.
        """
        made = []
        for own, group in zip(self.own, self.optimizer.param_groups, strict=True):
            momentum = np.minimum(candidates, own)
            if top:
                momentum[0] = own
            by = gains(
                float(group["lr"]),
                momentum,
                dampening=np.where(momentum > 0, group["dampening"], 0.0),  # pyrefly: ignore[bad-argument-type]
                weight_decay=float(group["weight_decay"]),
                nesterov=bool(group["nesterov"]),
            )
            sign = -1.0 if group["maximize"] else 1.0
            made += [(by, sign) for weight in group["params"] if weight.requires_grad]
        return made

    def size(self) -> float:
        """Return the norm of the velocity, or of the gradient where there is none."""
        found = [
            weight.grad if velocity is None else velocity
            for weight, velocity in zip(self.weights(), self.velocities(), strict=True)
        ]
        kept = [dense_values(part.detach()) for part in found if part is not None]
        if not kept:
            return 0.0
        return float(torch.nn.utils.get_total_norm(kept))
