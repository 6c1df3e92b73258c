"""The state of a guard by replay as plain values and tensors, for a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from resonax.checks import ArgumentError
from resonax.guards.decision_log import as_decision, plain_decision
from resonax.guards.ladder import Ladder, Snapshot
from resonax.guards.replay import ReplayConfig, ReplayState
from resonax.guards.report import Event
from resonax.guards.window import window_of
from resonax.torch.batches import KeptBatch
from resonax.torch.learner import TorchLearner
from resonax.torch.random_state import RandomState
from resonax.torch.snapshots import Saved

__all__ = ["load_guard", "save_guard", "with_loss"]

_FORMAT = 3
Loaded = tuple[ReplayState, tuple[float, ...], tuple[Event, ...], int]


def _missing(*_: Any) -> Any:
    raise ArgumentError("this guard was loaded; call step once before anything is replayed")


def save_guard(
    state: ReplayState, losses: tuple[float, ...], events: tuple[Event, ...], peak: int
) -> dict[str, Any]:
    """Return the state of a guard without its loss functions."""
    plain = {one.name: getattr(state, one.name) for one in fields(state)}
    ladder = state.ladder
    plain["partial"] = float(state.partial)
    plain["reservoir"] = [_batch(one) for one in state.reservoir]
    plain["ladder"] = {
        "snapshots": [(one.step, _snapshot(one.saved)) for one in ladder.snapshots],
        "batches": [_batch(one) for one in ladder.batches],
        "sizes": list(ladder.sizes),
    }
    plain["decisions"] = [plain_decision(one) for one in state.decisions]
    events_ = [(one.step, one.kind, one.text, one.momentum, one.period) for one in events]
    return {
        "format": _FORMAT,
        "state": plain,
        "losses": list(losses),
        "events": events_,
        "peak": peak,
    }


def _snapshot(saved: Saved) -> tuple[Any, ...]:
    saved.wait()
    return saved.tensors, saved.states, saved.scaler


def _batch(batch: KeptBatch) -> tuple[Any, ...]:
    return batch.parts, batch.own, tuple(batch.random)


def load_guard(saved: dict[str, Any], config: ReplayConfig, learner: TorchLearner) -> Loaded:
    """Return the state that `save_guard` took apart; `ArgumentError` if it does not fit."""
    if saved.get("format") != _FORMAT:
        raise ArgumentError("this is not the state of a guard by replay of this version")
    plain = dict(saved["state"])
    ladder = plain["ladder"]
    shapes = [tuple(one.shape) for one in learner.save().tensors]
    snapshots = tuple(Snapshot(step, Saved(*kept)) for step, kept in ladder["snapshots"])
    if any([tuple(one.shape) for one in each.saved.tensors] != shapes for each in snapshots):
        raise ArgumentError("this state is of another model: its tensors have other shapes")
    if max(plain["places"]) >= len(config.candidates):
        raise ArgumentError("this state is of a guard with other candidates")
    sizes = tuple(ladder["sizes"])
    batches = window_of(_batches(ladder["batches"]))
    plain["ladder"] = Ladder(snapshots, batches, window_of(sizes), sum(sizes))
    plain["reservoir"] = _batches(plain["reservoir"])
    plain["decisions"] = tuple(as_decision(one) for one in plain["decisions"])
    for name in ("places", "recent", "marked"):
        plain[name] = tuple(plain[name])
    events = tuple(Event(*one) for one in saved["events"])
    return ReplayState(**plain), tuple(saved["losses"]), events, saved["peak"]


def _batches(kept: Any) -> tuple[KeptBatch, ...]:
    return tuple(
        KeptBatch(_missing, parts, own, RandomState(*random)) for parts, own, random in kept
    )


def with_loss(state: ReplayState, loss_fn: Any) -> ReplayState:
    """Give the batches of a loaded state their loss function."""

    def given(batches: Sequence[KeptBatch]) -> tuple[KeptBatch, ...]:
        return tuple(
            one._replace(loss_fn=loss_fn) if one.loss_fn is _missing else one for one in batches
        )

    ladder = state.ladder._replace(batches=window_of(given(state.ladder.batches)))
    return replace(state, ladder=ladder, reservoir=given(state.reservoir))
