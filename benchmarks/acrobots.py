"""Gymnasium's Acrobot-v1, many at once: a step of 60 of them takes as long as two of Gymnasium's.

Gymnasium has a vectorised CartPole, but no Acrobot. `tests/test_reinforcement.py` holds that both
make the same steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control import AcrobotEnv
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

GRAVITY = 9.8


class Acrobots(VectorEnv):
    """Two links with a torque between them; an episode ends when the tip is high, or truncated.

    As CartPole's of Gymnasium they begin anew in the step after the end, whatever the action is.
    """

    def __init__(self, num_envs: int = 1, max_episode_steps: int = 500) -> None:
        one = AcrobotEnv()
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs, self.longest = num_envs, max_episode_steps
        self.single_action_space = one.action_space
        self.single_observation_space = one.observation_space
        self.action_space = batch_space(one.action_space, num_envs)
        self.observation_space = batch_space(one.observation_space, num_envs)
        self.state = np.zeros((4, num_envs))  # two angles and how fast they change
        self.steps, self.is_over = np.zeros(num_envs, int), np.zeros(num_envs, bool)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, Any]:
        """Begin all episodes anew."""
        super().reset(seed=seed)
        self._begin(np.ones(self.num_envs, bool))
        self.is_over = np.zeros(self.num_envs, bool)
        return self._observed(), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Any]:
        """Turn by the torques -1, 0 and 1 for a fifth of a second."""
        fastest = np.array([[AcrobotEnv.MAX_VEL_1], [AcrobotEnv.MAX_VEL_2]])
        state = runge_kutta(self.state, np.asarray(actions) - 1.0, AcrobotEnv.dt)
        state[:2] = (state[:2] + np.pi) % (2 * np.pi) - np.pi
        state[2:] = np.clip(state[2:], -fastest, fastest)
        self.state, self.steps = state, self.steps + 1
        new = self.is_over
        self._begin(new)
        terminated = -np.cos(self.state[0]) - np.cos(self.state[0] + self.state[1]) > 1.0
        truncated = self.steps >= self.longest
        self.is_over = terminated | truncated
        rewards = np.where(terminated | new, 0.0, -1.0)
        return self._observed(), rewards, terminated, truncated, {}

    def _begin(self, new: np.ndarray) -> None:
        self.state[:, new] = self.np_random.uniform(-0.1, 0.1, (4, int(new.sum())))
        self.steps[new] = 0

    def _observed(self) -> np.ndarray:
        first, second, *speeds = self.state
        turned = [np.cos(first), np.sin(first), np.cos(second), np.sin(second)]
        return np.stack([*turned, *speeds], 1).astype(np.float32)


def runge_kutta(state: np.ndarray, torque: np.ndarray, dt: float) -> np.ndarray:
    """Return the state after one step of the classical method of fourth order."""
    one = slope(state, torque)
    two = slope(state + dt / 2 * one, torque)
    three = slope(state + dt / 2 * two, torque)
    four = slope(state + dt * three, torque)
    return state + dt / 6 * (one + 2 * two + 2 * three + four)


def slope(state: np.ndarray, torque: np.ndarray) -> np.ndarray:
    """Return how fast the state changes: links of length, mass and moment 1, centred halfway."""
    first, second, fast, faster = state
    cosine, sine = np.cos(second), np.sin(second)
    inertia, coupled = 3.5 + cosine, 1.25 + 0.5 * cosine
    outer = 0.5 * GRAVITY * np.sin(first + second)
    inner = 1.5 * GRAVITY * np.sin(first) + outer - sine * faster * (0.5 * faster + fast)
    pushed = torque + coupled / inertia * inner - 0.5 * fast**2 * sine - outer
    second_slope = pushed / (1.25 - coupled**2 / inertia)
    return np.stack([fast, faster, -(coupled * second_slope + inner) / inertia, second_slope])
