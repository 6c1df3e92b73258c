"""The guard of torch in two processes that train one model together."""

from __future__ import annotations

import multiprocessing
import queue
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import distributed_jobs as jobs

pytestmark = pytest.mark.slow  # each rank is a process that loads torch anew
TIMEOUT = 300  # seconds, after which processes that wait for each other are a failure


@pytest.fixture(scope="module")
def start():
    """Return a function that starts both ranks, of a process that has loaded torch already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["resonax.torch"])

    def start(job: Callable[..., Any], folder: Path, *given: Any) -> tuple[list[Any], Any]:
        answers = context.Queue()
        store = f"file://{folder / job.__name__}"
        ranks = [
            context.Process(target=jobs.work, args=(job, rank, store, answers, given))
            for rank in range(2)
        ]
        for one in ranks:
            one.start()
        return ranks, answers

    return start


@pytest.fixture(scope="module")
def ask(start):
    """Return a function that gives the answers of both ranks."""

    def ask(job: Callable[..., Any], folder: Path, *given: Any) -> list[Any]:
        ranks, answers = start(job, folder, *given)
        found = {}
        try:
            for _ in ranks:
                rank, answer = answers.get(timeout=TIMEOUT)
                if isinstance(answer, Exception):
                    raise answer
                found[rank] = answer
        except queue.Empty:
            pytest.fail("the ranks wait for each other")
        finally:
            for one in ranks:
                one.join(1 if len(found) < 2 else TIMEOUT)
                one.kill()
        return [found[0], found[1]]

    return ask


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def reference(ask, folder) -> list[dict[str, Any]]:
    return ask(jobs.undisturbed, folder, folder)


def test_all_ranks_take_one_decision_and_have_the_same_weights_after_each_step(reference):
    one, two = reference
    assert max(one["rewound"]) > 0
    assert one["decisions"] == two["decisions"]
    assert one["seen"] == two["seen"]
    assert one["seed"] == two["seed"] == 0  # of rank 0
    assert one["check"] == two["check"] == ()
    assert one["events"] == two["events"]


def test_a_guarded_run_learns_what_the_order_would_make_it_forget(reference):
    for one in reference:
        assert one["plain"] < 0.5
        assert one["accuracy"] > 0.9
        assert one["offered"] > 0.9


def test_a_killed_run_goes_on_from_the_checkpoints_of_all_ranks(ask, start, folder, reference):
    ranks, _ = start(jobs.killed, folder, folder)
    for one in ranks:
        one.join(TIMEOUT)
        code = one.exitcode
        one.kill()
        assert code is not None
    assert ranks[1].exitcode == -signal.SIGKILL
    answers = ask(jobs.resumed, folder, folder)
    for one, before in zip(answers, reference, strict=True):
        assert one["bits"] == before["bits"]
        assert one["decisions"] == before["decisions"]
    for rank, one in enumerate(answers):
        other, steps, first = one["texts"]
        assert f"this state is of rank {1 - rank}: save and load one on each rank" in other
        assert "of different steps or runs: load those that all of them saved" in steps
        assert ("is of rank 0" in first) if rank else ("rank 1 raised ArgumentError" in first)


def test_an_exception_of_one_rank_is_one_of_all_and_the_run_can_go_on(ask, folder, reference):
    answers = ask(jobs.disturbed, folder)
    failing = [1, 0, 1, 1]  # before and in the forward pass, of a batch, and in a replay
    for rank, one in enumerate(answers):
        assert len(one["texts"]) == len(failing)
        for number, (text, broken) in enumerate(zip(one["texts"], failing, strict=True)):
            if rank != broken:
                assert text.startswith(f"Interrupted: rank {broken} raised ")
            else:
                assert "write guard.step(" in text if number == 2 else text.endswith("broken")
        assert one["decisions"] == reference[rank]["decisions"]
        assert one["bits"] == reference[rank]["bits"]


def test_a_loss_that_is_not_finite_on_one_rank_is_set_aside_by_all(ask, folder):
    one, two = ask(jobs.not_finite, folder)
    assert one["aside"] == two["aside"] == 1
    assert one["weights"] == two["weights"]
    assert "nan" not in str(one["weights"])


def test_what_several_processes_cannot_do_is_refused_in_a_sentence(ask, folder):
    for rank, said in enumerate(ask(jobs.refused, folder)):
        assert "the ranks have different weights: wrap the module" in said["weights"]
        assert said["is_unchanged"]
        assert "the ranks have different gradients: wrap the module" in said["gradients"]
        assert "may skip the step on one rank only: wrap the module" in said["scaler"]
        assert "the guards of the ranks differ: give the same" in said["options"]
        wrong = "Interrupted: rank 1 raised ArgumentError: budget must", "budget must be above 0"
        assert wrong[rank] in said["one"]
        assert "cannot be copied; make a new guard on all ranks" in said["copy"]
        for name, kind in (
            ("zero", "ZeroRedundancyOptimizer"),
            ("fsdp", "FullyShardedDataParallel"),
            ("fsdp2", "FSDPModule"),
        ):
            text = f"a guard rewinds whole models, and {kind} gives each process a part of one"
            assert text in said.get(name, text)
    assert "torch.distributed has 2 processes, and had 1 when" in ask(jobs.early, folder)[0]


def test_gradients_averaged_by_hand_and_rows_of_one_rank_that_cannot_be_mixed(ask, folder):
    one, two = ask(jobs.by_hand, folder)
    assert one == two
    assert one["tests"] > 0


@pytest.mark.slow  # loads the trainers in both processes
@pytest.mark.parametrize("job", [jobs.by_lightning, jobs.by_transformers])
def test_a_trainer_in_two_processes(ask, folder, job):
    one, two = ask(job, folder, folder)
    for name in ("weights", "resumed", "decisions", "again", "steps"):
        assert one[name] == two[name]
    assert max(one["rewound"]) > 0
    assert one["weights"] == one["resumed"]
    assert one["decisions"] == one["again"]
    assert one["steps"] == (64, 64)
