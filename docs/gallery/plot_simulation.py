"""
Theory and simulation
=====================

Simulated growth of single runs (points) against the exact map (line), over the period of a square
wave.
"""

import numpy as np
from matplotlib.figure import Figure

import resonax as rx

periods = np.arange(10.0, 61.0, 2.0)
stream = rx.Square(period=22.0, amplitude=0.5, variance=1.0)
optimizer = rx.heavy_ball(0.01, 0.98)
expected = rx.rates(rx.Setting(stream, optimizer, batch=20), {"period": periods}, "map")
runs = rx.simulate(rx.Training(stream, optimizer, batch=20), {"period": periods}, steps=4000)

figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
axes.plot(periods, 1000 * expected, color="#22272e", label="exact map of the expected weights")
axes.plot(periods, 1000 * runs.rate[:, 0], "o", color="#2166ac", markersize=3, alpha=0.4, zorder=1)
axes.axhline(0, color="#22272e", linewidth=0.6, linestyle=":")
axes.set_xlabel("period T (steps)")
axes.set_ylabel("growth per 1000 steps")
axes.legend(frameon=False)
