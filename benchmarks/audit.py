"""The audit of a loader against tasks of known cause, shuffled loaders and faults of people.

    python benchmarks/audit.py [causes shuffled faults transformer digits cost] [--processes N]
                               [--seeds FIRST:LAST] [--device cuda] [--texts data.npz]

causes       25 seeds of four causes of linear models and networks (`audit_tasks.py`): 200 tasks.
             Rules were chosen on seeds below 12; the others are judged.
shuffled     200 shuffled loaders: how many are called ordered, or harmful.
faults       Ten faults that people had and their healthy twins: what the audit says of each.
transformer  A transformer of 3.3 million parameters on two domains that alternate (text that Python
             ships).
digits       Digits in cycles of one class after the other.
cost         Time and memory of audit and theory at 3 and 100 million parameters.
"""

from __future__ import annotations

import argparse
import copy
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from audit_tasks import CAUSES, FAULTS, make_task
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from resonax.torch import audit, phases

TUNED = 12  # seeds below it were used to choose rules


def run_cause(job: tuple[str, str, int]) -> tuple[tuple[str, str, int], str | None, str, str]:
    torch.set_num_threads(1)
    task = make_task(*job)
    found = audit(task.batches, task.model, nn.MSELoss(), task.optimizer, progress=False)
    return job, found.cause, task.words, f"{found.harm}; {found.reason}"


def causes(args: argparse.Namespace) -> None:
    first, last = args.seeds
    jobs = [
        (cause, kind, seed)
        for seed in range(first, last)
        for cause in CAUSES
        for kind in ("linear", "network")
    ]
    seen: dict[str, Counter[tuple[str, str | None]]] = {"tuned": Counter(), "held out": Counter()}
    for job, cause, words, reason in spread(run_cause, jobs, args.processes):
        seen["tuned" if job[2] < TUNED else "held out"][job[0], cause] += 1
        if cause != job[0]:
            print(f"  {job[0]}, seed {job[2]}, called {cause}: {words}; {reason}", flush=True)
    for name, counts in seen.items():
        total = sum(counts.values())
        if not total:
            continue
        right = sum(count for (truth, cause), count in counts.items() if truth == cause)
        open_ = sum(count for (_, cause), count in counts.items() if cause in ("unclear", None))
        print(
            f"{name}: {total} tasks, right in {right} of {total - open_} decided "
            f"({right / max(1, total - open_):.1%}), {open_} unclear or without harm "
            f"({open_ / total:.1%})"
        )
        for truth in CAUSES:
            row = {str(cause): count for (one, cause), count in counts.items() if one == truth}
            print(f"  {truth}: {row}")


