"""The inputs of a step, from their law and their random numbers, and the targets of inputs."""

from __future__ import annotations

import functools
from typing import NamedTuple

from resonax.lanes.emitter import Memory
from resonax.lanes.functions import cos_sin
from resonax.lanes.vectors import Vector

__all__ = ["LawForm", "target"]


class LawForm(NamedTuple):
    """How a law of inputs is written: as a mixture of Gaussians, or as the rows themselves.

    Its numbers are those of each component, one component after the other: the mean, then the root
    of the covariance (its diagonal, or row by row). After them come the sums of the weights of the
    first 1, 2, ... components, without the last sum, which is 1. Given rows stand row by row.
    """

    dim: int
    components: int = 1
    is_diagonal: bool = True
    rows: int = 0  # how many rows are given; 0: they are drawn

    @property
    def component(self) -> int:
        """How many numbers a component has, without its weight."""
        return self.dim + (self.dim if self.is_diagonal else self.dim**2)

    @property
    def size(self) -> int:
        """How many numbers a law has."""
        if self.rows:
            return self.rows * self.dim
        return self.components * self.component + self.components - 1

    def normals(self, rows: int) -> int:
        """Return how many normal numbers some rows take."""
        return 0 if self.rows else rows * self.dim

    def uniforms(self, rows: int) -> int:
        """Return how many uniform numbers some rows take."""
        return rows if self.components > 1 else 0

    def draw(self, law: Memory, normal: list[Vector], uniform: Vector | None) -> list[Vector]:
        """Return an input: the mean and the root times the normal numbers, of one component.

        The uniform number chooses the component: the first whose sum of weights is not below it.
        """
        numbers = [law.load(place) for place in range(self.component)]
        if uniform is not None:
            numbers = self._chosen(law, numbers, uniform)
        mean, root = numbers[: self.dim], numbers[self.dim :]
        if self.is_diagonal:
            return [s.fma(z, m) for s, z, m in zip(root, normal, mean, strict=True)]
        inputs = []
        for row, total in enumerate(mean):
            own = root[row * self.dim : (row + 1) * self.dim]
            for factor, z in zip(own, normal, strict=True):
                total = factor.fma(z, total)
            inputs.append(total)
        return inputs

    def _chosen(self, law: Memory, first: list[Vector], uniform: Vector) -> list[Vector]:
        code, size = law.code, self.component
        chosen = [code.variable(number) for number in first]
        sums = law.at(self.components * size)
        with code.loop(self.components - 1) as place:
            is_beyond = uniform > sums.load(place)
            following = law.at((place + 1) * size)
            for number, variable in enumerate(chosen):
                variable.set(is_beyond.where(following.load(number), variable.get()))
        return [variable.get() for variable in chosen]


def target(inputs: list[Vector]) -> Vector:
    r"""Return :math:`\cos(\pi\lVert x\rVert)`."""
    square = functools.reduce(lambda total, x: x.fma(x, total), inputs[1:], inputs[0] * inputs[0])
    return cos_sin(square.intrinsic("sqrt") * 0.5)[0]
