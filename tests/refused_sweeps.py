"""Sweeps that are refused: entries that are no number, out of range, or too much for a machine."""

from __future__ import annotations

import math
from typing import Any

from sweep_tables import MAP, NETWORK, put

HUGE = 10**400
NUMBERS: dict[str, list[float]] = {
    "optimizer.lr": [0, -1, 1e7],
    "optimizer.dampening": [1, -0.1],
    "optimizer.weight_decay": [-1, 1e9],
    "process.amplitude": [-1, 1e9],
    "process.swing": [-1, 21],
    "process.phase": [1e9],
    "train.noise": [-1, 1e20],
    "train.start": [0, -1, 1e7],
    "axes.period.first": [0.5, -3, 1e6],
    "axes.period.last": [-1, 1e6],
    "panels.0.optimizer.lr": [0, -2],
    "panels.1.train.noise": [-1],
    "panels.1.process.amplitude": [-1],
    "smoke.optimizer.lr": [0, -1],
}
WHOLE: dict[str, list[int]] = {
    "run.runs": [10**6, 2**33],
    "run.steps": [20, 41, 2**33, 4 * 10**18],
    "run.window": [10, 30, 400],
    "train.batch": [10**10],
    "process.dim": [1001, 24],
    "chunk": [10**6],
    "axes.period.count": [10**6],
    "panels.0.run.runs": [4, 10**9],
    "panels.0.run.steps": [41, 2**40],
    "panels.0.train.batch": [10**10],
    "smoke.run.steps": [41, 2**33],
}
MOMENTUM, PERIOD = MAP["axes"]["momentum"], MAP["axes"]["period"]
AXES: list[Any] = [
    {},
    {"momentum": MOMENTUM},
    {"period": PERIOD, "momentum": MOMENTUM},
    {"lr": MOMENTUM, "period": PERIOD},  # lr is given as well
    {"momentum": MOMENTUM, "period": PERIOD, "amplitude": MOMENTUM},
    {"beta1": MOMENTUM, "period": PERIOD},
    {"momentum": MOMENTUM, "kind": PERIOD},
    {"momentum": MOMENTUM, "": PERIOD},
    {"momentum": [0.9, 0.98], "period": PERIOD},
    {"momentum": MOMENTUM, "seed": {"values": [1, 2]}},
]
AXIS: list[Any] = ["momentum", "period"]
PANELS: list[Any] = [
    [{"name": str(number)} for number in range(2000)],
    [{"name": str(number)} for number in range(25)],
    [{"name": "a"}, {"name": "a"}],
    [{"name": "a", "run": {"runs": 4}}, {"name": "b"}],
    [{"name": "a", "limits": {"lr": [0, 1]}}],
    [{"name": "a", "limits": {"period": [0, 1]}}],
    [{"name": "a", "limits": {"period": [40, 20]}}],
    [{"name": "a", "limits": {"period": [20]}}],
    [{"name": "a", "limits": {"period": "20"}}],
    [{"name": "a", "limits": {"period": [20, HUGE]}}],
    [{"name": "a", "optimizer": {"momentum": 0.9}}],
    [{"name": "a", "process": {"kind": "iid"}}],
    [{"name": "a", "process": {"kind": "ar2", "phase": 1.0}}],
    [{"name": "a", "process": {"dim": 2, "variance": [1.0, 2.0, 3.0]}}],
    [{"name": "a", "run": {"steps": 40, "window": 40}}],
    [{"name": "a", "model": {"kind": "network"}}],
    [{"name": "a", "smoke": {"smoke": 1}}],
]
INPUTS: list[tuple[int, str, Any]] = [
    (1, "variance", [1.0, 2.0]),
    (2, "variance", [[1.0, 0.0], [0.5, 1.0]]),
    (2, "variance", [[1.0, 2.0], [2.0, 1.0]]),
    (2, "variance", [1.0, -1.0]),
    (2, "variance", [1.0, "a"]),
    (2, "variance", ["1", "1"]),
    (2, "variance", [True, False]),
    (2, "variance", [[1.0], [1.0, 2.0]]),
    (2, "variance", [[[1.0]]]),
    (2, "variance", [1.0, HUGE]),
    (2, "direction", [0.0, 0.0]),
    (2, "direction", [1.0]),
    (2, "direction", 1.0),
    (2, "direction", "up"),
    (2, "direction", [math.nan, 1.0]),
]
THEORY: list[Any] = [
    {"criteria": []},
    {"criteria": ["guess"]},
    {"criteria": "flow"},
    {"criteria": ["flow", "flow"]},
    {"criteria": ["mean_square"], "points": [1, 2]},
    {"criteria": ["lyapunov"], "points": [-1, 2]},
    {"criteria": ["lyapunov"], "points": [0, 0]},
    {"criteria": ["lyapunov"], "points": [2**40, 2]},
    {"criteria": ["lyapunov"], "points": [2]},
    {"criteria": ["lyapunov"], "points": [2.5, 2.5]},
    {"criteria": ["flow"], "process": {"kind": "ar2"}},
    {"criteria": ["flow"], "process": {"kind": "tides"}},
    {"criteria": ["flow"], "process": {"kind": "sinusoid", "dim": 3}},
    {"criteria": ["flow"], "process": {"kind": "iid"}},
    {"criteria": ["flow"], "process": {"amplitude": 0.5}},
]
MODELS: list[Any] = [
    {"kind": "polynomial", "degree": 9},
    {"kind": "polynomial", "degree": 0},
    {"kind": "polynomial", "degree": 1.5},
    {"kind": "fourier"},
    {"kind": "fourier", "frequencies": [1.0]},
    {"kind": "fourier", "frequencies": [[1.0, 2.0]]},
    {"kind": "fourier", "frequencies": [["a"]]},
    {"kind": "fourier", "frequencies": [[math.inf]]},
    {"kind": "fourier", "frequencies": []},
    {"kind": "fourier", "frequencies": [[float(number)] for number in range(12)]},
    {"kind": "radial", "centers": [[1.0]], "width": 0},
    {"kind": "radial", "centers": [[1.0]], "width": "wide"},
    {"kind": "radial", "centers": {"a": 1}},
    {"kind": "linear", "bias": 1},
    {"kind": "linear", "hidden": [20]},
    {"kind": "network", "degree": 2},
]
MANY = {"first": 20, "last": 40, "count": 100_000}
SHIFT = {"first": 0.0, "last": 0.98, "count": 99_000}
TOO_MUCH: list[dict[str, Any]] = [
    put("model.hidden", [4096] * 4, NETWORK),
    put("model.hidden", [5000], NETWORK),
    put("model.hidden", [20] * 9, NETWORK),
    put("model.hidden", [], NETWORK),
    put("model.hidden", 20, NETWORK),
    put("model.hidden", ["20"], NETWORK),
    put("model.hidden", [0], NETWORK),
    put("model.hidden", [HUGE], NETWORK),
    put("model.hidden", [20.5], NETWORK),
    put("train.batch", 10**6, NETWORK),
    put("process.dim", 1000, NETWORK) | {"train": {"batch": 300}},
    put("train.batch", 10**5) | {"model": {"kind": "polynomial"}},
    put("train.batch", 10**4) | {"model": {"kind": "fourier", "frequencies": [[1.0]]}},
    put("process.dim", 24),
    put("process.dim", 8) | {"model": {"kind": "polynomial", "degree": 3}},
    put("axes", {"momentum": SHIFT, "period": MANY}) | {"theory": {"criteria": ["flow"]}},
    put("run", {"runs": 10**5, "steps": 10**8, "window": 100}),
    put("axes.period", MANY) | {"run": {"runs": 10**5, "steps": 400, "window": 100}},
    put("run", {"runs": 3, "steps": 2 * 10**6, "window": 100}),  # not in 32 bits
    {
        **put("process", {"kind": "iid"}, NETWORK),
        "axes": {"lr": {"values": [1]}, "batch": {"first": 1, "last": 50, "count": 50}},
        "model": {"kind": "linear"},
        "optimizer": {"kind": "sgd"},
        "train": {},
        "panels": [{"name": "a"}],
    },
]
OTHER_THEORY: list[dict[str, Any]] = [
    put("theory", {"criteria": ["flow"]}, NETWORK),
    put("axes.period", {"values": [0, 20]}),
    put("axes.period", {"values": [20]}),
    put("axes", {"noise": {"values": [0.1, 0.2]}, "period": MAP["axes"]["period"]}),
    put("optimizer", {"kind": "optax.sgd", "lr": 0.1}),
]


def refused_sweeps() -> list[dict[str, Any]]:
    """Return tables that cannot be run, each with one fault."""
    return [
        *(
            put(path, value)
            for table in (NUMBERS, WHOLE)
            for path in table
            for value in table[path]
        ),
        *(put("axes", axes) for axes in AXES),
        *(put(f"axes.{name}", axis) for name in ("momentum", "period") for axis in AXIS),
        *(put("panels", panels) for panels in PANELS),
        *(
            put("process", {**MAP["process"], "dim": dim, name: value})
            for dim, name, value in INPUTS
        ),
        *({**MAP, "theory": theory} for theory in THEORY),
        *(put("model", model) for model in MODELS),
        *TOO_MUCH,
        *OTHER_THEORY,
    ]
