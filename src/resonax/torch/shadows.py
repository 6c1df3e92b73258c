"""Shadows of the weights as tensors: position and velocity for each candidate that is followed."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from resonax.guards.guard import ShadowStep
from resonax.guards.shadows import Energy, Gains, step_shadow

__all__ = ["Shadows"]

_TOGETHER = 2**16  # numbers up to which terms are held and summed together, which is quicker


def _shaped(numbers: Tensor, like: Tensor) -> Tensor:
    """Return one number for each candidate in the shape of a stack of weights, row by row."""
    return numbers.reshape(*numbers.shape, *[1] * (like.ndim - 1))


def _sums(factors: Sequence[tuple[Tensor, ...]]) -> Tensor:
    """Return the sum of each product over a weight, an entry for each candidate."""
    terms = (functools.reduce(operator.mul, some) for some in factors)
    if factors[0][1].numel() <= _TOGETHER:
        return torch.stack([*terms]).flatten(2).sum(2, dtype=torch.float64)
    return torch.stack([term.flatten(1).sum(1, dtype=torch.float64) for term in terms])


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

    def advance(
        self, products: Sequence[Tensor], each: Sequence[tuple[Gains, float]]
    ) -> ShadowStep:
        """Make one step, rescale, and return energies and curvature; the device is asked once."""
        rows, device = [], self.places[0].device
        for index, (by, sign) in enumerate(each):
            place, velocity = self.places[index], self.velocities[index]
            numbers = np.stack([by.momentum, by.alpha, by.kappa, by.momentum * by.kappa])
            made = torch.as_tensor(numbers, dtype=place.dtype, device=place.device)
            momentum, alpha, kappa, moving = _shaped(made, place).unbind()
            gains = Gains(momentum, alpha, kappa, by.beta, by.decay)
            moved, faster, pull = step_shadow(place, velocity, sign * products[index], gains)
            factors = [
                (alpha, place, place),
                (moving, velocity, velocity),
                (alpha, moved, moved),
                (moving, faster, faster),
                (place, place),
                (place, pull),
            ]
            rows.append(_sums(factors).to(device))
            self.places[index], self.velocities[index] = moved, faster
        *parts, met = torch.stack(rows, 1).unbind()
        totals = [part.sum(0) for part in parts]
        self._rescale((totals[2] + totals[3]).sqrt())
        found = torch.cat([torch.stack(totals), met]).cpu().numpy()
        curvature = sum(found[5:]) / np.maximum(found[4], 1e-300)
        return ShadowStep(Energy(*found[:2]), Energy(*found[2:4]), curvature)

    def _rescale(self, size: Tensor) -> None:
        inverse = 1 / size.clamp(min=1e-30)
        for place, velocity in zip(self.places, self.velocities, strict=True):
            by = _shaped(inverse.to(place), place)
            place.mul_(by)
            velocity.mul_(by)
