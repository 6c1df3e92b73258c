r"""The training of ReLU networks in plain loops: forward pass, gradient of the loss, update.

Every number here is a vector of 16 (`vectors`), one for each of the networks that are trained side
by side. Arrays of vectors are

- weights and their gradient: for each layer :math:`W` from input to output in rows, then its bias,
- values and slopes: for each unit of each layer, the inputs first, those of all rows of a batch.

Numba compiles the loops for the processor at hand.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from resonax.simulation.vectors import LANES, flush, gate, load, relu, root, splat, store

__all__ = ["move_by_adam", "move_by_momentum", "train"]

# Numbers divided by 0 are infinite, as those of NumPy; threads run side by side.
_compile = numba.njit(nogil=True, error_model="numpy")


@_compile
def _four_sums(
    count: int, left: Any, rows: Any, row_stride: int, right: Any, columns: Any, column_stride: int
) -> Any:
    """Return the sums of products of two rows with two columns, each of so many terms.

    ``rows`` are the places in ``left`` at which the rows begin, and ``row_stride`` is how far their
    terms are apart; so for the columns of ``right``. Four sums at once take one load for each
    product, where one sum takes two, and none of them waits for another.
    """
    a, b = load(left, rows[0]), load(left, rows[1])
    x, y = load(right, columns[0]), load(right, columns[1])
    ax, ay, bx, by = a * x, a * y, b * x, b * y
    for term in range(1, count):
        down, along = term * row_stride, term * column_stride
        a, b = load(left, rows[0] + down), load(left, rows[1] + down)
        x, y = load(right, columns[0] + along), load(right, columns[1] + along)
        ax, ay, bx, by = ax + a * x, ay + a * y, bx + b * x, by + b * y
    return ax, ay, bx, by


@_compile
def _pair(number: int, count: int) -> tuple[int, int]:
    """Return a number and the next one, or twice the last: what has one of them is done twice."""
    return number, min(number + 1, count - 1)


@_compile
def _predict(widths: Any, weights: Any, values: Any, rows: int) -> None:
    """Fill in the values of all units, given those of the inputs: ReLU(W x + b) by layer."""
    before, start = 0, 0  # first unit and first weight of a layer
    for depth in range(len(widths) - 1):
        inputs, outputs = widths[depth], widths[depth + 1]
        after, bias = before + inputs, start + inputs * outputs
        is_last = depth == len(widths) - 2
        for out in range(0, outputs, 2):
            outs = _pair(out, outputs)
            of_outs = start + outs[0], start + outs[1]
            for row in range(0, rows, 2):
                both = _pair(row, rows)
                of_rows = before * rows + both[0], before * rows + both[1]
                sums = _four_sums(inputs, weights, of_outs, outputs, values, of_rows, rows)
                for number in range(4):
                    own, its_row = outs[number // 2], both[number % 2]
                    total = sums[number] + load(weights, bias + own)
                    place = (after + own) * rows + its_row
                    store(values, place, total if is_last else relu(total))
        before, start = after, bias + outputs


@_compile
def _differentiate(
    widths: Any, weights: Any, values: Any, slopes: Any, gradient: Any, rows: int
) -> None:
    """Fill in the gradient of the loss, given its slopes along the outputs, by backpropagation."""
    after, start = widths.sum() - widths[-1], len(weights)
    for depth in range(len(widths) - 2, -1, -1):
        inputs, outputs = widths[depth], widths[depth + 1]
        before, start = after - inputs, start - (inputs + 1) * outputs
        for out in range(outputs):  # the biases
            total = load(slopes, (after + out) * rows)
            for row in range(1, rows):
                total = total + load(slopes, (after + out) * rows + row)
            store(gradient, start + inputs * outputs + out, total)
        for unit in range(0, inputs, 2):
            units = _pair(unit, inputs)
            of_units = (before + units[0]) * rows, (before + units[1]) * rows
            for out in range(0, outputs, 2):
                outs = _pair(out, outputs)
                of_outs = (after + outs[0]) * rows, (after + outs[1]) * rows
                sums = _four_sums(rows, values, of_units, 1, slopes, of_outs, 1)
                for number in range(4):
                    own = units[number // 2] * outputs + outs[number % 2]
                    store(gradient, start + own, sums[number])
            if depth == 0:  # there is nothing to learn before the inputs
                continue
            of_weights = start + units[0] * outputs, start + units[1] * outputs
            for row in range(0, rows, 2):
                both = _pair(row, rows)
                of_rows = after * rows + both[0], after * rows + both[1]
                sums = _four_sums(outputs, weights, of_weights, 1, slopes, of_rows, rows)
                for number in range(4):
                    place = of_units[number // 2] + both[number % 2]
                    # ReLU passes a slope on where its value is above 0.
                    store(slopes, place, gate(sums[number], load(values, place)))
        after = before


@_compile
def move_by_momentum(
    weights: Any, memory: Any, gradient: Any, numbers: Any, is_first: bool
) -> None:
    r"""Take a step of `resonax.learners.Momentum`.

    :math:`h = g + \lambda\theta, \quad v \gets \mu v - \alpha h, \quad
    \theta \gets \theta + \kappa v - \beta h`; in the first step :math:`\alpha` may be another.
    """
    scale, momentum, first_alpha = load(numbers, 0), load(numbers, 1), load(numbers, 2)
    alpha, kappa = load(numbers, 3), load(numbers, 4)
    beta, decay = load(numbers, 5), load(numbers, 6)
    if is_first:
        alpha = first_alpha
    for place in range(len(weights)):
        weight = load(weights, place)
        slope = scale * load(gradient, place) + decay * weight
        velocity = flush(momentum * load(memory, place) - alpha * slope)
        store(memory, place, velocity)
        store(weights, place, weight + (kappa * velocity - beta * slope))


@_compile
def move_by_adam(weights: Any, memory: Any, gradient: Any, numbers: Any, is_first: bool) -> None:
    r"""Take a step of Adam, as optax has it.

    :math:`m \gets \beta_1m + (1-\beta_1)g, \quad s \gets \beta_2s + (1-\beta_2)g^2, \quad
    \theta \gets \theta - \eta\,\hat m/(\sqrt{\hat s + \epsilon_0}+\epsilon)` with
    :math:`\hat m = m/(1-\beta_1^{k+1})`, and :math:`\hat s` likewise. The memory holds :math:`m`,
    :math:`s` and the two powers.
    """
    scale, lr, beta1, beta2 = (
        load(numbers, 0),
        load(numbers, 1),
        load(numbers, 2),
        load(numbers, 3),
    )
    eps, eps_root, one = load(numbers, 4), load(numbers, 5), splat(1.0, scale)
    count = len(weights)
    power1, power2 = beta1, beta2
    if not is_first:
        power1 = beta1 * load(memory, 2 * count)
        power2 = beta2 * load(memory, 2 * count + 1)
    store(memory, 2 * count, flush(power1))
    store(memory, 2 * count + 1, flush(power2))
    for place in range(count):
        slope = scale * load(gradient, place)
        mean = flush(beta1 * load(memory, place) + (one - beta1) * slope)
        square = beta2 * load(memory, count + place) + (one - beta2) * (slope * slope)
        store(memory, place, mean)
        store(memory, count + place, flush(square))
        deviation = root(square / (one - power2) + eps_root) + eps
        move = lr * (mean / (one - power1)) / deviation
        store(weights, place, load(weights, place) - move)


@_compile
def train(
    move: Any,  # `move_by_momentum` or `move_by_adam`
    first_group: int,  # of 16 networks
    end_group: int,
    begins: bool,  # whether these are the first steps of all
    widths: Any,  # inputs, units of each hidden layer, 1 output
    inputs: Any,  # (groups, steps, inputs, rows, 16)
    targets: Any,  # (groups, steps, rows, 16)
    test_inputs: Any,  # the same for tests, or of no step
    test_targets: Any,
    weights: Any,  # (groups, weights, 16)
    memory: Any,  # (groups, what the optimizer keeps, 16)
    numbers: Any,  # (groups, factor of the gradient and numbers of the optimizer, 16)
    total: Any,  # (groups, 1, 16): sums of the losses of the tests
) -> None:
    """Train some groups of networks for some steps."""
    steps, dim, rows = inputs.shape[1:4]
    test_steps, test_rows = test_targets.shape[1], test_targets.shape[2]
    units = widths.sum()
    last = units - 1
    values = np.empty((units, rows, LANES), weights.dtype)
    tested = np.empty((units, test_rows, LANES), weights.dtype)
    slopes, gradient = np.empty_like(values), np.empty_like(weights[0])
    for group in range(first_group, end_group):
        own, kept, given = weights[group], memory[group], numbers[group]
        for step in range(steps):
            batch, wanted = inputs[group, step], targets[group, step]
            for place in range(dim * rows):
                store(values, place, load(batch, place))
            _predict(widths, own, values, rows)
            for row in range(rows):
                gap = load(values, last * rows + row) - load(wanted, row)
                store(slopes, last * rows + row, splat(2.0 / rows, gap) * gap)
            _differentiate(widths, own, values, slopes, gradient, rows)
            move(own, kept, gradient, given, begins and step == 0)
            if step < test_steps:
                batch, wanted = test_inputs[group, step], test_targets[group, step]
                for place in range(dim * test_rows):
                    store(tested, place, load(batch, place))
                _predict(widths, own, tested, test_rows)
                for row in range(test_rows):
                    gap = load(tested, last * test_rows + row) - load(wanted, row)
                    loss = splat(1.0 / test_rows, gap) * gap * gap
                    store(total[group], 0, load(total[group], 0) + loss)
