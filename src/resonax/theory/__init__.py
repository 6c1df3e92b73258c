"""Stability criteria: flow, map, mean square, Lyapunov, level; verdicts, maps and searches."""

from resonax.theory.level import Branch, Level, level
from resonax.theory.lyapunov import Interval, lyapunov
from resonax.theory.maps import stability_map
from resonax.theory.orbit import Orbit
from resonax.theory.order_proof import OrderProof, order_proof
from resonax.theory.phases import Alternation, alternation
from resonax.theory.search import (
    Best,
    Tongue,
    best_momentum,
    critical_lr,
    critical_momentum,
    tongues,
)
from resonax.theory.subspace import Phase
from resonax.theory.verdict import Growth, MeanSquare, Verdict, rates, verdict

__all__ = [
    "Alternation",
    "Best",
    "Branch",
    "Growth",
    "Interval",
    "Level",
    "MeanSquare",
    "Orbit",
    "OrderProof",
    "Phase",
    "Tongue",
    "Verdict",
    "alternation",
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
