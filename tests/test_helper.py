"""A helper: a copy of a process that has not loaded jax, which calls functions for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from resonax.executors.helper import start_helper

# A process without jax, which has a helper; it says what the helper answers.
PROGRAM = """
import os, signal, sys, time
from resonax.checks import ArgumentError
from resonax.executors import helper as helpers
from resonax.executors.processes import start_executor

def where(sign):
    return f"{sign} {'helper' if os.getpid() != OWN else 'here'} {'decimal' in sys.modules}"

def begin():
    import decimal

def fail(words):
    raise ArgumentError(words)

def work_in_copies(seconds):
    works = (lambda: None, lambda: 1 / 0, lambda: time.sleep(seconds))
    return [is_done() for is_done in map(helpers.begin_in_copy, works)]

OWN = os.getpid()
helpers._PATIENCE = 1.0
with start_executor(1, afterwards=begin) as executor:
    helper = executor.helper
    print(helper.call(where, "one"), flush=True)
    try:
        helper.call(fail, "mended")
    except ArgumentError as error:
        print(error, flush=True)
    print(helper.call(where, "two", lambda: print("meanwhile")), flush=True)
    print(helper.call(work_in_copies, 60.0), flush=True)
    os.kill(helper._worker.process.pid, signal.SIGKILL)
    print(helper.call(where, "three"), flush=True)
print("jax" in sys.modules, helper._worker.process.is_alive())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no helper")
def test_a_helper_answers_fails_and_may_be_killed():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core has no helper")
    words = [sys.executable, "-c", PROGRAM]
    found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.splitlines() == [
        "one helper True",
        "mended",
        "meanwhile",
        "two helper True",
        "[True, False, False]",
        "three here False",
        "False False",
    ]


def test_a_process_that_has_loaded_jax_is_not_copied():
    import jax  # noqa: F401

    with start_helper(lambda context: pytest.fail(f"{context} copies it"), int) as helper:
        assert helper is None
