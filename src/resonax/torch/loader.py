"""Reading the batches of a loader: recorded as tensors, and a few numbers of what each holds."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resonax.core.errors import ArgumentError
from resonax.guards.batch_order import repeats
from resonax.torch.batches import byte_count, copied, tensors_of

__all__ = ["Reading", "contents", "has_only_tensors", "read_loader", "same_on_ranks"]

_AGAIN = 16  # batches of a second pass that are compared with the first
_BINS = 8  # numbers of a tensor
_LARGE = 1000  # entries of a list that is data, and is not copied


@dataclass
class Reading:
    """Batches of a loader, the epoch of each, and whether epochs are the same; None if unknown."""

    batches: list[Any]
    epochs: np.ndarray
    same: bool | None
    notes: list[str]


def read_loader(
    loader: Any,
    steps: int,
    *,
    memory: int,
    significance: float = 0.01,
    seed: int = 0,
    set_epoch: Callable[[int], object] | None = None,
    advance: Callable[[int], object] = lambda count: None,  # noqa: ARG005
    name: str = "the loader",
) -> Reading:
    """Return batches of a loader, which is read again from its start when it ends.

    A copy of the loader is read, if it can be copied: the data of its dataset are shared.
    """
    notes: list[str] = []
    source, set_epoch = _copy_of(loader, set_epoch, notes)
    if not isinstance(source, Iterable):
        raise ArgumentError(
            f"{name} must give batches when it is iterated over, such as a DataLoader or a list, "
            f"got {type(loader).__name__}"
        )
    is_stream = isinstance(source, Iterator)
    batches: list[Any] = []
    epochs: list[int] = []
    size, epoch = 0, 0
    while len(batches) < steps:
        if set_epoch is not None:
            set_epoch(epoch)
        before = len(batches)
        for batch in source:
            batches.append(_as_tensors(copied(batch)))
            epochs.append(epoch)
            size += byte_count(batches[-1])
            advance(1)
            if len(batches) == steps or size > memory:
                break
        if len(batches) == before:
            what = "gives no batches" if not batches else f"gives no batches in epoch {epoch}"
            raise ArgumentError(f"{name} {what}: give one that can be iterated over again")
        if size > memory:
            notes.append(
                f"{len(batches)} batches fill {memory / 2**20:.0f} MiB: these are audited; "
                "memory= allows more"
            )
            break
        if is_stream:
            break
        epoch += 1
    again: list[Any] = []
    is_recording = isinstance(source, (list, tuple))  # which is the same each time it is read
    if not (is_stream or is_recording) and epochs[-1] == 0:
        if set_epoch is not None:
            set_epoch(1)
        again = [_as_tensors(copied(one)) for one, _ in zip(source, range(_AGAIN), strict=False)]
    _check_form(batches, name)
    numbers = [*epochs, *[epochs[-1] + 1] * len(again)]
    rng = np.random.default_rng([seed, 9])
    kept = [*batches, *again]
    same = None
    for digest in (_digest, _digest_of_whole_numbers):
        marks = [digest(one) for one in kept]
        if len(set(marks)) > 1:
            found = repeats(marks, numbers, significance / 4, rng)
            same = found if same is None else same or found
    return Reading(batches, np.array(epochs), same, notes)


def same_on_ranks(readings: Sequence[Reading]) -> bool:
    """Return whether most batches of two ranks are the same; they must have as many, and alike."""
    counts = [len(one.batches) for one in readings]
    if len(set(counts)) > 1:
        raise ArgumentError(
            f"the ranks disagree: their loaders give {', '.join(map(str, counts))} batches; give "
            "all of them as many"
        )
    forms = {len(tensors_of(one.batches[0])) for one in readings}
    if len(forms) > 1:
        raise ArgumentError("the ranks disagree: their batches hold different numbers of tensors")
    marks = [[_digest(batch) for batch in one.batches] for one in readings]
    first = marks[0]
    if len(set(first)) == 1:
        return False  # all batches are the same on each rank as well
    return any(
        np.mean([one == two for one, two in zip(first, other, strict=True)]) > 0.5
        for other in marks[1:]
    )


def has_only_tensors(batch: Any) -> bool:
    """Return whether all that a batch holds by rows are tensors: then its rows can be mixed."""
    if isinstance(batch, dict):
        return all(map(has_only_tensors, batch.values()))
    if isinstance(batch, (list, tuple)):
        return all(map(has_only_tensors, batch))
    return isinstance(batch, (Tensor, int, float, bool, type(None)))


def contents(batches: Sequence[Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Return numbers of what batches hold: of labels and other whole numbers, and of features."""
    whole, real = [], []
    signs: dict[int, np.ndarray] = {}
    for batch in batches:
        tensors = tensors_of(batch)
        whole.append([n for one in tensors[:_BINS] for n in _numbers_of_shape(one)])
        real.append([])
        for one in tensors[:_BINS]:
            if one.is_floating_point() or one.is_complex():
                real[-1] += _numbers_of_features(one, signs, seed)
            else:
                whole[-1] += _numbers_of_whole(one)
    return {"whole": np.array(whole), "real": np.array(real)}


def rows_of(batch: Any) -> int:
    """Return the number of rows of the first tensor of a batch; 1 if it has none."""
    return next((int(one.shape[0]) for one in tensors_of(batch) if one.ndim), 1)


