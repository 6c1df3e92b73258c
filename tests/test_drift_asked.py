"""A target that moves, asked for on the command line, by the page and in a sweep."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import resonax as rx
from resonax.dynamics.build import build_setting
from resonax.spec.settings import check_setting
from resonax.spec.sweep_checks import parse_sweep
from resonax.sweeps.build import build_training
from resonax.sweeps.sweep import compute_sweep
from resonax.theory import Verdict, orbit

WORDS = "--period 20 --lr 0.02 --momentum 0.9 --batch 4 --paths 2 --steps 64"
SWEEP: dict[str, Any] = {
    "id": "drifting",
    "process": {"kind": "sinusoid", "amplitude": 0.0},
    "optimizer": {"kind": "heavy_ball", "lr": 0.01, "momentum": 0.9},
    "train": {"batch": 10**6, "drift_direction": [1.0, 0.0]},
    "run": {"runs": 1, "steps": 800, "window": 400},
    "axes": {"drift": {"values": [0.5, 1.0]}, "period": {"values": [20, 40]}},
}


def test_stability_says_the_level_of_a_driven_setting(cli, monkeypatch):
    status, out, _ = cli(f"stability sinusoid {WORDS} --drift 0.5 --drift-direction 0,1 --json")
    found = json.loads(out)
    assert (status, found["verdict"]) == (0, "converges")
    setting = rx.Setting(
        rx.Sinusoid(period=20),
        rx.heavy_ball(0.02, 0.9),
        batch=4,
        drift=0.5,
        drift_direction=[0.0, 1.0],
    )
    assert found["level"]["rms"] == pytest.approx(rx.level(setting).rms)
    assert found["mean_square"]["noise_floor"] is None  # which would be that of a target at rest


def test_words_of_the_command_line_make_the_same_setting():
    asked = {"process": "square", "period": 9, "lr": 0.1, "momentum": 0.5, "omitted": "fourier:2"}
    asked |= {"omitted_weights": [0.0, 1.0, 0.5], "dim": 1, "drift": 0.25}
    made = build_setting(check_setting(asked))[0]
    assert float(made.drift) == 0.25
    values = made.omitted.apply(np.array([[0.3], [1.0]]))
    x = np.array([0.3, 1.0])
    np.testing.assert_allclose(values, np.cos(2 * x) + 0.5 * np.sin(2 * x), rtol=1e-5)


REFUSED = {
    "stability iid --lr 0.1 --momentum 0.5 --drift 1": "--drift needs inputs that move",
    f"stability sinusoid {WORDS} --omitted polynomial:2": "--omitted-weights is missing",
    f"stability sinusoid {WORDS} --drift 1:2:3": "--drift must be a number",
    f"stability sinusoid {WORDS} --drift=-1": "--drift must be",
    f"stability sinusoid {WORDS} --omitted nothing:2 --omitted-weights 1": "unknown omitted",
    "stability sinusoid --period 9 --lr 0.1 --optimizer adam --drift 1": "are for SGD",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_does_not_fit_is_one_sentence(cli, line):
    status, _, err = cli(line)
    assert status == 2
    assert REFUSED[line] in err
    assert err.count("\n") == 1


def test_a_sweep_over_the_drift_is_proportional_to_it():
    found = compute_sweep(parse_sweep(SWEEP), {}, seed=0)
    logs = np.asarray(next(of for name, of in found.items() if name.endswith("log_response")))
    np.testing.assert_allclose(np.diff(logs.squeeze(), axis=0), np.log(2), atol=2e-3)


def test_a_sweep_knows_what_can_drift():
    axes = {"drift": {"values": [0.5, 1.0]}, "noise": {"values": [0.1, 0.2]}}
    still = SWEEP | {"process": {"kind": "iid"}, "axes": axes}
    with pytest.raises(rx.ArgumentError, match=r"train\.drift needs a process that moves"):
        parse_sweep(still)
    assert build_training(parse_sweep(SWEEP), 0).drift_direction == (1.0, 0.0)


def test_the_page_shows_the_orbit(monkeypatch):
    from resonax.explore import theory

    asked = {"process": "sinusoid", "period": 20.0, "lr": 0.02, "momentum": 0.9, "batch": 4}
    monkeypatch.setattr(theory, "verdict", lambda *_, **__: Verdict(*_verdict()))
    monkeypatch.setattr(theory, "_criterion", lambda *_: {})
    found = theory.judge(lambda *_: None, {**asked, "drift": 0.5})
    level = orbit.find_orbit(build_setting(check_setting({**asked, "drift": 0.5}))[0], curve=False)
    assert found["level"]["swing over that of the best weights"] == pytest.approx(level.gain)
    assert any("the error settles" in note for note in found["notes"])
    assert theory.judge(lambda *_: None, asked)["level"] is None


def _verdict() -> tuple[Any, ...]:
    proof = rx.order_proof(rx.Setting(rx.Iid(), rx.sgd(0.1)))
    from resonax.theory.lyapunov import Interval

    return "converges", None, None, None, Interval(-0.1, -0.2, -0.05), proof
