"""The average of parameters, and what a guard offers for prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax import Array

from resonax.guards.averaging import LEAST, STRIDE, preferred, share
from resonax.guards.learner import mean_loss
from resonax.jax.batches import KeptBatch
from resonax.jax.learner import JaxLearner

__all__ = ["Offer", "Offered", "init", "look", "update"]


class Offered(NamedTuple):
    """What predicts best: parameters, and the model state that goes with them."""

    params: Any
    model_state: Any = None


class Offer(NamedTuple):
    """The average of so many parameters, and what was offered when that was last looked at."""

    average: Any
    terms: int = 0
    held: Offered | None = None


def init(params: Any) -> Offer:
    """Return an average of parameters to come."""
    return Offer(params)


def update(offer: Offer, params: Any) -> Offer:
    """Return the offer with more parameters in its average."""
    terms = int(offer.terms) + 1
    average = _moved(offer.average, params, share(terms, least=LEAST // STRIDE))
    return offer._replace(average=average, terms=terms)


@jax.jit
def _moved(average: Any, params: Any, share: Array | float) -> Any:
    return jax.tree.map(
        lambda old, new: (old + share * (new - old)).astype(old.dtype), average, params
    )


def look(
    offer: Offer, learner: JaxLearner, batches: Sequence[KeptBatch]
) -> tuple[Offer, Offered, bool]:
    """Return the offer, what `preferred` finds, and whether the average beats the parameters."""
    now = learner.saved
    own = Offered(now.params, now.model_state)
    if not batches:
        return offer, own, False
    held = [] if offer.held is None else [offer.held]
    three, judged = [own._replace(params=offer.average), own, *held], []
    for one in three:
        learner.load(now._replace(params=one.params, model_state=one.model_state))
        judged.append(learner.losses(batches))
    learner.load(now)
    chosen = three[preferred(judged)]
    return offer._replace(held=chosen), chosen, mean_loss(judged[0]) < mean_loss(judged[1])
