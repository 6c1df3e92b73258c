"""An audit of a loader as it is kept, with words of others that are mark-up."""

from __future__ import annotations

import math

import numpy as np

from resonax.guards.audit import Audit, Cure
from resonax.guards.batch_order import BatchOrder
from resonax.guards.lost_steps import LostSteps

__all__ = ["HOSTILE", "kept_audit"]

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def kept_audit() -> Audit:
    """Return an audit of 64 batches whose order harms; the run in order overflows at its end."""
    lost = LostSteps(64, 40.0, 31.0, math.inf, 0.001, 2.3, 2.0, (1.0, 1.1))
    cure = Cure("buffer", 8, f"a buffer, {HOSTILE}", None, 1.0, 4.0)
    found = BatchOrder("ordered", 0.001, 8.0, 2, True)
    paths = (0, 32, 64), (2.3, 2.0, math.inf), ((2.3, 1.2, 1.0), (2.3, 1.1, 1.1))
    said = ("ordered", "harmful", "resonance", 8.0, lost, (cure,), found, HOSTILE, False, True)
    numbers = np.random.default_rng(0).standard_normal((64, 3))
    return Audit(*said, 64, *paths, numbers, {HOSTILE: 0.1}, 1000.0, (f"a note, {HOSTILE}",))
