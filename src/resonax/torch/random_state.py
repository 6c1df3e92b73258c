"""Random numbers that a loss draws: of torch, of numpy and of Python, as they were at a step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from resonax.torch.copies import Copies

__all__ = ["RandomState", "RandomStates", "devices_of"]

_FIRST = 8  # steps at the start of which the loss is looked at
_EVERY = 64  # and one of so many later
_WORDS = 2500  # bytes of a state of the Mersenne Twister


class RandomState(NamedTuple):
    """States of the generators of torch, numpy and Python, where they are kept."""

    torch: tuple[Tensor, ...] | None = None  # of the CPU, and of each device
    numpy: tuple[Any, ...] | None = None
    python: tuple[Any, ...] | None = None


def devices_of(model: torch.nn.Module) -> list[torch.device]:
    """Return the devices of a module that have random numbers of their own."""
    found = {one.device for one in (*model.parameters(), *model.buffers())}
    return sorted((one for one in found if one.type not in ("cpu", "meta")), key=str)


class RandomStates:
    """The generators that a loss may draw from.

    To read all of them takes as long as a step of a small network. Those of torch, and those of
    numpy and Python, are kept in the first steps and from time to time, and for every step once the
    loss is seen to draw from them. So the steps of a loss that begins to draw later are made again
    with other numbers until it is seen, some dozens of them.
    """

    def __init__(self, devices: Iterable[torch.device]):
        self._devices = list(devices)
        self._readers = [torch.default_generator.get_state, *map(_reader, self._devices)]
        self._size = sum(one.nbytes for one in self._read_torch())
        # Steps so far; whether one drew from torch, and whether one drew from numpy or Python.
        self.seen = 0, False, False
        self._now: RandomState | None = None
        self._copies = Copies()

    def read(self) -> RandomState:
        """Return the states of all generators."""
        return RandomState(self._read_torch(), _read_numpy(), _read_python())

    def write(self, states: RandomState) -> None:
        """Continue with earlier random numbers."""
        self._now = None
        if states.torch is not None:
            # Copies: torch reads a state from the start of its memory, where others may lie.
            first, *others = [one.clone() for one in states.torch]
            torch.set_rng_state(first)
            for device, state in zip(self._devices, others, strict=True):
                _generator(device).set_rng_state(state, *_named(device))
        if states.numpy is not None:
            key, *rest = states.numpy
            words = np.frombuffer(key, np.uint32)
            np.random.set_state(("MT19937", words, *rest))  # noqa: NPY002, the user's own
        if states.python is not None:
            version, inner, gauss = states.python
            random.setstate((version, tuple(np.frombuffer(inner, np.uint32).tolist()), gauss))

    def size_of(self, states: RandomState) -> int:
        """Return the bytes of states."""
        others = (states.numpy is not None) + (states.python is not None)
        return self._size * (states.torch is not None) + _WORDS * others

    def before_step(self) -> RandomState:
        """Return the states to keep for the step that comes."""
        count, draws, draws_others = self.seen
        self.seen = count + 1, draws, draws_others
        is_looked_at = count < _FIRST or (count + 1) % _EVERY == 0
        made = RandomState()
        if draws or is_looked_at:
            states = tuple(self._copies.of(self._read_torch(), "states"))
            made = made._replace(torch=states)
        if draws_others or is_looked_at:
            made = made._replace(numpy=_read_numpy(), python=_read_python())
        self._now = made
        return made

    def begin(self, states: RandomState) -> None:
        """Begin a step as it was; the states are in place already if they were read just now."""
        if states is not self._now:
            self.write(states)

    def end(self, states: RandomState) -> None:
        """Look whether a step has drawn random numbers, where that is not known."""
        count, draws, draws_others = self.seen
        if states is self._now:
            if states.torch is not None and not draws:
                pairs = zip(states.torch, self._read_torch(), strict=True)
                draws = not all(torch.equal(*pair) for pair in pairs)
            if states.python is not None and not draws_others:
                draws_others = (_read_numpy(), _read_python()) != (states.numpy, states.python)
            self.seen = count, draws, draws_others
        self._now = None

    def clear(self) -> None:
        """Let go of memory that is kept for more states."""
        self._copies.clear()

    def _read_torch(self) -> tuple[Tensor, ...]:
        return tuple([read() for read in self._readers])


def _reader(device: torch.device) -> Callable[[], Tensor]:
    """Return what reads the state of a device's generator: of CUDA without a look at the device."""
    if device.type == "cuda":
        torch.cuda.init()
        return torch.cuda.default_generators[device.index].get_state
    return partial(_generator(device).get_rng_state, *_named(device))


def _generator(device: torch.device) -> Any:
    return getattr(torch, device.type)


def _named(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)  # there is one of these only


def _read_numpy() -> tuple[Any, ...] | None:
    """Return the state of numpy's global generator; None for one that is not the usual."""
    state = np.random.get_state(legacy=False)  # noqa: NPY002, the user's own
    if state["bit_generator"] != "MT19937":
        return None
    inner = state["state"]
    return inner["key"].tobytes(), int(inner["pos"]), int(state["has_gauss"]), state["gauss"]


def _read_python() -> tuple[Any, ...]:
    version, inner, gauss = random.getstate()
    return version, np.array(inner, np.uint32).tobytes(), gauss
