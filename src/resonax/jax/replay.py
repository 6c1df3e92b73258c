"""A guard by replay for JAX: pure functions of a state, around any optax optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from resonax.core.errors import ArgumentError
from resonax.guards import replay_run
from resonax.guards.averaging import STRIDE
from resonax.guards.learner import Candidate, default_candidates
from resonax.guards.replay import ReplayConfig, ReplayState, has_judged
from resonax.guards.replay_report import ReplayReport
from resonax.guards.replay_run import ReplayRun, announce, as_candidates
from resonax.guards.report import Event
from resonax.guards.window import Parts, Window
from resonax.jax import average as averages
from resonax.jax import hyperparameters
from resonax.jax.average import Offer, Offered
from resonax.jax.batches import KeptBatch, checked_like, copied, count_rows
from resonax.jax.learner import JaxLearner, Saved, compile_programs

__all__ = ["ReplayGuard", "ReplayGuardState", "ReplayInfo", "replay_guard"]


def _register(kind: type, data: tuple[str, ...]) -> None:
    """Make a dataclass a pytree: its arrays are leaves, what the host decides with is not."""
    others = [one.name for one in fields(kind) if one.name not in data]
    jax.tree_util.register_dataclass(kind, data_fields=list(data), meta_fields=others)


_register(ReplayState, ("ladder", "reservoir", "partial"))
_register(ReplayRun, ("state",))
jax.tree_util.register_pytree_node(
    Window,
    lambda one: (one.parts[:2], one.parts.gone),
    lambda gone, parts: Window(Parts(*parts, gone)),
)


class ReplayGuardState(NamedTuple):
    """State of a guarded run, a pytree; ``params`` are what was trained.

    ``run`` holds snapshots, batches and decisions. No update changes a state: each can be kept,
    pickled and gone on from.
    """

    params: Any
    opt_state: Any
    model_state: Any
    key: Any
    run: ReplayRun
    offer: Offer | None = None

    @property
    def setting(self) -> Candidate:
        """The candidate in use."""
        return self.run.setting


class ReplayInfo(NamedTuple):
    """What came of one update: the loss before it, and what the guard did."""

    loss: Array
    events: tuple[Event, ...]


class ReplayGuard(NamedTuple):
    """Four pure functions, see `replay_guard`."""

    init: Callable[..., ReplayGuardState]
    update: Callable[[ReplayGuardState, Any], tuple[ReplayGuardState, ReplayInfo]]
    report: Callable[[ReplayGuardState], ReplayReport]
    offered: Callable[[ReplayGuardState], tuple[ReplayGuardState, Offered]]


def replay_guard(
    loss_fn: Callable[..., Any],
    optimizer: optax.GradientTransformation,
    policy: str = "safe",
    *,
    eval_fn: Callable[..., Any] | None = None,
    knob: str | None = None,
    candidates: Iterable[float | Candidate] | None = None,
    mix: bool = True,
    budget: float = 0.01,
    memory: int = 2**28,
    spacing: int = 32,
    average: bool = False,
    speak: bool = True,
    seed: int = 0,
) -> ReplayGuard:
    r"""Return a guard that trains again what the order of the rows has spoilt.

    It decides as `resonax.torch.Guard` does. With the user's momentum :math:`\mu` and update
    :math:`u_k` of the optimizer, a candidate of momentum :math:`m` and factor :math:`f` trains with

    .. math:: \theta_{k+1} = \theta_k + f \, u_k(\min(\mu, m)),

    so that a schedule of the step size goes on below it.

    - ``init(params, *, key=None, model_state=None, opt_state=None)`` returns a state.
    - ``update(state, batch)`` makes one step of training, and what is due; it returns the next
      state and a `ReplayInfo`.
    - ``report(state)`` tells what was done.
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
        The same without random parts, to judge by; by default ``loss_fn``.
    knob
        Name of the hyperparameter that is the momentum; by default ``momentum`` or ``b1``.
    candidates
        Momenta to try, or `Candidate` values from the mildest to the strongest.
    mix
        Whether the guard may train on mixed rows of recent batches.
    budget
        Extra work for each step in the long run, in steps, as long as nothing is wrong.
    memory
        Bytes that kept batches may take.
    spacing
        Steps between snapshots.
    average
        Whether to average the parameters since the last change. Then ``offered`` is the average,
        the parameters, or what was offered before: one gives way to the next only if that is better
        on past data by more than a standard error.
    speak
        Whether an event is a line of the logger ``resonax``, or under ``watch`` a warning.
    seed
        Of the random orders in which rows are mixed.

    Examples
    --------
    >>> def loss_fn(params, batch):
    ...     x, y = batch
    ...     return jnp.mean((x @ params - y) ** 2)
    >>> optimizer = optax.inject_hyperparams(optax.sgd)(0.01, momentum=0.9)
    >>> guard = replay_guard(loss_fn, optimizer)
    >>> state = guard.init(jnp.zeros(2))
    >>> for key in jax.random.split(jax.random.key(0), 40):
    ...     x = jax.random.normal(key, (8, 2))
    ...     state, info = guard.update(state, (x, x[:, 0]))
    >>> print(str(guard.report(state)).partition("\n")[0])
    step 40, policy safe: momentum 0.9
    """
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise ArgumentError(f"optimizer must be one of optax, got {type(optimizer).__name__}")
    optimizer = optax.with_extra_args_support(optimizer)
    programs = compile_programs(loss_fn, eval_fn or loss_fn, optimizer, knob)
    given = None if candidates is None else as_candidates(candidates)

    def init(
        params: Any, *, key: Any = None, model_state: Any = None, opt_state: Any = None
    ) -> ReplayGuardState:
        params = _as_arrays(params)
        opt_state = _as_arrays(optimizer.init(params) if opt_state is None else opt_state)
        names = hyperparameters.momentum_names(opt_state, knob)
        own = hyperparameters.largest_momentum(opt_state, names)
        made = default_candidates(own, mix=mix) if given is None else (Candidate(own), *given)
        config = ReplayConfig(
            made, policy=policy, budget=budget, memory=memory, spacing=spacing, seed=seed
        )
        model_state = None if model_state is None else _as_arrays(model_state)
        offer = averages.init(params) if average else None
        return ReplayGuardState(params, opt_state, model_state, key, replay_run.init(config), offer)

    def update(state: ReplayGuardState, batch: Any) -> tuple[ReplayGuardState, ReplayInfo]:
        run = replay_run.sized(state.run, count_rows(batch))
        data = copied(batch)
        if run.state.ladder.batches:
            checked_like(data, run.state.ladder.batches[-1].data)
        own = hyperparameters.read(state.opt_state)
        learner = JaxLearner(programs, Saved(*state[:3]), run.config.reservoir)
        kept = KeptBatch(data, state.key, run.state.step, own)
        run, loss = replay_run.step(run, learner, kept)
        run = replay_run.finish(run, learner)
        events = run.events[len(state.run.events) :]
        if speak:
            announce(events)
        offer = None if state.offer is None else _averaged(state.offer, learner, state.run, run)
        return ReplayGuardState(*learner.saved, state.key, run, offer), ReplayInfo(loss, events)

    def report(state: ReplayGuardState) -> ReplayReport:
        return replay_run.report(state.run, JaxLearner(programs, Saved(*state[:3])))

    def offered(state: ReplayGuardState) -> tuple[ReplayGuardState, Offered]:
        if state.offer is None:
            return state, Offered(state.params, state.model_state)
        learner = JaxLearner(programs, Saved(*state[:3]), state.run.config.reservoir)
        offer, found, _ = averages.look(state.offer, learner, state.run.state.reservoir)
        return state._replace(offer=offer), found

    return ReplayGuard(init, update, report, offered)


def _averaged(offer: Offer, learner: JaxLearner, before: ReplayRun, after: ReplayRun) -> Offer:
    """Return the offer after a step; it is looked at after a test or a change."""
    state = after.state
    if state.set_aside > before.state.set_aside:  # it may hold weights that are not finite
        offer = averages.init(learner.saved.params)._replace(held=offer.held)
    if has_judged(before.state, state):
        offer, _, is_better = averages.look(offer, learner, state.reservoir)
        if state.place != before.state.place and not is_better:
            offer = averages.init(learner.saved.params)._replace(held=offer.held)
    return averages.update(offer, learner.saved.params) if state.step % STRIDE == 0 else offer


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
