r"""A guard for training loops of JAX: an optax transformation.

It is SGD with momentum, :math:`v \gets \mu v + g,\ \theta \gets \theta - \eta v`, whose momentum is
guarded. As optax's line searches do, it takes the loss of the batch as an extra argument.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from resonax.core.errors import ArgumentError, check_number
from resonax.guards.guard import GuardConfig, GuardState, ShadowStep, active
from resonax.guards.guard import init as init_guard
from resonax.guards.guard import update as update_guard
from resonax.guards.policy import POLICIES, checked_policy
from resonax.guards.report import GuardReport, change, report_of, resonance
from resonax.guards.schedule import IDLE, Plan
from resonax.guards.shadows import Energy, checked_candidates, gains
from resonax.jax.shadows import gauss_newton, hessian, step_shadows

__all__ = ["GuardedState", "guard", "report"]


class GuardedState(NamedTuple):
    """Velocity of the run, state of its guard, and the shadows, (candidates, *shape) each."""

    velocity: optax.Updates
    guard_state: GuardState
    places: optax.Updates
    velocities: optax.Updates
    candidates: Array
    probed: Array
    policy: Array  # index in `POLICIES`
    plan: Plan

    @property
    def momentum(self) -> Array:
        """The momentum in use."""
        return self.candidates[self.guard_state.current]


_LOGGER = logging.getLogger("resonax")


def _log_change(config: GuardConfig, before: GuardState, after: GuardState) -> None:
    """Log what changed in a step, on the host; under `jax.vmap` possibly nothing."""
    before, after = (jax.tree.map(np.asarray, state) for state in (before, after))
    if int(after.current) != int(before.current):
        event = change(before, after, config, None)
    else:
        event = resonance(before, after, config, None)
    if event is not None:
        _LOGGER.warning("step %d: %s", event.step, event.text)


def guard(
    learning_rate: float | Callable[[Any], Any],
    momentum: float,
    policy: str = "safe",
    *,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    candidates: Any = None,
    budget: float = Plan().budget,
    burst: int = Plan().burst,
    search: int = Plan().search,
    warmup: int = Plan().warmup,
    speak: bool = True,
) -> optax.GradientTransformationExtraArgs:
    """Return SGD with a guarded momentum.

    ``update`` needs the loss of the batch as a function of the parameters, ``value_fn``, whose
    Hessian is used. For networks give ``output_fn`` (parameters to outputs) and ``loss_fn``
    (outputs to loss) instead: the Gauss-Newton matrix has no negative curvature, along which
    differences grow although the run does not diverge.

    Parameters
    ----------
    learning_rate
        A number, or a schedule.
    momentum
        The user's own momentum, from which the guard goes down.
    policy
        ``watch``, ``safe`` or ``fastest``, see `resonax.torch.Guard`.
    nesterov
        Whether to look ahead, as in `optax.sgd`.
    weight_decay
        Added to the gradient, times the weights.
    candidates
        Momenta to compare; by default the user's own and smaller ones down to 0.
    budget, burst, search, warmup
        Extra work of the guard, see `resonax.torch.Guard`; a burst follows all candidates.
    speak
        Whether each change of the momentum, and under ``watch`` each that ``safe`` would make, is a
        line of the logger ``resonax``, written from compiled code. Under `jax.vmap` that calls the
        host in every step of every run: take False there, and look at `report`.

    Examples
    --------
    >>> optimizer = guard(0.01, 0.9)
    >>> params = jnp.ones(2)
    >>> state = optimizer.init(params)
    >>> def loss(params, x):
    ...     return jnp.sum((x @ params) ** 2)
    >>> x = jnp.ones((1, 2))
    >>> @jax.jit
    ... def step(params, state, x):
    ...     grads = jax.grad(loss)(params, x)
    ...     return optimizer.update(grads, state, params, value_fn=lambda params: loss(params, x))
    >>> updates, state = step(params, state, x)
    >>> print(updates, f"{state.momentum:.1f}")
    [-0.04 -0.04] 0.9
    """
    if not callable(learning_rate):
        check_number("learning_rate", learning_rate, low=0, high=1e6, open_low=True)
    check_number("weight_decay", weight_decay, low=0, high=1e6)
    check_number("momentum", momentum, low=0, high=1, open_high=True)
    plan = Plan(min(budget, 1e9), burst, search, warmup).checked()
    kept = tuple(one for one in checked_candidates(candidates, momentum) if one <= momentum)
    config = GuardConfig(checked_policy(policy), kept, plan, every=True)

    def init(params: Any) -> GuardedState:
        stacked = jax.tree.map(lambda leaf: jnp.zeros((len(kept), *leaf.shape), leaf.dtype), params)
        return GuardedState(
            velocity=optax.tree.zeros_like(params),
            guard_state=jax.tree.map(jnp.asarray, init_guard(config)),
            places=stacked,
            velocities=stacked,
            candidates=jnp.asarray(kept),
            probed=jnp.zeros((), jnp.int32),
            policy=jnp.asarray(POLICIES.index(config.policy)),
            plan=jax.tree.map(jnp.asarray, plan),
        )

    def update(
        updates: Any,
        state: GuardedState,
        params: Any = None,
        *,
        value_fn: Callable[[Any], Array] | None = None,
        output_fn: Callable[[Any], Any] | None = None,
        loss_fn: Callable[[Any], Array] | None = None,
        **extra: Any,
    ) -> tuple[Any, GuardedState]:
        del extra
        if params is None:
            raise ArgumentError("update needs the params, where the curvature is taken")
        if output_fn is not None and loss_fn is not None:
            product = gauss_newton(output_fn, loss_fn, params)
        elif value_fn is not None:
            product = hessian(value_fn, params)
        else:
            raise ArgumentError("update needs value_fn, or output_fn and loss_fn, of the batch")
        guard_state = state.guard_state
        lr = learning_rate(guard_state.step) if callable(learning_rate) else learning_rate
        options = {"weight_decay": weight_decay, "nesterov": nesterov}
        moving = optax.tree.norm(state.velocity) > 0
        direction = jax.tree.map(lambda v, g: jnp.where(moving, v, g), state.velocity, updates)

        def probe(state: GuardedState) -> tuple[Any, Any, ShadowStep]:
            by = gains(lr, state.candidates, **options)
            start = {"direction": direction, "begins": state.guard_state.begins}
            return step_shadows(product, state.places, state.velocities, by, **start)

        def rest(state: GuardedState) -> tuple[Any, Any, ShadowStep]:
            ones = jnp.ones_like(state.candidates)
            energy = Energy(ones, ones)
            return state.places, state.velocities, ShadowStep(energy, energy, ones)

        places, velocities, found = jax.lax.cond(
            guard_state.schedule.mode != IDLE, probe, rest, state
        )
        by = gains(lr, state.momentum, **options)
        decayed = jax.tree.map(lambda g, p: g + by.decay * p, updates, params)
        velocity = jax.tree.map(lambda v, h: by.momentum * v + h, state.velocity, decayed)
        moves = jax.tree.map(lambda v, h: -by.kappa * v - by.beta * h, velocity, decayed)
        after = update_guard(guard_state, config, optax.tree.norm(velocity), found, jnp)
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, guard_state)
        probed = state.probed + jnp.any(active(guard_state, config, jnp))
        if speak:
            news = (after.current != guard_state.current) | (after.advised != guard_state.advised)
            tell = functools.partial(jax.debug.callback, functools.partial(_log_change, config))
            jax.lax.cond(news, tell, lambda *_: None, guard_state, after)
        made = state._replace(
            velocity=velocity,
            guard_state=after,
            places=places,
            velocities=velocities,
            probed=probed,
        )
        return moves, made

    return optax.GradientTransformationExtraArgs(init, update)  # pyrefly: ignore[bad-argument-type]


def _states_in(tree: Any) -> list[GuardedState]:
    """Return the states of guards in a tree, wherever a wrapper has put them."""

    def found(part: Any) -> bool:
        return isinstance(part, GuardedState)

    return [leaf for leaf in jax.tree.leaves(tree, is_leaf=found) if found(leaf)]


def report(state: Any) -> GuardReport:
    """Return the report of a guarded run; print it, or take ``to_dict()``.

    Parameters
    ----------
    state
        State of the optimizer: that of `guard`, or of `optax.chain`, `optax.MultiSteps` or another
        wrapper around it.

    Examples
    --------
    >>> optimizer = optax.chain(optax.clip(1.0), guard(0.01, 0.5, candidates=[0.0]))
    >>> print(report(optimizer.init(jnp.ones(2))))
    step 0, policy safe: momentum 0.5
    0 steps probed
    momentum       rate  interval              verdict
         0.5  not known yet
           0  not known yet
    """
    states = _states_in(state)
    if len(states) != 1:
        raise ArgumentError(
            "report needs the state of an optimizer with one resonax.jax.guard in it, "
            f"found {len(states) or 'none'}"
        )
    if np.ndim(states[0].probed):
        raise ArgumentError(
            f"this is the state of {len(states[0].probed)} runs; take one of them, "
            "jax.tree.map(lambda leaf: leaf[0], state)"
        )
    made: GuardedState = jax.tree.map(np.asarray, states[0])
    kept = tuple(round(float(one), 6) for one in made.candidates)
    plan = Plan(*(np.asarray(part).item() for part in made.plan))
    return report_of(
        made.guard_state,
        GuardConfig(POLICIES[int(made.policy)], kept, plan, every=True),
        momentum=kept[int(made.guard_state.current)],
        own=kept[0],
        probed=int(made.probed),
    )
