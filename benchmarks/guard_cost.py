"""What a guard by replay costs while nothing is wrong: time and memory, on independent data.

Run: python benchmarks/guard_cost.py [--device cuda] [--networks mlp residual attention]
    [--optimizers SGD Adam] [--blocks N] [--threads N] [--snapshots device cpu pinned] [--processor]

Three twins of one network of about a million parameters learn from the same batches in random
order, one of them guarded, in turn for a block of 32 steps each, so that all meet the same noise of
the machine. Printed are: the extra time of steps without a test over the mean of the plain twins,
and how much these differ, as it matters where weights lie in memory; how many plain steps the last
test takes, with the judgements before it; how often a test comes in the long run; the sum of both,
the extra time in calm running; and that of this whole run, with its first tests. The time of steps
is the median over blocks for each place in a block, such as that of a snapshot, added up. Memory is
what the guard reports, and by how much the peak of a process is higher with it (on a GPU: of the
memory allocated there).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from digits import network as residual
from network_tasks import Attention
from torch import Tensor, nn

BLOCK = 32  # steps, those of a snapshot
BATCH = 32
WARM = 2  # first blocks, which are not timed
loss_of = nn.functional.cross_entropy
Clock = Callable[[], float]


def mlp(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(256, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 200),
        nn.ReLU(), nn.Linear(200, 10),
    )  # fmt: skip


class Mean(nn.Module):
    """The mean over places."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=1)


