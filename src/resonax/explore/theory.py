"""What the theory says of a setting: the verdict with its multipliers, and maps.

Functions here run in a thread of `work`: between two parts of the work they call their first
argument, which raises if nobody waits for the answer any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from resonax.core.labels import CRITERIA, LABELS
from resonax.core.objects import plain_values
from resonax.dynamics import Problem, Setting
from resonax.dynamics.build import build_setting
from resonax.explore.code import PATHS as _PATHS
from resonax.explore.code import map_code, verdict_code
from resonax.explore.questions import points
from resonax.explore.schema import DEFAULT
from resonax.rows.answers import pace
from resonax.spec.settings import check_setting, is_adaptive
from resonax.theory import Level, Orbit, Verdict, level, verdict
from resonax.theory.map import multipliers
from resonax.theory.maps import map_arrays, proof_line
from resonax.theory.orbit import find_orbit
from resonax.theory.period import REASONS
from resonax.theory.verdict import MARGIN

__all__ = ["judge", "load", "make_map", "warm_judge", "warm_map"]

CheckCancelled = Callable[..., None]

_SUBJECTS = {
    "flow": "the error of the expected weights, in continuous time,",
    "map": "the error of the expected weights",
    "mean_square": "the root mean square error",
    "lyapunov": "the error of almost every single run",
}


_NO_PERIOD = (
    "The law of these inputs never repeats: no period multiplies an error by fixed numbers."
)
_ADAPTIVE = "An adaptive optimizer multiplies an error by no fixed numbers in a period."


def _problem(asked: dict[str, Any]) -> Problem:
    return build_setting(check_setting(asked))[0]


def judge(check: CheckCancelled, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what four criteria say of a setting; of an adaptive optimizer, its level."""
    setting, code = _problem(asked), verdict_code(asked, is_adaptive(asked), _PATHS)
    check()
    if not isinstance(setting, Setting):
        found = level(setting, check)
        assert isinstance(found, Level)
        return _level_answer(setting, found, code)
    found = verdict(setting, paths=_PATHS)
    check()
    driven = find_orbit(setting, check, curve=False) if setting.is_driven else None
    notes = [
        *found.notes,
        *(() if driven is None else (*f"the error {driven}".splitlines(), *driven.notes)),
    ]
    return {
        "verdict": found.verdict,
        "sentence": f"{found.verdict}: {found.scoped(setting)}.",
        "criteria": [_criterion(name, found) for name in CRITERIA],
        "multipliers": _multipliers(setting),
        "multipliers_missing": None if setting.process.periodic else _NO_PERIOD,
        "order_proof": f"In every order: {found.order_proof.meaning()}.",
        "notes": [f"{note.rstrip('.')}." for note in notes],
        "level": None if driven is None else _orbit_numbers(driven),
        "code": code,
    }


def _orbit_numbers(found: Orbit) -> dict[str, float]:
    """Return the numbers of a level that is driven, none where nothing settles."""
    named = {
        "distance from the best weights (root mean square)": found.rms,
        "times that in random order": found.over_iid,
        "swing over that of the best weights": found.gain,
        "loss above the best fixed weights": found.excess_loss,
        "the same in random order": found.excess_iid,
    }
    return {name: number for name, number in named.items() if number is not None}


def _level_answer(setting: Problem, found: Level, code: dict[str, str | None]) -> dict[str, Any]:
    numbers: dict[str, float] = {}  # none where there is no level
    if found.distance is not None and found.rms is not None and found.over_iid is not None:
        numbers = {
            "mean distance": found.distance,
            "root mean square": found.rms,
            "in random order": found.distance / found.over_iid,
        }
    return {
        "verdict": "level" if numbers else found.verdict,
        "sentence": f"{found.scoped(setting)}.",
        "criteria": [],
        "multipliers": None,
        "multipliers_missing": _ADAPTIVE,
        "order_proof": None,
        "notes": [f"{note.rstrip('.')}." for note in found.notes],
        "level": numbers,
        "code": code,
    }


def _verdict_word(low: float, high: float) -> str:
    if low > MARGIN:
        return "diverges"
    return "converges" if high < -MARGIN else "marginal"


def _criterion(name: str, found: Verdict) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "label": name.replace("_", " "), "about": CRITERIA[name]}
    growth, exact = getattr(found, name), name != "lyapunov"
    if growth is None:
        why = next((note for note in found.notes if note.startswith(f"{name}: ")), "")
        why = why.partition(": ")[2] or "this criterion does not apply to these inputs"
        nothing = {"rate": None, "radius": None, "verdict": None}
        return entry | nothing | {"sentence": f"{why}.", "exact": exact}
    low, high = (growth.rate, growth.rate) if exact else growth[1:]
    entry |= {"rate": growth.rate, "verdict": _verdict_word(low, high), "exact": exact}
    text = f"{_SUBJECTS[name]} {pace(growth.rate)}"
    if exact:
        return entry | {"radius": growth.radius, "sentence": f"{text}."}
    text += f" (95% interval of the rate {low:+.2g} to {high:+.2g})"
    return entry | {"radius": None, "low": low, "high": high, "sentence": f"{text}."}


