"""The frequency response of heavy ball, and its error over the period of a stream.

Run: make docs-pictures
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import resonax as rx
from resonax.figures import save_figure

law = rx.Sinusoid(period=22, amplitude=0.5)
periods = np.unique(np.geomspace(6, 90, 40).round(1))
found = rx.response(rx.heavy_ball(lr=0.01, momentum=0.98), law, batch=20, sweep=periods)
save_figure(found.plot(), Path(__file__).with_name("response.png"))
print(found)