def attention(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    blocks = [Attention(128) for _ in range(5)]
    return nn.Sequential(nn.Linear(16, 128), *blocks, Mean(), nn.Linear(128, 10))


NETWORKS: dict[str, tuple[Callable[[int], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (256,)),
    "residual": (residual, (1, 8, 8)),
    "attention": (attention, (16, 16)),
}


def batches(shape: tuple[int, ...], device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Return rows of ten noisy classes, in random order."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(10, *shape, generator=draw)
    pool = torch.randint(10, (4096,), generator=draw)
    rows = centres[pool] + 2 * torch.randn(4096, *shape, generator=draw)
    rows, pool = rows.to(device), pool.to(device)
    while True:
        chosen = torch.randint(4096, (BATCH,), generator=draw).to(device)
        yield rows[chosen], pool[chosen]


def begin(name: str, optimizer: str, device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = NETWORKS[name][0](0).to(device)
    if optimizer == "SGD":
        return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, getattr(torch.optim, optimizer)(model.parameters(), lr=0.0003)


def trainer(
    name: str, optimizer: str, device: str, options: dict[str, Any] | None
) -> tuple[Callable[[Tensor, Tensor], object], Any]:
    """Return a function that trains on a batch, and the guard if options for it are given."""
    from resonax.torch import Guard

    model, updates = begin(name, optimizer, device)
    if options is not None:
        guard = Guard(model, updates, **options)
        return (lambda x, y: guard.step(lambda x, y: loss_of(model(x), y), x, y)), guard

    def plain(x: Tensor, y: Tensor) -> None:
        updates.zero_grad()
        loss_of(model(x), y).backward()
        updates.step()

    return plain, None


def timed(
    step: Callable[[Tensor, Tensor], object], data: list[Any], device: str, clock: Clock
) -> list[float]:
    """Return the time of each step; the last one waits for the device."""
    if device != "cpu":
        torch.cuda.synchronize()
    times = [clock()]
    for place, (x, y) in enumerate(data, 1):
        step(x, y)
        if device != "cpu" and place == len(data):
            torch.cuda.synchronize()
        times.append(clock())
    return [after - before for before, after in itertools.pairwise(times)]


def usual_block(blocks: list[list[float]], chosen: list[int]) -> float:
    """Return the time of a usual block: the sum of the medians of its steps."""
    return sum(statistics.median(blocks[k][place] for k in chosen) for place in range(BLOCK))


def compare(
    name: str, optimizer: str, device: str, blocks: int, options: dict[str, Any], clock: Clock
) -> None:
    """Print the cost of a guard in one setting."""
    from resonax.guards.replay import ReplayState, next_test

    made = [trainer(name, optimizer, device, given) for given in (None, None, options)]
    guard = made[2][1]
    stream = batches(NETWORKS[name][1], device)
    times: tuple[list[list[float]], ...] = ([], [], [])
    orders = list(itertools.permutations(range(3)))  # each comes after each of the others
    for place in range(blocks):
        data = [next(stream) for _ in range(BLOCK)]
        for turn in orders[place % len(orders)]:
            times[turn].append(timed(made[turn][0], data, device, clock))
    report = guard.report()
    config, judged = report.log.config, report.log.judged
    tests = [one.step // BLOCK - 1 for one in judged if len(one.losses) > 1]
    near = {(one.step - 1) // BLOCK for one in judged}
    calm = [k for k in range(WARM, blocks) if k not in near]
    one, two, steps = (usual_block(each, calm) for each in times)
    usual = (one + two) / 2
    last = tests[-1]  # of the longest stretch
    test = (sum(map(sum, times[2][last - 1 : last + 1])) - 2 * steps) / usual * BLOCK
    gap = next_test(ReplayState(step=10**9), config, config.spacing << config.rungs) - 10**9
    stretch = judged[-1].step - judged[-1].oldest
    plain, guarded = (sum(map(sum, each)) for each in (times[0] + times[1], times[2]))
    extra = steps / usual - 1
    print(
        f"{name}, {optimizer}, {device}{_shown(options)}: {usual / BLOCK * 1e3:.2f} ms a step\n"
        f"  steps without a test {extra:+.1%} (plain twins differ by {abs(two / one - 1):.1%}); "
        f"a test of {stretch} steps takes {test:.0f} of them, one in {gap}: {test / gap:+.1%}\n"
        f"  in calm running {extra + test / gap:+.1%}; this run of {blocks * BLOCK} steps "
        f"{2 * guarded / plain - 1:+.0%}, with {len(tests)} tests; {len(report.events)} events"
    )


def _shown(options: dict[str, Any]) -> str:
    return "".join(f", {name}={value}" for name, value in options.items())


def peak(name: str, optimizer: str, device: str, blocks: int, options: Any) -> tuple[int, int]:
    """Return the peak memory of a process that trains, and what its guard reports."""
    step, guard = trainer(name, optimizer, device, options)
    stream = batches(NETWORKS[name][1], device)
    for _ in range(blocks * BLOCK):
        step(*next(stream))
    reported = 0 if guard is None else guard.report().memory
    if device != "cpu":
        return torch.cuda.max_memory_allocated(), reported
    status = Path("/proc/self/status").read_text().splitlines()
    words = next(line for line in status if line.startswith("VmHWM")).split()
    return int(words[1]) * 1024, reported


def compare_memory(name: str, optimizer: str, device: str, options: dict[str, Any]) -> None:
    """Print the memory of a guard in one setting."""
    blocks = 17  # one after the ladder is full
    found = []
    for given in (None, options):
        with get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(peak, (name, optimizer, device, blocks, given)))
    extra, reported = (found[1][0] - found[0][0]) / 2**20, found[1][1] / 2**20
    print(f"  memory: reported {reported:.0f} MiB, peak of the process higher by {extra:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--optimizers", nargs="*", default=["SGD", "Adam"])
    parser.add_argument("--blocks", type=int, default=36, help="of 32 steps")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--snapshots", nargs="*", default=["device"])
    parser.add_argument("--processor", action="store_true", help="processor time, not wall time")
    parser.add_argument("--no-memory", action="store_true")
    given = parser.parse_args()
    clock = time.process_time if given.processor else time.perf_counter
    if given.threads:
        torch.set_num_threads(given.threads)
    for name in given.networks:
        size = sum(one.numel() for one in NETWORKS[name][0](0).parameters())
        print(f"{name}: {size:,} parameters, batch {BATCH}, torch {torch.__version__}")
        for optimizer in given.optimizers:
            for where in given.snapshots:
                options = {} if where == "device" else {"snapshots": where}
                compare(name, optimizer, given.device, given.blocks, options, clock)
                if not given.no_memory:
                    compare_memory(name, optimizer, given.device, options)


if __name__ == "__main__":
    main()