def _multipliers(setting: Setting) -> dict[str, Any] | None:
    found = multipliers(setting)
    if found is None:
        return None
    largest = float(np.max(np.abs(found.values), initial=0.0))
    side = "outside" if largest > 1 else "inside"
    values = [{"real": float(one.real), "imag": float(one.imag)} for one in found.values]
    return plain_values(
        {
            "values": values,
            "steps": found.steps,
            "turns": found.turns,
            "sentence": f"The largest multiplier has the modulus {largest:.4g} per period, "
            f"{side} the unit circle.",
        }
    )


def make_map(
    check: CheckCancelled,
    asked: dict[str, Any],
    x: dict[str, Any],
    y: dict[str, Any],
    criterion: str,
) -> dict[str, Any]:
    """Return the growth rate over two axes, rows along y."""
    values = {axis["name"]: points(axis) for axis in (y, x)}
    setting: Any = _problem(asked)
    # As arrays: the first map need not wait until xarray is loaded, for labels that nobody sees.
    arrays = map_arrays(setting, criterion, values, check)
    quantity = "distance" if criterion == "level" else "rate"
    found = arrays[quantity]
    lists = {axis["name"]: values[axis["name"]].tolist() for axis in (y, x)}
    return {
        "x": lists[x["name"]],
        "y": lists[y["name"]],
        "quantity": quantity,
        "label": LABELS[quantity][0],
        quantity: plain_values(found),
        "missing": _missing(arrays["missing"]) if "missing" in arrays else [],
        "order_proof": None if criterion == "level" else _proof_line(setting, values, x["name"]),
        "sentence": _map_sentence(arrays, quantity),
        "code": map_code(asked, (y, x), (lists[y["name"]], lists[x["name"]]), criterion),
    }


def _missing(flags: np.ndarray) -> list[dict[str, Any]]:
    reasons = list(REASONS.values())
    return [
        {"x": int(i), "y": int(j), "reason": f"{reasons[flags[j, i]]}."}
        for j, i in np.argwhere(flags > 0)
    ]


def _proof_line(setting: Setting, axes: dict[str, np.ndarray], x: str) -> dict[str, Any] | None:
    """Return the largest momentum or step size that every order allows, along the other axis."""
    line = proof_line(setting, axes)
    if line is None:
        return None
    return {
        "of": line.of,
        "is_height": line.along == x,
        "along": axes[line.along].tolist(),
        "values": plain_values(line.values),
    }


def _map_sentence(arrays: dict[str, np.ndarray], quantity: str) -> str:
    values = arrays[quantity]
    known = np.isfinite(values)
    count = int(known.sum())
    if not count:
        return "No level is predicted." if quantity == "distance" else "No cell could be computed."
    if quantity == "distance":
        ends = values[known].min(), values[known].max()
        said = f"Predicted distances from {ends[0]:.3g} to {ends[1]:.3g}"
        if ends[0] > 0:
            said += f", which is {ends[1] / ends[0]:.3g} times as much"
        none = values.size - count
        return (
            f"{said}; none is predicted for {none} of {values.size} cells." if none else f"{said}."
        )
    low, high = (arrays.get(end, values)[known] for end in ("low", "high"))
    said = f"{(low > 0).mean():.1%} of {count} cells diverge"
    if "low" in arrays:
        said += f", {((low <= 0) & (high >= 0)).mean():.1%} are undecided"
    return f"{said}; the largest rate is {values[known].max():+.3g} per step."


_WARM_UP_AXES = (
    {"first": 20.0, "last": 24.0, "log": False},
    {"first": 0.9, "last": 0.99, "log": False},
)


def load(check: CheckCancelled) -> None:
    """Load what answers need: that has happened when this is called."""
    check()


def warm_map(check: CheckCancelled) -> None:
    """Load and compile what the first maps of a page need: coarse ones and fine ones."""
    for count in (20, 100):
        x, y = ({**axis, "count": count} for axis in _WARM_UP_AXES)
        make_map(check, DEFAULT, {**x, "name": "period"}, {**y, "name": "momentum"}, "map")


def warm_judge(check: CheckCancelled) -> None:
    """Load and compile what the first verdict of a page needs."""
    judge(check, DEFAULT)
