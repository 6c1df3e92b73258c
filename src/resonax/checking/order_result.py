"""What is known of an order of rows: its growth, and bounds for all orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from resonax.core.objects import Result
from resonax.theory import OrderProof

__all__ = ["STILL", "RowOrder"]

STILL = 1e-9  # rates closer to 0 than this are rounding


@dataclass(frozen=True, repr=False)
class RowOrder(Result):
    """An order of rows, how an error grows in it, and how much it could grow in any."""

    kind: str  # worst or safest
    name: str  # how the order was made
    rate: float  # growth per step where the order is repeated
    lower: float  # of the largest growth per step in any order with repetitions
    upper: float
    confirmed: bool  # whether training in this order grows at this rate
    trained: float  # the rate of that training
    compared: dict[str, float]  # the rates of other orders, by their names
    order_proof: OrderProof
    settings: dict[str, Any]
    rows: np.ndarray  # the order: numbers of the rows, from 0

    def summary(self) -> dict[str, Any]:
        """Return the rate, the bounds and how the order was made."""
        shown = {key: getattr(self, key) for key in ("kind", "name", "rate", "lower", "upper")}
        return {**shown, "confirmed": self.confirmed, "rows": len(self.rows)}

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """Return the rates of this order, of the others, and the bounds of the largest."""
        rates = {f"{self.kind} found": self.rate, **self.compared}
        points = {name: (rate, rate, rate) for name, rate in rates.items()}
        return {**points, "largest in any order": (self.lower, self.lower, self.upper)}

    def __str__(self) -> str:
        """Return what was found in words, a line each."""
        word = "grows" if self.rate > STILL else "falls" if self.rate < -STILL else "stays"
        kind = "worst" if self.kind == "worst" else "safe"
        how = "confirmed" if self.confirmed else "not confirmed"
        lines = [
            f"{kind} order found ({self.name}): repeated, the distance from the best weights "
            f"{word}, {self.rate:+.3g} per step, {how} by training",
            f"no order of these rows, repeated, grows by more than {self.upper:.3g} per step "
            f"(proved); the largest growth found is {self.lower:.3g}",
            self.order_proof.meaning("rows"),
        ]
        return "\n".join(lines)
