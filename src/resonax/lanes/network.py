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
        weights from them move: these are loaded once into the fastest memory for both. The slopes
        of the first layer are needed nowhere else, so that its weights to these units move at once.
        """
        for depth in reversed(range(1, len(self.layers))):
            layer = self.layers[depth]
            every = 0, layer.outputs
            for units in self.code.tiles(layer.inputs, self._tall(layer.inputs)):
                passed = self._pass_back(depth, layer, rows, units)
                self._move_weights(depth, self.slopes[depth], batch, rows, units, every, move)
                if depth == 1:
                    self._move_first(passed, batch, rows, units, move)
            self._move_biases(layer, self.slopes[depth], rows, every, move)
        if len(self.layers) == 1:
            self._move_first(self.slopes[0], batch, rows, (0, self.layers[0].outputs), move)

    def _move_first(
        self,
        slopes: Memory,
        batch: Memory,
        rows: int,
        outs: tuple[Place, int],
        move: Callable[[Place, Vector], None],
    ) -> None:
        """Compute the gradients of the first layer's weights to some of its outputs."""
        first = self.layers[0]
        for units in self.code.tiles(first.inputs, self._tall(first.inputs)):
            self._move_weights(0, slopes, batch, rows, units, outs, move)
        self._move_biases(first, slopes, rows, outs, move)

    def _move_biases(
        self,
        layer: Layer,
        slopes: Memory,
        rows: int,
        outs: tuple[Place, int],
        move: Callable[[Place, Vector], None],
    ) -> None:
        """Compute the gradients of the biases of some outputs, whose slopes are given."""
        start, count = outs
        for out in self.code.each(count, 1):
            total = self.code.variable(slopes.load(out * rows))
            for row in self.code.each(rows - 1, 16):
                total.set(total.get() + slopes.load(out * rows + row + 1))
            move(start + out + layer.bias, total.get())

    def _pass_back(self, depth: int, layer: Layer, rows: int, units: tuple[Place, int]) -> Memory:
        """Compute the slopes of some units before a layer from those of the layer; return them."""
        weights, slopes = self.weights.at(layer.start), self.slopes[depth]
        unit, tall = units
        # Of the first layer no more than these are kept.
        passed = self.slopes[depth - 1].at(0 if depth == 1 else unit * rows)
        hidden = self.hidden[depth - 1].at(unit * rows)
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
                place = row + (own * rows + other)
                is_active = hidden.load(place) > 0.0
                passed.store(place, is_active.where(value, 0.0))
        return passed

    def _move_weights(
        self,
        depth: int,
        slopes: Memory,
        batch: Memory,
        rows: int,
        units: tuple[Place, int],
        outs: tuple[Place, int],
        move: Callable[[Place, Vector], None],
    ) -> None:
        """Compute the gradients of the weights from some units to some outputs.

        The slopes are those of these outputs.
        """
        layer, (unit, tall), (start, count) = self.layers[depth], units, outs
        for out, wide in self.code.tiles(count, min(count, self.sums // tall)):
            found = self._sum_products(
                rows,
                lambda k: [self._input(depth, batch, rows, unit + i, k) for i in range(tall)],
                lambda k, o=out, n=wide: [
                    slopes.load((o + place) * rows + k) for place in range(n)
                ],
                [[self._zero()] * wide] * tall,
            )
            for (own, other), value in found:
                move((unit + own) * layer.outputs + start + out + (layer.start + other), value)

    def _tall(self, inputs: int) -> int:
        """Return how many units before a layer are taken at once."""
        return min(inputs, max(1, self.sums // _ROWS))

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
