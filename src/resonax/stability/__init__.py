"""Stability criteria: flow, map, mean square, Lyapunov, level; verdicts, maps and searches."""

from resonax.stability.circle import OrderProof
from resonax.stability.criteria import Growth, MeanSquare, Verdict, rates, verdict
from resonax.stability.level import Branch, Level, level
from resonax.stability.maps import stability_map
from resonax.stability.order_proof import order_proof
from resonax.stability.paths import Interval, lyapunov
from resonax.stability.search import (
    Best,
    Tongue,
    best_momentum,
    critical_lr,
    critical_momentum,
    tongues,
)

__all__ = [
    "Best",
    "Branch",
    "Growth",
    "Interval",
    "Level",
    "MeanSquare",
    "OrderProof",
    "Tongue",
    "Verdict",
    "best_momentum",
    "critical_lr",
    "critical_momentum",
    "level",
    "lyapunov",
    "order_proof",
    "rates",
    "stability_map",
    "tongues",
    "verdict",
]
