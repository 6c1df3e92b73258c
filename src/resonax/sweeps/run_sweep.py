"""A sweep from its description to its dataset, in one call."""

from __future__ import annotations

import concurrent.futures
import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resonax.core.errors import check_whole
from resonax.run.executor import Executor
from resonax.run.given import as_executor
from resonax.run.processes import start_executor
from resonax.spec.sweep_checks import parse_sweep, read_sweep
from resonax.spec.sweeps import Sweep
from resonax.store import Place
from resonax.sweeps.cost import check_cost
from resonax.sweeps.experiment import from_sweep
from resonax.sweeps.runner import run_experiments

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

__all__ = ["run_sweep"]


def run_sweep(
    spec: str | Path | Mapping[str, Any] | Sweep,
    *,
    out: str | Place | None = None,
    executor: Executor | concurrent.futures.Executor | Client | None = None,
    processes: int = 1,
    seed: int = 0,
    scale: str = "paper",
    device: str | None = None,
    double: bool = False,
    progress: Callable[[float], None] | None = None,
) -> xr.Dataset:
    """Run a sweep: a simulated response over two axes, for one or more panels.

    Parameters
    ----------
    spec
        The sweep: the path of a TOML file, a mapping with the same content, or one that was read.
    out
        A folder that keeps the results, in ``results/<id>.zarr``, as ``resonax sweep --out`` does,
        or a URL of fsspec such as ``s3://bucket/mine``.
        What is stored there is kept, so that the same call goes on where an earlier one was
        stopped. Nothing is kept if it is not given.
    executor
        Who does the work: any executor of `concurrent.futures`, a ``Client`` of Dask, or one of
        resonax, such as `worker_processes` gives. The results do not depend on it.
    processes
        How many processes share the work, if no executor is given. They share out tasks, which are
        the panels, each cut along the second axis into parts of ``chunk`` points. A script that
        asks for more than one needs ``if __name__ == "__main__":``, as `multiprocessing` does.
    seed
        Of all random numbers.
    scale
        ``paper`` for the sweep as it stands, ``smoke`` for what its tables ``smoke`` make of it.
    device
        ``cpu`` or ``gpu``; what jax chooses if it is not given.
    double
        Whether simulations have 64 bits, not 32.
    progress
        Told the share of the sweep that was just finished.

    Returns
    -------
    xarray.Dataset
        ``log_response``, the logarithm of the mean response over the last steps, ``rate``, the
        growth per step, and more, over ``(panel, first axis, second axis)``; those of single runs
        have the further dimension ``run``.

    Examples
    --------
    >>> found = run_sweep({
    ...     "id": "two-by-two",
    ...     "process": {"kind": "sinusoid"},
    ...     "optimizer": {"kind": "heavy_ball", "lr": 0.01},
    ...     "train": {"batch": 20},
    ...     "run": {"runs": 2, "steps": 2000, "window": 200},
    ...     "axes": {"momentum": {"values": [0.9, 0.98]}, "period": {"values": [22, 60]}},
    ... })
    >>> (found.rate.isel(panel=0) > 0).values.tolist()
    [[False, False], [True, False]]
    """
    check_whole("seed", seed, low=0, high=2**63 - 1)
    check_whole("processes", processes, low=1)
    if isinstance(spec, str | Path):
        spec = read_sweep(Path(spec), scale=scale)
    elif not isinstance(spec, Sweep):
        spec = parse_sweep(spec, scale=scale)
    check_cost(spec, double=double)
    with contextlib.ExitStack() as stack:
        folder = out or stack.enter_context(tempfile.TemporaryDirectory())
        (outcome,) = run_experiments(
            [from_sweep(spec)],
            folder,
            seed=seed,
            device=device,
            double=double,
            executor=as_executor(executor)
            if executor is not None
            else stack.enter_context(start_executor(processes)),
            progress=(lambda _, share: progress(share)) if progress else None,
        )
        return outcome.dataset
