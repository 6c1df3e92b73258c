"""Jobs on Dask: whose worker is gone, or cannot load them."""

from __future__ import annotations

import threading

import pytest

from resonax.core.errors import ArgumentError
from resonax.run.dask import Dask
from resonax.run.executor import Lost
from resonax.run.processes import THREADS

BEGUN, HELD = threading.Event(), threading.Event()  # workers are threads of this process


@pytest.fixture(scope="module")
def client():
    """A client of a scheduler that has no workers."""
    from distributed import Client, LocalCluster

    with (
        pytest.MonkeyPatch.context() as patch,
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for name in THREADS:  # a worker sets them, here for this process: they are put back
            patch.setenv(name, "1")
        yield client


def start_worker(client):
    from distributed import Worker

    async def start() -> Worker:
        return await Worker(client.scheduler.address, nthreads=1)

    return client.sync(start)


def hold(job, advance):
    BEGUN.set()
    assert HELD.wait(60)
    return job**2


def test_a_job_is_given_again_when_all_workers_went_at_once(client):
    found, lost = [], []

    def then(job, result):
        if isinstance(result, Lost):
            lost.append(result)
            return [job]
        found.append(result)
        return []

    worker = start_worker(client)
    arguments = (hold, [3], lambda *_: None, then)
    thread = threading.Thread(target=Dask(client).run, args=arguments, daemon=True)
    thread.start()
    assert BEGUN.wait(30)
    client.sync(worker.close, executor_wait=False)
    assert client.nthreads() == {}
    HELD.set()
    worker = start_worker(client)
    thread.join(20)
    assert not thread.is_alive(), "the job waits for a worker that is gone"
    client.sync(worker.close)
    assert found == [9]
    assert [one.is_suspect for one in lost] == [True]


class OfOtherVersion:
    """Can be sent, but not loaded."""

    def __reduce__(self):
        return __import__, ("resonax.of_the_future",)


def test_a_worker_that_cannot_load_a_job_says_so_and_goes_on(client):
    worker = start_worker(client)
    with pytest.raises(ArgumentError, match=r"No module named .*: install the same version of res"):
        Dask(client).run(hold, [OfOtherVersion()], lambda *_: None, lambda *_: [])
    assert len(client.nthreads()) == 1
    client.sync(worker.close)
