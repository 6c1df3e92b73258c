"""A recording: the rows of a data set, in their order."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.core.errors import (
    ArgumentError,
    as_array,
    check_number,
    check_numbers,
    check_whole,
)
from resonax.core.moments import Moments
from resonax.core.values import static, value
from resonax.streams.base import Process, State

__all__ = ["Recorded"]


@value
class Recorded(Process):
    """Inputs that were recorded, (rows, dim), replayed in order; nothing is drawn.

    With ``repeat=True`` the recording is one period, as in training for many epochs; otherwise it
    is a single pass, which only the Lyapunov criterion can judge. Between two steps the second
    moment is interpolated linearly.

    Examples
    --------
    >>> process = Recorded.of([[0.0], [1.0], [2.0], [3.0]])
    >>> process.grouped(2).sample(None, steps=2, batch=2)[1].ravel().tolist()  # the second batch
    [2.0, 3.0]
    """

    data: Array | np.ndarray  # (steps, rows of a step, dim)
    repeat: bool = static(default=False)

    name: ClassVar[str] = "recorded"

    @classmethod
    def of(cls, data: ArrayLike, *, repeat: bool = False) -> Recorded:
        """Check a recording and take it as one row a step."""
        array = as_array("data", data)
        if array.ndim == 1:
            array = array[:, None]
        check_numbers("data", array, (None, None))
        check_number("data", array, low=-1e6, high=1e6)
        if len(array) < 2:
            raise ArgumentError(f"data must have at least 2 rows, got {len(array)}")
        return cls(array[:, None, :], repeat=repeat)

    def grouped(self, batch: int) -> Recorded:
        """Return the same rows, ``batch`` of them a step; an incomplete last step is left out."""
        check_whole("batch", batch, low=1)
        rows = self.data.reshape(-1, self.dim)
        steps = len(rows) // batch
        if steps < 2:
            raise ArgumentError(
                f"batch must be at most {len(rows) // 2} for a recording of {len(rows)} rows, "
                f"got {batch}"
            )
        return Recorded(rows[: steps * batch].reshape(steps, batch, self.dim), repeat=self.repeat)

    @property
    def dim(self) -> int:  # pyrefly: ignore[bad-override]
        """Number of columns."""
        return self.data.shape[-1]

    @property
    def steps(self) -> int:
        """Number of steps in one pass."""
        return self.data.shape[0]

    @property
    def pieces(self) -> int:  # pyrefly: ignore[bad-override]
        """Every step is a smooth piece of its own."""
        return self.steps

    @property
    def periodic(self) -> bool:
        """Whether the recording is replayed again and again."""
        return self.repeat

    @property
    def cycle(self) -> float:
        """Steps of one pass, where the recording repeats."""
        return float(self.steps) if self.repeat else super().cycle

    def _rows(self, rows: Array, weight: Array) -> Moments:
        return Moments(rows, jnp.zeros((len(rows), self.dim, self.dim)), weight, is_sampled=False)

    def moments(self, index: ArrayLike) -> Moments:
        index = jnp.asarray(index, dtype=float)
        whole = jnp.floor(index)
        here, share = whole.astype(int) % self.steps, index - whole
        count = self.data.shape[1]
        data = jnp.asarray(self.data)
        rows = jnp.concatenate([data[here], data[(here + 1) % self.steps]])
        weight = jnp.repeat(jnp.stack([1 - share, share]) / count, count)
        return self._rows(rows, weight)

    def step(self, normals: Array, state: State, index: ArrayLike) -> tuple[State, Moments]:
        del normals
        rows = jnp.asarray(self.data)[jnp.asarray(index, dtype=int) % self.steps]
        return state, self._rows(rows, jnp.full(len(rows), 1 / len(rows)))

    def stationary(self) -> Moments:
        rows = jnp.asarray(self.data).reshape(-1, self.dim)
        moments = self._rows(rows, jnp.full(len(rows), 1 / len(rows)))
        return Moments(moments.mean, moments.root, moments.weight, is_sampled=True)

    def path(self, key: Array, steps: int) -> Array:
        """Return the first steps of the recording, (steps, dim): nothing is random."""
        del key
        return self._first(steps).mean(1)

    def sample(self, key: Array, steps: int, batch: int = 1) -> Array:
        """Return the first steps of the recording, (steps, batch, dim): nothing is random."""
        del key
        return self.grouped(batch)._first(steps)

    def _first(self, steps: int) -> Array:
        if steps > self.steps and not self.repeat:
            raise ArgumentError(f"steps must be at most {self.steps} for one pass, got {steps}")
        return jnp.asarray(self.data)[jnp.arange(steps) % self.steps]
