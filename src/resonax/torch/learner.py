"""A torch module and its optimizer as a learner that can be rewound and trained again."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from resonax.checks import ArgumentError
from resonax.guards.learner import Candidate
from resonax.torch.batches import KeptBatch, byte_size, can_mix, mix_rows, tensors_of, with_tensors
from resonax.torch.groups import check_module

__all__ = ["Saved", "TorchLearner", "checked_optimizer", "momentum_knob"]

_JOINED = 2**24  # bytes up to which batches are judged in one forward pass


class Saved(NamedTuple):
    """A copy of a module and its optimizer; states of parameters are in the order of the groups."""

    tensors: list[Tensor]
    states: list[dict[str, Any]]
    scaler: dict[str, Any] | None

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        held = [one for state in self.states for one in state.values() if isinstance(one, Tensor)]
        return sum(one.numel() * one.element_size() for one in (*self.tensors, *held))


def checked_optimizer(model: object, optimizer: object) -> None:
    """Raise `ArgumentError` for what cannot be trained again step by step."""
    check_module(model, optimizer)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ArgumentError("LBFGS calls the loss many times in a step and cannot be guarded")


def momentum_knob(optimizer: torch.optim.Optimizer) -> str | None:
    """Return the entry of a group that holds the momentum: ``momentum``, ``betas`` or none."""
    group = optimizer.param_groups[0]
    return next((name for name in ("betas", "momentum") if name in group), None)


class TorchLearner:
    """A module and its optimizer; a candidate is in force during a step only.

    Between steps each group has the user's own step size and momentum, so that schedulers and
    checkpoints see what they expect.
    """

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, scaler: Any, transform: Any
    ):
        self.model, self.optimizer, self.scaler, self.transform = (
            model,
            optimizer,
            scaler,
            transform,
        )
        self.knob = momentum_knob(optimizer)
        self.candidate: Candidate | None = None
        devices = {one.device for one in model.parameters() if one.is_cuda}
        self.devices = sorted(devices, key=str)

    def own(self) -> tuple[dict[str, Any], ...]:
        """Return the user's step size and momentum of each group."""
        names = ["lr"] if self.knob is None else ["lr", self.knob]
        return tuple({name: group[name] for name in names} for group in self.optimizer.param_groups)

    def largest_momentum(self) -> float:
        """Return the largest momentum of all groups; 0 for an optimizer without one."""
        if self.knob is None:
            return 0.0
        return max(float(self._momentum(own)) for own in self.own())

    def _momentum(self, own: dict[str, Any]) -> Any:
        held = own[self.knob]  # pyright: ignore[reportArgumentType]
        return held[0] if self.knob == "betas" else held

    def set(self, candidate: Candidate) -> None:
        """Train with this candidate from now on."""
        self.candidate = candidate

    @contextlib.contextmanager
    def _in_force(self, own: Sequence[dict[str, Any]]) -> Iterator[None]:
        """Give the groups the candidate's numbers, for values that were the user's own."""
        groups, before = self.optimizer.param_groups, self.own()
        largest = (
            max((float(self._momentum(one)) for one in own), default=0.0) if self.knob else 0.0
        )
        try:
            for group, mine in zip(groups, own, strict=True):
                group.update(mine)
                if self.candidate is None:
                    continue
                if self.candidate.lr != 1:
                    group["lr"] = mine["lr"] * self.candidate.lr
                if self.knob and self.candidate.momentum < largest:
                    lowered = min(float(self._momentum(mine)), self.candidate.momentum)
                    is_pair = self.knob == "betas"
                    group[self.knob] = (lowered, *mine["betas"][1:]) if is_pair else lowered
            yield
        finally:
            for group, mine in zip(groups, before, strict=True):
                group.update(mine)

    def random_state(self) -> tuple[Tensor, ...]:
        """Return the states of torch's random numbers, of the CPU and the devices of the model."""
        return (torch.get_rng_state(), *(torch.cuda.get_rng_state(one) for one in self.devices))

    def set_random_state(self, states: Sequence[Tensor]) -> None:
        """Continue with earlier random numbers."""
        torch.set_rng_state(states[0])
        for device, state in zip(self.devices, states[1:], strict=True):
            torch.cuda.set_rng_state(state, device)

    def _tensors(self) -> list[Tensor]:
        """Return weights and buffers, those that no state_dict holds too."""
        return [*self.model.parameters(), *self.model.buffers()]

    def _weights(self) -> list[Tensor]:
        return [one for group in self.optimizer.param_groups for one in group["params"]]

    def save(self) -> Saved:
        """Return a copy of weights, buffers, optimizer state and gradient scaler."""
        tensors = [one.detach().clone() for one in self._tensors()]
        states = [_copy(self.optimizer.state.get(weight, {})) for weight in self._weights()]
        return Saved(tensors, states, None if self.scaler is None else self.scaler.state_dict())

    @torch.no_grad()
    def load(self, saved: Saved) -> None:
        """Become what `save` returned."""
        for tensor, kept in zip(self._tensors(), saved.tensors, strict=True):
            tensor.detach().copy_(kept)
        for weight, state in zip(self._weights(), saved.states, strict=True):
            if state:
                self.optimizer.state[weight] = _copy(state)
            else:
                self.optimizer.state.pop(weight, None)
        if self.scaler is not None:
            self.scaler.load_state_dict(saved.scaler)

    def step(self, batch: KeptBatch) -> Tensor:
        """Train on a batch."""
        self.set_random_state(batch.random)
        self.optimizer.zero_grad()
        with self._in_force(batch.own):
            total = None
            for part in batch.parts:
                loss = _checked(batch.loss_fn(*part))
                (loss if self.scaler is None else self.scaler.scale(loss)).backward()
                total = loss.detach() if total is None else total + loss.detach()
            if self.transform is not None:
                self.transform()
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()
        assert total is not None
        return total

    @torch.no_grad()
    def loss(self, batches: Sequence[KeptBatch]) -> float:
        """Return the mean loss on batches in evaluation mode."""
        random, modes = self.random_state(), [(one, one.training) for one in self.model.modules()]
        self.model.eval()
        try:
            if len(batches) > 1 and sum(map(byte_size, batches)) <= _JOINED and can_mix(batches):
                batches = [_joined(batches)]
            losses = [batch.loss_fn(*part).detach() for batch in batches for part in batch.parts]
            mean = float(sum(losses)) / len(losses)
        finally:
            for module, mode in modes:
                module.training = mode
            self.set_random_state(random)
        return mean if math.isfinite(mean) else math.inf

    def mix(
        self,
        batches: Sequence[KeptBatch],
        rng: np.random.Generator,
        like: Sequence[KeptBatch] | None = None,
    ) -> Sequence[KeptBatch]:
        """Return the rows of batches in random order."""
        return mix_rows(batches, rng, like)

    def size(self, batch: KeptBatch) -> int:
        """Return the bytes of a batch."""
        return byte_size(batch)


def _joined(batches: Sequence[KeptBatch]) -> KeptBatch:
    """Return one batch of all rows."""
    parts = [part for batch in batches for part in batch.parts]
    columns = zip(*(tensors_of(part) for part in parts), strict=True)
    joined = with_tensors(parts[0], iter([torch.cat(list(column)) for column in columns]))
    return batches[0]._replace(parts=(joined,))


def _copy(state: dict[str, Any]) -> dict[str, Any]:
    return {key: one.clone() if isinstance(one, Tensor) else one for key, one in state.items()}


def _checked(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise ArgumentError(
            "the loss function must return the loss of the batch, a tensor of one number"
        )
    return loss
