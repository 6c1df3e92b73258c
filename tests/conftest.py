"""Settings that many tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from resonax import Setting, Sinusoid, heavy_ball

settings.register_profile("resonax", deadline=None, derandomize=True, max_examples=15)
settings.load_profile("resonax")


@pytest.fixture
def paper() -> Setting:
    """The paper's first experiment, in the tongue: eta 0.01, amplitude 0.5, variance 1."""
    return Setting(Sinusoid(period=22), heavy_ball(0.01, 0.97), batch=20)
