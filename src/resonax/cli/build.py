"""From the options of a command to what is asked for, by the names that `resonax.request` knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resonax import request
from resonax.cli.groups import given
from resonax.cli.options import Learner, Points, Reading, Stream
from resonax.cli.parsers import spelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from resonax.dynamics import Problem
    from resonax.learners import Features
    from resonax.registry import Kind
    from resonax.streams import Process

__all__ = ["build_setting", "check_optimizer", "features_of", "is_adaptive", "process_of"]


def is_adaptive(learner: Learner) -> bool:
    """Return whether the optimizer has a level in place of a growth rate."""
    return request.is_adaptive(given(learner))


def check_optimizer(learner: Learner, use: str) -> tuple[Kind, dict[str, float]]:
    """Return an optimizer and its numbers, which can be."""
    return request.check_optimizer(given(learner), use, spelled)


def features_of(learner: Learner) -> Callable[[int], Features]:
    """Return what makes the basis for a number of inputs."""
    return request.features_of(given(learner), spelled)


def process_of(stream: Stream, reading: Reading) -> Callable[[], tuple[Process, tuple[str, ...]]]:
    """Return what makes the process of a command, with notes on a file's rows."""
    return request.process_of(given(stream) | given(reading), spelled)


def build_setting(
    stream: Stream, learner: Learner, reading: Reading, noise: Points
) -> tuple[Problem, tuple[str, ...]]:
    """Return the setting that the options of a command describe, and notes on a file's rows."""
    asked: dict[str, Any] = given(stream) | given(learner) | given(reading) | {"noise": noise}
    return request.setting_of(asked, spelled)()
