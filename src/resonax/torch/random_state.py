"""Random numbers that a loss draws: of torch, of numpy and of Python, as they were at a step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["RandomState", "RandomStates", "devices_of"]

_WORDS = 2500  # bytes of a state of the Mersenne Twister


class RandomState(NamedTuple):
    """States of the generators of torch, numpy and Python, where they are kept."""

    torch: tuple[Tensor, ...]  # of the CPU, and of each device
    numpy: tuple[Any, ...] | None  # None for a generator that is not the usual one
    python: tuple[Any, ...]


def devices_of(model: torch.nn.Module) -> list[torch.device]:
    """Return the devices of a module that have random numbers of their own."""
    found = {one.device for one in (*model.parameters(), *model.buffers())}
    return sorted((one for one in found if one.type not in ("cpu", "meta")), key=str)


class RandomStates:
    """The generators that a loss may draw from, whose states are kept before every step.

    A state that has not changed since the step before is kept once for both.
    """

    def __init__(self, devices: Iterable[torch.device]):
        self._devices = list(devices)
        self._readers = [torch.default_generator.get_state, *map(_reader, self._devices)]
        self._last: RandomState | None = None  # before the last step
        self._python: tuple[Any, Any] = (None, None)  # the last state of Python's, as it is kept
        self._now: RandomState | None = None  # those in place, while that is known

    def read(self) -> RandomState:
        """Return the states of all generators."""
        return RandomState(self._read_torch(), _read_numpy(), self._read_python())

    def write(self, states: RandomState) -> None:
        """Continue with earlier random numbers."""
        self._now = None
        first, *others = states.torch
        torch.set_rng_state(first)
        for device, state in zip(self._devices, others, strict=True):
            _generator(device).set_rng_state(state, *_named(device))
        if states.numpy is not None:
            key, *rest = states.numpy
            words = np.frombuffer(key, np.uint32)
            np.random.set_state(("MT19937", words, *rest))  # noqa: NPY002, the user's own
        version, inner, gauss = states.python
        random.setstate((version, tuple(np.frombuffer(inner, np.uint32).tolist()), gauss))

    def size_of(self, states: RandomState) -> int:
        """Return the bytes of states."""
        return sum(one.nbytes for one in states.torch) + 2 * _WORDS

    def before_step(self) -> RandomState:
        """Return the states to keep for the step that comes."""
        made = self.read() if self._last is None else _shared(self.read(), self._last)
        self._last = self._now = made
        return made

    def begin(self, states: RandomState) -> None:
        """Begin a step as it was; the states are in place already if they were read just now."""
        if states is not self._now:
            self.write(states)

    def end(self) -> None:
        """Take note that a step was made, which may have drawn random numbers."""
        self._now = None

    def _read_torch(self) -> tuple[Tensor, ...]:
        return tuple([read() for read in self._readers])

    def _read_python(self) -> tuple[Any, ...]:
        state = random.getstate()
        if state != self._python[0]:  # to pack it takes longer
            version, inner, gauss = state
            self._python = state, (version, np.array(inner, np.uint32).tobytes(), gauss)
        return self._python[1]


def _shared(made: RandomState, last: RandomState) -> RandomState:
    """Return states with those parts of the last ones that are the same."""
    is_same = all(map(torch.equal, made.torch, last.torch))
    return RandomState(
        last.torch if is_same else made.torch,
        last.numpy if made.numpy == last.numpy else made.numpy,
        made.python,
    )


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
