"""Networks that learn from data in order: digits, text and a recording.

A task is a pool of examples and an order: the rows of the pool that each step trains on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import guard_data
import numpy as np
import torch
from digits import digits, network
from torch import Tensor, nn

BATCH = 16
WINDOW = 32  # bytes that a transformer sees
DAY = 48  # half-hours
HELD = 10  # of so many days one is held out


class Pool(NamedTuple):
    """Examples, what each is to give, its label, and examples on which a model is judged."""

    x: Tensor
    y: Tensor
    labels: np.ndarray
    tests: Tensor
    truth: Tensor


class Attention(nn.Module):
    """Causal attention of four heads, and two layers after it."""

    def __init__(self, width: int):
        super().__init__()
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = (
            self.all(self.norm(x)).reshape(rows, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        )
        score = q @ k.transpose(-1, -2) / (width // 4) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = torch.softmax(score.masked_fill(later, -1e9), -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.back(torch.relu(self.wide(self.last(x))))


class Transformer(nn.Module):
    """A transformer on bytes of 0.14 million parameters."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.table = nn.Parameter(0.3 * torch.randn(128, width))
        self.place = nn.Parameter(0.3 * torch.randn(WINDOW, width))
        self.blocks = nn.Sequential(Attention(width), Attention(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.table[x] + self.place)))


def transformer(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return Transformer()


def filters(seed: int) -> nn.Module:
    """Return a convolutional network that sees a day and tells the next half-hour."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv1d(3, 32, 5, stride=2), nn.ReLU(), nn.Conv1d(32, 64, 5, stride=2), nn.ReLU(),
        nn.Conv1d(64, 64, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(192, 128), nn.ReLU(),
        nn.Linear(128, 1),
    )  # fmt: skip


@functools.cache
def digit_pool() -> Pool:
    images, labels = digits()
    return Pool(images, labels, labels.numpy(), images[::3], labels[::3])


@functools.cache
def text_pool() -> Pool:
    """Windows of bytes; the last tenth of each kind is for judging."""
    kinds = (guard_data.stored() or guard_data.text())["text"].astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(kinds, WINDOW + 1, axis=1)[:, ::4]
    last = windows.shape[1] * 9 // 10
    train, tests = (
        torch.tensor(windows[:, :last].copy()),
        torch.tensor(windows[:, last + 8 :: 5].copy()),
    )
    labels = np.repeat(np.arange(guard_data.KINDS), last)
    train, tests = train.flatten(0, 1), tests.flatten(0, 1)
    return Pool(train[:, :-1], train[:, 1:], labels, tests[:, :-1], tests[:, 1:])


@functools.cache
def demand_pool() -> Pool:
    """Electricity demand of Victoria, working days and temperature: a day, and what comes next."""
    stored = guard_data.stored() or guard_data.recordings()
    rows = stored["recording victoria"][:, :3]
    rows = (rows - rows.mean(0)) / rows.std(0)
    windows = np.lib.stride_tricks.sliding_window_view(rows, DAY + 1, axis=0).astype(np.float32)
    whole = torch.tensor(windows.copy())
    day = np.arange(len(whole)) // DAY
    is_held = day % HELD == HELD - 1
    near = is_held | np.roll(is_held, DAY) | np.roll(is_held, -DAY)  # share half-hours with it
    train, tests = whole[~near], whole[is_held][::7]
    return Pool(train[:, :, :-1], train[:, 0, -1:], day[~near], tests[:, :, :-1], tests[:, 0, -1:])


def by_label(pool: Pool, cycle: int, steps: int, seed: int) -> np.ndarray:
    """Return rows of one label after the other, all in a cycle of steps; 0 is at random."""
    rng = np.random.default_rng(seed)
    kinds = int(pool.labels.max()) + 1
    places = [np.flatnonzero(pool.labels == label) for label in range(kinds)]
    every = np.arange(len(pool.labels))
    chosen = (places[int(k % cycle * kinds / cycle)] if cycle else every for k in range(steps))
    return np.stack([rng.choice(some, BATCH) for some in chosen])


def in_time(pool: Pool, cycle: int, steps: int, seed: int) -> np.ndarray:
    """Return rows as time goes, from a day that the seed chooses; a cycle of 0 is at random."""
    rng = np.random.default_rng(seed)
    if not cycle:
        return rng.choice(len(pool.labels), (steps, BATCH))
    first = rng.integers(len(pool.labels))
    return (first + np.arange(steps * BATCH)).reshape(steps, BATCH) % len(pool.labels)


def squared(output: Tensor, target: Tensor) -> Tensor:
    hot = torch.eye(10, device=output.device)[target]
    return torch.sum((output - hot) ** 2, 1).mean()


def bytes_loss(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())


def share_right(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(-1) == target).float().mean()


class Task(NamedTuple):
    """A network, its loss, an optimizer and the orders in which it sees its examples."""

    pool: Callable[[], Pool]
    model: Callable[[int], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: str
    lr: float
    momentum: float
    steps: int
    cycles: tuple[int, ...]
    order: Callable[[Pool, int, int, int], np.ndarray] = by_label
    judge: Callable[[Tensor, Tensor], Tensor] = share_right
    is_share: bool = True  # a share told right, or else a loss


CYCLES = (0, 20, 30, 40, 60)
_ENTROPY = nn.functional.cross_entropy


def _digits(loss: Any, optimizer: str, lr: float, momentum: float, steps: int, cycles: Any) -> Task:
    return Task(digit_pool, network, loss, optimizer, lr, momentum, steps, cycles)


def _text(optimizer: str, lr: float, momentum: float) -> Task:
    made = Task(text_pool, transformer, bytes_loss, optimizer, lr, momentum, 600, (0, 16, 40))
    return made._replace(judge=bytes_loss, is_share=False)


def _demand(optimizer: str, lr: float, momentum: float) -> Task:
    loss = nn.functional.mse_loss
    made = Task(demand_pool, filters, loss, optimizer, lr, momentum, 800, (0, 1))
    return made._replace(order=in_time, judge=loss, is_share=False)


TASKS = {
    "digits, cross-entropy, SGD": _digits(_ENTROPY, "SGD", 0.02, 0.95, 600, CYCLES),
    "digits, least squares, SGD": _digits(squared, "SGD", 0.005, 0.95, 800, CYCLES),
    "digits, cross-entropy, Adam": _digits(_ENTROPY, "Adam", 0.003, 0.9, 600, CYCLES),
    "digits, cross-entropy, AdamW": _digits(_ENTROPY, "AdamW", 0.003, 0.9, 600, (0, 40)),
    "digits, cross-entropy, RMSprop": _digits(_ENTROPY, "RMSprop", 0.0005, 0.9, 600, (0, 40)),
    "text, SGD": _text("SGD", 0.1, 0.95),
    "text, AdamW": _text("AdamW", 0.01, 0.9),
    "demand, SGD": _demand("SGD", 0.005, 0.95),
    "demand, Adam": _demand("Adam", 0.005, 0.9),
}
