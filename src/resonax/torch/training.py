"""A run that a guard trains: it keeps batches and snapshots, and rewinds and replays the run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypedDict

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from resonax.core.errors import ArgumentError, suggest
from resonax.guards import guarded_run
from resonax.guards.averaging import STRIDE
from resonax.guards.decision_log import plain_decision
from resonax.guards.history import EMPTY
from resonax.guards.learner import Candidate, as_candidates, check_mix, default_candidates
from resonax.guards.report import WARNED, Event, GuardReport
from resonax.guards.state import GuardConfig, has_judged
from resonax.torch.average import Offer
from resonax.torch.batches import KeptBatch, can_mix, copied, count_rows, form_of, tensors_of
from resonax.torch.checkpoint import digest_of, load_run, save_run, with_loss
from resonax.torch.events import EventLog
from resonax.torch.learner import TorchLearner
from resonax.torch.processes import ALONE, Processes, Shared, replicas_of
from resonax.torch.refusals import (
    SHOWN,
    check_loss_function,
    check_no_gradients,
    check_optimizer,
)

__all__ = ["FACTS", "GuardOptions", "GuardedTraining", "check_options"]


class GuardOptions(TypedDict, total=False):
    """Options of `resonax.torch.Guard`."""

    candidates: Iterable[float | Candidate] | None
    mix: bool | str
    budget: float
    memory: int
    spacing: int
    average: bool
    log: Callable[[dict[str, Any]], object] | None
    scaler: Any
    transform: Callable[[], object] | None
    knob: str | tuple[str, int] | None
    snapshots: str
    seed: int


_REMOVED = ("instrument", "method", "burst", "search", "warmup", "curvature", "module")


def check_options(options: GuardOptions) -> None:
    """Raise `ArgumentError` for an option that does not exist, or does not any more.

    Examples
    --------
    >>> check_options({"bugdet": 0.1})
    Traceback (most recent call last):
    resonax.ArgumentError: unknown option 'bugdet', did you mean 'budget'? ...
    >>> check_options({"warmup": 256})
    Traceback (most recent call last):
    resonax.ArgumentError: warmup belonged to the tangent method, which is gone: a guard
    replays every model, and needs no warmup; leave it out
    """
    for name in options:
        if name in _REMOVED:
            raise ArgumentError(
                f"{name} belonged to the tangent method, which is gone: a guard replays every "
                f"model, and needs no {name}; leave it out"
            )
        if name not in GuardOptions.__annotations__:
            raise suggest("option", name, GuardOptions.__annotations__)


FACTS = 5  # of a batch, that all ranks have to know


class GuardedTraining:
    """The steps of a guarded run, what was decided, and what is offered for prediction.

    See `resonax.torch.Guard` for the options.

    Attributes
    ----------
    run
        The run as the core of the guards knows it: configuration, state, events.
    learner
        The model with its optimizer.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        policy: str,
        processes: Processes = ALONE,
        *,
        candidates: Iterable[float | Candidate] | None = None,
        mix: bool | str = True,
        budget: float = 0.05,
        memory: int = 2**28,
        spacing: int = 32,
        average: bool = False,
        log: Callable[[dict[str, Any]], object] | None = None,
        scaler: Any = None,
        transform: Callable[[], object] | None = None,
        knob: str | tuple[str, int] | None = None,
        snapshots: str = "device",
        seed: int = 0,
    ):
        check_optimizer(model, optimizer)
        check_mix(mix, ("ask", "batches"))
        if processes.count > 1 and scaler is not None and not replicas_of(model):
            raise ArgumentError(
                "a GradScaler looks at the gradients before transform= averages them, and may skip "
                "the step on one rank only: wrap the module in DistributedDataParallel"
            )
        self.learner = TorchLearner(
            model,
            optimizer,
            scaler,
            transform,
            knob,
            snapshots,
            by_rows=mix != "batches",
            processes=processes,
        )
        self.processes = processes
        own, held = self.learner.groups.largest_momentum(), self.learner.groups.knob
        if candidates is None:
            tried = default_candidates(own, mix=bool(mix))
        else:
            tried = (Candidate(own), *as_candidates(candidates))
        self.run = guarded_run.init(
            GuardConfig(
                tried,
                policy=policy,
                budget=budget,
                memory=memory,
                spacing=spacing,
                seed=seed,
                asks=mix == "ask",
                is_averaging=held is not None and held.name in ("betas", "beta1"),
            )
        )
        self._log = EventLog(log)
        self._offer = Offer(self.learner) if average else None
        self._form: Any = None  # of the last batch
        self._is_loaded = False  # and the batches of the state have no loss function yet
        self._is_stepping = False
        self._is_to_mix = False  # whether `allow_mixing` was called and not all ranks know it
        self._is_pending = False  # whether the run is still to be looked at after the last step
        self._acted: tuple[bool, bool] | None = None  # what `_act` did, until all is finished
        self._ended: GuardReport | None = None

    _needs_rows = False  # whether batches have to be such that their rows can be mixed

    @property
    def setting(self) -> Candidate:
        """The candidate in use."""
        return self.run.setting

    @property
    def averaged(self) -> AveragedModel | None:
        """The average of the weights, if it is kept."""
        return None if self._offer is None else self._offer.averaged

    def agree(self) -> None:
        """Take the seed of the first rank, and refuse options that differ."""
        found = self.processes.exchange(
            (repr(replace(self.run.config, seed=0)), self.run.config.seed)
        )
        if len({options for options, _ in found}) > 1:
            raise ArgumentError(
                "the guards of the ranks differ: give the same policy and options, and the same "
                "momentum of the optimizer, on all ranks"
            )
        self.run = replace(self.run, config=replace(self.run.config, seed=found[0][1]))

    def before_step(self) -> None:
        """Refuse a step that somebody else makes; called before each step of the optimizer."""
        if not self._is_stepping:
            raise ArgumentError(
                "a guard makes the steps itself, and would not see this one: write "
                f"{SHOWN} in place of zero_grad, backward and optimizer.step()"
            )

    def after_step(self) -> None:
        """Do nothing; trainers need it after each step of the optimizer."""

    def admit(self, loss_fn: Callable[..., Tensor], parts: Sequence[tuple[Any, ...]]) -> KeptBatch:
        """Return the batch of the next step, given as the arguments of each backward pass.

        The last part is copied here, those before it have been. What cannot be trained on by one
        rank is refused by all.
        """
        with self.processes.together(FACTS) as shared:
            check_no_gradients(self.learner.optimizer)
            self._check_batch(loss_fn, parts)
            batch = self.learner.keep(loss_fn, (*parts[:-1], copied(parts[-1])))
            shared.mine = self._facts(batch)
        return batch._replace(size=self._agreed(shared))

    def step(self, batch: KeptBatch) -> Tensor:
        """Make one step of training on a batch; return the mean loss over the ranks."""
        with self.making_steps():
            self._resume(batch.loss_fn)
            run = guarded_run.begin(self.run, self.learner)
            loss = self.learner.step(guarded_run.trained_on(run, self.learner, batch))
            self.run = run
            return self._count(batch, loss)

    @contextmanager
    def making_steps(self) -> Iterator[None]:
        """Make steps of the guard itself, and leave no gradients.

        After a replay they would not be those of the run, and a trainer may add to them.
        """
        self._is_stepping = True
        try:
            yield
        finally:
            self._is_stepping = False
            self.learner.optimizer.zero_grad()

    def _check_batch(
        self, loss_fn: Callable[..., Tensor], parts: Sequence[tuple[Any, ...]]
    ) -> None:
        """Raise `ArgumentError` for a batch that could not be trained on again."""
        check_loss_function(loss_fn)
        form = form_of(parts)
        if form == self._form:
            return
        if not all(form):
            raise ArgumentError(
                f"a batch can be trained on again only if it is given to step: write {SHOWN} in "
                "place of guard.step(lambda: loss_fn(model(x), y))"
            )
        last = self.run.state.history.batches[-1:]
        if self._needs_rows and not can_mix(
            [*parts, *(part for batch in last for part in batch.parts)]
        ):
            raise ArgumentError(
                "the rows of this batch cannot be mixed with those before: give tensors of one row "
                "for each example, padded to one shape"
            )
        self._form = form

    def _facts(self, batch: KeptBatch) -> tuple[float, ...]:
        """Return what of a batch has to be known, or the same, on all ranks."""
        tensors = sum(len(tensors_of(part)) for part in batch.parts)
        step, rows = self.run.state.step, count_rows(batch)
        return step, batch.size, rows, tensors, self._is_to_mix

    def _agreed(self, shared: Shared) -> int:
        """Take up what the ranks said of a batch; return the bytes that it counts for."""
        for place, what in ((0, "are at different steps"), (3, "have other numbers of tensors")):
            if not shared.is_same(place):
                raise ArgumentError(
                    f"the ranks {what}: call guard.step on all of them, with batches of one form"
                )
        _, size, rows, _, is_to_mix = shared.all.T
        self.run = guarded_run.with_reservoir(self.run, int(rows.sum()))
        if is_to_mix.any():
            self.run, self._is_to_mix = guarded_run.allow_mixing(self.run), False
        return int(size.max())

    def _resume(self, loss_fn: Callable[..., Tensor]) -> None:
        """Give the batches of a loaded state their loss function; finish what was interrupted."""
        if self._is_loaded:
            self.run, self._is_loaded = with_loss(self.run, loss_fn), False
        self._finish()

    def _count(self, batch: Any, loss: Tensor) -> Tensor:
        """Count a step that was made, and do what is due; return the mean loss over the ranks.

        Losses on a device are not waited for.
        """
        loss = self.processes.mean(loss)
        number = loss.item() if loss.device.type == "cpu" else loss
        self.run = guarded_run.count_step(self.run, self.learner, batch, number)
        self._is_pending = True
        self._finish()
        return loss

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
            self._update_offer(self._offer, *self._acted)
        self._acted, self._is_pending = None, False

    def _act(self) -> tuple[bool, bool]:
        """Do what is due; whether there was a test or a change, and whether the setting changed."""
        before = self.run
        if guarded_run.is_pending(before):
            random = self.learner.random_state()
            try:
                self.run = guarded_run.finish(before, self.learner)
            finally:
                # A replay draws random numbers again; those of the user go on as they were.
                self.learner.set_random_state(random)
        events = self.run.events[len(before.events) :]
        if events:  # a warning may be an error, or the log interrupted
            with self.processes.together():
                self._report_events(events)
        now, then = self.run.state, before.state
        return has_judged(then, now), now.place != then.place

    def _update_offer(self, offer: Offer, is_judged: bool, is_changed: bool) -> None:
        """Choose what to offer after a test or a change; add the weights to the average."""
        state = self.run.state
        if is_judged:
            _, is_better = offer.choose(state.reservoir)
            if is_changed and not is_better:
                offer.restart()
        if state.step % STRIDE == 0:
            offer.update()

    def _report_events(self, events: Sequence[Event]) -> None:
        """Say what happened, on the first rank."""
        used = self.setting
        numbers = {"momentum": used.momentum, "lr_factor": used.lr, "is_mixed": used.is_mixed}
        for event in () if self.processes.rank else events:
            report = self._log.warn if event.kind in WARNED else self._log.inform
            report(event, {"step": event.step, **numbers})

    def offered(self) -> AveragedModel | None:
        """Return the average, or what was offered before, if it predicts better than the model."""
        return None if self._offer is None else self._offer.choose(self.run.state.reservoir)[0]

    def allow_mixing(self) -> None:
        """Let the guard mix rows, where it was to ask; of several ranks from the next step on."""
        if self.processes.count > 1:
            self._is_to_mix = True
        else:
            self.run = guarded_run.allow_mixing(self.run)

    def report(self) -> GuardReport:
        """Return what is known of the run; one rank may ask alone, and looks at its own rows."""
        if self._ended is not None:
            return self._ended
        learner = copy.copy(self.learner)
        learner.processes = ALONE
        made = guarded_run.report(self.run, learner)
        more = 0 if self._offer is None else self._offer.size
        return replace(made, memory=made.memory + more)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs."""
        offer = None if self._offer is None else self._offer.state_dict()
        made = save_run(self.run, self.processes)
        made |= {"is_pending": self._is_pending, "acted": self._acted, "offer": offer}
        return made | {"digest": digest_of(made)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; a state that does not fit changes nothing."""
        with self.processes.together(2) as shared:
            loaded = load_run(state, self.run.config, self.learner)
            offer = state["offer"]
            if self._offer is not None and offer is not None:
                self._offer.check_state(offer)
            place = digest_of([plain_decision(one) for one in loaded.state.decisions])
            shared.mine = loaded.state.step, place
        if not (shared.is_same(0) and shared.is_same(1)):
            raise ArgumentError(
                "the states of the ranks are of different steps or runs: load those that all of "
                "them saved after one step"
            )
        if self._offer is not None and offer is not None:
            self._offer.load_state_dict(offer)
        self.learner.check_again()
        self.run, self._form = loaded, None
        self._is_loaded, self._is_pending = True, state["is_pending"]
        self._acted = state["acted"]

    def copy_rest(self, other: GuardedTraining) -> None:
        """Copy from another run, of which this is a copy, what is not saved."""
        self._ended = other._ended

    def end(self, *, quiet: bool) -> None:
        """Keep the report, and release snapshots and batches; warn of a run without a step."""
        if self.run.state.step == 0 and not quiet and not self.processes.rank:
            text = f"the guard never saw this run: it made no step; train with {SHOWN}"
            event = Event(0, "unseen", text)
            self._log.warn(event, {"step": 0}, step=False)
            self.run = replace(self.run, events=(*self.run.events, event))
        if not quiet:
            self.offered()
        self._ended = self.report()
        emptied = replace(self.run.state, history=EMPTY, reservoir=(), marked=())
        self.run = replace(self.run, state=emptied)
        self.processes.leave()
