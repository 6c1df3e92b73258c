"""The recording that the example runs on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["EXAMPLE"]


@dataclass(frozen=True)
class Example:
    """A data file with its title and licence."""

    path: Path
    title: str
    licence: str


EXAMPLE = Example(
    path=Path(__file__).with_name("san-francisco-2010.csv.gz"),
    title="hourly temperatures of San Francisco in 2010",
    licence="NOAA, public domain",
)
