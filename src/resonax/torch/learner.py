"""A torch module and its optimizer as a learner that can be rewound and trained again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from resonax.core.errors import ArgumentError
from resonax.guards.learner import Candidate, mean_loss
from resonax.guards.rows import row_summary
from resonax.torch.batches import KeptBatch, byte_count, can_mix, mix_rows, tensors_of, with_tensors
from resonax.torch.buffers import Buffers
from resonax.torch.copies import Copies, copy_alone
from resonax.torch.groups import check_module
from resonax.torch.hyperparameters import Hyperparameters, find_knob
from resonax.torch.losses import check_no_backward
from resonax.torch.random_state import RandomState, RandomStates, devices_of
from resonax.torch.snapshots import Holder, Saved, copy_back

__all__ = ["TorchLearner", "checked_optimizer"]

_JOINED = 2**24  # bytes up to which batches are judged in one forward pass


def checked_optimizer(model: object, optimizer: object) -> None:
    """Raise `ArgumentError` for what cannot be trained again step by step."""
    check_module(model, optimizer)
    closure = signature(cast(torch.optim.Optimizer, optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise ArgumentError(
            f"{type(optimizer).__name__} calls the loss again within a step and cannot be guarded: "
            "use an optimizer whose step needs no closure, such as SGD or Adam"
        )


class TorchLearner:
    """A module and its optimizer; a candidate is in force during a step only.

    Between steps each group has the user's own hyperparameters, so that schedulers and checkpoints
    see what they expect.

    Parameters
    ----------
    model, optimizer, scaler
        What is trained.
    transform
        Called when the gradients are there, unscaled.
    knob
        The entry of a group that holds the momentum, if it is not ``betas[0]`` or ``momentum``.
    snapshots
        Where copies live: ``device``, ``cpu`` or ``pinned``.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: Any = None,
        transform: Callable[[], object] | None = None,
        knob: str | tuple[str, int] | None = None,
        snapshots: str = "device",
    ):
        self.model, self.optimizer, self.scaler = model, optimizer, scaler
        self.transform = transform
        self.candidate: Candidate | None = None
        self.hyperparameters = Hyperparameters(optimizer, find_knob(optimizer, knob))
        self.random = RandomStates(devices_of(model))
        self.holder = Holder(snapshots, model)
        self._buffers = Buffers(model)
        self._copies = Copies()

    def largest_momentum(self) -> float:
        """Return the largest momentum of all groups; 0 for an optimizer without one."""
        return self.hyperparameters.largest_momentum(self.hyperparameters.own())

    def copied(self, part: tuple[Any, ...], form: Any) -> tuple[Any, ...]:
        """Return arguments with copies of their tensors, as loaders may fill one buffer again.

        ``form`` is that of the tensors, see `form_of`.
        """
        if set(map(type, part)) == {Tensor}:  # as usual, and quicker
            return tuple(self._copies.of(part, form))
        return with_tensors(part, iter(self._copies.of(tensors_of(part), form)))

    def clear(self) -> None:
        """Let go of memory that is kept for more batches."""
        self._copies.clear()

    def alone(self, batch: KeptBatch) -> KeptBatch:
        """Return a batch in memory of its own, without that of the batches around it."""
        made = iter(copy_alone(tensors_of(batch.parts)))
        return batch._replace(parts=with_tensors(batch.parts, made))

    def keep(
        self, loss_fn: Callable[..., Tensor], parts: tuple[tuple[Any, ...], ...], size: int = 0
    ) -> KeptBatch:
        """Return the batch of the step that comes, with all that is needed to make it again.

        ``size`` is the bytes of its parts.
        """
        own, random = self.hyperparameters.own(), self.random.before_step()
        return KeptBatch(loss_fn, parts, own, random, size + self.random.size_of(random))

    def set(self, candidate: Candidate) -> None:
        """Train with this candidate from now on."""
        self.candidate = candidate

    def random_state(self) -> RandomState:
        """Return the states of all random numbers."""
        return self.random.read()

    def set_random_state(self, states: RandomState) -> None:
        """Continue with earlier random numbers."""
        self.random.write(states)

    def tensors(self) -> list[Tensor]:
        """Return weights and buffers, those that no state_dict holds too."""
        return [*self.model.parameters(), *self.model.buffers()]

    def _weights(self) -> list[Tensor]:
        return [one for group in self.optimizer.param_groups for one in group["params"]]

    def optimizer_states(self) -> list[dict[str, Any]]:
        """Return the state of the optimizer of each parameter."""
        return [self.optimizer.state.get(weight, {}) for weight in self._weights()]

    def save(self) -> Saved:
        """Return a copy of weights, buffers, optimizer state and gradient scaler."""
        states = self.optimizer_states()
        scaler = None if self.scaler is None else self.scaler.state_dict()
        return self.holder.save(self.tensors(), states, scaler)

    def load(self, saved: Saved) -> None:
        """Become what `save` returned."""
        copy_back(saved, self.tensors(), self.optimizer.state, self._weights())
        if self.scaler is not None:
            self.scaler.load_state_dict(saved.scaler)

    def step(self, batch: KeptBatch) -> Tensor:
        """Train on a batch; an exception in the loss leaves all as it was."""
        self.random.begin(batch.random)
        self.optimizer.zero_grad()
        if self.hyperparameters.are_in_force(batch.own, self.candidate):
            loss = self._train(batch)
        else:
            with self.hyperparameters.in_force(batch.own, self.candidate):
                loss = self._train(batch)
        self.random.end()
        return loss

    def _train(self, batch: KeptBatch) -> Tensor:
        self._buffers.keep()
        try:
            first, *others = batch.parts
            total = self._differentiate(batch.loss_fn, first, is_first=True)
            for part in others:
                total = total + self._differentiate(batch.loss_fn, part)
        except BaseException:
            self._buffers.restore()
            self.optimizer.zero_grad()
            self.random.write(batch.random)
            raise
        self._update()
        return total

    def _differentiate(
        self, loss_fn: Callable[..., Tensor], part: tuple[Any, ...], *, is_first: bool = False
    ) -> Tensor:
        """Add the gradients of the loss of a part, whose graph is gone before the update."""
        loss = _checked(loss_fn(*part))
        if is_first:
            check_no_backward(self._weights())
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        kept = loss.detach()
        return kept.reshape(()) if kept.ndim else kept

    def _update(self) -> None:
        if self.scaler is None:
            if self.transform is not None:
                self.transform()
            self.optimizer.step()
            return
        if self.transform is not None:
            self.scaler.unscale_(self.optimizer)
            self.transform()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def loss(self, batches: Sequence[KeptBatch]) -> float:
        """Return the mean loss on batches in evaluation mode."""
        if len(batches) > 1 and sum(one.size for one in batches) <= _JOINED:
            batches = _joined(batches)
        return mean_loss(self.losses(batches))

    @torch.no_grad()
    def losses(self, batches: Sequence[KeptBatch]) -> list[float]:
        """Return the loss on each batch, of each of its parts, in evaluation mode."""
        random, modes = self.random_state(), [(one, one.training) for one in self.model.modules()]
        self.model.eval()
        try:
            self.set_random_state(batches[0].random)  # the same draws for all that is compared
            losses = [batch.loss_fn(*part).detach() for batch in batches for part in batch.parts]
            return torch.stack([one.reshape(()) for one in losses]).tolist()
        finally:
            for module, mode in modes:
                module.training = mode
            self.set_random_state(random)

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
        return batch.size

    def summary(self, batch: KeptBatch) -> np.ndarray:
        """Return some numbers of the mean row of the first floating tensor of a batch."""
        tensors = tensors_of(batch.parts)
        first = next((one for one in tensors if one.is_floating_point()), tensors[0])
        mean = first.detach().float().mean(dim=0, keepdim=True)
        return row_summary(mean.cpu().numpy())

    def saved_size(self, saved: Saved) -> int:
        """Return the bytes of a copy."""
        return saved.size

    def replay_size(self, saved: Sequence[Saved], batches: Sequence[KeptBatch]) -> int:
        """Return the bytes of copies beyond these, and of batches that were joined."""
        copies = self.holder.most - sum(one.size for one in saved)
        return max(copies, 0) + min(sum(byte_count(one.parts) for one in batches), _JOINED)


def _joined(batches: Sequence[KeptBatch]) -> Sequence[KeptBatch]:
    """Return one batch of all rows, where they can be joined."""
    parts = [part for batch in batches for part in batch.parts]
    if not can_mix(parts):
        return batches
    columns = zip(*(tensors_of(part) for part in parts), strict=True)
    joined = with_tensors(parts[0], iter([torch.cat(list(column)) for column in columns]))
    return [batches[0]._replace(parts=(joined,))]


def _checked(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise ArgumentError(
            "the loss function must return the loss of the batch, a tensor of one number"
        )
    return loss
