"""Deep Q-learning, many runs side by side: one batched network, a replay buffer and a target each.

Runs that differ in their seed and in the period of their target network are trained together; all
weights of all runs are three tensors and three biases, which one optimizer updates. First weights,
exploration and rows of the buffer are drawn by the seed of a run, first states of episodes for all.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from acrobots import Acrobots
from gymnasium.vector import VectorEnv
from torch import Tensor, nn

BETA2, PHASES, BLOCK = 0.999, 10, 500
Progress = Callable[[int, float], None]


@dataclass(frozen=True)
class Schedule:
    """What all runs have in common."""

    updates: int = 20_000
    warm_up: int = 500  # random steps before the first update
    capacity: int = 4_000  # transitions in the buffer, then the oldest go
    batch: int = 32
    hidden: int = 32
    lr: float = 1e-3
    discount: float = 0.99
    exploring: float = 0.375  # share of the updates over which epsilon falls
    epsilon: float = 0.05
    curve: int = 20  # parts of the run that returns are averaged over
    looks: int = 8  # greedy episodes of each run, spread over the last third of the updates


class Layers(nn.Module):
    """A linear layer of each run."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([one.weight.detach().T for one in layers]))
        self.bias = nn.Parameter(torch.stack([one.bias.detach()[None] for one in layers]))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, (run, row, out), of inputs (run, row, in)."""
        return torch.baddbmm(self.bias, x, self.weight)


def networks_of(sizes: Sequence[int], seeds: Sequence[int]) -> nn.Sequential:
    """Return a network for each run, with the first weights of its seed, as one module."""
    made = [plain_network(sizes, seed) for seed in seeds]
    linear = zip(*([one for one in net if isinstance(one, nn.Linear)] for net in made), strict=True)
    parts: list[nn.Module] = []
    for layers in linear:
        parts += [Layers(layers), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def plain_network(sizes: Sequence[int], seed: int) -> nn.Sequential:
    """Return the network of one run."""
    torch.manual_seed(seed)
    parts: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        parts += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class Batch(NamedTuple):
    """Transitions of all runs, (run, row, ...)."""

    states: Tensor
    actions: Tensor
    rewards: Tensor
    after: Tensor
    terminal: Tensor


class Replay:
    """The last transitions of each run; the oldest give way to new ones."""

    def __init__(self, runs: int, capacity: int, width: int) -> None:
        self.width, self.capacity = width, capacity
        self.rows = torch.zeros(runs, capacity, 2 * width + 3)
        self.added = torch.zeros(runs, dtype=torch.long)
        self._runs = torch.arange(runs)[:, None]

    def add(self, is_new: np.ndarray, *parts: np.ndarray) -> None:
        """Add a transition of each run for which ``is_new`` holds, in the order of a `Batch`."""
        columns = [np.reshape(part, (len(is_new), -1)) for part in parts]
        rows, chosen = torch.from_numpy(np.hstack(columns)).float(), torch.from_numpy(is_new)
        self.rows[chosen, self.added[chosen] % self.capacity] = rows[chosen]
        self.added += chosen

    def sample(self, uniform: Tensor) -> Batch:
        """Return the transitions that numbers in [0, 1), (run, row), point at."""
        held = self.added.clamp(max=self.capacity)[:, None]
        rows = self.rows[self._runs, (uniform * held).long()]
        states, actions, rewards, after, terminal = rows.split(
            [self.width, 1, 1, self.width, 1], -1
        )
        return Batch(states, actions.long(), rewards[..., 0], after, terminal[..., 0])


class Learner:
    """Networks with their targets, which take over the weights every so many updates."""

    def __init__(
        self, networks: nn.Module, periods: Sequence[int], beta1: float, schedule: Schedule
    ) -> None:
        self.networks, self.schedule = networks, schedule
        self.target = copy.deepcopy(networks).requires_grad_(False)
        self.periods, self.updates = torch.tensor(periods), 0
        self.optimizer = torch.optim.Adam(
            networks.parameters(), lr=schedule.lr, betas=(beta1, BETA2), fused=True
        )

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """Return what the value of each action taken should be, (run, row)."""
        best = self.target(batch.after).amax(-1)
        return batch.rewards + self.schedule.discount * (1 - batch.terminal) * best

    def losses(self, states: Tensor, actions: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each run."""
        values = self.networks(states).gather(-1, actions)[..., 0]
        return nn.functional.smooth_l1_loss(values, targets, reduction="none").mean(-1)

    def update(self, batch: Batch) -> Tensor:
        """Make an update of each run; return their losses before it."""
        losses = self.step(batch)
        self.updates += 1
        due = self.updates % self.periods == 0
        if due.any():
            ours, theirs = self.networks.parameters(), self.target.parameters()
            for weight, target in zip(ours, theirs, strict=True):
                target[due] = weight.detach()[due]
        return losses

    def step(self, batch: Batch) -> Tensor:
        """Change the weights; a guarded learner does that in its own way."""
        self.optimizer.zero_grad()
        losses = self.losses(batch.states, batch.actions, self.targets(batch))
        losses.sum().backward()  # no weight is shared, so that each run has its own gradient
        self.optimizer.step()
        return losses.detach()


