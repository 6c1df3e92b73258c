"""The audit of a loader against tasks of known cause, shuffled loaders and faults of people.

    python benchmarks/audit.py [causes shuffled faults transformer cost] [--processes N]
                               [--seeds FIRST:LAST] [--device cuda]

causes       25 seeds of four causes of linear models and networks (`audit_tasks.py`): 200 tasks.
             Rules were chosen on seeds below 12; the others are judged.
shuffled     200 shuffled loaders: how many are called ordered, or harmful.
faults       Ten faults that people had and their healthy twins: what the audit says of each.
transformer  A transformer of 3.3 million parameters on two domains that alternate (text that Python
             ships), and digits in cycles of one class after the other.
cost         Time and memory at 3 and 100 million parameters.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from audit_tasks import CAUSES, make_task
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from resonax.torch import audit

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
            f"({right / max(1, total - open_):.1%}), {open_} unclear or no harm ({open_ / total:.1%})"
        )
        for truth in CAUSES:
            row = {str(cause): count for (one, cause), count in counts.items() if one == truth}
            print(f"  {truth}: {row}")


def run_shuffled(seed: int) -> tuple[str, str | None]:
    """Audit a shuffled loader: of labels, sequences or numbers with heavy tails, in turn."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    count, dim = int(torch.randint(600, 4000, ())), 6
    y = torch.randint(0, 4, (count,))
    x = nn.functional.one_hot(y, dim) + torch.randn(count, dim)
    if seed % 3 == 0:
        x = x * torch.distributions.Exponential(1.0).sample((count, 1)) ** 2
    x, y = x[y.argsort()], y[y.argsort()]
    loader = DataLoader(
        TensorDataset(x, y),
        batch_size=[8, 16, 32][seed % 3],
        shuffle=True,
        drop_last=bool(seed % 2),
    )
    model = nn.Linear(dim, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    found = audit(
        loader, model, nn.CrossEntropyLoss(), optimizer, steps=192, level=0.01, seed=seed,
        progress=False,
    )  # fmt: skip
    return found.order, found.harm


def shuffled(args: argparse.Namespace) -> None:
    counts = Counter(spread(run_shuffled, range(200), args.processes))
    wrong = sum(count for one, count in counts.items() if one != ("random", "none"))
    print(f"200 shuffled loaders: {wrong} called ordered or harmful at level 1%; {dict(counts)}")


# Ten faults: each is a function of whether it is healthy, and returns what `audit` takes.


def rows(count: int = 2048, classes: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    y = torch.arange(classes).repeat_interleave(count // classes)
    return nn.functional.one_hot(y, classes) + 0.7 * torch.randn(count, classes), y


def in_batches(x: torch.Tensor, y: torch.Tensor, places: Any, size: int = 16) -> list[Any]:
    order = torch.as_tensor(np.asarray(places))
    return list(zip(x[order].split(size), y[order].split(size), strict=True))


def mixed(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).permutation(count)


def sorted_labels(healthy: bool) -> tuple[Any, dict[str, Any]]:
    return DataLoader(TensorDataset(*rows()), 16, shuffle=healthy), {}


def shards_in_order(healthy: bool) -> tuple[Any, dict[str, Any]]:
    """Eight shards of two classes each; rows are shuffled within a shard, shards are not."""
    x, y = rows()
    rng = np.random.default_rng(0)
    shards = np.argsort(y.numpy() // 2 + rng.random(2048)).reshape(8, 256)
    order = mixed(2048) if healthy else np.concatenate([rng.permutation(one) for one in shards])
    return in_batches(x, y, order), {}


def small_buffer(healthy: bool) -> tuple[Any, dict[str, Any]]:
    """A sorted stream through a shuffle buffer of 64 rows; of all rows in the twin."""
    x, y = rows()
    rng, held, order = np.random.default_rng(0), [], []
    for place in range(2048):
        held.append(place)
        if len(held) == (2048 if healthy else 64):
            order.append(held.pop(int(rng.integers(len(held)))))
    order += rng.permutation(held).tolist()
    return in_batches(x, y, order), {}


def no_set_epoch(healthy: bool) -> tuple[Any, dict[str, Any]]:
    x, y = rows(1024)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, 1, 0, shuffle=True)
    loader = DataLoader(data, 16, sampler=sampler)
    return loader, {"set_epoch": sampler.set_epoch} if healthy else {}


def grouped_lengths(healthy: bool) -> tuple[Any, dict[str, Any]]:
    """Sequences sorted by their length, and padded: the label is about the length."""
    torch.manual_seed(2)
    length = torch.randint(4, 33, (2048,))
    x = torch.randn(2048, 8) * 0.5 + (length[:, None] > torch.arange(8) * 4).float()
    y = (length // 4).clamp(max=7)
    return in_batches(x, y, mixed(2048) if healthy else length.argsort()), {}


def one_class_a_file(healthy: bool) -> tuple[Any, dict[str, Any]]:
    """Files of one class, read one after the other again and again: 40 batches a cycle."""
    x, y = rows()
    rng = np.random.default_rng(0)
    order = [
        int(rng.choice(np.flatnonzero(y == step // 5 % 8)))
        for step in range(256)
        for _ in range(16)
    ]
    return in_batches(x, y, rng.permutation(order) if healthy else order), {}


def two_domains(healthy: bool) -> tuple[Any, dict[str, Any]]:
    """Batches of two domains in turn; in the twin each batch has rows of both."""
    x, y = rows()
    place = np.arange(2048).reshape(2, 64, 16)  # the first four classes and the others
    order = mixed(2048) if healthy else place.transpose(1, 0, 2).ravel()
    return in_batches(x, y, order), {}


def same_on_ranks(healthy: bool) -> tuple[Any, dict[str, Any]]:
    x, y = rows()
    one, two = (in_batches(x, y, mixed(2048, seed)) for seed in (0, int(healthy)))
    return one, {"ranks": [two]}


def time_order(healthy: bool) -> tuple[Any, dict[str, Any]]:
    """Hours of days, 4 rows of a step: what is predicted follows the hour, and drifts."""
    torch.manual_seed(3)
    hour = torch.arange(4096) / 4
    x = torch.randn(4096, 8) * 0.5 + torch.sin(2 * torch.pi * hour / 24)[:, None]
    y = (4 * (1 + torch.sin(2 * torch.pi * hour / 24)) * 0.99).long()
    return in_batches(x, y, mixed(4096) if healthy else np.arange(4096)), {}


def curriculum(healthy: bool) -> tuple[Any, dict[str, Any]]:
    """Easy rows first: noise grows from 0 to 1.4 over the run."""
    x, y = rows()
    order = mixed(2048)
    noise = torch.linspace(0, 2, 2048)[:, None] * torch.randn(2048, 8)
    clean = nn.functional.one_hot(y[order], 8) + 0.7 * noise
    places = mixed(2048, 1) if healthy else np.arange(2048)
    return in_batches(clean, y[order], places), {}


FAULTS: dict[str, Callable[[bool], tuple[Any, dict[str, Any]]]] = {
    "sorted labels": sorted_labels,
    "shard order fixed": shards_in_order,
    "buffer too small": small_buffer,
    "set_epoch forgotten": no_set_epoch,
    "lengths grouped": grouped_lengths,
    "one class per file": one_class_a_file,
    "two domains alternating": two_domains,
    "same batches on every rank": same_on_ranks,
    "time order, daily cycle": time_order,
    "curriculum": curriculum,
}


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


def domains(size: int = 3_000_000) -> list[torch.Tensor]:
    """Code and prose that Python's packages ship, as bytes."""
    found = []
    library = next(path for path in sys.path if path.endswith(f"python3.{sys.version_info[1]}"))
    for pattern in (f"{library}/*.py", f"{library}/**/*.txt", f"{library}/**/*.rst"):
        text = b""
        for path in sorted(glob.glob(pattern, recursive=True)):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                text += file.read()
            if len(text) > size:
                break
        found.append(text)
    code, prose = found[0], found[1] + found[2]
    return [torch.tensor(np.frombuffer(one, np.uint8).astype(np.int64)) for one in (code, prose)]


def alternating(period: int, steps: int, seed: int = 0) -> list[torch.Tensor]:
    texts, rng = domains(), np.random.default_rng(seed)
    made = []
    for step in range(steps):
        text = texts[step % period >= period / 2]
        places = rng.integers(0, len(text) - 129, size=32)
        made.append(torch.stack([text[one : one + 129] for one in places]))
    return made


def transformer(args: argparse.Namespace) -> None:
    for beta1, period in ((0.95, 48), (0.95, 4), (0.5, 256)):
        torch.manual_seed(0)
        model = Transformer().to(args.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(beta1, 0.95))
        begun = time.monotonic()
        found = audit(
            alternating(period, args.steps), model, next_byte, optimizer, steps=args.steps
        )
        print(f"transformer, beta1 {beta1}, period {period}: {time.monotonic() - begun:.0f} s")
        print(f"{found}\n{found.lost_steps}", flush=True)
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    places = [rng.choice(np.flatnonzero(y == step % 40 // 4), 16) for step in range(512)]
    inputs, labels = torch.tensor(x.astype("f4") / 16), torch.tensor(y)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.95)
    batches = [(inputs[one], labels[one]) for one in places]
    print(
        f"digits by class, cycle of 40: {audit(batches, model, nn.CrossEntropyLoss(), optimizer)}"
    )


def cost(args: argparse.Namespace) -> None:
    for layers, width in ((4, 256), (14, 768)):
        torch.manual_seed(0)
        model = Transformer(layers, width).to(args.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
        batches = alternating(16, 128)
        weights = sum(one.numel() for one in model.parameters())
        is_cuda = args.device.startswith("cuda")
        begun = time.monotonic()
        for batch in batches[:32]:
            optimizer.zero_grad()
            next_byte(model, batch).backward()
            optimizer.step()
            if is_cuda:
                torch.cuda.synchronize()
        plain = (time.monotonic() - begun) / 32
        held = torch.cuda.max_memory_allocated() / 2**30 if is_cuda else 0.0
        if is_cuda:
            torch.cuda.reset_peak_memory_stats()
        begun = time.monotonic()
        found = audit(batches, model, next_byte, optimizer, steps=128)
        seconds = time.monotonic() - begun
        most = torch.cuda.max_memory_allocated() / 2**30 if is_cuda else 0.0
        print(
            f"{weights / 1e6:.1f} million parameters: {1e3 * plain:.1f} ms and {held:.2f} GiB a step "
            f"of training; audit of 128 steps ({found.order}, {found.harm}, {found.cause}) "
            f"{seconds:.0f} s, {found.work:.0f} steps, {seconds / plain / 128:.0f} times training, "
            f"{most:.2f} GiB",
            flush=True,
        )


def spread(function: Callable[[Any], Any], jobs: Iterable[Any], processes: int) -> Iterable[Any]:
    if processes < 2:
        yield from map(function, jobs)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(function, jobs)


PARTS = {one.__name__: one for one in (causes, shuffled, faults, transformer, cost)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["causes", "shuffled", "faults"])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seeds", default="0:25", type=lambda text: [*map(int, text.split(":"))])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=512)
    args = parser.parse_args()
    for part in args.parts:
        begun = time.monotonic()
        PARTS[part](args)
        print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
