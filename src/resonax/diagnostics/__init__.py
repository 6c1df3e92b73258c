"""Diagnostics: the check of a data set before training, and probes of real learners."""

from __future__ import annotations

from resonax.diagnostics.check import check
from resonax.diagnostics.probe import Probe, probe
from resonax.diagnostics.replay import Replay, replay
from resonax.diagnostics.result import Check

__all__ = ["Check", "Probe", "Replay", "check", "probe", "replay"]