def run_shuffled(seed: int) -> tuple[str, str | None, str | None, str]:
    """Audit a shuffled loader: of labels, sequences or numbers with heavy tails, in turn."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    count, dim, batch = int(torch.randint(600, 4000, ())), 6, [8, 16, 32][seed % 3]
    y = torch.randint(0, 4, (count,))
    x = nn.functional.one_hot(y, dim) + torch.randn(count, dim)
    if seed % 3 == 0:
        x = x * torch.distributions.Exponential(1.0).sample((count, 1)) ** 2
    x, y = x[y.argsort()], y[y.argsort()]
    data = TensorDataset(x, y)
    loader = DataLoader(data, batch_size=batch, shuffle=True, drop_last=bool(seed % 2))
    model = nn.Linear(dim, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    found = audit(
        loader, model, nn.CrossEntropyLoss(), optimizer, steps=192, confidence=0.99, seed=seed,
        progress=False,
    )  # fmt: skip
    truth = "" if found.harm == "none" else f"{failing(x, y, model, batch)} of 10 fail"
    return found.order, found.harm, found.cause, truth


def failing(x: torch.Tensor, y: torch.Tensor, model: nn.Module, batch: int) -> int:
    """Return how many of ten runs in random orders end above the loss of all rows at the start."""
    loss, count = nn.CrossEntropyLoss(), 0
    for _ in range(10):
        copied, order, levels = copy.deepcopy(model), torch.randperm(len(x)), []
        optimizer = torch.optim.SGD(copied.parameters(), lr=0.01, momentum=0.9)
        for step in range(192):
            rows = order[step * batch % (len(x) - batch) :][:batch]
            optimizer.zero_grad()
            loss(copied(x[rows]), y[rows]).backward()
            optimizer.step()
            if step >= 144:
                levels.append(float(loss(copied(x), y).detach()))
        count += not np.mean(levels) < float(loss(model(x), y).detach())
    return count


def shuffled(args: argparse.Namespace) -> None:
    counts = Counter(spread(run_shuffled, range(200), args.processes))
    for (order, harm, cause, truth), count in counts.most_common():
        print(f"shuffled: {count} of 200 {order}, {harm}, {cause}; trained independently: {truth}")


def run_fault(job: tuple[str, bool]) -> tuple[str, bool, Any]:
    torch.set_num_threads(1)
    name, healthy = job
    loader, options = FAULTS[name](healthy)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    found = audit(
        loader, model, nn.CrossEntropyLoss(), optimizer, steps=256, progress=False, **options
    )
    return name, healthy, found


def faults(args: argparse.Namespace) -> None:
    jobs = [(name, healthy) for name in FAULTS for healthy in (False, True)]
    print("| loader | fault | order | harm | cause | lost of 256 | period | ranks | cures |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, healthy, found in spread(run_fault, jobs, args.processes):
        lost = found.lost_steps
        words = "" if lost is None else f"{lost.lost:.0f} ({lost.low:.0f} to {lost.high:.0f})"
        cures = ", ".join(f"{one.kind} {one.value:.3g}" for one in found.cures)
        ranks = {None: "", True: "the same", False: "different"}[found.same_ranks]
        period = "" if found.period is None else f"{found.period:.3g}"
        print(
            f"| {name} | {'no' if healthy else 'yes'} | {found.order} | {found.harm} | "
            f"{found.cause or ''} | {words} | {period} | {ranks} | {cures} |",
            flush=True,
        )


class Transformer(nn.Module):
    """A causal transformer over bytes."""

    def __init__(self, layers: int = 4, width: int = 256, context: int = 128):
        super().__init__()
        self.embed, self.place = nn.Embedding(256, width), nn.Embedding(context, width)
        block = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        mask = torch.triu(torch.full((length, length), -torch.inf, device=x.device), 1)
        h = self.embed(x) + self.place(torch.arange(length, device=x.device))
        return self.head(self.norm(self.blocks(h, mask=mask, is_causal=True)))


def next_byte(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    batch = batch.to(next(model.parameters()).device)
    logits = model(batch[:, :-1])
    return nn.functional.cross_entropy(logits.reshape(-1, 256), batch[:, 1:].reshape(-1))


@functools.cache
def domains(path: str | None) -> list[torch.Tensor]:
    """Return code and prose that Python's packages ship, as bytes."""
    if path:
        with np.load(path) as data:
            texts = [data["text0"], data["text1"]]
    else:
        from network_tasks import python_code, python_prose

        texts = [np.frombuffer(text, np.uint8) for text in (python_code(), python_prose())]
    return [torch.tensor(text.astype(np.int64)) for text in texts]


def alternating(texts: str | None, period: int, steps: int, seed: int = 0) -> list[torch.Tensor]:
    """Return batches that come from code for half a period, then from prose."""
    rng = np.random.default_rng(seed)
    made = []
    for step in range(steps):
        text = domains(texts)[step % period >= period / 2]
        places = rng.integers(0, len(text) - 129, size=32)
        made.append(torch.stack([text[one : one + 129] for one in places]))
    return made


