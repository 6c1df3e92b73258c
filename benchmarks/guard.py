"""The guard on data in order, against constants and remedies, and what it costs.

    python benchmarks/guard.py [TASK ...] [--seeds FIRST:LAST]

digits     A residual network of 0.93 million parameters; digits come one class after the other,
           all ten classes in a cycle of steps. The share that is recognised at the end.
stream     A linear model on a sinusoidal mean (Experiment 3 of the paper), by period. The
           prediction error at the end, over the variance of the noise.
switching  The same with a mean that is drawn anew once a period (Experiment 4).
network    A network of two hidden layers on such a mean (Experiment 6). The squared error on the
           law of the inputs, over the variance of the noise.
demand     A convolutional network on a year of electricity demand, as time goes (1), or at random
           (0). The squared error on windows that were held out, over the variance of the demand.
recording  A linear model on one pass of recordings, as time goes. The prediction error over the
           whole pass, over that of the least-squares solution.
transformer, convolutional, recurrent
           A network on bytes under AdamW, for each beta1 and step size; Python code and prose in
           turn, both in a period of steps. The loss on held-out bytes of both at the end: period 0
           is both in every batch, and the loss to reach. With ``--size large --device cuda`` the
           transformer has 3.3 million parameters.
cost       Time and memory on a network of a million parameters, and on a small transformer, while
           nothing is wrong; on a GPU with ``--device cuda``.

A cycle or period of 0 is the same rows at random. Printed are the median and the worst over the
seeds, and how many runs ended with weights that are not finite (*). ``guard`` is what the guard
offers for prediction. Its constants were chosen on seeds below 100.

The remedies beside it, each with the constants of its authors: ``clipping`` of the norm of the
gradient at 1; ``ZClip`` (arXiv 2504.02507), which clips norms far above their running mean;
``SPAM`` (arXiv 2501.06842), which clips entries far above their second moment and forgets the
moments every 500 steps; ``restart``, adaptive damping by O'Donoghue and Candes (2015): the momentum
is set to zero whenever the last update went uphill.
"""

from __future__ import annotations

import argparse
import functools
import logging
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from resonax.torch import Guard

REMEDIES = ("clipping", "ZClip", "SPAM", "restart", "shuffle buffer", "guard")
METHODS = ("own", "0.85", "0.5", *REMEDIES)
TASKS = ("digits", "stream", "switching", "network", "demand", "recording", "cost")
BUFFER = 64  # batches
Batch = tuple[Tensor, Tensor]
Judge = Callable[[nn.Module], float]


class Residual(nn.Module):
    """A block of two convolutions with a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(torch.relu(self.one(x)))


def network() -> nn.Module:
    """Return a residual network for digits of 8 x 8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, stride=2, padding=1), nn.ReLU(), Residual(32),
        nn.Conv2d(32, 128, 3, stride=2, padding=1), nn.ReLU(), Residual(128),
        nn.Flatten(), nn.Linear(512, 1100), nn.ReLU(), nn.Linear(1100, 10),
    )  # fmt: skip


class Task:
    """A model, an optimizer, batches in order, and how a model is judged at the end."""

    cases: Sequence[Any] = ()
    larger_is_better = False

    def __init__(self, lr: float, momentum: float, loss: Any, make: Callable[[], nn.Module]):
        self.lr, self.momentum, self.loss, self.make = lr, momentum, loss, make

    def data(self, case: Any, seed: int) -> tuple[list[Batch], Judge]:
        """Return the batches of a run, and a function that judges its model."""
        raise NotImplementedError


