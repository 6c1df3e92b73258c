"""Lost steps and causes: closed forms, invariance under shift and scale, and linear streams."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linear_learner import LinearLearner
from resonax.guards.cause import LessMomentum, PhaseAlone, decide, find_cause, less_momenta
from resonax.guards.learner import Candidate
from resonax.guards.lost_steps import LostSteps, level_of, lost_steps
from resonax.guards.trials import Trials, judged_marks

MARKS = np.arange(0, 257, 8)


def falling(pace: float, runs: int, seed: int = 0, noise: float = 0.02) -> np.ndarray:
    """Losses of runs that fall by a factor e in 1/pace steps, each with a little noise."""
    logs = -pace * MARKS + noise * np.random.default_rng(seed).standard_normal((runs, len(MARKS)))
    return np.exp(logs)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
def test_a_run_at_a_share_of_the_pace_has_lost_the_rest_of_its_steps(share):
    own, mixed = falling(share * 0.02, 1, noise=0.0)[0], falling(0.02, 8)
    found = lost_steps(MARKS, own, mixed)
    assert found.lost == pytest.approx(256 * (1 - share), abs=0.04 * 256)
    assert found.low <= found.lost <= found.high
    assert found.is_harm()
    assert found.p < 0.001


def test_a_floor_hides_nothing():
    """A run half a nat above the floor of a cross-entropy: 1.25 times the loss, half its steps."""
    path = 2.0 + 3 * np.exp(-MARKS / 60)
    mixed = path + 0.005 * np.random.default_rng(0).standard_normal((8, len(MARKS)))
    found = lost_steps(MARKS, np.maximum(path, 2.5), mixed)
    assert found.lost > 128
    assert found.low > 100


@given(
    st.floats(0.1, 10),
    st.floats(-20, 20),
    st.integers(0, 100),
    st.floats(0.2, 1.0),
)
def test_shift_and_scale_of_the_loss_change_nothing(scale, shift, seed, share):
    own, mixed = falling(share * 0.01, 1, seed + 1)[0], falling(0.01, 6, seed)
    one, two = (
        lost_steps(MARKS, own, mixed),
        lost_steps(MARKS, scale * own + shift, scale * mixed + shift),
    )
    for name in ("lost", "low", "high", "p"):
        assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-6, abs=1e-5)
    assert two.excess == pytest.approx(scale * one.excess)


def test_runs_of_one_kind_lose_nothing_at_the_level_of_the_interval():
    """Own and mixed runs from one law, at a floor and falling: harm in half a per cent."""
    rng, found = np.random.default_rng(1), 0
    for _ in range(1000):
        runs = 1 + 2 * np.exp(-MARKS / 40) + 0.05 * rng.standard_normal((9, len(MARKS)))
        found += lost_steps(MARKS, runs[0], runs[1:]).is_harm()
    assert found <= 15


def test_a_run_that_is_lost_has_lost_all_steps():
    own = np.full(len(MARKS), math.inf)
    found = lost_steps(MARKS, own, falling(0.01, 4))
    assert (found.lost, found.low, found.position) == (256, 256, 0)
    mixed = falling(0.01, 4)
    mixed[0, 5:] = math.nan  # accuses no order
    assert not lost_steps(MARKS, own, mixed).is_harm()


def test_levels_are_means_over_the_last_steps():
    assert level_of([0, 4, 8], [[9.0, 2.0, 4.0], [9.0, math.inf, 1.0]], 8).tolist() == [
        3.0,
        math.inf,
    ]


def sine(period: float, steps: int, amplitude: float, rng: np.random.Generator) -> list:
    swing = amplitude * np.sin(2 * np.pi * np.arange(steps) / period)[:, None, None]
    x = swing + 0.5 * rng.standard_normal((steps, 16, 2))
    return list(zip(x, x @ [1, 0.5] + 0.1 * rng.standard_normal((steps, 16)), strict=True))


def targets_that_turn(period: float, steps: int, rng: np.random.Generator) -> list:
    """Two halves of a period with opposite targets: no linear model fits both."""
    sign = np.where(np.arange(steps) % period < period / 2, 1, -1)[:, None, None]
    x = 1 + 0.5 * rng.standard_normal((steps, 16, 2))
    x = np.append(x, np.broadcast_to(0.3 * sign, (steps, 16, 1)), axis=2)
    return list(zip(x, sign[..., 0] * (x[..., :2] @ [1, 0.5]), strict=True))


def unequal(period: float, steps: int, rng: np.random.Generator) -> list:
    """An eighth of each period has inputs fifteen times as large."""
    size = np.where(np.arange(steps) % period < period / 8, 1.5, 0.1)[:, None, None]
    x = size * rng.standard_normal((steps, 16, 2))
    return list(zip(x, x @ [1, 0.5] + 0.1 * rng.standard_normal((steps, 16)), strict=True))


def cause_of(
    batches: list, period: int, lr: float, momentum: float, scale: float = 1.0, shift: float = 0.0
):
    class Learner(LinearLearner):  # of scale times its loss plus a shift, by the same updates
        def loss(self, batches):
            return scale * super().loss(batches) + shift

        def step(self, batch):
            return scale * super().step(batch) + shift

    steps = len(batches)
    learner = Learner(lr, momentum, dim=batches[0][0].shape[1])
    judged = learner.mix(batches, np.random.default_rng(9), batches[:16])
    trials = Trials(
        learner, learner.save(), batches, judged, judged_marks(steps), Candidate(momentum),
        window=max(steps / 4, period),
    )  # fmt: skip
    phases = [
        [one for one in range(steps) if one % period * 8 // period == part] for part in range(8)
    ]
    return find_cause(trials, trials.measure(trials.candidate, 8), phases)


CASES = {
    "resonance": lambda rng: (sine(30, 512, 1.0, rng), 30, 0.02, 0.95),
    "forgetting": lambda rng: (targets_that_turn(128, 512, rng), 128, 0.05, 0.9),
    "phase": lambda rng: (unequal(32, 512, rng), 32, 0.9, 0.5),
    "step": lambda rng: (sine(32, 512, 3.0, rng), 32, 0.9, 0.9),
    None: lambda rng: (sine(30, 512, 0.1, rng), 30, 0.02, 0.95),
}


@pytest.mark.parametrize("word", CASES)
def test_the_cause_is_that_by_which_the_stream_was_made(word):
    for seed in (0, 1):
        found = cause_of(*CASES[word](np.random.default_rng(seed)))
        assert found.word == word, found


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 5.0), (3.0, 0.0)])
def test_no_cause_depends_on_shift_and_scale_of_the_loss(scale, shift):
    for word in ("resonance", "forgetting", "phase"):
        assert cause_of(*CASES[word](np.random.default_rng(0)), scale, shift).word == word


HARMED = LostSteps(512, 400, 390, 410, 0.0, 2.3, 2.1, (1.0, 1.1, 1.0))
FINE = PhaseAlone(2.3, 0.1, 2.5)


def less(own: float, mixed=(1.0, 1.1, 1.0), momentum: float = 0.5) -> LessMomentum:
    lost = LostSteps(512, 300, 200, 400, 0.0, 2.3, own, mixed)
    return LessMomentum(Candidate(momentum, 10.0), lost)


def test_nothing_is_said_that_the_runs_do_not_show():
    assert decide(HARMED, 0.95, phases=[FINE]).word == "unclear"  # less momentum was not tried
    assert decide(HARMED, 0.95, less=[less(1.05)]).word == "unclear"  # no part was tried alone
    assert decide(HARMED, 0.95, phases=[FINE], less=[less(1.5)]).word == "unclear"  # between both
    assert decide(HARMED, 0.95, phases=[FINE], less=[less(2.3, (2.3, 2.2, 2.3))]).word == "unclear"
    both = [PhaseAlone(2.3, math.inf, math.inf, math.inf)]  # fails with a tenth of the step as well
    assert decide(HARMED, 0.95, phases=both).word == "unclear"
    assert decide(HARMED, 0.95, phases=[PhaseAlone(2.3, math.inf, math.inf, 0.1)]).word == "phase"
    assert decide(HARMED, 0.95, phases=[FINE], less=[less(2.1)]).word == "forgetting"
    # With a momentum of 0.8 alone, half of the harm is no proof, and all of it is.
    assert decide(HARMED, 0.95, phases=[FINE], less=[less(1.8, momentum=0.8)]).word == "unclear"
    assert decide(HARMED, 0.95, phases=[FINE], less=[less(2.2, momentum=0.8)]).word == "forgetting"
    assert decide(HARMED, 0.95, phases=[FINE], less=[less(1.1)]).word == "resonance"


def test_less_momentum_keeps_the_effective_step():
    given = {"learner": None, "start": None, "batches": (), "judged": (), "marks": ()}
    for momentum in less_momenta(0.95):
        sgd = Trials(**given, candidate=Candidate(0.95)).with_momentum(momentum)
        assert sgd.lr / (1 - sgd.momentum) == pytest.approx(1 / (1 - 0.95), rel=1e-3)
        assert (
            Trials(**given, candidate=Candidate(0.95), is_averaging=True).with_momentum(momentum).lr
            == 1
        )
