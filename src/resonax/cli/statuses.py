"""What the exit status of a command says."""

from __future__ import annotations

from enum import IntEnum

from resonax.run.interrupts import STATUS

__all__ = ["STATUSES", "Status"]


class Status(IntEnum):
    """The exit status of every command: only 1 says that training is ruined."""

    ANSWERED = 0
    DIVERGES = 1
    BAD_INPUT = 2
    TASKS_FAILED = 3
    DEFECT = 70
    INTERRUPTED = STATUS
    BROKEN_PIPE = 141


STATUSES = (
    "Exit status: 0 answered, and nothing diverges (it converges, or is undecided); 1 stability "
    "says diverges, check diverges or rises, or audit says harmful; 2 bad input, or an environment "
    "in which nothing can be computed; 3 some tasks of reproduce or sweep failed, and all others "
    "are stored; 70 a defect of resonax; 130 interrupted; 141 nobody read the output to its end."
)
