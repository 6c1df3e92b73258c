"""The average of a module's weights, and what a guard offers for prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from resonax.core.errors import ArgumentError
from resonax.guards.averaging import LEAST, STRIDE, preferred, share
from resonax.guards.learner import mean_loss
from resonax.torch.batches import KeptBatch, byte_count
from resonax.torch.learner import TorchLearner

__all__ = ["Offer"]


class Offer:
    """The average of the weights, what was offered before, and the choice between them.

    Parameters
    ----------
    learner
        The module that is trained.

    Attributes
    ----------
    averaged
        The average of the weights so far, in which later ones count more.
    """

    def __init__(self, learner: TorchLearner):
        self._learner = learner
        self.averaged = _average_of(learner.model)
        self._held: AveragedModel | None = None
        self._chosen: AveragedModel | None = None  # None is the module itself

    def update(self) -> None:
        """Add the weights of now to the average."""
        self.averaged.update_parameters(self._learner.model)

    def restart(self) -> None:
        """Begin a new average; what was offered before stays among the choices."""
        self.averaged = _average_of(self._learner.model)

    @torch.no_grad()
    def choose(self, batches: Sequence[KeptBatch]) -> tuple[AveragedModel | None, bool]:
        """Return what to offer, None for the module, and whether the average beats the weights.

        See `preferred`. Without batches the last choice is returned.
        """
        if not batches:
            return self._chosen, False
        weights = self._learner.tensors()
        now = [one.clone() for one in weights]
        held = [] if self._held is None else [_tensors(self._held)]
        choices = [_tensors(self.averaged), now, *held]
        losses = []
        try:
            for one in choices:
                _copy(one, weights)
                losses.append(self._learner.losses(batches))
        finally:
            _copy(now, weights)
        place = preferred(losses)
        self._chosen = (self.averaged, None, self._held)[place]
        if place < 2:
            self._hold(choices[place])
        return self._chosen, mean_loss(losses[0]) < mean_loss(losses[1])

    def _hold(self, tensors: Sequence[Tensor]) -> None:
        if self._held is None:
            self._held = _average_of(self._learner.model)
        _copy(tensors, _tensors(self._held))

    @property
    def size(self) -> int:
        """Bytes of the average and of what is held."""
        return byte_count([_tensors(one) for one in (self.averaged, self._held) if one is not None])

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all tensors."""
        held = None if self._held is None else _copies(self._held)
        count = int(self.averaged.n_averaged)
        return {"count": count, "average": _copies(self.averaged), "held": held}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise `ArgumentError` for the state of another model."""
        shapes = [one.shape for one in _tensors(self.averaged)]
        for tensors in (state["average"], state["held"]):
            if tensors is not None and [one.shape for one in tensors] != shapes:
                raise ArgumentError("this state is of another model: its tensors have other shapes")

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.averaged.n_averaged.fill_(state["count"])
        _copy(state["average"], _tensors(self.averaged))
        self._held = self._chosen = None
        if state["held"] is not None:
            self._hold(state["held"])


def _tensors(averaged: AveragedModel) -> list[Tensor]:
    return [*averaged.module.parameters(), *averaged.module.buffers()]


def _copy(tensors: Sequence[Tensor], to: Sequence[Tensor]) -> None:
    for one, copy in zip(tensors, to, strict=True):
        copy.copy_(one)


def _copies(averaged: AveragedModel) -> list[Tensor]:
    return [one.detach().clone() for one in _tensors(averaged)]


def _average_of(model: torch.nn.Module) -> AveragedModel:
    """Return an average of weights to come."""

    @torch.no_grad()
    def update(averages: Sequence[Tensor], weights: Sequence[Tensor], count: int | Tensor) -> None:
        for average, weight in zip(averages, weights, strict=True):
            average.lerp_(weight, share(int(count) + 1, least=LEAST // STRIDE))

    return AveragedModel(model, multi_avg_fn=update)
