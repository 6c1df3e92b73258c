"""Tables of good sweeps, and tables with one entry replaced."""

from __future__ import annotations

import copy
import json
import math
from datetime import date
from typing import Any

__all__ = ["MAP", "NETWORK", "put", "to_toml"]

MAP: dict[str, Any] = {
    "id": "tiny",
    "title": "A title",
    "process": {"kind": "sinusoid", "amplitude": 0.5, "variance": 1.0},
    "model": {"kind": "linear"},
    "optimizer": {"kind": "heavy_ball", "lr": 0.01},
    "train": {"batch": 20, "noise": 0.1},
    "run": {"runs": 3, "steps": 400, "window": 100},
    "axes": {
        "momentum": {"values": [0.9, 0.98]},
        "period": {"first": 20, "last": 40, "count": 4},
    },
    "theory": {"criteria": ["flow", "lyapunov"], "points": [2, 3]},
    "panels": [{"name": "one"}, {"name": "two", "optimizer": {"lr": 0.02}}],
    "smoke": {"run": {"steps": 200}},
}
NETWORK: dict[str, Any] = {
    "id": "net",
    "process": {"kind": "switching", "variance": 0.1, "dim": 2},
    "model": {"kind": "network", "hidden": [20, 20]},
    "optimizer": {"kind": "optax.rmsprop", "lr": 0.01, "decay": 0.9},
    "train": {"batch": 10, "noise": 0.1},
    "run": {"runs": 2, "steps": 400, "window": 100},
    "axes": {"amplitude": {"values": [0.1, 0.4], "root": True}, "period": {"values": [0, 5, 10]}},
    "panels": [{"name": "a", "train": {"noise": 0.2}, "limits": {"period": [0, 5]}}],
}


def entry(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {entry(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(entry, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    return json.dumps(value)


def to_toml(table: dict[str, Any]) -> bytes:
    """Return a table as a TOML file."""
    return "".join(f"{json.dumps(k)} = {entry(v)}\n" for k, v in table.items()).encode()


def put(path: str, value: Any, base: dict[str, Any] = MAP) -> dict[str, Any]:
    """Return a good table with one entry replaced, by a dotted path."""
    table = copy.deepcopy(base)
    home: Any = table
    *names, last = path.split(".")
    for name in names:
        home = home[int(name)] if isinstance(home, list) else home.setdefault(name, {})
    home[last] = value
    return table
