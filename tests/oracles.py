"""Plain NumPy twins of what the library computes, written by hand from the paper."""

from __future__ import annotations

import numpy as np


def sinusoid_curvature(index, period, amplitude, variance) -> np.ndarray:
    """B of the paper's two weights, from its appendix, written by hand; of numbers or arrays."""
    mean = amplitude * np.sin(2 * np.pi * np.asarray(index) / period)
    matrix = np.array([[variance + mean**2, mean], [mean, np.ones_like(mean)]])
    return 2 * np.moveaxis(matrix, (0, 1), (-2, -1))


def heavy_ball_matrix(curvature: np.ndarray, lr: float, momentum: float) -> np.ndarray:
    """M of v' = mu v - eta B e, e' = e + v', written by hand."""
    eye = np.eye(len(curvature))
    return np.block([[eye - lr * curvature, momentum * eye], [-lr * curvature, momentum * eye]])


def numpy_radius(matrix: np.ndarray) -> float:
    return float(np.abs(np.linalg.eigvals(matrix)).max())
