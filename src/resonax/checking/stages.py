"""How the stages of a long piece of work are shown, and what it finds on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from resonax.rows.subject import Advance

__all__ = ["Stage", "Tell", "silent", "untold"]

Stage = Callable[[str, int], AbstractContextManager[Advance | None]]  # of its name and steps
Tell = Callable[[str, Any], None]  # told what was found, by its name


def silent(name: str, steps: int) -> AbstractContextManager[None]:
    """Show no progress."""
    del name, steps
    return contextlib.nullcontext()


def untold(name: str, finding: Any) -> None:
    """Tell nobody."""
