"""The streams of Experiments 3, 4 and 6, and models for them.

Models take weights of NumPy or JAX, and runs side by side: leading axes of the weights are runs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

LR, NOISE = 0.01, 0.1
LAYERS = ((2, 20), (20, 20), (20, 1))  # of the network
TESTED = 200  # fresh inputs that a network is judged on


class Stream(NamedTuple):
    """What is learnt: inputs of a step and how often a run is judged.

    The model is linear with a bias, without an output to learn but noise; ``is_network`` is that of
    Experiment 6. The loss is the sum over a batch if ``is_summed``, or else the mean.
    """

    name: str
    dim: int
    batch: int
    amplitude: float
    variance: float
    is_summed: bool
    periods: range
    steps: int
    judged: int = 1

    @property
    def is_network(self) -> bool:
        return self.name == "network"


STREAMS = {
    stream.name: stream
    for stream in (
        Stream("switching", 5, 1, 0.5, 0.25, False, range(51), 10_000),
        Stream("square", 5, 5, 0.5, 0.25, True, range(121), 10_000),
        Stream("sinusoid", 5, 5, 0.5, 0.25, True, range(121), 10_000),
        Stream("network", 2, 10, math.sqrt(0.4), 0.1, False, range(101), 20_000, 20),
    )
}


def target(x: np.ndarray) -> np.ndarray:
    return np.cos(np.pi * np.sqrt(np.sum(x**2, axis=-1)))


def means(stream: Stream, period: int, rng: np.random.Generator) -> np.ndarray:
    """Return the mean of the inputs of each step, (steps, batch or 1, dim); period 0 is iid."""
    steps, shape = np.arange(stream.steps), (stream.steps, stream.batch)
    if stream.name in ("square", "sinusoid"):
        turn = steps / max(period, 1)
        if stream.name == "square":
            wave = np.where((2 * steps // max(period, 1)) % 2 == 0, 1.0, -1.0)
            mixed = rng.choice([-1.0, 1.0], shape)
        else:
            wave = np.sin(2 * np.pi * turn)
            mixed = np.sin(2 * np.pi * rng.random(shape))
        first = wave[:, None] if period else mixed
        return stream.amplitude * first[..., None] * np.eye(stream.dim)[0]
    if not period:
        return stream.amplitude * rng.standard_normal((*shape, stream.dim))
    blocks = rng.standard_normal((stream.steps // period + 1, 1, stream.dim))
    return stream.amplitude * blocks[steps // period]


def rows(stream: Stream, period: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs, (steps, batch, dim), the constant one among them, and outputs."""
    rng = np.random.default_rng([seed, period, 7])
    noise = rng.standard_normal((stream.steps, stream.batch, stream.dim))
    x = means(stream, period, rng) + math.sqrt(stream.variance) * noise
    y = math.sqrt(NOISE) * rng.standard_normal((stream.steps, stream.batch))
    if stream.is_network:
        return x, y + target(x)
    return np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2), y


