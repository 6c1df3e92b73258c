"""Processes that hear Ctrl-C, also where the tests run in the background and do not."""

from __future__ import annotations

__all__ = ["HEAR_INTERRUPTS"]

# The first line of such a process: it undoes that interrupts are ignored, as they are under
# `nohup make test &`. Not a preexec_fn, as jax warns of forks.
HEAR_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
