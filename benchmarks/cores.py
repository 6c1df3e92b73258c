"""What bounds networks in lanes: multiply-adds, loads and updates alone, by one core and by all.

Run: python benchmarks/cores.py

Each loop runs for a second, so that the clock is the one that lasts; a short piece may run at a
higher one. Cores that share their units do not do more together than one. The bound is the time
of the multiply-adds of a step of training alone, with 10 samples of a network 2-20-20-1.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from resonax.lanes import host_machine
from resonax.lanes.compiled import load_function
from resonax.lanes.emitter import Code
from resonax.lanes.vectors import F32
from resonax.threads import count_threads

SECONDS = 1.0
WORK = 10_000_000  # vectors in a call, so that calls are few
FORWARD = 10 * (2 * 20 + 20 * 20 + 20)  # as many again for the gradients of the weights
STEP = 2 * FORWARD + 10 * (20 * 20 + 20)  # multiply-adds, with those of the slopes
Write = Callable[[Code, Any], None]


def multiply_adds(code: Code, given: Any) -> None:
    """Sixteen sums in registers, which hide the latency of each other."""
    memory = given["memory"]
    sums = [code.variable(memory.load(place)) for place in range(16)]
    factor, term = memory.load(16), memory.load(17)
    with code.loop(given["count"], 16):
        for total in sums:
            total.set(total.get().fma(factor, term))
    for place, total in enumerate(sums):
        memory.store(place, total.get())


def loads(vectors: int) -> Write:
    """Return what sums so many vectors up, again and again."""

    def write(code: Code, given: Any) -> None:
        memory = given["memory"]
        sums = [code.variable(memory.load(place)) for place in range(8)]
        with code.loop(given["count"], vectors), code.loop(vectors, 8) as place:
            for number, total in enumerate(sums):
                total.set(total.get() + memory.load(place + number))
        for place, total in enumerate(sums):
            memory.store(place, total.get())

    return write


def updates(vectors: int) -> Write:
    """Return what changes so many vectors in their places, again and again."""

    def write(code: Code, given: Any) -> None:
        memory = given["memory"]
        with code.loop(given["count"], vectors), code.loop(vectors, 8) as place:
            for number in range(8):
                memory.store(place + number, memory.load(place + number) * 0.999)

    return write


def rate(write: Write, threads: int) -> float:
    """Return vectors a second, of all threads together."""
    machine = host_machine()
    code = Code(machine.lanes(False), F32, machine.triple)
    write(code, code.function("run", ["count"], ["memory"], []))
    code.end()
    run = load_function("run", code, 1, 1)
    done, together = [0] * threads, threading.Barrier(threads)

    def work(number: int) -> None:
        raw = np.ones(2**18, np.float32)  # 1 MiB, from the first line of the cache on
        place = raw.ctypes.data + -raw.ctypes.data % 64
        together.wait()
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            run(WORK, place)
            done[number] += WORK

    began = time.perf_counter()
    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(done) / (time.perf_counter() - began)


def show(name: str, one: float, every: float) -> None:
    print(f"  {name:32s} {one / 1e9:8.2f} {every / 1e9:8.2f} {every / one:6.2f}", flush=True)


def main() -> None:
    machine, threads = host_machine(), count_threads()
    lanes = machine.lanes(False)
    print(f"{machine.cpu}, {lanes} lanes; 1e9 vectors a second")
    print(f"  {'':32s} one core  {threads} cores  ratio")
    sums = [rate(multiply_adds, count) for count in (1, threads)]
    show("multiply-adds", *sums)
    for name, write in (
        ("loads from 16 KiB", loads(16 * 256 // lanes)),
        ("loads from 512 KiB", loads(512 * 256 // lanes)),
        ("updates in 16 KiB", updates(16 * 256 // lanes)),
        ("updates in 512 KiB", updates(512 * 256 // lanes)),
    ):
        show(name, rate(write, 1), rate(write, threads))
    one, every = (STEP / lanes / found * 1e6 for found in sums)
    print(f"  bound of a step of training, us  {one:8.3f} {every:8.3f}")


if __name__ == "__main__":
    main()
