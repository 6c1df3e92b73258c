"""Deep Q-learning side by side: against a plain network, Gymnasium's environment and itself."""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
gymnasium = pytest.importorskip("gymnasium")
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import dqn  # noqa: E402
import reinforcement  # noqa: E402
from acrobots import Acrobots  # noqa: E402

SIZES = (4, 8, 8, 2)
TINY = dqn.Schedule(
    updates=120, warm_up=60, capacity=100, batch=8, hidden=8, exploring=0.5, curve=4, looks=2
)


def batch_of(runs: int, seed: int, rows: int = 8) -> dqn.Batch:
    draw = torch.Generator().manual_seed(seed)
    states, after = torch.randn(2, runs, rows, 4, generator=draw)
    actions = torch.randint(2, (runs, rows, 1), generator=draw)
    rewards = torch.randn(runs, rows, generator=draw)
    terminal = (torch.rand(runs, rows, generator=draw) < 0.2).float()
    return dqn.Batch(states, actions, rewards, after, terminal)


def learner_of(seeds, periods, beta1=0.9):
    return dqn.Learner(dqn.networks_of(SIZES, seeds), periods, beta1, dqn.Schedule())


@pytest.mark.parametrize("beta1", [0.5, 0.95])
def test_a_run_among_others_equals_a_plain_network(beta1):
    """One of three runs, against torch's own layers, optimizer and loss, for 15 updates."""
    seeds, periods, place = (0, 1, 2), (3, 4, 5), 1
    learner = learner_of(seeds, periods, beta1)
    plain, target = (dqn.plain_network(SIZES, seeds[place]) for _ in range(2))
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-3, betas=(beta1, 0.999))
    for update in range(1, 16):
        batch = batch_of(3, update)
        one = dqn.Batch(*(part[place] for part in batch))
        with torch.no_grad():
            best = target(one.after).max(1).values
            wanted = one.rewards + 0.99 * torch.where(one.terminal > 0, 0.0, best)
        loss = torch.nn.functional.huber_loss(
            plain(one.states)[range(8), one.actions[:, 0]], wanted
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % periods[place] == 0:
            target.load_state_dict(plain.state_dict())
        losses = learner.update(batch)
        assert losses[place].item() == pytest.approx(loss.item(), rel=1e-5, abs=1e-6)
    probe = torch.randn(5, 4)
    with torch.no_grad():
        theirs = learner.networks(probe.expand(3, 5, 4))[place]
        torch.testing.assert_close(theirs, plain(probe), rtol=1e-6, atol=1e-6)


def test_targets_take_over_the_weights_every_period():
    periods = (2, 3, 5)
    learner = learner_of((0, 0, 0), periods)
    probe = torch.randn(3, 5, 4)
    for update in range(1, 16):
        before = learner.target(probe)
        learner.update(batch_of(3, update))
        after, ours = learner.target(probe), learner.networks(probe)
        for run, period in enumerate(periods):
            held = ours if update % period == 0 else before
            torch.testing.assert_close(after[run], held[run], rtol=0, atol=0)
            assert not torch.equal(ours[run], before[run])


def test_the_buffer_slides():
    """It holds the last transitions of each run, and a run may add fewer than another."""
    replay, every = dqn.Replay(2, 5, 1), torch.linspace(0, 0.999, 50).expand(2, 50).double()
    for step in range(12):
        number = np.full((2, 1), float(step))
        is_new = np.array([True, step % 2 == 0])
        replay.add(is_new, number, number[:, 0], -number[:, 0], number + 1, number[:, 0] > 8)
        held = replay.sample(every)
        for run, added in enumerate((range(step + 1), range(0, step + 1, 2))):
            assert set(held.states[run, :, 0].tolist()) == set(map(float, list(added)[-5:]))
    assert torch.equal(held.after, held.states + 1)
    assert torch.equal(held.rewards, -held.states[..., 0])
    assert torch.equal(held.terminal, (held.states[..., 0] > 8).float())


def test_acrobots_make_the_steps_of_gymnasium():
    many, one = Acrobots(3), gymnasium.make("Acrobot-v1")
    states, _ = many.reset(seed=5)
    random, ended = np.random.default_rng(0), 0
    one.reset()
    one.unwrapped.state = many.state[:, 1].copy()
    is_over = False
    for _ in range(1200):
        # Mostly pushed along, so that some episodes end before they are truncated.
        along = np.where(states[:, 4] > 0, 0, 2)
        actions = np.where(random.random(3) < 0.8, along, random.integers(3, size=3))
        states, rewards, terminated, truncated, _ = many.step(actions)
        if is_over:  # the step after the end begins anew
            one.reset()
            one.unwrapped.state = many.state[:, 1].copy()
            assert rewards[1] == 0
            assert np.abs(many.state[:, 1]).max() <= 0.1
            assert not terminated[1]
            is_over = False
            continue
        expected = one.step(int(actions[1]))
        np.testing.assert_allclose(states[1], expected[0], atol=1e-6)
        assert (rewards[1], terminated[1], truncated[1]) == expected[1:4]
        is_over = bool(terminated[1] or truncated[1])
        ended += bool(terminated[1])
    assert ended > 0


@pytest.mark.slow
def test_watching_changes_nothing():
    """What a guard that only watches returns is the run without it, whatever it replays."""
    schedule = dataclasses.replace(TINY, updates=72)  # a test of the order after 64
    found = [
        reinforcement.guarded_run("CartPole-v1", 0.95, 25, 100, schedule, kind, "watch")
        for kind in ("none", "targets")
    ]
    assert "decisions" in found[1]
    for name in ("greedy", "training", "curve", "value_error"):
        assert found[1][name] == found[0][name]


def test_a_band_is_found_where_there_is_one():
    """And rarely where there is none: with p < 0.05 in at most 5% of draws."""
    random = np.random.default_rng(0)
    none = random.normal(size=(2000, 3, 10))
    assert (reinforcement.band(none) < 0.05).mean() < 0.05
    assert (reinforcement.band(none - [[0], [3], [0]]) < 0.05).mean() > 0.95
    assert (reinforcement.band(none - [[0], [3], [6]]) < 0.05).mean() < 0.01


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch, capsys):
    """A sweep and guarded runs with tiny numbers; what is stored is not computed again."""
    out = tmp_path / "found.json"
    monkeypatch.setattr(reinforcement, "Schedule", functools.partial(dataclasses.replace, TINY))
    monkeypatch.setattr(reinforcement.Schedule, "updates", 120, raising=False)
    monkeypatch.setattr(reinforcement, "PERIODS", (10, 20, 40))
    monkeypatch.setattr(reinforcement, "GUARDED", {"CartPole-v1": (20,)})

    def call(command):
        given = "--tasks CartPole-v1 --seeds 100:102 --updates 120 --kinds transitions --out"
        monkeypatch.setattr(sys, "argv", ["", command, *given.split(), str(out)])
        reinforcement.main()
        return capsys.readouterr()

    swept = call("sweep")
    assert "left" not in swept.out
    assert "| CartPole-v1, beta1 | 10 | 20 | 40 |" in swept.out
    assert swept.out.count("p of a band of the return") == 2
    stored = reinforcement.Stored(out)
    assert len(stored.parts["sweep"]) == 3 * 3 * 2
    guarded = call("guard")
    assert guarded.err.count("min left") == 2 * 2
    assert "| CartPole-v1, 20, transitions |" in guarded.out
    before = out.read_bytes()
    assert call("sweep").err == call("guard").err == ""
    assert out.read_bytes() == before
