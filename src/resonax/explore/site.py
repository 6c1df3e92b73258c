"""What one server serves: its address, its secret, and what the command line named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Site"]


@dataclass(frozen=True)
class Site:
    """What one server serves."""

    token: str
    port: int
    data: Path | None = None  # a file to check
    results: Path | None = None  # a folder that `reproduce` or `sweep` made
    prepare: Callable[[], None] | None = None  # called once in each process before jax is used
    warm: bool = False  # whether to compile the first answers when the page is opened

    @property
    def address(self) -> str:
        """The address to open."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"