class Draws:
    """Random numbers of each run, from a generator of its seed."""

    def __init__(self, seeds: Sequence[int], count: int) -> None:
        unique, self._places = np.unique(seeds, return_inverse=True)
        self._random = [np.random.default_rng(seed) for seed in unique]
        self._count, self._step, self._block = count, 0, np.zeros(0)

    def next(self) -> np.ndarray:
        """Return numbers in [0, 1), (run, count)."""
        at = self._step % BLOCK
        if at == 0:
            shape = (BLOCK, self._count)
            self._block = np.stack([one.random(shape) for one in self._random], 1)
        self._step += 1
        return self._block[at, self._places]


@dataclass(frozen=True)
class Outcome:
    """What was measured of each run."""

    training: np.ndarray  # mean return of the episodes that ended in each part, (run, part)
    greedy: np.ndarray  # mean return of the greedy policy over the last third
    value_error: np.ndarray  # value at the first state less the discounted return, greedy
    phases: np.ndarray  # mean loss of the second half by phase of the target's period, (run, phase)
    seconds: float


def environments(task: str, runs: int) -> VectorEnv:
    """Return environments that begin anew in the step after the end of an episode."""
    if task == "Acrobot-v1":
        return Acrobots(runs)
    return gymnasium.make_vec(task, runs, vectorization_mode="vector_entry_point")


@torch.no_grad()
def evaluate(
    task: str, networks: nn.Module, seed: int, runs: int, discount: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the return of a greedy episode of each run, and the error of its first value."""
    envs = environments(task, runs)
    states, _ = envs.reset(seed=seed)
    total, discounted, weight = np.zeros(runs), np.zeros(runs), 1.0
    is_running, first = np.ones(runs, bool), None
    while is_running.any():
        values = networks(torch.from_numpy(states)[:, None])[:, 0]
        first = values.amax(-1).double().numpy() if first is None else first
        states, rewards, terminated, truncated, _ = envs.step(values.argmax(-1).numpy())
        total += is_running * rewards
        discounted += is_running * weight * rewards
        weight *= discount
        is_running &= ~(terminated | truncated)
    envs.close()
    assert first is not None
    return total, first - discounted


def train(
    task: str,
    beta1: float,
    periods: Sequence[int],
    seeds: Sequence[int],
    schedule: Schedule,
    make: Callable[..., Learner] = Learner,
    progress: Progress | None = None,
) -> Outcome:
    """Train runs side by side, a period of the target and a seed for each."""
    runs, began, judging = len(seeds), time.perf_counter(), 0.0
    envs = environments(task, runs)
    states, _ = envs.reset(seed=seeds[0])
    width, actions = states.shape[1], int(envs.single_action_space.n)  # pyrefly: ignore[missing-attribute]
    networks = networks_of((width, schedule.hidden, schedule.hidden, actions), seeds)
    learner = make(networks, periods, beta1, schedule)
    replay, draws = Replay(runs, schedule.capacity, width), Draws(seeds, schedule.batch + 2)
    returns, ended = np.zeros((2, runs, schedule.curve))
    phases, counts = torch.zeros(2, runs, PHASES, dtype=torch.float64)
    spaced = np.linspace(2 * schedule.updates / 3, schedule.updates, schedule.looks + 1)[1:]
    looks, every = {int(one) for one in spaced}, torch.arange(runs)
    judged: list[tuple[np.ndarray, np.ndarray]] = []
    exploring = schedule.exploring * schedule.updates
    current, is_new = np.zeros(runs), np.ones(runs, bool)
    for step in range(schedule.warm_up + schedule.updates):
        drawn, update = draws.next(), step - schedule.warm_up
        explored = 1 - (1 - schedule.epsilon) * min(1.0, max(update, 0) / exploring)
        with torch.no_grad():
            best = learner.networks(torch.from_numpy(states)[:, None])[:, 0].argmax(-1).numpy()
        random = (drawn[:, 1] * actions).astype(int)
        taken = np.where(drawn[:, 0] < explored, random, best)
        after, rewards, terminated, truncated, _ = envs.step(taken)
        replay.add(is_new, states, taken, rewards, after, terminated)
        states, done = after, terminated | truncated
        current += rewards
        part = max(update, 0) * schedule.curve // schedule.updates
        returns[done, part] += current[done]
        ended[done, part] += 1
        current[done], is_new = 0, ~done  # the step after an end leads to a new beginning
        if update < 0:
            continue
        phase = learner.updates % learner.periods * PHASES // learner.periods
        losses = learner.update(replay.sample(torch.from_numpy(drawn[:, 2:])))
        if learner.updates > schedule.updates // 2:
            phases[every, phase] += losses
            counts[every, phase] += 1
        if learner.updates in looks:
            started = time.perf_counter()
            number = 1000 * (seeds[0] + 1) + len(judged)
            judged.append(evaluate(task, learner.networks, number, runs, schedule.discount))
            judging += time.perf_counter() - started
        if progress is not None and learner.updates % 500 == 0:
            progress(learner.updates, time.perf_counter() - began)
    envs.close()
    greedy, error = np.mean(judged, 0)
    with np.errstate(invalid="ignore"):
        curve = returns / ended  # not a number where no episode ended
    seconds = time.perf_counter() - began - judging
    return Outcome(curve, greedy, error, (phases / counts).numpy(), seconds)
