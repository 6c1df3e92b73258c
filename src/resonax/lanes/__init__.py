"""Many small networks at once: each lane of a vector register trains a network of its own.

The loop is written as LLVM code for the sizes at hand and compiled for the processor at hand: a
compiler of arrays has no way to hold a network in a lane. `numba` with a vector type of its own was
measured at 1.3 times the time; it brings the same library and much more, and its code is typed and
compiled anew for each optimizer by hand.
"""

from resonax.lanes.equations import Unsupported
from resonax.lanes.fleet import Fleet
from resonax.lanes.inputs import LawForm
from resonax.lanes.machine import host_machine
from resonax.lanes.plan import Plan, Slots
from resonax.lanes.process import ProcessStep, trace_process
from resonax.lanes.program import VERSION
from resonax.lanes.update import Update, trace_update

__all__ = [
    "VERSION",
    "Fleet",
    "LawForm",
    "Plan",
    "ProcessStep",
    "Slots",
    "Unsupported",
    "Update",
    "host_machine",
    "trace_process",
    "trace_update",
]
