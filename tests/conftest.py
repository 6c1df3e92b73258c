"""Settings that many tests share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from hypothesis import settings

from resonax import Setting, Sinusoid, heavy_ball
from resonax.cli.app import main

# What imports torch, in a test or by itself: `make test-lowest` runs without it.
WITH_TORCH = """
    given_data guard_copies guard_refusals guard_torch guard_trainers level logistic optimizers
    order order_proof probe replay_adapters replay_fidelity replay_lost replay_resume response
"""
if find_spec("torch") is None:
    collect_ignore = ["streams.py", *(f"test_{name}.py" for name in WITH_TORCH.split())]

settings.register_profile("resonax", deadline=None, derandomize=True, max_examples=15)
settings.load_profile("resonax")


@pytest.fixture
def paper() -> Setting:
    """The paper's first experiment, in the tongue: eta 0.01, amplitude 0.5, variance 1."""
    return Setting(Sinusoid(period=22), heavy_ball(0.01, 0.97), batch=20)


@pytest.fixture
def cli(monkeypatch, capsys) -> Callable[[str], tuple[int, str, str]]:
    """Call the command inside this process: status, output and errors of a command line."""

    def call(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["resonax", *shlex.split(line)])
        capsys.readouterr()
        try:
            main()
            status = 0
        except SystemExit as stop:
            status = stop.code or 0
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call
