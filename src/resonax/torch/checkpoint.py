"""The state of a guarded run as plain values and tensors, for a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any
from zlib import crc32

from torch import Tensor

from resonax.core.errors import ArgumentError
from resonax.guards.decision_log import Judged, as_decision, as_judged, plain_decision
from resonax.guards.guarded_run import GuardedRun
from resonax.guards.history import History, Snapshot
from resonax.guards.report import Event
from resonax.guards.state import GuardConfig, GuardState
from resonax.torch.batches import KeptBatch
from resonax.torch.learner import TorchLearner
from resonax.torch.processes import Processes
from resonax.torch.random_state import RandomState
from resonax.torch.snapshots import Saved

__all__ = ["digest_of", "load_run", "save_run", "with_loss"]

_FORMAT = 9


def _no_loss(*_: Any) -> Any:
    raise ArgumentError("this guard was loaded; call step once before anything is replayed")


def save_run(run: GuardedRun, processes: Processes) -> dict[str, Any]:
    """Return a run as plain values and tensors, without its loss functions."""
    state = run.state
    plain = {one.name: getattr(state, one.name) for one in fields(state)}
    plain["partial"] = [None if one is None else float(one) for one in state.partial]
    history = state.history
    places = {id(one): place for place, one in enumerate(history.batches)}
    plain["reservoir"] = [
        places[id(one)] if id(one) in places else _batch(one) for one in state.reservoir
    ]
    plain["history"] = {
        "snapshots": [(one.step, _snapshot(one.saved)) for one in history.snapshots],
        "batches": [_batch(one) for one in history.batches],
        "sizes": list(history.sizes),
    }
    plain["decisions"] = [plain_decision(one) for one in state.decisions]
    events = [(one.step, one.kind, one.text, one.momentum, one.period) for one in run.events]
    return {
        "format": _FORMAT,
        "state": plain,
        "losses": list(run.losses),
        "events": events,
        "peak": run.memory,
        "reservoir": run.config.reservoir,
        "judged": [(*one[:4], tuple(map(tuple, one.phases))) for one in run.judged],
        "processes": (processes.rank, processes.count),
    }


def digest_of(value: Any) -> int:
    """Return a checksum of plain values, and of the shapes and types of tensors.

    The numbers in the tensors are covered by the checksum of the file that ``torch.save`` writes.

    Examples
    --------
    >>> digest_of([1, {"a": 2.0}]) == digest_of((1, {"a": 2.0}))
    True
    >>> digest_of([1, {"a": 2.0}]) == digest_of([1, {"a": None}])
    False
    """
    digest = 0
    for part in _parts_of(value):
        digest = crc32(part, digest)
    return digest


def _parts_of(value: Any) -> Iterator[bytes]:
    if isinstance(value, Tensor):
        yield f"tensor {tuple(value.shape)} {value.dtype};".encode()
    elif isinstance(value, dict):
        yield b"{"
        for name, one in value.items():
            yield f"{name!r}:".encode()
            yield from _parts_of(one)
        yield b"}"
    elif isinstance(value, (list, tuple)):
        yield b"["
        for one in value:
            yield from _parts_of(one)
        yield b"]"
    else:
        yield value if isinstance(value, bytes) else f"{value!r};".encode()


def _snapshot(saved: Saved) -> tuple[Any, ...]:
    saved.wait()
    return saved.tensors, saved.states, saved.scaler


def _batch(batch: KeptBatch) -> tuple[Any, ...]:
    return batch.parts, batch.own, tuple(batch.random), batch.size


def load_run(saved: dict[str, Any], config: GuardConfig, learner: TorchLearner) -> GuardedRun:
    """Return the run that `save_run` took apart; `ArgumentError` if it does not fit."""
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise ArgumentError("this is no state of a guard of this version of resonax")
    kept = {name: one for name, one in saved.items() if name != "digest"}
    if saved.get("digest") != digest_of(kept):
        raise ArgumentError(
            "this state of a guard is damaged: it does not hold what was saved; load another "
            "checkpoint, or begin with a new guard"
        )
    (rank, count), ours = saved["processes"], learner.processes
    if count != ours.count:
        raise ArgumentError(
            f"this state is of a run of {count} processes, and this one has {ours.count}: load it "
            f"in {count}, or begin with a new guard"
        )
    if rank != ours.rank:
        raise ArgumentError(
            f"this state is of rank {rank}: save and load one on each rank, here that of rank "
            f"{ours.rank}"
        )
    plain = dict(saved["state"])
    history = plain["history"]
    shapes = [tuple(one.shape) for one in learner.tensors()]
    for _, (tensors, states, _) in history["snapshots"]:
        if [tuple(one.shape) for one in tensors] != shapes:
            raise ArgumentError("this state is of another model: its tensors have other shapes")
        if len(states) != len(learner.groups.weights()):
            raise ArgumentError("this state is of an optimizer with other parameters")
    if max(plain["places"]) >= len(config.candidates):
        raise ArgumentError("this state is of a guard with other candidates")
    names = [sorted(one) for one in learner.groups.own()]
    if any([sorted(one) for one in own] != names for _, own, *_ in history["batches"]):
        raise ArgumentError("this state is of another optimizer: its groups hold other numbers")
    snapshots = tuple(Snapshot(step, Saved(*kept)) for step, kept in history["snapshots"])
    batches, sizes = [_loaded(one) for one in history["batches"]], history["sizes"]
    plain["history"] = History(snapshots, tuple(batches), tuple(sizes), sum(sizes))
    plain["reservoir"] = tuple(
        batches[one] if isinstance(one, int) else _loaded(one) for one in plain["reservoir"]
    )
    plain["decisions"] = tuple(as_decision(one) for one in plain["decisions"])
    for name in ("places", "recent", "marked", "partial", "lost", "aside"):
        plain[name] = tuple(plain[name])
    return GuardedRun(
        replace(config, reservoir=saved["reservoir"]),
        GuardState(**plain),
        losses=tuple(saved["losses"]),
        events=tuple(Event(*one) for one in saved["events"]),
        judged=tuple(as_judged(Judged(*one)) for one in saved["judged"]),
        memory=saved["peak"],
    )


def _loaded(kept: Any) -> KeptBatch:
    parts, own, states, size = kept
    return KeptBatch(_no_loss, parts, own, RandomState(*states), size)


def with_loss(run: GuardedRun, loss_fn: Any) -> GuardedRun:
    """Give the batches of a loaded run their loss function."""
    made: dict[int, KeptBatch] = {}  # a batch in history and reservoir stays one object

    def completed(batch: KeptBatch) -> KeptBatch:
        if batch.loss_fn is not _no_loss:
            return batch
        return made.setdefault(id(batch), batch._replace(loss_fn=loss_fn))

    state = run.state
    history = state.history._replace(batches=tuple(map(completed, state.history.batches)))
    reservoir = tuple(map(completed, state.reservoir))
    return replace(run, state=replace(state, history=history, reservoir=reservoir))
