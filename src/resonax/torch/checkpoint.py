"""The state of a guard as plain values, and its validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from resonax.core.errors import ArgumentError, check_number
from resonax.guards.guard import GuardConfig, GuardState, active, as_lists, from_lists
from resonax.guards.report import Event

__all__ = ["Saved", "as_dict", "from_dict"]

_FORMAT = 2  # of the dictionary


class Saved(NamedTuple):
    """All that a resumed run needs."""

    state: GuardState
    candidates: tuple[float, ...]
    own: list[float]  # momentum of each group: the user's
    used: list[float]  # and the one in use
    shadows: list[list[Tensor]] | None  # places and velocities
    met: list[list[float]]
    events: list[Event]
    probed: int
    missed: int
    blind: bool
    lost: bool
    losses: list[float]


def as_dict(saved: Saved) -> dict[str, Any]:
    """Return plain numbers, lists and tensors."""
    return {
        **saved._asdict(),
        "format": _FORMAT,
        "state": as_lists(saved.state),
        "candidates": list(saved.candidates),
        "events": [vars(event) for event in saved.events],
    }


def from_dict(found: Any, config: GuardConfig, weights: Sequence[Tensor], groups: int) -> Saved:
    """Return what `as_dict` wrote, or raise `ArgumentError`.

    Parameters
    ----------
    found
        The dictionary.
    config
        That of the guard that continues; the candidates are the saved ones.
    weights, groups
        Trained parameters and number of groups of its optimizer.
    """
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise ArgumentError("this is no state of a guard of this version of resonax")
    missing = sorted({*Saved._fields} - {*found})
    if missing:
        raise ArgumentError(f"the state of the guard lacks {', '.join(missing)}")
    try:
        saved = _parsed(found, config)
    except ArgumentError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise ArgumentError(f"the state of the guard is damaged ({error})") from None
    if not len(saved.own) == len(saved.used) == groups:
        raise ArgumentError(
            f"the saved guard had {len(saved.own)} parameter groups, this optimizer has {groups}"
        )
    if saved.shadows is not None:
        count = int(active(saved.state, config._replace(candidates=saved.candidates)).sum())
        shapes = [(count, *weight.shape) for weight in weights]
        for row in saved.shadows:
            if [tuple(part.shape) for part in row] != shapes:
                raise ArgumentError("the saved guard is of a model with other parameters")
    return saved


def _parsed(found: dict[str, Any], config: GuardConfig) -> Saved:
    candidates = tuple(float(number) for number in found["candidates"])
    for number in (*candidates, *found["own"], *found["used"]):
        check_number("a saved momentum", number, low=0)
    if list(candidates) != sorted(set(candidates), reverse=True) or not candidates:
        raise ValueError("its candidates do not fall")
    shadows = found["shadows"]
    if shadows is not None:
        places, velocities = ([part.detach().clone() for part in row] for row in shadows)
        shadows = [places, velocities]
    met = [[float(number) for number in row] for row in found["met"]]
    if any(len(row) != len(candidates) for row in met):
        raise ValueError("its curvatures are not one for each candidate")
    probed, missed = int(found["probed"]), int(found["missed"])
    if probed < 0 or missed < 0:
        raise ValueError("its counts are negative")
    return Saved(
        state=from_lists(found["state"], config._replace(candidates=candidates)),
        candidates=candidates,
        own=[float(number) for number in found["own"]],
        used=[float(number) for number in found["used"]],
        shadows=shadows,
        met=met,
        events=[Event(**event) for event in found["events"]],
        probed=probed,
        missed=missed,
        blind=bool(found["blind"]),
        lost=bool(found["lost"]),
        losses=np.asarray(found["losses"], dtype=float).tolist(),
    )
