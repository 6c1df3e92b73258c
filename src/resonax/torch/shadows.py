"""Shadows of the weights as tensors: position and velocity for each candidate that is followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resonax.guards.guard import ShadowStep
from resonax.guards.shadows import Energy, Gains, step_shadow

__all__ = ["Shadows"]


def _spread(number: Any, like: Tensor) -> Any:
    """Return one number for each candidate in the shape of a stack of weights."""
    if np.ndim(number) == 0:
        return float(number)
    made = torch.as_tensor(np.asarray(number), dtype=like.dtype, device=like.device)
    return made.reshape(-1, *[1] * (like.ndim - 1))


def _sums(parts: Sequence[Tensor]) -> np.ndarray:
    """Return sums over the weights, an entry for each candidate."""
    device = parts[0].device
    rows = [part.flatten(1).sum(1, dtype=torch.float64).to(device) for part in parts]
    return torch.stack(rows).sum(0).cpu().numpy()


class Shadows:
    """Pairs (place, velocity) of some candidates, (count, *shape) for each weight."""

    def __init__(self, places: list[Tensor], velocities: list[Tensor]):
        self.places = places
        self.velocities = velocities

    @classmethod
    def along(cls, direction: Sequence[Tensor], count: int) -> Shadows:
        """Return shadows that all start in one direction, with velocity 0."""
        size = max(float(torch.stack([part.norm() for part in direction]).norm()), 1e-30)
        places = [
            (part / size).unsqueeze(0).expand(count, *part.shape).clone() for part in direction
        ]
        return cls(places, [torch.zeros_like(part) for part in places])

    def fits(self, weights: Sequence[Tensor], count: int) -> bool:
        """Return whether these are shadows of such weights."""
        return [part.shape for part in self.places] == [(count, *part.shape) for part in weights]

    def _energy(self, still: Sequence[Any], moving: Sequence[Any]) -> Energy:
        """Return the energies with the factors of places and of velocities, for each weight."""
        places = [by * place * place for by, place in zip(still, self.places, strict=True)]
        velocities = [
            by * velocity * velocity for by, velocity in zip(moving, self.velocities, strict=True)
        ]
        return Energy(_sums(places), _sums(velocities))

    def advance(
        self, products: Sequence[Tensor], each: Sequence[tuple[Gains, float]]
    ) -> ShadowStep:
        """Make one step, rescale, and return energies and curvature."""
        pairs = [(by, place) for (by, _), place in zip(each, self.places, strict=True)]
        spread = [Gains(*(_spread(number, place) for number in by)) for by, place in pairs]
        factors = (
            [by.alpha for by in spread],
            [_spread(by.momentum * by.kappa, place) for by, place in pairs],
        )
        before = self._energy(*factors)
        met = np.zeros(len(self.places[0]))
        lengths = _sums([place * place for place in self.places])
        for index, (_, sign) in enumerate(each):
            place, velocity = self.places[index], self.velocities[index]
            moved, faster, pull = step_shadow(
                place, velocity, sign * products[index], spread[index]
            )
            met += _sums([place * pull])
            self.places[index], self.velocities[index] = moved, faster
        after = self._energy(*factors)
        curvature = met / np.maximum(lengths, 1e-300)
        self._rescale(np.sqrt(after.places + after.velocities))
        return ShadowStep(before, after, curvature)

    def _rescale(self, size: np.ndarray) -> None:
        inverse = 1 / np.maximum(size, 1e-30)
        for place, velocity in zip(self.places, self.velocities, strict=True):
            by = _spread(inverse, place)
            place.mul_(by)
            velocity.mul_(by)
