"""Loaded first by the process that workers are copies of, before all libraries."""

from resonax.run.garbage import collect_rarely

__all__: list[str] = []

collect_rarely()
