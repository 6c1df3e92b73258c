"""A guard for JAX: pure functions of a state, around any optax optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from resonax.core.errors import ArgumentError
from resonax.guards import guarded_run
from resonax.guards.averaging import LEAST, STRIDE, preferred, share
from resonax.guards.guarded_run import GuardedRun
from resonax.guards.learner import Candidate, as_candidates, default_candidates, mean_loss
from resonax.guards.report import Event, GuardReport, announce
from resonax.guards.state import GuardConfig, GuardState, has_judged
from resonax.jax import hyperparameters
from resonax.jax.batches import KeptBatch, checked_like, copied, count_rows
from resonax.jax.learner import JaxLearner, Saved, compile_programs

__all__ = ["Average", "Guard", "Offered", "TrainState", "UpdateInfo", "guard"]


def _register(kind: type, data: tuple[str, ...]) -> None:
    """Make a dataclass a pytree: its arrays are leaves, what the host decides with is not."""
    others = [one.name for one in fields(kind) if one.name not in data]
    jax.tree_util.register_dataclass(kind, data_fields=list(data), meta_fields=others)


_register(GuardState, ("history", "reservoir", "partial"))
_register(GuardedRun, ("state",))


class Offered(NamedTuple):
    """What predicts best: parameters, and the model state that goes with them."""

    params: Any
    model_state: Any = None


class Average(NamedTuple):
    """The average of ``count`` parameters since the last change of the setting.

    ``offered`` is what predicted best when that was last compared.
    """

    params: Any
    count: int = 0
    offered: Offered | None = None


class TrainState(NamedTuple):
    """State of a guarded run, a pytree; ``params`` are what was trained.

    ``run`` holds snapshots, batches and decisions. No update changes a state: each can be kept,
    pickled and continued from.
    """

    params: Any
    opt_state: Any
    model_state: Any
    key: Any
    run: GuardedRun
    average: Average | None = None

    @property
    def setting(self) -> Candidate:
        """The candidate in use."""
        return self.run.setting


class UpdateInfo(NamedTuple):
    """The loss before an update, and what the guard did in it."""

    loss: Array
    events: tuple[Event, ...]


class Guard(NamedTuple):
    """Four pure functions, see `guard`."""

    init: Callable[..., TrainState]
    update: Callable[[TrainState, Any], tuple[TrainState, UpdateInfo]]
    report: Callable[[TrainState], GuardReport]
    offered: Callable[[TrainState], tuple[TrainState, Offered]]


def guard(
    loss_fn: Callable[..., Any],
    optimizer: optax.GradientTransformation,
    policy: str = "safe",
    *,
    eval_fn: Callable[..., Any] | None = None,
    knob: str | None = None,
    candidates: Iterable[float | Candidate] | None = None,
    mix: bool = True,
    budget: float = 0.05,
    memory: int = 2**28,
    spacing: int = 32,
    average: bool = False,
    log_changes: bool = True,
    seed: int = 0,
) -> Guard:
    r"""Return a guard that tests whether the order of the rows harms, and undoes that harm.

    As `resonax.torch.Guard` does, it goes back to a snapshot, trains again from there and compares.
    With the user's momentum :math:`\mu` and update :math:`u_k` of the optimizer, a candidate of
    momentum :math:`m` and factor :math:`f` trains with

    .. math:: \theta_{k+1} = \theta_k + f \, u_k(\min(\mu, m)),

    so that a schedule of the step size stays in force.

    - ``init(params, *, key=None, model_state=None, opt_state=None)`` returns a state.
    - ``update(state, batch)`` trains on a batch, then tests and replays where that is due; it
      returns the next state and an `UpdateInfo`.
    - ``report(state)`` returns what was found and changed.
    - ``offered(state)`` returns the next state and what predicts best, see ``average``.

    Parameters
    ----------
    loss_fn
        ``loss_fn(params, batch)``, the mean loss of a batch. With a ``key`` in the state it is
        ``loss_fn(params, batch, key)``: each step has a key of its own, and a replay has the same.
        With a ``model_state``, such as the averages of batch norm, it is
        ``loss_fn(params, model_state, batch)``, and returns the loss and the next one.
    optimizer
        Any optax optimizer with `optax.inject_hyperparams` in it.
    policy
        ``safe`` acts; ``watch`` warns where ``safe`` would act, and changes nothing.
    eval_fn
        The same without random parts, by which settings are compared; by default ``loss_fn``.
    knob
        Name of the hyperparameter that is the momentum; by default ``momentum`` or ``b1``.
    candidates
        Momenta to try, or `Candidate` values from the mildest to the strongest.
    mix
        Whether the guard may train on mixed rows of recent batches.
    budget
        Extra work for each step in the long run, in steps. Tests that find nothing take 10,000
        times that in the first thousand steps, and it for each later one; what is done once
        something is found takes 60,000 times that more.
    memory
        Bytes that kept batches may take.
    spacing
        Steps between snapshots.
    average
        Whether to average the parameters since the last change. Then ``offered`` is the average,
        the parameters, or what was offered before: one gives way to the next only if that is better
        on past data by more than a standard error.
    log_changes
        Whether an event is a line of the logger ``resonax``, or under ``watch`` a warning.
    seed
        Of the random orders in which rows are mixed.

    Examples
    --------
    >>> def loss_fn(params, batch):
    ...     x, y = batch
    ...     return jnp.mean((x @ params - y) ** 2)
    >>> optimizer = optax.inject_hyperparams(optax.sgd)(0.01, momentum=0.9)
    >>> guarded = guard(loss_fn, optimizer)
    >>> state = guarded.init(jnp.zeros(2))
    >>> for key in jax.random.split(jax.random.key(0), 40):
    ...     x = jax.random.normal(key, (8, 2))
    ...     state, info = guarded.update(state, (x, x[:, 0]))
    >>> print(str(guarded.report(state)).partition("\n")[0])
    step 40, policy safe: momentum 0.9
    """
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise ArgumentError(f"optimizer must be one of optax, got {type(optimizer).__name__}")
    optimizer = optax.with_extra_args_support(optimizer)
    programs = compile_programs(loss_fn, eval_fn or loss_fn, optimizer, knob)
    given = None if candidates is None else as_candidates(candidates)

    def init(
        params: Any, *, key: Any = None, model_state: Any = None, opt_state: Any = None
    ) -> TrainState:
        params = _as_arrays(params)
        opt_state = _as_arrays(optimizer.init(params) if opt_state is None else opt_state)
        names = hyperparameters.momentum_names(opt_state, knob)
        own = hyperparameters.largest_momentum(opt_state, names)
        made = default_candidates(own, mix=mix) if given is None else (Candidate(own), *given)
        config = GuardConfig(
            made, policy=policy, budget=budget, memory=memory, spacing=spacing, seed=seed,
            is_averaging="b1" in names,
        )  # fmt: skip
        model_state = None if model_state is None else _as_arrays(model_state)
        averaged = Average(params) if average else None
        return TrainState(params, opt_state, model_state, key, guarded_run.init(config), averaged)

    def update(state: TrainState, batch: Any) -> tuple[TrainState, UpdateInfo]:
        run = guarded_run.with_reservoir(state.run, count_rows(batch))
        data = copied(batch)
        if run.state.history.batches:
            checked_like(data, run.state.history.batches[-1].data)
        own = hyperparameters.read(state.opt_state)
        learner = JaxLearner(programs, Saved(*state[:3]), run.config.reservoir)
        kept = KeptBatch(data, state.key, run.state.step, own)
        run, loss = guarded_run.update(run, learner, kept)
        events = run.events[len(state.run.events) :]
        if log_changes:
            announce(events)
        averaged = state.average
        if averaged is not None:
            averaged = _averaged(averaged, learner, state.run, run)
        return TrainState(*learner.saved, state.key, run, averaged), UpdateInfo(loss, events)

    def report(state: TrainState) -> GuardReport:
        return guarded_run.report(state.run, JaxLearner(programs, Saved(*state[:3])))

    def offered(state: TrainState) -> tuple[TrainState, Offered]:
        if state.average is None:
            return state, Offered(state.params, state.model_state)
        learner = JaxLearner(programs, Saved(*state[:3]), state.run.config.reservoir)
        averaged, found, _ = _choose(state.average, learner, state.run.state.reservoir)
        return state._replace(average=averaged), found

    return Guard(init, update, report, offered)


def _averaged(
    average: Average, learner: JaxLearner, before: GuardedRun, after: GuardedRun
) -> Average:
    """Return the average after a step; after a test or a change, what predicts best is compared."""
    state, params = after.state, learner.saved.params
    if state.set_aside > before.state.set_aside:  # it may hold weights that are not finite
        average = Average(params, offered=average.offered)
    if has_judged(before.state, state):
        average, _, is_better = _choose(average, learner, state.reservoir)
        if state.place != before.state.place and not is_better:
            average = Average(params, offered=average.offered)
    if state.step % STRIDE:
        return average
    count = int(average.count) + 1
    moved = _moved(average.params, params, share(count, least=LEAST // STRIDE))
    return average._replace(params=moved, count=count)


@jax.jit
def _moved(average: Any, params: Any, share: Array | float) -> Any:
    return jax.tree.map(
        lambda old, new: (old + share * (new - old)).astype(old.dtype), average, params
    )


def _choose(
    average: Average, learner: JaxLearner, batches: Sequence[KeptBatch]
) -> tuple[Average, Offered, bool]:
    """Return the average, what `preferred` finds, and whether the average beats the parameters."""
    now = learner.saved
    own = Offered(now.params, now.model_state)
    if not batches:
        return average, own, False
    before = [] if average.offered is None else [average.offered]
    compared, losses = [own._replace(params=average.params), own, *before], []
    for one in compared:
        learner.load(now._replace(params=one.params, model_state=one.model_state))
        losses.append(learner.losses(batches))
    learner.load(now)
    chosen = compared[preferred(losses)]
    is_better = mean_loss(losses[0]) < mean_loss(losses[1])
    return average._replace(offered=chosen), chosen, is_better


def _as_arrays(tree: Any) -> Any:
    """Return a pytree of arrays of definite types: a weak type would compile the step twice."""

    def made(leaf: Any) -> Any:
        try:
            return jnp.asarray(leaf, dtype=jnp.result_type(leaf))
        except TypeError:
            raise ArgumentError(
                f"params must be a pytree of arrays, found a {type(leaf).__name__}: give the "
                "arrays alone, such as equinox.filter(model, equinox.is_array)"
            ) from None

    return jax.tree.map(made, tree)
