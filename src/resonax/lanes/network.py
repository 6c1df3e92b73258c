"""A ReLU network: its output for a batch, and the gradient of every weight.

Sums are held in registers, a tile of them at once: each number that is loaded is used for a row or
a column of a tile. A sum adds its terms in their order, whatever the tile.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from resonax.lanes.emitter import Code, Index, Memory
from resonax.lanes.vectors import Vector

__all__ = ["Layer", "Network", "layers_of"]

_ROWS = 5  # of a tile, where a batch has as many
Place = Index | int


class Layer(NamedTuple):
    """The place of a layer's weights (inputs, outputs), and of its bias, which follows them."""

    inputs: int
    outputs: int
    start: int

    @property
    def size(self) -> int:
        """How many weights it has."""
        return self.inputs * self.outputs + self.outputs

    @property
    def bias(self) -> int:
        """The place of the first bias."""
        return self.start + self.inputs * self.outputs


def layers_of(widths: tuple[int, ...]) -> list[Layer]:
    """Return the layers of a network."""
    layers, start = [], 0
    for inputs, outputs in itertools.pairwise(widths):
        layers.append(Layer(inputs, outputs, start))
        start += layers[-1].size
    return layers


class Network(NamedTuple):
    """A network as code: its layers, its weights, and memory for what stands between layers."""

    code: Code
    layers: list[Layer]
    weights: Memory
    hidden: list[Memory]  # after each layer but the last, (units, rows)
    slopes: list[Memory]  # derivative of the loss by what each layer gives, (units, rows)
    sums: int  # in one tile

    def forward(self, batch: Memory, rows: int, give: Callable[[Place, Vector], None]) -> None:
        """Compute the outputs for a batch (rows, inputs); ``give`` is told row and output."""
        for depth, layer in enumerate(self.layers):
            weights, bias = self.weights.at(layer.start), self.weights.at(layer.bias)
            for (row, wide), (unit, tall) in self._tiles(rows, layer.outputs):
                found = self._sum_products(
                    layer.inputs,
                    lambda k, u=unit, n=tall, w=weights, layer=layer: [
                        w.load(k * layer.outputs + u + place) for place in range(n)
                    ],
                    lambda k, r=row, n=wide, depth=depth: [
                        self._input(depth, batch, rows, k, r + place) for place in range(n)
                    ],
                    [[bias.load(unit + place)] * wide for place in range(tall)],
                )
                for (own, other), value in found:
                    if depth == len(self.layers) - 1:
                        give(row + other, value)
                    else:
                        place = (unit + own) * rows + row + other
                        self.hidden[depth].store(place, value.relu())

    def backward(self, batch: Memory, rows: int, move: Callable[[Place, Vector], None]) -> None:
        """Compute gradients from the slopes of the outputs; ``move`` is told place and gradient.

        For some units before a layer at a time, its slopes are passed back to them, and then the
        weights from them move: these are loaded once into the fastest memory for both.
        """
        for depth, layer in reversed([*enumerate(self.layers)]):
            tall = min(layer.inputs, max(1, self.sums // _ROWS))
            for unit, own in self.code.tiles(layer.inputs, tall):
                if depth:
                    self._pass_back(depth, layer, rows, (unit, own))
                self._move_weights(depth, layer, batch, rows, (unit, own), move)
            slopes = self.slopes[depth]
            for out in self.code.each(layer.outputs, 1):
                total = self.code.variable(slopes.load(out * rows))
                for row in self.code.each(rows - 1, 16):
                    total.set(total.get() + slopes.load(out * rows + row + 1))
                move(out + layer.bias, total.get())

    def _pass_back(self, depth: int, layer: Layer, rows: int, units: tuple[Place, int]) -> None:
        """Compute the slopes of some units before a layer from those of the layer."""
        weights, slopes = self.weights.at(layer.start), self.slopes[depth]
        unit, tall = units
        for row, wide in self.code.tiles(rows, min(rows, self.sums // tall)):
            found = self._sum_products(
                layer.outputs,
                lambda k: [
                    weights.load((unit + place) * layer.outputs + k) for place in range(tall)
                ],
                lambda k, r=row, n=wide: [slopes.load(k * rows + r + place) for place in range(n)],
                [[self._zero()] * wide] * tall,
            )
            for (own, other), value in found:
                place = (unit + own) * rows + row + other
                is_active = self.hidden[depth - 1].load(place) > 0.0
                self.slopes[depth - 1].store(place, is_active.where(value, 0.0))

    def _move_weights(
        self,
        depth: int,
        layer: Layer,
        batch: Memory,
        rows: int,
        units: tuple[Place, int],
        move: Callable[[Place, Vector], None],
    ) -> None:
        """Compute the gradients of the weights from some units."""
        unit, tall = units
        slopes = self.slopes[depth]
        for out, wide in self.code.tiles(layer.outputs, min(layer.outputs, self.sums // tall)):
            found = self._sum_products(
                rows,
                lambda k: [self._input(depth, batch, rows, unit + i, k) for i in range(tall)],
                lambda k, o=out, n=wide: [
                    slopes.load((o + place) * rows + k) for place in range(n)
                ],
                [[self._zero()] * wide] * tall,
            )
            for (own, other), value in found:
                move((unit + own) * layer.outputs + out + (layer.start + other), value)

    def _input(self, depth: int, batch: Memory, rows: int, unit: Place, row: Place) -> Vector:
        """Return what a unit before a layer holds for a row."""
        if depth:
            return self.hidden[depth - 1].load(unit * rows + row)
        return batch.load(row * self.layers[0].inputs + unit)

    def _zero(self) -> Vector:
        return self.code.constant(0.0, self.code.real)

    def _tiles(self, rows: int, columns: int) -> Iterator[tuple[tuple[Place, int], ...]]:
        """Yield the tiles of a table of sums: first row and rows, first column and columns."""
        wide = min(rows, _ROWS)
        tall = min(columns, max(1, self.sums // wide))
        wide = min(rows, self.sums // tall)
        for row in self.code.tiles(rows, wide):
            for column in self.code.tiles(columns, tall):
                yield row, column

    def _sum_products(
        self,
        count: int,
        left: Callable[[Place], list[Vector]],
        right: Callable[[Place], list[Vector]],
        first: list[list[Vector]],
    ) -> list[tuple[tuple[int, int], Vector]]:
        """Return ``first[i][j]`` plus the sum over k of ``left(k)[i] * right(k)[j]``."""
        sums = {
            (i, j): self.code.variable(value)
            for i, values in enumerate(first)
            for j, value in enumerate(values)
        }
        for k in self.code.each(count):
            lefts, rights = left(k), right(k)
            for (i, j), variable in sums.items():
                variable.set(lefts[i].fma(rights[j], variable.get()))
        return [(place, variable.get()) for place, variable in sums.items()]
