"""The average of a module's weights, and whether it does better than the module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from resonax.guards.averaging import share
from resonax.torch.batches import KeptBatch
from resonax.torch.learner import TorchLearner

__all__ = ["average_of", "does_better"]

_LEAST = 8  # terms that count at least; they are some steps apart


def average_of(model: torch.nn.Module) -> AveragedModel:
    """Return an average of weights to come, in which later ones count more."""

    @torch.no_grad()
    def update(averages: Sequence[Tensor], weights: Sequence[Tensor], count: int | Tensor) -> None:
        for average, weight in zip(averages, weights, strict=True):
            average.lerp_(weight, share(int(count) + 1, least=_LEAST))

    return AveragedModel(model, multi_avg_fn=update)  # pyright: ignore[reportArgumentType]


def does_better(
    averaged: AveragedModel, learner: TorchLearner, batches: Sequence[KeptBatch]
) -> bool:
    """Return whether the average has a lower loss on batches than the module itself."""
    if not batches:
        return False
    now, average = learner.save(), averaged.module
    own = learner.loss(batches)
    learner.load(replace(now, tensors=[*average.parameters(), *average.buffers()]))
    try:
        return learner.loss(batches) < own
    finally:
        learner.load(now)
