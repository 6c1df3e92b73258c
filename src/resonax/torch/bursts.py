"""Bursts: steps in which shadows follow the tangent dynamics along the batches of a run."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from resonax.guards.alarm import period_of
from resonax.guards.guard import ShadowStep
from resonax.guards.shadows import Energy
from resonax.torch.groups import Groups, dense_values
from resonax.torch.products import gauss_newton, hessian
from resonax.torch.shadows import Shadows

__all__ = ["Burst"]

_HISTORY = 1024  # steps of curvature, for the period


class Burst:
    """Shadows of the candidates that are followed now, and the curvature along them."""

    def __init__(self, groups: Groups, curvature: str):
        self._groups, self.curvature = groups, curvature
        self._products: list[Tensor] | None = None
        self.shadows: Shadows | None = None
        self.met: list[list[float]] = []  # curvature along each candidate
        self.probed = 0  # steps in which shadows were followed

    def observe(self, loss: Tensor, outputs: list[Tensor], count: int) -> None:
        """Add the curvature of a batch, or of a part of it, times each of the shadows."""
        weights = self._groups.weights()
        if self.shadows is None or not self.shadows.fits(weights, count):
            self.shadows = Shadows.along(self._direction(loss, weights), count)
        along = self.shadows.places
        if outputs and self.curvature == "gauss-newton":
            made = gauss_newton(loss, outputs, weights, along)
        else:
            made = hessian(loss, weights, along)
        old = self._products
        self._products = made if old is None else [a + b for a, b in zip(old, made, strict=True)]

    def discard(self) -> None:
        """Discard the curvature of a step that was not made."""
        self._products = None

    def stop(self) -> None:
        """Stop following candidates."""
        self.shadows, self._products = None, None

    def advance(self, candidates: tuple[float, ...], on: np.ndarray) -> ShadowStep | None:
        """Move the shadows by the step that was made; None where no loss was observed."""
        products, self._products = self._products, None
        if products is None or self.shadows is None:
            return None
        each = self._groups.gains(np.asarray(candidates)[on], bool(on[0]))
        part = self.shadows.advance(products, each)
        rows = np.stack([*part.before, *part.after, part.curvature])
        if not np.isfinite(rows).all():
            self.shadows = None
            return None
        self.probed += 1
        wide = np.full((len(rows), len(on)), np.nan)
        wide[:, on] = rows
        self.met = [*self.met[1 - _HISTORY :], wide[-1].tolist()]
        return ShadowStep(Energy(*wide[:2]), Energy(*wide[2:4]), wide[4])

    def largest_curvature(self) -> float | None:
        """Return the largest curvature of a batch along a shadow, of the steps kept."""
        met = np.asarray(self.met)
        return float(np.nanmax(met)) if np.isfinite(met).any() else None

    def period(self) -> float | None:
        """Return the period of the curvature, if it has one."""
        if not self.met:
            return None
        met = np.asarray(self.met)
        seen = np.isfinite(met).all(axis=0)
        # The shadow of the smallest momentum oscillates least: it shows the period of the data.
        return period_of(met[:, np.flatnonzero(seen)[-1]]) if seen.any() else None

    def tensors(self) -> list[list[Tensor]] | None:
        """Return the shadows for a checkpoint."""
        return None if self.shadows is None else [self.shadows.places, self.shadows.velocities]

    def load(self, tensors: list[list[Tensor]] | None, met: list[list[float]], probed: int) -> None:
        """Continue with shadows from a checkpoint, on the devices of the weights."""
        self.met, self.probed, self._products = met, probed, None
        if tensors is None:
            self.shadows = None
            return
        like = self._groups.weights()
        places, velocities = (
            [part.clone().to(to.device) for part, to in zip(row, like, strict=True)]
            for row in tensors
        )
        self.shadows = Shadows(places, velocities)

    def copy_products(self, other: Burst) -> None:
        """Copy what another has observed of the step that is being made."""
        if other._products is not None:
            self._products = [part.clone() for part in other._products]

    def _direction(self, loss: Tensor, weights: list[Tensor]) -> list[Tensor]:
        """Return the velocity of the run, or its gradient: it contains the direction that grows."""
        found = [part for part in self._groups.velocities() if part is not None]
        moves = any(bool(dense_values(part).any()) for part in found)
        if len(found) < len(weights) or not moves:
            made = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
            found = [
                torch.zeros_like(weight) if part is None else part
                for part, weight in zip(made, weights, strict=True)
            ]
        return [part.detach().to_dense() for part in found]
