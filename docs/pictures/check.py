"""The picture of the README: what the check shows of hourly temperatures (NOAA, vega_datasets)."""

from pathlib import Path

from vega_datasets import data

import resonax as rx

hourly = data.sf_temps().temp.to_numpy()
found = rx.check(hourly[:-1], hourly[1:], lr=0.01, momentum=0.95)
rx.plot_check(found).savefig(Path(__file__).with_suffix(".png"), dpi=110)