class Digits(Task):
    """Digits, one class after the other."""

    cases = (0, 20, 30, 40, 60)
    larger_is_better = True
    steps, batch = 600, 16

    def data(self, case: int, seed: int) -> tuple[list[Batch], Judge]:
        from sklearn.datasets import load_digits

        pixels, classes = load_digits(return_X_y=True)
        images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
        labels = torch.tensor(classes)
        rng = np.random.default_rng(seed)
        places = [np.flatnonzero(classes == label) for label in range(10)]
        batches = []
        for step in range(self.steps):
            pool = places[step % case * 10 // case] if case else np.arange(len(labels))
            rows = rng.choice(pool, self.batch)
            batches.append((images[rows], labels[rows]))

        def judge(model: nn.Module) -> float:
            return float((model(images[::3]).argmax(1) == labels[::3]).float().mean())

        return batches, judge


class Stream(Task):
    """Five inputs whose mean moves; the output is noise of variance 0.1."""

    cases = (0, 10, 12, 15, 20, 22, 30, 60, 120)
    steps, batch, dim = 10_000, 5, 5

    def data(self, case: int, seed: int) -> tuple[list[Batch], Judge]:
        rng = np.random.default_rng([seed, case])
        inputs = 0.5 * rng.standard_normal((self.steps, self.batch, self.dim))
        self.move(inputs, case, rng)
        outputs = np.sqrt(0.1) * rng.standard_normal((self.steps, self.batch, 1))
        x, y = (torch.tensor(part, dtype=torch.float32) for part in (inputs, outputs))

        def judge(model: nn.Module) -> float:
            # Compared with noise of the variance that it has, not with this sample of it.
            return float(torch.mean(model(x.flatten(0, 1)) ** 2)) / 0.1 + 1

        return list(zip(x, y, strict=True)), judge

    def move(self, inputs: np.ndarray, case: int, rng: np.random.Generator) -> None:
        """Add a sinusoid to the mean of the first input."""
        turns = np.arange(self.steps)[:, None] / case if case else rng.random(inputs.shape[:2])
        inputs[:, :, 0] += 0.5 * np.sin(2 * np.pi * turns)


class Switching(Stream):
    """A mean that is drawn anew once a period."""

    def move(self, inputs: np.ndarray, case: int, rng: np.random.Generator) -> None:
        inputs += 0.5 * switching_mean(inputs.shape, case, rng)


def switching_mean(
    shape: tuple[int, int, int], period: int, rng: np.random.Generator
) -> np.ndarray:
    """Return standard normal means, one for each period; for a period of 0, one for each row."""
    if not period:
        return rng.standard_normal(shape)
    drawn = rng.standard_normal((-(-shape[0] // period), 1, shape[2]))
    return drawn.repeat(period, axis=0)[: shape[0]]


class Hidden(Task):
    """The network of Experiment 6 of the paper."""

    cases = (0, 5, 10, 20, 40, 80)
    steps, batch = 3000, 10

    def data(self, case: int, seed: int) -> tuple[list[Batch], Judge]:
        rng = np.random.default_rng([seed, case])

        def drawn(mean: np.ndarray, rows: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
            inputs = 0.63 * mean + np.sqrt(0.1) * rng.standard_normal((*rows, 2))
            return inputs, np.cos(np.pi * np.linalg.norm(inputs, axis=2, keepdims=True))

        rows = (self.steps, self.batch)
        inputs, outputs = drawn(switching_mean((*rows, 2), case, rng), rows)
        outputs += np.sqrt(0.1) * rng.standard_normal(outputs.shape)
        held = drawn(rng.standard_normal((1, 2000, 2)), (1, 2000))
        x, y, far, truth = (
            torch.tensor(part, dtype=torch.float32) for part in (inputs, outputs, *held)
        )

        def judge(model: nn.Module) -> float:
            return float(torch.mean((model(far) - truth) ** 2)) / 0.1 + 1

        return list(zip(x, y, strict=True)), judge


def hidden() -> nn.Module:
    """Return a network with two hidden layers."""
    return nn.Sequential(
        nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1)
    )


class Demand(Task):
    """The next half hour of electricity demand from the last day, 16 half hours a step."""

    cases = (0, 1)
    day, batch = 48, 16

    def data(self, case: int, seed: int) -> tuple[list[Batch], Judge]:
        _, given = Recording.recordings()["victoria"]()
        scaled = torch.tensor((given - given.mean()) / given.std(), dtype=torch.float32)
        windows = scaled.unfold(0, self.day + 1, 1)
        x, y = windows[:, None, : self.day], windows[:, self.day :]
        number = torch.arange(len(windows))
        taught, held = number[number % 10 > 0], number[::10]
        if not case:
            taught = taught[torch.randperm(len(taught), generator=torch.manual_seed(seed))]
        taught = taught[: len(taught) // self.batch * self.batch].reshape(-1, self.batch)

        def judge(model: nn.Module) -> float:
            return float(torch.mean((model(x[held]) - y[held]) ** 2))

        return [(x[rows], y[rows]) for rows in taught], judge


def forecaster() -> nn.Module:
    """Return a convolutional network for a day of half hours."""
    return nn.Sequential(
        nn.Conv1d(1, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(320, 32), nn.ReLU(), nn.Linear(32, 1),
    )  # fmt: skip


class Transformer(nn.Module):
    """Predicts the next byte."""

    def __init__(self, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        block = functools.partial(
            nn.TransformerEncoderLayer, width, heads, 4 * width, dropout=0.0, activation="gelu",
            batch_first=True, norm_first=True,
        )  # fmt: skip
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        held = self.embedding(x) + self.place
        for block in self.blocks:
            held = block(held, src_mask=self.mask, is_causal=True)
        return self.out(held)


class Convolutional(nn.Module):
    """Predicts the next byte from those within reach of its causal convolutions."""

    def __init__(self, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        del heads, length
        self.embedding = nn.Embedding(256, width)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, 3, dilation=2**layer) for layer in range(2 * layers)
        )
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256))

    def forward(self, x: Tensor) -> Tensor:
        held = self.embedding(x).mT
        for number, layer in enumerate(self.layers):
            reach = 2 * 2**number
            held = held + torch.relu(layer(nn.functional.pad(held, (reach, 0))))
        return self.out(held.mT)


class Recurrent(nn.Module):
    """Predicts the next byte from a state."""

    def __init__(self, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        del heads, length
        self.embedding = nn.Embedding(256, width)
        self.cells = nn.GRU(width, width, layers, batch_first=True)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cells(self.embedding(x))[0])


NETWORKS = {
    "transformer": Transformer, "convolutional": Convolutional, "recurrent": Recurrent,
}  # fmt: skip
SIZES = {
    "tiny": (16, 1, 2, 16, 8, 200),
    "small": (64, 2, 4, 64, 16, 800),
    "large": (256, 4, 4, 128, 32, 800),
}


def domains() -> list[np.ndarray]:
    """Return bytes of Python code and of prose, both of what is installed."""
    library = Path(sysconfig.get_paths()["stdlib"])
    packages = Path(sysconfig.get_paths()["purelib"])
    code = b"".join(one.read_bytes() for one in sorted(library.glob("*.py"))[:60])
    prose = b"".join(one.read_bytes()[:60_000] for one in sorted(packages.glob("*/METADATA"))[:150])
    return [np.frombuffer(one, np.uint8)[:1_000_000].astype(np.int64) for one in (code, prose)]


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy of the next byte."""
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


class Bytes(Task):
    """Code and prose in turn, half a period each; 0 is both in every batch."""

    cases = (0, 4, 16, 32, 48, 64, 128)

    def __init__(self, kind: str, size: str, momentum: float, lr: float):
        width, layers, heads, self.length, self.batch, self.steps = SIZES[size]
        make = functools.partial(NETWORKS[kind], width, layers, heads, self.length)
        super().__init__(lr, momentum, token_loss, make)

    def data(self, case: int, seed: int) -> tuple[list[Batch], Judge]:
        rng, texts = np.random.default_rng([seed, case]), domains()

        def rows(text: np.ndarray, count: int, first: float, last: float) -> np.ndarray:
            low, high = (int(end * len(text)) - self.length - 1 for end in (first, last))
            starts = rng.integers(max(low, 0), high, count)[:, None]
            return text[starts + np.arange(self.length + 1)]

        def batch(step: int) -> np.ndarray:
            if case:
                return rows(texts[int(step % case >= case / 2)], self.batch, 0, 0.9)
            return np.concatenate([rows(one, self.batch // 2, 0, 0.9) for one in texts])

        held = torch.tensor(np.concatenate([rows(one, 64, 0.9, 1) for one in texts]))
        made = [torch.tensor(batch(step)) for step in range(self.steps)]

        def judge(model: nn.Module) -> float:
            place = next(model.parameters()).device
            return float(self.loss(model(held[:, :-1].to(place)), held[:, 1:].to(place)))

        return [(one[:, :-1], one[:, 1:]) for one in made], judge


class Recording(Task):
    """One pass over a recording, a row a step."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.cases = list(self.recordings())

    @staticmethod
    def recordings() -> dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]]:
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
        from recordings import RECORDINGS

        return RECORDINGS

    def data(self, case: str, seed: int) -> tuple[list[Batch], Judge]:
        inputs, outputs = self.recordings()[case]()
        inputs = (inputs - inputs.mean(0)) / inputs.std(0)
        outputs = (outputs - outputs.mean()) / outputs.std()
        solution = np.linalg.lstsq(inputs, outputs, rcond=None)[0]
        least = float(np.mean((inputs @ solution - outputs) ** 2))
        x = torch.tensor(inputs, dtype=torch.float32)
        y = torch.tensor(outputs, dtype=torch.float32)[:, None]

        def judge(model: nn.Module) -> float:
            return float(torch.mean((model(x) - y) ** 2)) / least

        return list(zip(x[:, None], y[:, None], strict=True)), judge


def task(name: str) -> Task:
    """Return a task by its name."""
    if name == "digits":
        return Digits(0.02, 0.95, nn.functional.cross_entropy, network)
    if name in ("stream", "switching"):

        def summed(output: Tensor, target: Tensor) -> Tensor:
            return torch.sum((output - target) ** 2)

        kind = Stream if name == "stream" else Switching
        return kind(0.01, 0.95, summed, lambda: nn.Linear(Stream.dim, 1))
    if name == "network":
        return Hidden(0.01, 0.95, nn.functional.mse_loss, hidden)
    if name == "demand":
        return Demand(0.01, 0.95, nn.functional.mse_loss, forecaster)
    if name.split()[0] in NETWORKS:
        kind, size, momentum, lr = name.split()
        return Bytes(kind, size, float(momentum), float(lr))
    return Recording(0.01, 0.95, nn.functional.mse_loss, functools.partial(nn.LazyLinear, 1))


def shuffled(batches: list[Batch], seed: int) -> Iterator[Batch]:
    """Yield batches of rows as they leave a buffer in random order."""
    rng = np.random.default_rng([seed, 5])
    rows: list[Batch] = []
    for x, y in batches:
        rows += list(zip(x, y, strict=True))
        taken = {int(place) for place in rng.choice(len(rows), len(x), replace=False)}
        left, right = zip(*(rows[place] for place in taken), strict=True)
        yield torch.stack(left), torch.stack(right)
        if len(rows) > BUFFER * len(x):
            rows = [row for place, row in enumerate(rows) if place not in taken]


class ZClip:
    """Clips a norm of the gradient that is far above the running mean of norms."""

    decay, threshold, warm = 0.97, 2.5, 25

    def __init__(self) -> None:
        self.norms: list[float] = []
        self.mean = self.variance = 0.0

    def __call__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        norm = float(nn.utils.get_total_norm([one.grad for one in model.parameters()]))  # type: ignore[misc]
        if len(self.norms) < self.warm:
            self.norms.append(norm)
            self.mean, self.variance = float(np.mean(self.norms)), float(np.var(self.norms))
            return
        deviation = self.variance**0.5 + 1e-6
        z = (norm - self.mean) / deviation
        if z > self.threshold:
            norm = self.mean + self.threshold**2 / z * deviation
            nn.utils.clip_grad_norm_(model.parameters(), norm)
        self.mean = self.decay * self.mean + (1 - self.decay) * norm
        self.variance *= self.decay
        self.variance += (1 - self.decay) * (norm - self.mean) ** 2


class Spam:
    """Clips entries far above their second moment, and forgets the moments every so often.

    After that the step size rises again, along half a cosine.
    """

    threshold, interval, warm, decay = 5000.0, 500, 150, 0.999

    def __init__(self) -> None:
        self.step = 0
        self.squares: dict[nn.Parameter, Tensor] = {}

    def __call__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        since = self.step % self.interval
        if self.step and not since:
            optimizer.state.clear()
            self.squares.clear()
        for one in model.parameters():
            assert one.grad is not None
            square = self.squares.get(one)
            if square is not None and since > 1:
                limit = (self.threshold * square / (1 - self.decay**since)).sqrt()
                one.grad.copy_(one.grad.clamp(-limit, limit))
            square = torch.zeros_like(one) if square is None else square
            self.squares[one] = square.lerp(one.grad**2, 1 - self.decay)
        if self.step >= self.interval and since < self.warm:
            for group in optimizer.param_groups:
                group["lr"] *= 0.5 * (1 - np.cos(np.pi * (since + 1) / self.warm))
        self.step += 1


class Restart:
    """Sets the momentum to zero whenever the last update went uphill."""

    def __init__(self) -> None:
        self.last: list[Tensor] = []

    def __call__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        weights = list(model.parameters())
        if self.last:
            moves = zip(weights, self.last, strict=True)
            uphill = sum(
                float(torch.sum(one.grad * (one.detach() - old)))  # type: ignore[operator]
                for one, old in moves
            )
            if uphill > 0:
                for state in optimizer.state.values():
                    for name in {"momentum_buffer", "exp_avg"} & state.keys():
                        state[name].zero_()
        self.last = [one.detach().clone() for one in weights]


class Clipping:
    """Clips the norm of the gradient at 1."""

    def __call__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)


CHANGES = {"clipping": Clipping, "ZClip": ZClip, "SPAM": Spam, "restart": Restart}


def optimizer_of(made: Task, model: nn.Module, momentum: float) -> torch.optim.Optimizer:
    """Return the optimizer of a task: AdamW for a transformer, else SGD."""
    if isinstance(made, Bytes):
        return torch.optim.AdamW(model.parameters(), lr=made.lr, betas=(momentum, 0.95))
    return torch.optim.SGD(model.parameters(), lr=made.lr, momentum=momentum)


def train(
    name: str, case: Any, method: str, seed: int, device: str = "cpu"
) -> tuple[float, bool, float, str, float]:
    """Return what a run came to.

    That is its judgement, whether it was lost, the guard's work for each step, what it did, and the
    seconds that it took.
    """
    torch.set_num_threads(1)
    logging.getLogger("resonax").setLevel(logging.ERROR)
    made = task(name)
    batches, judge = made.data(case, seed)
    torch.manual_seed(seed)
    model = made.make()
    model(batches[0][0])  # a lazy layer learns its size
    model.to(device)
    warm = 100 if isinstance(made, Bytes) else 1  # steps in which the step size rises
    momentum = float(method) if method[0] == "0" else made.momentum
    optimizer = optimizer_of(made, model, momentum)
    average = not isinstance(made, Bytes)
    guard = Guard(model, optimizer, average=average) if method == "guard" else None
    given: Iterable[Batch] = shuffled(batches, seed) if method == "shuffle buffer" else batches
    change = CHANGES[method]() if method in CHANGES else None
    began = time.perf_counter()
    every, judged = max(1, len(batches) // 100), []
    for step, (x, y) in enumerate(given):
        x, y = x.to(device), y.to(device)
        for group in optimizer.param_groups:
            group["lr"] = made.lr * min(1.0, (step + 1) / warm)
        if guard is not None:
            guard.step(lambda x, y: made.loss(model(x), y), x, y)
        else:
            optimizer.zero_grad()
            made.loss(model(x), y).backward()
            if change is not None:
                change(model, optimizer)
            optimizer.step()
        is_judged = name == "recording" or step >= 0.9 * len(batches)
        if step % every == every - 1 and is_judged:
            with torch.no_grad():
                judged.append(judge(model if guard is None else guard.offered()))
    is_lost = not all(bool(torch.isfinite(one).all()) for one in model.parameters())
    mean = float(np.mean(judged))
    report: Any = None if guard is None else guard.report()
    work = 0.0 if report is None else report.work
    did = "" if report is None else "; ".join(
        f"{one.step} {one.cause or one.why}: {one.after}" for one in report.decisions
    )  # fmt: skip
    return mean if np.isfinite(mean) else np.inf, is_lost, work, did, time.perf_counter() - began


def show(
    name: str, found: dict[Any, dict[str, list[tuple[float, bool, float, str, float]]]]
) -> None:
    """Print the table of a task."""
    worst = min if task(name).larger_is_better else max
    print(f"\n{name}: median (worst), * runs that were lost")
    methods = next(iter(found.values()))
    print(f"{'':>14}" + "".join(f"{method:>20}" for method in methods))
    for case, methods in found.items():
        line = f"{case:>14}"
        for runs in methods.values():
            ends, lost = [one[0] for one in runs], sum(one[1] for one in runs)
            text = f"{np.median(ends):.3g} ({worst(ends):.3g})" + (f" {lost}*" if lost else "")
            line += f"{text:>20}"
        print(line)
    for case, methods in found.items():
        plain = np.median([one[-1] for one in methods.get("own", ())]) if "own" in methods else None
        for place, (_, _, work, did, seconds) in enumerate(methods.get("guard", ())):
            times = "" if plain is None else f", {seconds / plain:.2f} times the time"
            print(
                f"  guard, {case}, run {place}: {work:.2f} extra steps for each{times}; "
                f"{did or 'nothing'}"
            )


def twin(name: str, device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a network of a million parameters or a small transformer, and its optimizer.

    Each call gives the same.
    """
    torch.manual_seed(0)
    if name == "transformer":
        made = task("transformer small 0.9 0.001")
        model = made.make().to(device)
        return model, optimizer_of(made, model, made.momentum)
    layers = (nn.Linear(256, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 200))
    model = nn.Sequential(*layers, nn.Linear(200, 10)).to(device)
    if name == "SGD":
        return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, torch.optim.Adam(model.parameters(), lr=3e-4)


def random_rows(name: str, device: str) -> tuple[Tensor, Tensor, Any]:
    """Return rows to draw from, and the loss of an output."""
    if name == "transformer":
        made = task("transformer small 0.9 0.001")
        batches = made.data(0, 0)[0]
        x, y = (torch.cat(part).to(device) for part in zip(*batches, strict=True))
        return x, y, made.loss
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(10, 256, generator=draw)
    labels = torch.randint(10, (4096,), generator=draw)
    rows = centres[labels] + 2 * torch.randn(4096, 256, generator=draw)
    return rows.to(device), labels.to(device), nn.functional.cross_entropy


def cost(device: str, blocks: int = 160) -> None:
    """Print what a guard costs: two twins of one network learn the same rows at random, in turn.

    In blocks of 32 steps. The median block has no test of the guard; the sums have all of them.
    """
    torch.set_num_threads(1)
    for name, rows in (("SGD", 32), ("Adam", 32), ("transformer", 16)):
        x, y, loss = random_rows(name, device)
        draw = torch.Generator().manual_seed(0)
        (plain, optimizer), guarded = twin(name, device), twin(name, device)
        guard, times = Guard(*guarded), np.zeros((2, blocks))

        def train_plain(
            x: Tensor, y: Tensor, model: Any = plain, by: Any = optimizer, loss: Any = loss
        ) -> None:
            by.zero_grad()
            loss(model(x), y).backward()
            by.step()

        def train_guarded(
            x: Tensor, y: Tensor, model: Any = guarded[0], by: Any = guard, loss: Any = loss
        ) -> None:
            by.step(lambda x, y: loss(model(x), y), x, y)

        for block in range(blocks):
            chosen = torch.randint(len(x), (32, rows), generator=draw).to(device)
            for place, train_on in enumerate((train_plain, train_guarded)):
                began = time.perf_counter()
                for batch in chosen:
                    train_on(x[batch], y[batch])
                if device != "cpu":
                    torch.cuda.synchronize()
                times[place, block] = time.perf_counter() - began
        calm, early = np.median(times, axis=1), 1024 // 32
        first, later = times[:, :early].sum(axis=1), times[:, early:].sum(axis=1)
        print(
            f"cost, {name}: a plain step {calm[0] / 32 * 1e3:.2f} ms; guarded "
            f"{calm[1] / calm[0] - 1:+.1%} without a test, {first[1] / first[0]:.2f} times "
            f"over the first 1024 steps, {later[1] / later[0]:.2f} times "
            f"over the next {32 * blocks - 1024}\n{guard.report()}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", default=TASKS, help="of those above")
    parser.add_argument("--seeds", default="100:103", help="first and one after the last")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="of cost and of networks on bytes")
    parser.add_argument("--size", default="small", choices=SIZES, help="of networks on bytes")
    parser.add_argument("--beta1", nargs="*", type=float, default=[0.9, 0.95])
    parser.add_argument("--lr", nargs="*", type=float, default=[0.001, 0.002], help="of it as well")
    parser.add_argument("--methods", nargs="*", default=METHODS, help="of those compared")
    parser.add_argument("--cases", nargs="*", help="of the task: cycles, periods or recordings")
    given = parser.parse_args()
    first, last = (int(part) for part in given.seeds.split(":"))
    settings = [f"{given.size} {one} {lr}" for one in given.beta1 for lr in given.lr]
    names = [
        name
        for task_name in given.tasks
        for name in (
            [f"{task_name} {one}" for one in settings] if task_name in NETWORKS else [task_name]
        )
    ]
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        for name in names:
            if name == "cost":
                cost(given.device)
                continue
            cases = [one for one in task(name).cases if str(one) in (given.cases or [str(one)])]
            seeds = range(first, last) if name != "recording" else [first]
            jobs = {
                (case, method, seed): pool.submit(train, name, case, method, seed, given.device)
                for case in cases
                for method in given.methods
                for seed in seeds
            }
            found: Any = defaultdict(lambda: defaultdict(list))
            for done, ((case, method, seed), job) in enumerate(jobs.items(), 1):
                found[case][method].append(job.result())
                end, *_, seconds = found[case][method][-1]
                text = f"{name}, {case}, {method}, seed {seed}: {end:.3g} after {seconds:.0f} s"
                print(f"{done} of {len(jobs)}: {text}", file=sys.stderr, flush=True)
            show(name, found)


if __name__ == "__main__":
    main()
