"""What a program for networks is written for: sizes, laws, an optimizer, a processor."""

from __future__ import annotations

from dataclasses import dataclass

from resonax.lanes.inputs import LawForm
from resonax.lanes.network import layers_of
from resonax.lanes.process import ProcessStep
from resonax.lanes.random_numbers import GROUP
from resonax.lanes.update import Update

__all__ = ["TEST", "TRAIN", "Plan", "Slots"]

TRAIN, TEST = "train", "test"  # what a batch is for


@dataclass(frozen=True)
class Slots:
    """The first slots of the random numbers, by what they are for."""

    process: int
    input: int
    choice: int
    noise: int
    test: int
    test_choice: int


@dataclass(frozen=True)
class Plan:
    """What a program is written for."""

    widths: tuple[int, ...]
    rows: int  # of a batch
    test_rows: int
    law: LawForm
    test_law: LawForm
    update: Update
    process: ProcessStep | None  # None: laws are given
    slots: Slots
    double: bool
    lanes: int
    sums: int  # held in registers at once

    @property
    def weights(self) -> int:
        """How many weights a network has."""
        return sum(layer.size for layer in layers_of(self.widths))

    @property
    def numbers(self) -> int:
        """How many numbers a network has: of its optimizer, of the noise, of the slope."""
        return self.update.numbers + 2

    @property
    def wide_states(self) -> int:
        """How many numbers stand beside each weight."""
        return sum(is_wide for _, is_wide in self.update.states)

    @property
    def scalar_states(self) -> int:
        """How many words stand beside each network."""
        return len(self.update.states) - self.wide_states

    def areas(self) -> dict[str, int]:
        """Return how many vectors of scratch memory each purpose takes."""
        units = sum(self.widths[1:])
        found = {
            "hidden": max(self.rows, self.test_rows) * units,
            "slopes": self.rows * units,
            "noise": GROUP * (self.rows + 1),  # an odd count is followed by one number more
        }
        if self.process:
            found["process"] = GROUP * (self.process.normals + 1)
            found["law"] = self.law.size
        for purpose in (TRAIN, TEST):
            law, rows = self.source(purpose)
            found[f"{purpose} batch"] = rows * (law.dim + 1)
            found[f"{purpose} normal"] = GROUP * (law.normals(rows) + 1)
            found[f"{purpose} choice"] = GROUP * (law.uniforms(rows) + 1)
        return found

    def source(self, purpose: str) -> tuple[LawForm, int]:
        """Return the law of inputs for a purpose, and how many are drawn."""
        return (self.law, self.rows) if purpose == TRAIN else (self.test_law, self.test_rows)

    @property
    def text(self) -> str:
        """All that the code depends on, beside the processor."""
        parts = (self.widths, self.rows, self.test_rows, self.law, self.test_law, self.slots)
        walk = self.process.text if self.process else ""
        return repr((*parts, self.double, self.lanes, self.sums, self.update.text, walk))
