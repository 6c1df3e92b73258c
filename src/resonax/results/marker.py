"""What a task leaves behind when it is finished: the names and checksums of what it wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from resonax.results.files import UNSEALED, is_whole, seal
from resonax.results.layout import TASKS, Task

__all__ = ["Marker", "marker_name"]


def marker_name(task: Task) -> str:
    """Return the file of a task's marker, below the folder of the store."""
    return f"{TASKS}/{task.number}.json"


@dataclass(frozen=True)
class Marker:
    """The chunks of a task with their checksums, and what their bits depend on.

    Examples
    --------
    >>> marker = Marker({"rate/c.0": "e3069283"}, "9f86d081", {"jax": "0.10.2"})
    >>> Marker.parse(marker.text().encode()) == marker
    True
    >>> Marker.parse(b'{"chunks": {}}') is None
    True
    """

    chunks: Mapping[str, str]  # CRC-32C by file name
    specification_sha256: str
    versions: Mapping[str, str]

    def text(self) -> str:
        """Return it as sealed JSON, equal for equal markers."""
        table = {"sha256": UNSEALED, **vars(self), "chunks": dict(sorted(self.chunks.items()))}
        text = json.dumps(table, indent=1) + "\n"
        return seal(text.encode()).decode()

    @classmethod
    def parse(cls, data: bytes) -> Marker | None:
        """Return the marker that was written, or None if this is none."""
        try:
            found = json.loads(data) if is_whole(data) else None
            return cls(**{name: value for name, value in found.items() if name != "sha256"})
        except (AttributeError, TypeError, ValueError):
            return None
