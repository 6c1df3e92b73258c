"""Will SGD with momentum blow up because of the order in which the data arrives?

Everything public is here. It is loaded on first use, so that importing resonax costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resonax.checking.check import check
    from resonax.checking.result import Check
    from resonax.checks import ArgumentError
    from resonax.dynamics import Flow, Map, Setting
    from resonax.figures import plot_check, plot_map
    from resonax.learners import (
        Fourier,
        Linear,
        Momentum,
        Polynomial,
        Radial,
        from_optax,
        from_river,
        from_torch,
        heavy_ball,
        nesterov,
        sgd,
    )
    from resonax.probing.probe import Probe, probe
    from resonax.probing.replay import Replay, replay
    from resonax.processes import AR2, Iid, Recorded, Sinusoid, Square, Switching, shuffled
    from resonax.reports.check import write_check
    from resonax.results import open_dataset, open_store, save_dataset
    from resonax.simulation import (
        Network,
        Responses,
        Training,
        Transform,
        adam,
        simulate,
        summarise,
    )
    from resonax.stability import (
        best_momentum,
        critical_lr,
        critical_momentum,
        lyapunov,
        order_proof,
        rates,
        stability_map,
        tongues,
        verdict,
    )

_HOMES = {
    "checks": ["ArgumentError"],
    "checking.check": ["check"],
    "probing.probe": ["Probe", "probe"],
    "probing.replay": ["Replay", "replay"],
    "checking.result": ["Check"],
    "dynamics": ["Flow", "Map", "Setting"],
    "figures": ["plot_check", "plot_map"],
    "learners": [
        "Fourier",
        "Linear",
        "Momentum",
        "Polynomial",
        "Radial",
        "from_optax",
        "from_river",
        "from_torch",
        "heavy_ball",
        "nesterov",
        "sgd",
    ],
    "processes": ["AR2", "Iid", "Recorded", "Sinusoid", "Square", "Switching", "shuffled"],
    "reports.check": ["write_check"],
    "results": ["open_dataset", "open_store", "save_dataset"],
    "simulation": [
        "Network",
        "Responses",
        "Training",
        "Transform",
        "adam",
        "simulate",
        "summarise",
    ],
    "stability": [
        "best_momentum",
        "critical_lr",
        "critical_momentum",
        "lyapunov",
        "order_proof",
        "rates",
        "stability_map",
        "tongues",
        "verdict",
    ],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "AR2",
    "ArgumentError",
    "Check",
    "Flow",
    "Fourier",
    "Iid",
    "Linear",
    "Map",
    "Momentum",
    "Network",
    "Polynomial",
    "Probe",
    "Radial",
    "Recorded",
    "Replay",
    "Responses",
    "Setting",
    "Sinusoid",
    "Square",
    "Switching",
    "Training",
    "Transform",
    "adam",
    "best_momentum",
    "check",
    "critical_lr",
    "critical_momentum",
    "from_optax",
    "from_river",
    "from_torch",
    "heavy_ball",
    "lyapunov",
    "nesterov",
    "open_dataset",
    "open_store",
    "order_proof",
    "plot_check",
    "plot_map",
    "probe",
    "rates",
    "replay",
    "save_dataset",
    "sgd",
    "shuffled",
    "simulate",
    "stability_map",
    "summarise",
    "tongues",
    "verdict",
    "write_check",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'resonax' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"resonax.{_HOME_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
