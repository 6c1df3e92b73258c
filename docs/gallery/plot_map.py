"""
Where a sinusoidal stream diverges
==================================

Growth of the expected weights over momentum and period. The red tongues hang down at half the
natural period of the weights, 22 steps, and at the whole one.
"""

import numpy as np

import resonax as rx

setting = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(lr=0.01, momentum=0.97), batch=20)
dataset = rx.stability_map(
    setting, "flow", momentum=np.linspace(0.95, 0.999, 60), period=np.linspace(15, 60, 90)
)
figure = dataset.resonax.plot()
