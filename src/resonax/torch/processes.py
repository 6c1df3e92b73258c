"""Processes that train one model together: what they agree upon before any of them branches.

All ranks of `torch.distributed` take the same decisions, as all that these follow from is the same
on each: losses are means over the ranks, and an exception of one is one of all. One process alone
is a world of one, in which nothing is exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from resonax.core.errors import ArgumentError, Interrupted

__all__ = [
    "ALONE",
    "Processes",
    "Shared",
    "checksum",
    "join_processes",
    "replicas_of",
    "with_shared_buffers",
    "without_sync",
]


@dataclass
class Shared:
    """Numbers of this rank, and afterwards of all: (ranks, numbers)."""

    mine: Sequence[float] = ()
    all: np.ndarray = field(default_factory=lambda: np.empty((1, 0)))

    def mean(self) -> list[float]:
        """Return the means over the ranks."""
        return self.all.mean(axis=0).tolist()

    def is_same(self, place: int) -> bool:
        """Return whether a number is the same on all ranks."""
        return len(set(self.all[:, place].tolist())) == 1


@dataclass(frozen=True, eq=False)
class Processes:
    """The processes that train one model together, seen from one of them.

    Parameters
    ----------
    rank, count
        The place of this process, and how many there are.
    world
        The processes of `torch.distributed`, of which these may be a part.
    host
        The group in which numbers on the CPU are exchanged. It is not that of the gradients: a rank
        may raise an exception while another waits for its gradients.
    device
        The group that reduces what is on other devices.

    Examples
    --------
    >>> with ALONE.together(1) as shared:
    ...     shared.mine = [2.0]
    >>> shared.mean(), ALONE.are_all(False)
    ([2.0], False)
    """

    rank: int = 0
    count: int = 1
    world: int = 1
    host: Any = None
    device: Any = None

    def gather(self, numbers: Sequence[float]) -> np.ndarray:
        """Return the numbers of each rank, (ranks, numbers)."""
        mine = torch.tensor(numbers, dtype=torch.float64)
        if self.count == 1:
            return mine[None].numpy()
        found = [torch.empty_like(mine) for _ in range(self.count)]
        distributed.all_gather(found, mine, group=self.host)
        return torch.stack(found).numpy()

    @contextmanager
    def together(self, size: int = 0) -> Iterator[Shared]:
        """Run a block on all ranks, and share as many numbers as it leaves in ``mine``.

        If it raises an exception on one rank, the others raise `Interrupted`, so that none goes on
        and waits. The block itself must not wait for other ranks.
        """
        shared, failed = Shared(), None
        if self.count == 1:
            yield shared
            shared.all = np.array([shared.mine], dtype=float)
            return
        try:
            yield shared
        except BaseException as error:
            failed = error
        numbers = [float("nan")] * size if failed is not None else shared.mine
        found = self.gather([float(failed is not None), *numbers])
        if not found[:, 0].any():
            shared.all = found[:, 1:]
            return
        texts = self.exchange(None if failed is None else f"{type(failed).__name__}: {failed}")
        if failed is not None:
            raise failed
        rank = next(one for one, text in enumerate(texts) if text is not None)
        raise Interrupted(
            f"rank {rank} raised {texts[rank]}; this rank stops with it, so that it does not wait"
        )

    def are_all(self, is_so: bool) -> bool:
        """Return whether something is so on all ranks."""
        return is_so if self.count == 1 else bool(self.gather([float(is_so)]).all())

    def mean(self, numbers: Tensor) -> Tensor:
        """Return the mean over the ranks; on a device nothing waits for it."""
        if self.count == 1:
            return numbers
        made = numbers.detach().clone()
        distributed.all_reduce(made, group=self._group_of(made))
        return made / self.count

    def exchange(self, value: Any) -> list[Any]:
        """Return a small plain value of each rank."""
        found = [value]
        if self.count > 1:
            found = [None] * self.count
            distributed.all_gather_object(found, value, group=self.host)
        return found

    def to_first(self, value: Any) -> list[Any] | None:
        """Return the values of all ranks on the first, None on the others."""
        found = [None] * self.count if self.rank == 0 else None
        first = distributed.get_global_rank(self.host, 0)
        distributed.gather_object(value, found, dst=first, group=self.host)
        return found

    @torch.no_grad()
    def share(self, tensors: Sequence[Tensor]) -> None:
        """Give all ranks the tensors of the first, those of one type at once."""
        if self.count == 1:
            return
        kinds: dict[Any, list[Tensor]] = {}
        for one in tensors:
            kinds.setdefault((str(one.device), one.dtype), []).append(one)
        for alike in kinds.values():
            flat = torch.cat([one.reshape(-1) for one in alike])
            group = self._group_of(flat)
            distributed.broadcast(flat, distributed.get_global_rank(group, 0), group=group)
            if self.rank:
                parts = flat.split([one.numel() for one in alike])
                for one, part in zip(alike, parts, strict=True):
                    one.copy_(part.reshape(one.shape))

    def _group_of(self, tensor: Tensor) -> Any:
        return self.host if tensor.device.type == "cpu" else self.device

    def check_world(self) -> None:
        """Raise `ArgumentError` if there are more or fewer processes than there were."""
        if _world_size() != self.world:
            raise ArgumentError(
                f"torch.distributed has {_world_size()} processes, and had {self.world} when this "
                "guard was made: close() it, and make it after init_process_group"
            )

    def leave(self) -> None:
        """End the exchange of numbers; nobody waits."""
        # A group of some ranks would leave its name, and addresses that are gone, to the next.
        if self.host is not None and self.count == self.world and distributed.is_initialized():
            with suppress(ValueError):  # of an earlier world
                distributed.destroy_process_group(self.host)


ALONE = Processes()


def _world_size() -> int:
    if not distributed.is_available() or not distributed.is_initialized():
        return 1
    return distributed.get_world_size()


def replicas_of(model: torch.nn.Module) -> tuple[DistributedDataParallel, ...]:
    """Return the modules in a model whose gradients are reduced over the processes."""
    if not distributed.is_available():
        return ()
    return tuple(one for one in model.modules() if isinstance(one, DistributedDataParallel))


def join_processes(model: object) -> Processes:
    """Return the processes that train a model together; all of them call this.

    They are those of its `DistributedDataParallel`, or all of `torch.distributed`.
    """
    world = _world_size()
    replicas = replicas_of(model) if isinstance(model, torch.nn.Module) else ()
    group = replicas[0].process_group if replicas else None
    if world == 1 or (replicas and distributed.get_world_size(group) == 1):
        return Processes(world=world)
    if not distributed.is_gloo_available():
        raise ArgumentError(
            "a guard of several processes needs the backend gloo of torch.distributed: install a "
            "build of torch that has it, or train in one process"
        )
    group = distributed.group.WORLD if group is None else group
    count = distributed.get_world_size(group)
    host = distributed.new_group(
        distributed.get_process_group_ranks(group),
        backend="gloo",
        use_local_synchronization=count < world,  # others do not make a guard with these
    )
    return Processes(distributed.get_rank(group), count, world, host, group)


@contextmanager
def with_shared_buffers(
    processes: Processes, replicas: Sequence[DistributedDataParallel]
) -> Iterator[None]:
    """Give all ranks the buffers of the first, in place of what the forward passes would do.

    Those do it only after a pass with gradients, so that a replay would depend on what came
    before it; and a rank whose loss fails before its forward pass would leave the others waiting.
    """
    sharing = [one for one in replicas if one.broadcast_buffers]
    processes.share([buffer for one in sharing for buffer in one.module.buffers()])
    for one in sharing:
        one.broadcast_buffers = False
    try:
        yield
    finally:
        for one in sharing:
            one.broadcast_buffers = True


@contextmanager
def without_sync(replicas: Sequence[DistributedDataParallel]) -> Iterator[None]:
    """Add up the gradients of each rank by itself, to be reduced by a later backward pass."""
    with ExitStack() as stack:
        for one in replicas:
            stack.enter_context(one.no_sync())
        yield


def checksum(tensors: Sequence[Tensor | None]) -> int:
    """Return a checksum of the bits of tensors.

    Examples
    --------
    >>> one = torch.ones(3)
    >>> checksum([one, None]) == checksum([one.clone(), None]), checksum([one]) == checksum([-one])
    (True, False)
    """
    found = 0
    for one in tensors:
        if one is None:
            continue
        dense = one.detach().to_dense() if one.is_sparse else one.detach()
        raw = dense.reshape(-1).contiguous().view(torch.uint8).cpu().numpy()
        found = crc32(raw.tobytes(), found)
    return found
