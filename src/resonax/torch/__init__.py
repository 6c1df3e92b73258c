"""Watch and guard training loops of PyTorch."""

from __future__ import annotations

from resonax.diagnostics.guard_report import GuardReport, ResonanceWarning
from resonax.torch.guard import Guard

__all__ = ["Guard", "GuardReport", "ResonanceWarning"]
