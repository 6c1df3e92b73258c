"""
One recording, two orders
=========================

The same rows in their own order and shuffled, trained with the same optimizer. Only the order
differs.
"""

import numpy as np
from matplotlib.figure import Figure

hours = np.arange(3000)
rng = np.random.default_rng(0)
x = 1.2 * np.sin(2 * np.pi * hours / 24) + 0.53 * rng.normal(size=len(hours))


def distances(inputs, lr=0.01, momentum=0.95):
    """Return the distance of slope and bias from the solution, step by step."""
    error, velocity, found = np.array([1.0, -1.0]), np.zeros(2), []
    for value in inputs:
        row = np.array([value, 1.0])
        velocity = momentum * velocity - lr * 2 * row * (row @ error)
        error = error + velocity
        found.append(np.linalg.norm(error))
    return np.array(found)


figure = Figure(figsize=(7, 3), layout="constrained")
axes = figure.subplots()
axes.semilogy(distances(x), color="#b2182b", label="in order, a daily cycle")
axes.semilogy(distances(rng.permutation(x)), color="#4d4d4d", label="shuffled")
axes.set_xlabel("step")
axes.set_ylabel("distance from the solution")
axes.legend(frameon=False)
