"""
The check of a recording
========================

A daily cycle in noise, one row a step: what `resonax check` shows.
"""

import numpy as np

import resonax as rx

hours = np.arange(3000)
rng = np.random.default_rng(0)
x = 1.2 * np.sin(2 * np.pi * hours / 24) + 0.53 * rng.normal(size=len(hours))
found = rx.check(x[:-1], x[1:], lr=0.01, momentum=0.95, grid=24)
figure = found.plot()
print(found)
