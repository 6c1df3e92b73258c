"""
Four criteria along one line
============================

Growth per step against momentum, at the worst period of a sinusoidal stream: the paper's flow, the
exact map, the mean square for a batch of one, and the growth of single runs with its interval.
"""

import numpy as np
from matplotlib.figure import Figure

import resonax as rx

setting = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(lr=0.01, momentum=0.97), batch=1)
momenta = np.linspace(0.93, 0.995, 27)
figure = Figure(figsize=(7, 3.4), layout="constrained")
axes = figure.subplots()
for criterion, style in {"flow": "--", "map": "-", "mean_square": "-.", "lyapunov": ":"}.items():
    rates = rx.rates(setting, {"momentum": momenta}, criterion)
    axes.plot(momenta, 1000 * rates, style, label=criterion, linewidth=1.8)
axes.axhline(0, color="#22272e", linewidth=0.8)
axes.set_xlabel("momentum μ")
axes.set_ylabel("growth per 1000 steps")
axes.legend(frameon=False)
