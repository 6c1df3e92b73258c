"""A torch module and its optimizer as a learner that can be rewound and trained again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resonax.guards.learner import MOST_COPIES, Candidate, mean_loss
from resonax.guards.phases import Phased
from resonax.torch.batches import (
    KeptBatch,
    byte_count,
    can_mix,
    count_rows,
    mix_rows,
    tensors_of,
    with_tensors,
)
from resonax.torch.groups import Groups, find_knob
from resonax.torch.random_state import (
    RandomState,
    devices_of,
    read_random_state,
    write_random_state,
)
from resonax.torch.refusals import check_loss, check_no_backward, check_used
from resonax.torch.sketches import data_sketch, gradient_sketch, random_signs
from resonax.torch.snapshots import Saved, check_place, put_back, save

__all__ = ["TorchLearner"]

_JOINED = 2**24  # bytes up to which batches are evaluated in one forward pass


class TorchLearner(Phased):
    """A module and its optimizer; a candidate is in force during a step only.

    Parameters
    ----------
    model, optimizer, scaler
        What is trained.
    transform
        Called when the gradients are there, unscaled.
    knob
        The entry of a group that holds the momentum, if it is not ``betas[0]`` or ``momentum``.
    snapshots
        Where copies are held: ``device``, ``cpu`` or ``pinned``.
    by_rows
        Whether rows may be mixed across batches; if not, whole batches come in another order.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: Any = None,
        transform: Callable[[], object] | None = None,
        knob: str | tuple[str, int] | None = None,
        snapshots: str = "device",
        by_rows: bool = True,
    ):
        check_place(snapshots)
        self.by_rows = by_rows
        self.model, self.optimizer, self.scaler = model, optimizer, scaler
        self.transform = transform
        self.candidate: Candidate | None = None
        self.groups = Groups(optimizer, find_knob(optimizer, knob))
        self._devices = devices_of(model)
        self._snapshots = snapshots

    def keep(self, loss_fn: Callable[..., Tensor], parts: tuple[tuple[Any, ...], ...]) -> KeptBatch:
        """Return the batch of the next step, with all that is needed to make that step again."""
        random = self.random_state()
        size = byte_count(parts) + random.size
        return KeptBatch(loss_fn, parts, self.groups.own(), random, size)

    def set(self, candidate: Candidate) -> None:
        """Train with this candidate from now on."""
        self.candidate = candidate

    def random_state(self) -> RandomState:
        """Return the states of all random generators."""
        return read_random_state(self._devices)

    def set_random_state(self, state: RandomState) -> None:
        """Continue with earlier random numbers."""
        write_random_state(state, self._devices)

    def tensors(self) -> list[Tensor]:
        """Return weights and buffers, including buffers that are not in the state_dict."""
        return [*self.model.parameters(), *self.model.buffers()]

    def optimizer_states(self) -> list[dict[str, Any]]:
        """Return the state of the optimizer of each parameter."""
        return [self.optimizer.state.get(weight, {}) for weight in self.groups.weights()]

    def save(self) -> Saved:
        """Return a copy of weights, buffers, optimizer state and gradient scaler."""
        scaler = None if self.scaler is None else self.scaler.state_dict()
        return save(self.tensors(), self.optimizer_states(), scaler, self._snapshots)

    def load(self, saved: Saved) -> None:
        """Become what `save` returned."""
        put_back(saved, self.tensors(), self.optimizer.state, self.groups.weights())
        if self.scaler is not None:
            self.scaler.load_state_dict(saved.scaler)

    def step(self, batch: KeptBatch) -> Tensor:
        """Train on a batch; an exception in the loss leaves everything as it was."""
        self.set_random_state(batch.random)
        self.optimizer.zero_grad()
        with self.groups.in_force(batch.own, self.candidate):
            loss = self._differentiate(batch)
            self._update()
        return loss

    def _differentiate(self, batch: KeptBatch) -> Tensor:
        """Compute the gradients of the loss of a batch, summed over its parts; return the loss."""
        # Batch norm changes its buffers in a forward pass.
        buffers = [one.detach().clone() for one in self.model.buffers()]
        weights, total = self.groups.weights(), None
        try:
            for part in batch.parts:
                loss = check_loss(batch.loss_fn(*part))
                if total is None:
                    check_no_backward(weights)
                (loss if self.scaler is None else self.scaler.scale(loss)).backward()
                loss = loss.detach().reshape(())
                total = loss if total is None else total + loss
            check_used(weights)
        except BaseException:
            with torch.no_grad():
                for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                    buffer.copy_(before)
            self.optimizer.zero_grad()
            self.set_random_state(batch.random)
            raise
        assert total is not None, "a batch has at least one part"
        return total

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
            # The same random numbers for all states that are compared.
            self.set_random_state(batches[0].random)
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
        return mix_rows(batches, rng, like, by_rows=self.by_rows)

    def size(self, batch: KeptBatch) -> int:
        """Return the bytes of a batch."""
        return batch.size

    def sketches(self, batches: Sequence[KeptBatch]) -> np.ndarray:
        """Return a few numbers of each batch, and of its gradient at the weights as they are."""
        weights, found = self.groups.weights(), []
        signs = random_signs(weights)
        for batch in batches:
            self.set_random_state(batch.random)
            self.optimizer.zero_grad()
            loss = self._differentiate(batch)
            sketch = gradient_sketch(weights, signs)
            found.append(torch.cat([sketch, loss.float().reshape(1).to(sketch.device)]))
        self.optimizer.zero_grad()
        return np.concatenate([torch.stack(found).cpu().numpy(), _held(batches)], axis=1)

    def held(self, batches: Sequence[KeptBatch]) -> np.ndarray:
        """Return a few numbers of what each batch holds."""
        return _held(batches)

    def row_counts(self, batches: Sequence[KeptBatch]) -> list[int]:
        """Return the number of rows of each batch."""
        return [count_rows(one) for one in batches]

    def saved_size(self, saved: Saved) -> int:
        """Return the bytes of a copy."""
        return saved.size

    def replay_size(self, saved: Sequence[Saved], batches: Sequence[KeptBatch]) -> int:
        """Return the bytes that a replay needs at most, beyond these copies and batches."""
        copies = MOST_COPIES * max((one.size for one in saved), default=0)
        return copies + min(sum(one.size for one in batches), _JOINED)


def _held(batches: Sequence[KeptBatch]) -> np.ndarray:
    return torch.stack([data_sketch(tensors_of(one.parts)) for one in batches]).numpy()


def _joined(batches: Sequence[KeptBatch]) -> Sequence[KeptBatch]:
    """Return one batch of all rows, where they can be joined."""
    parts = [part for batch in batches for part in batch.parts]
    if not can_mix(parts):
        return batches
    columns = zip(*(tensors_of(part) for part in parts), strict=True)
    joined = with_tensors(parts[0], iter([torch.cat(list(column)) for column in columns]))
    return [batches[0]._replace(parts=(joined,))]
