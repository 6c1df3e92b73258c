"""Many small networks at once: each lane of a vector register trains a network of its own.

The loop is written as LLVM code for the sizes at hand and compiled for the processor at hand.
"""

from resonax.lanes.fleet import Fleet
from resonax.lanes.inputs import LawForm
from resonax.lanes.machine import host_machine
from resonax.lanes.program import VERSION, Plan, Slots
from resonax.lanes.update import Unsupported, Update, trace_update

__all__ = [
    "VERSION",
    "Fleet",
    "LawForm",
    "Plan",
    "Slots",
    "Unsupported",
    "Update",
    "host_machine",
    "trace_update",
]