def run_transformer(job: tuple[float, int, int, str, str | None]) -> tuple[str, float, Any]:
    beta1, period, steps, device, texts = job
    torch.manual_seed(0)
    model = Transformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(beta1, 0.95))
    begun = time.monotonic()
    batches = alternating(texts, period, steps)
    found = audit(batches, model, next_byte, optimizer, steps=steps, progress=False)
    return f"beta1 {beta1}, period {period}", time.monotonic() - begun, found


def transformer(args: argparse.Namespace) -> None:
    pairs = ((0.95, 48), (0.95, 4), (0.5, 256))
    jobs = [(*pair, args.steps, args.device, args.texts) for pair in pairs]
    for words, seconds, found in spread(run_transformer, jobs, min(args.processes, len(jobs))):
        print(f"transformer, {words}, {seconds:.0f} s: {found}\n{found.lost_steps}", flush=True)


def digits(args: argparse.Namespace) -> None:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    places = [rng.choice(np.flatnonzero(y == step % 40 // 4), 16) for step in range(args.steps)]
    inputs, labels = torch.tensor(x.astype("f4") / 16), torch.tensor(y)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.95)
    batches = [(inputs[one], labels[one]) for one in places]
    found = audit(batches, model, nn.CrossEntropyLoss(), optimizer, steps=args.steps)
    print(f"digits by class, cycle of 40: {found}\n{found.lost_steps}")


def most_memory(device: str) -> float:
    """Return the GiB that a GPU has held since this was last called."""
    if not device.startswith("cuda"):
        return 0.0
    most = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return most


def cost(args: argparse.Namespace) -> None:
    torch.set_float32_matmul_precision("high")
    steps = args.steps // 8
    for layers, width in ((4, 256), (14, 768)):
        torch.manual_seed(0)
        model = Transformer(layers, width).to(args.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
        batches = alternating(args.texts, 16, steps)
        weights = sum(one.numel() for one in model.parameters())
        taken = []
        for batch in batches[:16]:
            begun = time.monotonic()
            optimizer.zero_grad()
            next_byte(model, batch).backward()
            optimizer.step()
            float(next(model.parameters()).sum())  # waits for the device
            taken.append(time.monotonic() - begun)
        plain = float(np.median(taken))
        words = f"{weights / 1e6:.1f} million parameters: a step {1e3 * plain:.1f} ms"
        print(f"{words}, {most_memory(args.device):.2f} GiB", flush=True)
        begun = time.monotonic()
        found = audit(batches, model, next_byte, optimizer, steps=steps, progress=False)
        seconds = time.monotonic() - begun
        print(
            f"  audit of {steps} steps ({found.order}, {found.harm}, {found.cause}) {seconds:.0f} "
            f"s, {found.work:.0f} steps, {seconds / plain / steps:.0f} times training, "
            f"{most_memory(args.device):.2f} GiB",
            flush=True,
        )
        pairs = [(batch[:, :-1], batch[:, 1:]) for batch in batches[:16]]
        split = {"code": pairs[:4], "prose": pairs[8:12]}
        begun = time.monotonic()
        found = phases(
            model,
            lambda logits, y: nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten()),
            optimizer,
            split,
            steps=8,
            curvature_batches=2,
            directions=24,
            memory=2**36,
        )
        print(
            f"  theory at {found.directions} directions: {time.monotonic() - begun:.0f} s, "
            f"{most_memory(args.device):.2f} GiB; {found}",
            flush=True,
        )


def spread(function: Callable[[Any], Any], jobs: Iterable[Any], processes: int) -> Iterable[Any]:
    if processes < 2:
        yield from map(function, jobs)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(function, jobs)


PARTS = {one.__name__: one for one in (causes, shuffled, faults, transformer, digits, cost)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["causes", "shuffled", "faults"])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seeds", default="0:25", type=lambda text: [*map(int, text.split(":"))])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=512)
    parser.add_argument("--texts", help="made by network_bands.py prepare, for other machines")
    args = parser.parse_args()
    for part in args.parts:
        begun = time.monotonic()
        PARTS[part](args)
        print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
