"""The instrument that rewinds a run and trains it again: any module, any optimizer of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from resonax.core.errors import ArgumentError
from resonax.guards import ladder as ladders
from resonax.guards import replay_run
from resonax.guards.averaging import STRIDE
from resonax.guards.calm import calm_steps
from resonax.guards.learner import Candidate, default_candidates
from resonax.guards.replay import ReplayConfig, ReplayState, has_judged
from resonax.guards.replay_report import ReplayReport
from resonax.guards.replay_run import as_candidates
from resonax.guards.report import WARNED, Event
from resonax.torch.average import Offer
from resonax.torch.batches import KeptBatch, byte_count, can_mix, form_of, tensors_of
from resonax.torch.events import EventLog
from resonax.torch.learner import TorchLearner, checked_optimizer
from resonax.torch.replay_checkpoint import digest_of, load_run, save_run, with_loss

__all__ = ["ReplayInstrument"]

_SHOWN = "guard.step(lambda x, y: loss_fn(model(x), y), x, y)"


class ReplayInstrument:
    """Rewind a run and train it again, see `resonax.torch.Guard` for the options."""

    probing = False

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        policy: str,
        *,
        candidates: Iterable[float | Candidate] | None = None,
        mix: bool = True,
        budget: float = 0.01,
        memory: int = 2**28,
        spacing: int = 32,
        average: bool = False,
        scaler: Any = None,
        transform: Callable[[], object] | None = None,
        log: Callable[[dict[str, Any]], object] | None = None,
        knob: str | tuple[str, int] | None = None,
        snapshots: str = "device",
        seed: int = 0,
    ):
        checked_optimizer(model, optimizer)
        self._learner = TorchLearner(model, optimizer, scaler, transform, knob, snapshots)
        own = self._learner.largest_momentum()
        given = None if candidates is None else as_candidates(candidates)
        made = default_candidates(own, mix=mix) if given is None else (Candidate(own), *given)
        self._run = replay_run.init(
            ReplayConfig(
                made, policy=policy, budget=budget, memory=memory, spacing=spacing, seed=seed
            )
        )
        self._log = EventLog(log)
        self._steps: list[tuple[KeptBatch, Any]] = []  # not counted yet, as nothing was due
        self._calm, self._bytes = 0, 0  # how many there may be; bytes of all batches kept
        self._form: Any = None  # of the last batch
        self._size = 0  # its bytes
        self._is_loaded, self._is_stepping, self._is_pending = False, False, False
        self._acted: tuple[bool, bool] | None = None  # what `_act` did, until all is finished
        self._ended: ReplayReport | None = None
        self._offer = Offer(self._learner) if average else None

    @property
    def momentum(self) -> float:
        return self.setting.momentum

    @property
    def setting(self) -> Candidate:
        return self._run.setting

    @property
    def averaged(self) -> AveragedModel | None:
        return None if self._offer is None else self._offer.averaged

    @property
    def _state(self) -> ReplayState:
        """The state after all steps."""
        self._count()
        return self._run.state

    def before_step(self) -> None:
        if not self._is_stepping:
            raise ArgumentError(
                "a guard that replays makes the steps itself, and would not see this one: write "
                f"{_SHOWN} in place of zero_grad, backward and optimizer.step(), or give "
                'instrument="tangent", which follows a loop of your own'
            )

    def after_step(self) -> None:
        pass

    def observe(self, loss: Tensor) -> None:
        raise ArgumentError(f"a guard that replays needs the batch, not the loss: write {_SHOWN}")

    def forget(self) -> None:
        raise ArgumentError("a guard that replays has nothing to forget: it makes the steps itself")

    def step(self, loss_fn: Callable[..., Tensor], parts: Sequence[tuple[Any, ...]]) -> Tensor:
        self._is_stepping = True
        try:
            form, learner = self._check(loss_fn, parts), self._learner
            self._resume(loss_fn)
            given = (
                *parts[:-1],
                learner.copied(parts[-1], form[-1]),
            )  # those before are copies already
            kept = learner.keep(loss_fn, given, self._size)
            if self._steps:  # no snapshot is due, and the batch is trained on as it came
                loss = learner.step(kept)
            else:
                run = replay_run.begin(self._run, learner)
                loss = learner.step(replay_run.trained_on(run, learner, kept))
                self._run = run
            self._add(kept, loss)
            return loss
        finally:
            self._is_stepping = False

    def _resume(self, loss_fn: Callable[..., Tensor]) -> None:
        """Give the batches of a loaded state their loss function; finish what was interrupted."""
        if self._is_loaded:
            self._run, self._is_loaded = with_loss(self._run, loss_fn), False
        self._finish()

    def _add(self, kept: KeptBatch, loss: Tensor) -> None:
        """Take a step that was made; count all of them and look at the run if it is time for that.

        To count each on its own would take longer than a step of a small network.
        """
        if not self._steps:
            self._calm = self._calm_steps()
        # A device is not waited for. Memory of the CPU that is held here would lie between that of
        # gradients, which then take more of it.
        number = loss.item() if loss.device.type == "cpu" else loss
        self._steps.append((kept, number))
        self._bytes += kept.size
        is_lost = isinstance(number, float) and not math.isfinite(number)
        is_first = self._run.state.step == 0 and len(self._steps) == 1
        is_many = len(self._steps) > self._calm or self._bytes > self._run.config.memory
        if is_lost or is_first or is_many:
            self._count()
            self._is_pending = True
            self._finish()

    def _calm_steps(self) -> int:
        """Return how many steps are made before a look."""
        state, config = self._run.state, self._run.config
        calm = calm_steps(state, config)
        return calm if self._offer is None else min(calm, -(state.step + 1) % STRIDE)

    def _count(self) -> None:
        """Count the steps so far; their losses are asked for here, at once."""
        if self._steps:
            batches, losses = zip(*self._steps, strict=True)
            is_known = isinstance(losses[0], float)
            numbers = losses if is_known else torch.stack(losses).tolist()
            known = {id(one) for one in self._run.state.reservoir}
            self._run = replay_run.count(self._run, self._learner, batches, numbers)
            self._part_reservoir(known)
        self._steps, self._bytes = [], self._run.state.ladder.size

    def _part_reservoir(self, known: set[int]) -> None:
        """Give batches that came to the reservoir memory of their own, as they stay longest."""
        state = self._run.state
        if all(id(one) in known for one in state.reservoir):
            return
        reservoir = tuple(
            one if id(one) in known else self._learner.alone(one) for one in state.reservoir
        )
        self._run = replace(self._run, state=replace(state, reservoir=reservoir))

    def _finish(self) -> None:
        """Look at the run and do what is due after a step.

        An exception leaves the run as it was after the step, and before the next one all of this is
        done again: a run that was interrupted here goes on as if it had not been.
        """
        if not self._is_pending:
            return
        if self._acted is None:
            self._acted = self._act()
        if self._offer is not None:
            self._average(self._offer, *self._acted)
        self._acted, self._is_pending = None, False

    def _act(self) -> tuple[bool, bool]:
        """Do what is due; whether there was a test or a change, and whether the setting changed."""
        learner, before = self._learner, self._run
        if replay_run.is_pending(before):
            random = learner.random_state()
            try:
                self._run = replay_run.finish(before, learner)
            finally:
                learner.set_random_state(random)  # the user's own random numbers go on as they were
        for event in self._run.events[len(before.events) :]:
            self._say(event)
        now, then = self._run.state, before.state
        return has_judged(then, now), now.place != then.place

    def _average(self, offer: Offer, is_judged: bool, is_changed: bool) -> None:
        """Look at what to offer after a test or a change; take the weights into the average."""
        state = self._run.state
        if is_judged:
            _, is_better = offer.look(state.reservoir)
            if is_changed and not is_better:
                offer.restart()
        if state.step % STRIDE == 0:
            offer.update()

    def _say(self, event: Event) -> None:
        used = self.setting
        numbers = {"momentum": used.momentum, "lr_factor": used.lr, "is_mixed": used.is_mixed}
        say = self._log.warn if event.kind in WARNED else self._log.tell
        say(event, {"step": event.step, **numbers})

    def _check(self, loss_fn: object, parts: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the form of a batch; raise `ArgumentError` for what cannot be trained on again.

        Those are batches whose rows cannot be told apart, or not be mixed with those before.
        """
        if isinstance(loss_fn, Tensor) or not callable(loss_fn):
            raise ArgumentError(
                f"guard.step takes a function of the batch and the batch, such as {_SHOWN}, "
                f"not a {type(loss_fn).__name__}"
            )
        form = form_of(parts)
        if form == self._form:
            return form
        if not all(form):
            raise ArgumentError(
                f"a batch can be trained on again only if it is given to step: write {_SHOWN} in "
                'place of guard.step(lambda: loss_fn(model(x), y)), or give instrument="tangent"'
            )
        last = self._state.ladder.batches[-1:]
        if not can_mix([*parts, *(part for batch in last for part in batch.parts)]):
            what = "the rows of this batch have another shape than those before and cannot be mixed"
            if not can_mix(parts):
                what = (
                    "the rows of this batch cannot be told apart, as its tensors differ in length"
                )
            raise ArgumentError(
                f"{what}; give tensors of one row for each example, padded to one shape"
            )
        self._form, self._size = form, byte_count(parts)
        self._run = replay_run.sized(self._run, sum(len(tensors_of(part)[0]) for part in parts))
        return form

    def offered(self) -> AveragedModel | None:
        reservoir = self._state.reservoir
        return None if self._offer is None else self._offer.look(reservoir)[0]

    def report(self) -> ReplayReport:
        self._count()
        if self._ended is not None:
            return self._ended
        made = replay_run.report(self._run, self._learner)
        more = 0 if self._offer is None else self._offer.size
        return replace(made, memory=made.memory + more)

    def state_dict(self) -> dict[str, Any]:
        self._count()
        offer = None if self._offer is None else self._offer.state_dict()
        made = save_run(self._run, self._learner)
        made |= {"is_pending": self._is_pending, "acted": self._acted, "offer": offer}
        return made | {"digest": digest_of(made)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        loaded = load_run(state, self._run.config, self._learner)
        if self._offer is not None and state["offer"] is not None:
            self._offer.check_state(state["offer"])
        self._run = loaded
        self._steps, self._bytes, self._form = [], self._run.state.ladder.size, None
        self._is_loaded, self._is_pending = True, state["is_pending"]
        self._acted = state["acted"]
        if self._offer is not None and state["offer"] is not None:
            self._offer.load_state_dict(state["offer"])

    def copy_rest(self, other: ReplayInstrument) -> None:
        self._ended = other._ended

    def end(self, *, quiet: bool) -> None:
        """Keep what was decided, and let go of snapshots and batches."""
        if self._state.step == 0 and not quiet:
            text = f"the guard never saw this run: it made no step; train with {_SHOWN}"
            event = Event(0, "unseen", text)
            self._log.warn(event, {"step": 0}, step=False)
            self._run = replace(self._run, events=(*self._run.events, event))
        if self._offer is not None and not quiet:
            self.offered()
        self._ended = self.report()
        emptied = replace(self._run.state, ladder=ladders.EMPTY, reservoir=(), marked=())
        self._run = replace(self._run, state=emptied)
        self._learner.clear()
