"""Two processes that fill one store at the same time: is any store wrong, broken or lost?

    python tests/two_processes.py --trials 200

Each trial starts two processes at the same moment on one empty folder, with equal seeds in every
second trial and with different seeds in the others; in every third trial one of the two is killed
at a random moment. Both fill the store through its own functions, and a third process, which runs
after them with the seed that the folder was made with, must find or make it complete and right.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr  # noqa: F401  loaded before the processes are forked, as zarr is
import zarr  # noqa: F401

from resonax.core.errors import StoreError
from resonax.store import Layout, Store, Variable, open_store

LAYOUT = Layout(
    coords={"momentum": np.linspace(0.9, 0.99, 3), "period": np.arange(10, 18)},
    chunks={"period": 2},
    variables={
        "rate": Variable(("momentum", "period"), "float64"),
        "steps": Variable(("period",), "int64"),
    },
)
FINE, REFUSED = 0, 3  # exit statuses of a process


def values(seed: int, period: np.ndarray) -> dict[str, np.ndarray]:
    """Return what a task computes, a function of its place and of the seed."""
    momentum = LAYOUT.coords["momentum"]
    return {"rate": seed + momentum[:, None] * period, "steps": period + seed}


def fill(path: Path, seed: int) -> None:
    """Make the store or take it up, and do what is left."""
    store = Store.open(path, LAYOUT, {"seed": seed}, {"title": "two processes"})
    for task in store.pending():
        store.write(task, values(seed, LAYOUT.coords["period"][task.region["period"]]))


def check(path: Path) -> None:
    """Fill the store with the seed that its metadata name, and compare every number."""
    attributes = json.loads((path / "zarr.json").read_text())["attributes"]
    seed = json.loads(attributes["specification"])["seed"]
    fill(path, seed)
    dataset = open_store(path)
    for name, array in values(seed, LAYOUT.coords["period"]).items():
        if not np.array_equal(dataset[name].values, array):
            raise AssertionError(f"the numbers of {name} are not those of seed {seed}")
    names = {entry.name for entry in path.parent.iterdir()} | {e.name for e in path.iterdir()}
    if left := [name for name in names if name.startswith(".")]:
        raise AssertionError(f"left behind: {left}")


def start(function: Callable[..., None], *given: object, gate: tuple[int, ...] = ()) -> int:
    """Run a function in a copy of this process, once the gate is open; return its number."""
    number = os.fork()
    if number:
        return number
    try:
        if gate:
            reader, writer = gate
            os.close(writer)
            os.read(reader, 1)  # returns when the last copy of the writer is closed
        function(*given)
        os._exit(FINE)
    except StoreError as error:
        if "seed = " in str(error):
            os._exit(REFUSED)
        print(error, file=sys.stderr)
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def trial(number: int, moments: random.Random) -> str:
    """Return what came of two processes on one folder."""
    seeds = (1, 1) if number % 2 else (1, 2)
    kills = number % 3 == 2
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.zarr"
        gate = os.pipe()
        children = [start(fill, path, seed, gate=gate) for seed in seeds]
        for end in gate:  # both begin now
            os.close(end)
        if kills:
            time.sleep(moments.uniform(0.0, 0.04))
            os.kill(children[0], signal.SIGKILL)
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        wanted = (FINE, REFUSED) if seeds[0] != seeds[1] else (FINE,)
        survivors = ends[1:] if kills else ends
        if not kills and FINE not in ends:
            return f"neither of the two got through: {ends}"
        if any(end not in wanted for end in survivors):
            return f"a process failed: {ends}"
        if not path.exists():
            return "lost"
        status = os.waitstatus_to_exitcode(os.waitpid(start(check, path), 0)[1])
        return "right" if status == FINE else "wrong or broken"


def run(trials: int, seed: int = 0) -> Counter[str]:
    """Return how often each outcome was seen."""
    moments = random.Random(seed)
    return Counter(trial(number, moments) for number in range(trials))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    began, found = time.perf_counter(), run(parser.parse_args().trials)
    for outcome, count in found.most_common():
        print(f"{count:4d}  {outcome}")
    print(f"{time.perf_counter() - began:.0f} s")
    sys.exit(0 if set(found) == {"right"} else 1)
