"""A torch module and its optimizer as a learner that can be rewound and trained again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resonax.core.errors import ArgumentError
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
from resonax.torch.processes import (
    ALONE,
    Processes,
    checksum,
    replicas_of,
    with_shared_buffers,
    without_sync,
)
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
    processes
        That train the model together; each has rows of its own, and its losses are means over all.
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
        processes: Processes = ALONE,
    ):
        check_place(snapshots)
        self.by_rows, self.processes = by_rows, processes
        self.replicas, self._called = replicas_of(model), model
        self.model = model.module if model in self.replicas else model
        self.optimizer, self.scaler = optimizer, scaler
        self.transform = transform
        self.candidate: Candidate | None = None
        self.groups = Groups(optimizer, find_knob(optimizer, knob))
        self._devices = devices_of(model)
        self._snapshots = snapshots
        self._is_checked = processes.count == 1  # whether all ranks train one model

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
        with self.groups.in_force(batch.own, self.candidate), self._undone(batch):
            loss = self._differentiate(batch)
            self._update()
        return loss

    @contextmanager
    def _undone(self, batch: KeptBatch) -> Iterator[None]:
        """Undo what a step has changed before its update, if there is an exception."""
        # Batch norm changes its buffers in a forward pass.
        buffers = [one.detach().clone() for one in self.model.buffers()]
        try:
            yield
        except BaseException:
            _write(buffers, [*self.model.buffers()])
            self.optimizer.zero_grad()
            self.set_random_state(batch.random)
            raise

    def _differentiate(self, batch: KeptBatch) -> Tensor:
        """Compute the gradients of the loss of a batch, summed over its parts; return the loss.

        Gradients are reduced over the ranks in the last backward pass, which begins when all ranks
        have come so far without an exception.
        """
        weights, total, scaled = self.groups.weights(), None, None
        with with_shared_buffers(self.processes, self.replicas):
            with self.processes.together(), ExitStack() as unreduced:
                unreduced.enter_context(without_sync(self.replicas))
                for number, part in enumerate(batch.parts, 1):
                    if number == len(batch.parts):
                        unreduced.close()
                    loss = check_loss(batch.loss_fn(*part))
                    if total is None:
                        check_no_backward(weights)
                    scaled = loss if self.scaler is None else self.scaler.scale(loss)
                    loss = loss.detach().reshape(())
                    total = loss if total is None else total + loss
                    if number < len(batch.parts) or not self.replicas:
                        scaled.backward()
                if not self.replicas:
                    check_used(weights)
            assert total is not None, "a batch has at least one part"
            if self.replicas and scaled is not None:
                scaled.backward()
                check_used(weights)
        return total

    def _update(self) -> None:
        if self.transform is not None:
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            with self.processes.together():
                self.transform()
        self.check_replicas()
        if self.scaler is None:
            self.optimizer.step()
            return
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def check_again(self) -> None:
        """Look at the next step whether all ranks train one model, as after a checkpoint."""
        self._is_checked = self.processes.count == 1

    def check_replicas(self) -> None:
        """Raise `ArgumentError` unless weights and gradients are the same on all ranks."""
        if self._is_checked:
            return
        with self.processes.together(2) as shared:
            gradients = [one.grad for one in self.groups.weights()]
            shared.mine = checksum([*self.model.parameters()]), checksum(gradients)
        if not shared.is_same(0):
            raise ArgumentError(
                "the ranks have different weights: wrap the module in DistributedDataParallel, or "
                "load the same weights on all ranks before the first step"
            )
        if not shared.is_same(1):
            raise ArgumentError(
                "the ranks have different gradients: wrap the module in DistributedDataParallel "
                "and call it in the loss function, or average the gradients by transform="
            )
        self._is_checked = True

    def loss(self, batches: Sequence[KeptBatch]) -> float:
        """Return the mean loss on batches in evaluation mode."""
        if len(batches) > 1 and sum(one.size for one in batches) <= _JOINED:
            parts = [part for batch in batches for part in batch.parts]
            if self.processes.are_all(can_mix(parts)):  # all ranks call the model as often
                batches = [batches[0]._replace(parts=(_joined(parts),))]
        return mean_loss(self.losses(batches))

    def losses(self, batches: Sequence[KeptBatch]) -> list[float]:
        """Return the loss on each batch, the mean of its parts, in evaluation mode."""
        # Only the exchange of buffers changes them here.
        buffers = [*self.model.buffers()] if self.replicas else []
        before = [one.detach().clone() for one in buffers]
        try:
            with (
                with_shared_buffers(self.processes, self.replicas),
                self.processes.together(len(batches)) as shared,
            ):
                shared.mine = self._own_losses(batches)
        finally:
            _write(before, buffers)
        return shared.mean()

    @torch.no_grad()
    def _own_losses(self, batches: Sequence[KeptBatch]) -> list[float]:
        """Return the loss on the rows of this rank of each batch."""
        random, modes = self.random_state(), [(one, one.training) for one in self._called.modules()]
        self._called.eval()
        try:
            # The same random numbers for all states that are compared.
            self.set_random_state(batches[0].random)
            losses = [batch.loss_fn(*part).detach() for batch in batches for part in batch.parts]
            found = iter(torch.stack([one.reshape(()) for one in losses]).tolist())
            return [sum(next(found) for _ in one.parts) / len(one.parts) for one in batches]
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
        by_rows = self.by_rows
        if by_rows and self.processes.count > 1:  # where one rank cannot, no rank does
            parts = [part for batch in (*batches, *(like or ())) for part in batch.parts]
            by_rows = self.processes.are_all(can_mix(parts))
        return mix_rows(batches, rng, like, by_rows=by_rows)

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
        made = self.processes.mean(torch.stack(found))
        return np.concatenate([made.cpu().numpy(), self.held(batches)], axis=1)

    def held(self, batches: Sequence[KeptBatch]) -> np.ndarray:
        """Return a few numbers of what each batch holds, on all ranks together."""
        with self.processes.together():
            found = torch.stack([data_sketch(tensors_of(one.parts)) for one in batches])
        return self.processes.mean(found).numpy()

    def row_counts(self, batches: Sequence[KeptBatch]) -> list[int]:
        """Return the number of rows of each batch, on all ranks together."""
        counts = self.processes.gather([count_rows(one) for one in batches])
        return [int(one) for one in counts.sum(axis=0)]

    def saved_size(self, saved: Saved) -> int:
        """Return the bytes of a copy."""
        return saved.size

    def replay_size(self, saved: Sequence[Saved], batches: Sequence[KeptBatch]) -> int:
        """Return the bytes that a replay needs at most, beyond these copies and batches."""
        copies = MOST_COPIES * max((one.size for one in saved), default=0)
        return copies + min(sum(one.size for one in batches), _JOINED)


@torch.no_grad()
def _write(values: Sequence[Tensor], buffers: Sequence[Tensor]) -> None:
    for buffer, value in zip(buffers, values, strict=True):
        buffer.copy_(value)


def _joined(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return one part of the rows of all."""
    columns = zip(*(tensors_of(part) for part in parts), strict=True)
    return with_tensors(parts[0], iter([torch.cat(list(column)) for column in columns]))
