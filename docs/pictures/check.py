"""The picture of the README: what `resonax check --example` shows of hourly temperatures (NOAA)."""

from pathlib import Path

import resonax as rx
from resonax.data.example import EXAMPLE

found = rx.check(EXAMPLE.path, "temp", horizon=1, order_by="date", lr=0.01, momentum=0.95, batch=1)
found.plot().savefig(Path(__file__).with_suffix(".png"), dpi=110)
