"""The whole loop: random numbers, batches, gradients, updates and test losses of all networks."""

from __future__ import annotations

import itertools
from typing import Any

from resonax.lanes.emitter import Code, Index, Memory
from resonax.lanes.inputs import target
from resonax.lanes.network import Network, layers_of
from resonax.lanes.plan import TEST, TRAIN, Plan
from resonax.lanes.process import ProcessStep
from resonax.lanes.random_numbers import GROUP, draw, normal_pair, uniform_pair
from resonax.lanes.vectors import BOOL, F32, F64, I32, Vector

__all__ = ["REAL", "VERSION", "WHOLE", "WORDS", "write_program"]

VERSION = 4  # of the bits: a program that rounds otherwise has another one

# The arguments of the function, in order. Networks stand in memory as (blocks of lanes, cells of
# a path, their numbers, lanes), laws as (blocks, steps, cells, their numbers, lanes): the laws of a
# block follow each other, so that the processor fetches them ahead.
WHOLE = ["block", "cells", "first_step", "steps", "record"]
WHOLE += ["law_block", "law_step", "law_cell", "test_block", "test_cell"]
REAL = ["weights", "states", "numbers", "process", "law", "test_law", "total", "scratch"]
WORDS = ["keys", "scalars"]


class _Writer:
    """Writes the program of a plan."""

    def __init__(self, plan: Plan, triple: str) -> None:
        self.plan = plan
        self.code = Code(plan.lanes, F64 if plan.double else F32, triple)
        self.given = self.code.function("advance", WHOLE, REAL, WORDS)
        starts = itertools.accumulate(plan.areas().values(), initial=0)
        scratch = self.given["scratch"]
        self.area = {
            name: scratch.at(start) for name, start in zip(plan.areas(), starts, strict=False)
        }

    def write(self) -> Code:
        """Write the loops over groups of steps, cells of a path and single steps."""
        code, given = self.code, self.given
        block = given["block"]
        with code.loop(given["steps"], GROUP) as start:
            self._draw(given["keys"].at(block * 2), given["first_step"] + start)
            with code.loop(given["cells"]) as cell:
                network = block * given["cells"] + cell
                law = block * given["law_block"] + cell * given["law_cell"]
                test_law = block * given["test_block"] + cell * given["test_cell"]
                with code.loop(GROUP) as ahead:
                    now = law + (start + ahead) * given["law_step"]
                    laws = self._law("law", now), self._law("test_law", test_law)
                    if self.plan.process:
                        step = given["first_step"] + start + ahead
                        laws = self._walk(self.plan.process, network, ahead, step), laws[1]
                    self._step(network, ahead, *laws)
        code.end()
        return code

    def _law(self, name: str, place: Index) -> Memory:
        """Return the memory of a law, which begins so many numbers after the first."""
        laws = self.given[name]
        return laws._replace(pointer=self.code.move(laws.pointer, place))

    def _walk(self, process: ProcessStep, network: Index, ahead: Index, step: Index) -> Memory:
        """Take one step of the process of a network; return the memory of its law."""
        code, law = self.code, self.area["law"]
        own = self.given["process"].at(network * (process.numbers + process.states))
        normal = self.area["process"].at(ahead * (process.normals + 1))
        given = [own.load(place) for place in range(process.numbers + process.states)]
        given += [normal.load(place) for place in range(process.normals)]
        states, numbers = process.write(code, given, code.splat(step, code.lanes))
        for place, state in enumerate(states):
            own.store(process.numbers + place, state)
        for place, number in enumerate(numbers):
            law.store(place, number)
        return law

    def _draw(self, keys: Memory, step: Index) -> None:
        """Draw the random numbers of a group of steps, which all cells of a path share."""
        slots, key = self.plan.slots, (keys.load(0), keys.load(1))

        def draw_into(area: str, pair: Any, slot: int, count: int) -> None:
            def put(ahead: int, place: Index, number: Vector) -> None:
                self.area[area].store(place + ahead * (count + 1), number)

            if count:
                draw(self.code, pair, key, step, slot, count, put)

        def draw_batch(purpose: str, normal: int, choice: int) -> None:
            law, rows = self.plan.source(purpose)
            draw_into(f"{purpose} normal", normal_pair, normal, law.normals(rows))
            draw_into(f"{purpose} choice", uniform_pair, choice, law.uniforms(rows))

        if self.plan.process:
            draw_into("process", normal_pair, slots.process, self.plan.process.normals)
        draw_batch(TRAIN, slots.input, slots.choice)
        draw_into("noise", normal_pair, slots.noise, self.plan.rows)
        with self.code.loop(self.given["record"]):
            draw_batch(TEST, slots.test, slots.test_choice)

    def _step(self, network: Index, ahead: Index, law: Memory, test_law: Memory) -> None:
        """Take one step of one network, and with ``record`` add its test loss to the total."""
        plan, given, batch = self.plan, self.given, self.area["train batch"]
        weights, after, states = self._places(network, ahead)
        net = self._network(weights)
        numbers = given["numbers"].at(network * plan.numbers)
        *own, noise, slope = (numbers.load(place) for place in range(plan.numbers))
        self._write_batch(TRAIN, ahead, law, noise)
        known = self._begin_update(network, own)
        outputs = batch.at(plan.rows * plan.widths[0])

        def give(row: Index | int, value: Vector) -> None:
            net.slopes[-1].store(row, (value - outputs.load(row)) * slope)

        def move(place: Index | int, gradient: Vector) -> None:
            before = [state.load(place) for state in states]
            weight, moved = plan.update.move(known, gradient, weights.load(place), before)
            after.store(place, weight)
            for number, (state, value) in enumerate(zip(states, moved, strict=True)):
                if number != plan.update.before:
                    state.store(place, value)

        net.forward(batch, plan.rows, give)
        net.backward(batch, plan.rows, move)
        with self.code.loop(given["record"]):
            self._record(self._network(after), network, ahead, test_law)

    def _places(self, network: Index, ahead: Index) -> tuple[Memory, Memory, list[Memory]]:
        """Return where a network's weights are, where they are after the step, and its states.

        Where a state is the weight before the step, nothing is copied: the weights after the step
        take its place, and it takes that of the weights. Two steps later all is where it was.
        """
        plan = self.plan
        weights = self.given["weights"].at(network * plan.weights)
        states = self.given["states"].at(network * (plan.weights * plan.wide_states))
        places = [states.at(number * plan.weights) for number in range(plan.wide_states)]
        before = plan.update.before
        if before is None:
            return weights, weights, places
        weights, places[before] = self.code.in_turn(weights, places[before], ahead)
        return weights, places[before], places

    def _network(self, weights: Memory) -> Network:
        """Return the network of some weights, in the memory of the program."""
        plan, layers = self.plan, layers_of(self.plan.widths)
        units = [0, *itertools.accumulate(layer.outputs for layer in layers[:-1])]
        most = max(plan.rows, plan.test_rows)
        return Network(
            self.code,
            layers,
            weights,
            [self.area["hidden"].at(unit * most) for unit in units],
            [self.area["slopes"].at(unit * plan.rows) for unit in units],
            plan.sums,
        )

    def _begin_update(self, network: Index, numbers: list[Vector]) -> dict[Any, Vector]:
        """Write what the update of all weights shares, and the scalar states after it."""
        kinds = [kind for kind, is_wide in self.plan.update.states if not is_wide]
        scalars = self.given["scalars"].at(network * self.plan.scalar_states)
        words = [scalars.load(place) for place in range(len(kinds))]
        before = [
            word.compare("!=", 0) if kind == "bool" else word
            for kind, word in zip(kinds, words, strict=True)
        ]
        known, after = self.plan.update.begin_step(self.code, numbers, before)
        for place, scalar in enumerate(after):
            scalars.store(place, scalar.as_type(I32) if scalar.element == BOOL else scalar)
        return known

    def _write_batch(self, purpose: str, ahead: Index, law: Memory, noise: Vector | None) -> None:
        """Write inputs (rows, dim) and, after them, targets (rows) of a step into memory."""
        form, rows = self.plan.source(purpose)
        dim, batch = form.dim, self.area[f"{purpose} batch"]
        standard = self.area[f"{purpose} normal"].at(ahead * (form.normals(rows) + 1))
        uniform = self.area[f"{purpose} choice"].at(ahead * (form.uniforms(rows) + 1))
        noises = self.area["noise"].at(ahead * (rows + 1))
        with self.code.loop(rows) as row:
            if form.rows:
                inputs = [law.load(row * dim + place) for place in range(dim)]
            else:
                numbers = [standard.load(row * dim + place) for place in range(dim)]
                chosen = uniform.load(row) if form.components > 1 else None
                inputs = form.draw(law, numbers, chosen)
            for place, value in enumerate(inputs):
                batch.store(row * dim + place, value)
            wanted = target(inputs)
            if noise is not None:
                wanted = noise.fma(noises.load(row), wanted)
            batch.store(row + rows * dim, wanted)

    def _record(self, net: Network, network: Index, ahead: Index, law: Memory) -> None:
        """Add the mean squared error on fresh inputs, without noise, to the total."""
        batch, rows = self.area["test batch"], self.plan.test_rows
        self._write_batch(TEST, ahead, law, None)
        outputs = batch.at(rows * self.plan.widths[0])
        loss = self.code.variable(self.code.constant(0.0, self.code.real))

        def give(row: Index | int, value: Vector) -> None:
            gap = value - outputs.load(row)
            loss.set((gap * (1.0 / rows)).fma(gap, loss.get()))

        net.forward(batch, rows, give)
        total = self.given["total"]
        total.store(network, total.load(network) + loss.get())


def write_program(plan: Plan, triple: str) -> Code:
    """Write the function ``advance`` for a plan, for a machine of this name."""
    return _Writer(plan, triple).write()