def complete(reading: Reading) -> np.ndarray:
    """Return whether each batch is looked at: not a last one of an epoch that has fewer rows."""
    rows = np.array([rows_of(one) for one in reading.batches])
    last = np.append(np.diff(reading.epochs) > 0, True)
    return ~(last & (rows < np.median(rows)))


def _numbers_of_shape(tensor: Tensor) -> list[float]:
    return [float(tensor.shape[1])] if tensor.ndim > 1 else [0.0]


def _numbers_of_features(tensor: Tensor, signs: dict[int, np.ndarray], seed: int) -> list[float]:
    """Return means of stretches of the mean row, random projections of it, and the mean square."""
    rows = tensor.detach().abs() if tensor.is_complex() else tensor.detach()
    rows = rows.reshape(rows.shape[0] if rows.ndim else 1, -1).float()
    mean = rows.mean(dim=0).cpu().numpy()
    square = float((rows**2).mean())
    if mean.size not in signs:
        rng = np.random.default_rng([seed, 10, mean.size])
        signs[mean.size] = rng.choice(np.array([-1.0, 1.0], np.float32), (mean.size, _BINS // 2))
    parts = [float(one.mean()) for one in np.array_split(mean, min(_BINS, max(1, mean.size)))]
    parts += [0.0] * (_BINS - len(parts))
    return [*parts, *(mean @ signs[mean.size]).tolist(), np.log(square + 1e-12)]


def _numbers_of_whole(tensor: Tensor) -> list[float]:
    """Return shares of values by their remainder, the mean, and the share of the last column."""
    values = tensor.detach().reshape(-1).long()
    counts = torch.bincount(values.remainder(2 * _BINS), minlength=2 * _BINS)
    share = (counts.float() / max(1, values.numel())).cpu().tolist()
    padded = 0.0
    if tensor.ndim > 1:
        padded = float((tensor == tensor[..., -1:]).float().mean())
    return [*share, float(values.float().mean()) if values.numel() else 0.0, padded]


def _digest(batch: Any) -> bytes:
    return _digest_of(tensors_of(batch))


def _digest_of_whole_numbers(batch: Any) -> bytes:
    """Return a mark of the labels alone: rows may be augmented anew."""
    return _digest_of([one for one in tensors_of(batch) if not one.is_floating_point()])


def _digest_of(tensors: Sequence[Tensor]) -> bytes:
    made = hashlib.blake2b(digest_size=16)
    for one in tensors:
        made.update(str((tuple(one.shape), one.dtype)).encode())
        made.update(one.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return made.digest()


def _check_form(batches: Sequence[Any], name: str) -> None:
    counts = [len(tensors_of(one)) for one in batches]
    if not counts[0]:
        raise ArgumentError(
            f"{name} gives batches without tensors or arrays, the first is a "
            f"{type(batches[0]).__name__}: collate rows into tensors"
        )
    for place, count in enumerate(counts):
        if count != counts[0]:
            raise ArgumentError(
                f"{name} gives batches that hold different things: the first has {counts[0]} "
                f"tensors and batch {place + 1} has {count}; make them alike"
            )


def _as_tensors(value: Any) -> Any:
    """Return a batch with arrays, and lists of numbers, as tensors."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.from_numpy(np.array(value))
    if isinstance(value, dict):
        return type(value)((key, _as_tensors(item)) for key, item in value.items())
    if isinstance(value, list) and value and all(isinstance(one, (int, float)) for one in value):
        return torch.tensor(value)
    if isinstance(value, list) and value and all(isinstance(one, list) for one in value):
        try:
            return torch.tensor(value)
        except (TypeError, ValueError):
            return value
    if isinstance(value, (list, tuple)):
        made = [_as_tensors(item) for item in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


def _copy_of(
    loader: Any, set_epoch: Callable[[int], object] | None, notes: list[str]
) -> tuple[Any, Callable[[int], object] | None]:
    """Return a copy of a loader that shares its data; the loader itself if it has none.

    A method of what the loader holds becomes the method of the copy; of another function it is not
    known what it changes, so that the loader itself is read.
    """
    if isinstance(loader, (list, tuple)):
        return loader, set_epoch
    if set_epoch is not None and not hasattr(set_epoch, "__self__"):
        notes.append(
            "the loader itself was read, as set_epoch is a function: a method such as "
            "loader.sampler.set_epoch is called on a copy"
        )
        return loader, set_epoch
    memo = {id(one): one for one in _data_of(loader)}
    try:
        return copy.deepcopy((loader, set_epoch), memo)
    except Exception:  # whatever a loader holds that cannot be copied
        notes.append("the loader could not be copied: it was read itself, as a loop would")
        return loader, set_epoch


def _data_of(thing: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the arrays and long lists that a loader and its dataset hold."""
    if isinstance(thing, (Tensor, np.ndarray)) or (
        isinstance(thing, (list, tuple, dict)) and len(thing) > _LARGE
    ):
        yield thing
    elif depth < 4 and isinstance(thing, (list, tuple)):
        for one in thing:
            yield from _data_of(one, depth + 1)
    elif depth < 4 and hasattr(thing, "__dict__") and not isinstance(thing, type):
        for one in vars(thing).values():
            yield from _data_of(one, depth + 1)
