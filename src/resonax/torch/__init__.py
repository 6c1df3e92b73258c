"""Watch and guard training loops of PyTorch, and audit what loaders give them."""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    text = 'resonax.torch needs PyTorch: pip install "resonax[torch]"'
    raise ModuleNotFoundError(text, name="torch") from None

from resonax.guards.report import GuardReport, GuardWarning
from resonax.torch.auditing import audit
from resonax.torch.guard import Guard
from resonax.torch.phases import phases

__all__ = ["Guard", "GuardReport", "GuardWarning", "audit", "phases"]