class Linear:
    """Weights of a linear model; the solution is 0."""

    def __init__(self, stream: Stream):
        self.factor = stream.batch if stream.is_summed else 1
        waves = np.eye(stream.dim)[0] * (0.5 if stream.name == "sinusoid" else 1.0)
        around = np.ones(stream.dim) if stream.name == "switching" else waves
        self.power = np.append(stream.amplitude**2 * around + stream.variance, 1.0)

    def begin(self, seed: int) -> np.ndarray:
        return 0.5 * np.random.default_rng([seed, 8]).standard_normal(len(self.power))

    def errors(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x @ weights[..., None])[..., 0] - y

    def gradient(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return loss and gradient."""
        error = self.errors(weights, x, y)
        loss = (error**2).mean(-1) * self.factor
        return loss, 2 * self.factor / y.shape[-1] * (error[..., None, :] @ x)[..., 0, :]

    def excess(self, weights: np.ndarray) -> np.ndarray:
        """Return the mean squared error on the law of the inputs, less that of the noise."""
        return (weights**2) @ self.power


class Network:
    """Weights of the network 2-20-20-1 with rectified linear units, in one row."""

    def __init__(self, stream: Stream, seed: int = 0):
        wide = math.sqrt(stream.amplitude**2 + stream.variance)
        rng = np.random.default_rng([seed, 9])
        self.fresh = wide * rng.standard_normal((TESTED, stream.dim))
        self.truth = target(self.fresh)

    def begin(self, seed: int) -> np.ndarray:
        rng = np.random.default_rng([seed, 8])
        parts = []
        for before, after in LAYERS:
            parts += [math.sqrt(2 / before) * rng.standard_normal(before * after), np.zeros(after)]
        return np.concatenate(parts)

    def layers(self, weights: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        made, place, runs = [], 0, weights.shape[:-1]
        for before, after in LAYERS:
            middle, end = place + before * after, place + before * after + after
            matrix = weights[..., place:middle].reshape(*runs, before, after)
            made.append((matrix, weights[..., None, middle:end]))
            place = end
        return made

    def errors(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        xp = weights.__array_namespace__()
        *inner, (matrix, bias) = self.layers(weights)
        for one, shift in inner:
            x = xp.maximum(x @ one + shift, 0)
        return (x @ matrix + bias)[..., 0] - y

    def gradient(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return loss and gradient."""
        xp = weights.__array_namespace__()
        (one, shift), (two, move), (three, bias) = self.layers(weights)
        first = xp.maximum(x @ one + shift, 0)
        second = xp.maximum(first @ two + move, 0)
        error = (second @ three + bias)[..., 0] - y
        out = (2 / y.shape[-1]) * error[..., None]
        back = (out @ three.swapaxes(-1, -2)) * (second > 0)
        far = (back @ two.swapaxes(-1, -2)) * (first > 0)
        parts = []
        for inputs, outputs in ((x, far), (first, back), (second, out)):
            matrix = inputs.swapaxes(-1, -2) @ outputs
            parts += [matrix.reshape(*matrix.shape[:-2], -1), outputs.sum(-2)]
        runs = weights.shape[:-1]
        if runs:
            parts = [xp.broadcast_to(part, (*runs, part.shape[-1])) for part in parts]
        return (error**2).mean(-1), xp.concatenate(parts, axis=-1)

    def excess(self, weights: np.ndarray) -> np.ndarray:
        return (self.errors(weights, self.fresh, self.truth) ** 2).mean(-1)


class Model(Protocol):
    """What is trained; leading axes of the weights are runs, arrays of NumPy or JAX."""

    def errors(self, weights: Any, x: Any, y: Any) -> Any: ...

    def gradient(self, weights: Any, x: Any, y: Any) -> tuple[Any, Any]: ...

    def excess(self, weights: Any) -> Any: ...


def model_of(stream: Stream, seed: int) -> Linear | Network:
    return Network(stream, seed) if stream.is_network else Linear(stream)


class NumpyLearner:
    """A model with heavy-ball momentum that a guard can replay."""

    def __init__(self, model: Model, weights: np.ndarray, lr: float, momentum: float):
        self.model, self.weights, self.velocity = model, weights, np.zeros_like(weights)
        self.own_lr = self.lr = lr
        self.momentum = momentum

    def save(self) -> Any:
        return self.weights.copy(), self.velocity.copy()

    def load(self, saved: Any) -> None:
        self.weights, self.velocity = (part.copy() for part in saved)

    def set(self, candidate: Any) -> None:
        self.momentum, self.lr = candidate.momentum, candidate.lr * self.own_lr

    def step(self, batch: Any) -> float:
        loss, grad = self.model.gradient(self.weights, *batch)
        self.velocity = self.momentum * self.velocity + grad
        self.weights = self.weights - self.lr * self.velocity
        return float(loss)

    def loss(self, batches: Any) -> float:
        return self.loss_of(self.weights, batches)

    def loss_of(self, weights: np.ndarray, batches: Any) -> float:
        x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        mean = float((self.model.errors(weights, x, y) ** 2).mean())
        return mean if math.isfinite(mean) else math.inf

    def losses(self, batches: Any) -> list[float]:
        return self.losses_of(self.weights[None], batches)[0].tolist()

    def losses_of(self, weights: np.ndarray, batches: Any) -> np.ndarray:
        """Return the loss of each row of weights on each batch."""
        x, y = (np.stack(parts) for parts in zip(*batches, strict=True))
        return (self.model.errors(weights[:, None], x, y) ** 2).mean(-1)

    def mix(self, batches: Any, rng: np.random.Generator, like: Any = None) -> Any:
        like = batches if like is None else like
        x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        order = rng.permutation(len(y))
        ends = np.cumsum([len(one[1]) for one in like])
        pieces = np.split(order[: ends[-1]], ends[:-1])
        return [(x[piece], y[piece]) for piece in pieces]

    def size(self, batch: Any) -> int:
        return sum(part.nbytes for part in batch)
