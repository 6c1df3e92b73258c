"""Real learners behind one small protocol: scikit-learn, river, torch, and pure step functions.

A library is imported only once a learner of it is given.
"""

from __future__ import annotations

import copy
import functools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from resonax.core.errors import ArgumentError
from resonax.probing.leaves import WEIGHTS, Leaf, Leaves, walk_object

__all__ = ["Learner", "adapt", "check_reach", "is_overflow", "library_of"]

_ACCEPTED = (
    "learner must be a scikit-learn regressor with partial_fit, a river regressor, (torch module, "
    "optimizer[, loss]), or (step, state[, predict]) with step(state, inputs, target) -> state"
)
_WEIGHT_NAME = re.compile("param|weight|coef|intercept|latent|theta")
_REACH = 1e11


def library_of(model: Any) -> str | None:
    """Return which library a model learns like, ``river`` or ``sklearn``; None for others."""
    if hasattr(model, "learn_one") and hasattr(model, "predict_one"):
        return "river"
    return "sklearn" if hasattr(model, "partial_fit") and hasattr(model, "predict") else None


def is_overflow(error: Exception) -> bool:
    """Return whether a library says that numbers have ended; the rows are finite."""
    ended = isinstance(error, (OverflowError, FloatingPointError))
    return ended or bool(re.search("overflow|infinity|finite", str(error)))


def check_reach(prediction: float | np.ndarray, target: float | np.ndarray) -> None:
    """Raise OverflowError where predictions are so large that their gradients are clipped.

    River and scikit-learn clip the slope of the loss at 1e12. From there on a run that diverges
    moves at random instead of growing, and can stay below any limit for its weights.
    """
    inside = abs(prediction) <= _REACH + 10 * abs(target)
    if not (inside if isinstance(inside, bool) else np.all(inside)):  # rows of river are many
        raise OverflowError("predictions so large that their gradients are clipped")


@runtime_checkable
class Learner(Protocol):
    """What replay and probe need of a learner.

    ``state`` is all numbers that the future weights depend on continuously; those that a library
    makes on first use are missing before the first batch, and counters of steps never are in it.
    ``kinds`` says for each of them whether it is a weight, 0, or which buffer it belongs to.
    ``eps`` is the relative rounding error of the weights. ``learn`` raises OverflowError where
    numbers overflow. ``fresh`` returns an independent copy.
    """

    def learn(self, inputs: np.ndarray, target: np.ndarray) -> None: ...
    def predict(self, inputs: np.ndarray) -> np.ndarray: ...
    def state(self) -> np.ndarray: ...
    def load(self, vector: np.ndarray) -> None: ...
    def kinds(self) -> np.ndarray: ...
    def eps(self) -> float: ...
    def fresh(self) -> Learner: ...


@dataclass
class _Attributes(Leaves):
    """A learner whose numbers lie in the attributes of a model and of its parts."""

    model: Any
    names: list[Any] | None = None
    is_fitted: bool = False  # so that a model with weights is not searched for them again

    def leaves(self) -> list[Leaf]:
        found = [leaf for leaf in walk_object(self.model, set()) if len(leaf.values)]
        named = [bool(_WEIGHT_NAME.search(leaf.kind)) for leaf in found]
        return [
            leaf._replace(kind=WEIGHTS) if name or not any(named) else leaf
            for leaf, name in zip(found, named, strict=True)
        ]


class _Sklearn(_Attributes):
    def learn(self, inputs: np.ndarray, target: np.ndarray) -> None:
        check_reach(self.predict(inputs), target)
        try:
            self.model.partial_fit(inputs, target)
        except ValueError as error:
            raise (OverflowError(error) if is_overflow(error) else error) from None

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        self.is_fitted = self.is_fitted or bool(self.leaves())
        given = self.model.predict(inputs) if self.is_fitted else np.zeros(len(inputs))
        return np.asarray(given, dtype=float).reshape(len(inputs))

    def fresh(self) -> _Sklearn:
        made = copy.deepcopy(self)
        if getattr(made.model, "random_state", 0) is None:
            made.model.random_state = 0  # so that copies shuffle the rows of a batch alike
        return made


class _River(_Attributes):
    def _rows(self, inputs: np.ndarray) -> Iterator[dict[Any, float]]:
        names = range(inputs.shape[1]) if self.names is None else self.names
        return (dict(zip(names, row, strict=True)) for row in inputs.tolist())

    def learn(self, inputs: np.ndarray, target: np.ndarray) -> None:
        for row, wanted in zip(self._rows(inputs), target.tolist(), strict=True):
            check_reach(self.model.predict_one(row) or 0.0, wanted)
            self.model.learn_one(row, wanted)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.array([self.model.predict_one(row) or 0.0 for row in self._rows(inputs)], float)


@dataclass
class _Torch(Leaves):
    module: Any
    optimizer: Any
    loss: Any
    noise: Any  # the state of torch's random numbers, so that copies drop out the same units

    def learn(self, inputs: np.ndarray, target: np.ndarray) -> None:
        import torch

        outer = torch.get_rng_state()
        torch.set_rng_state(self.noise)
        with torch.enable_grad():
            self.optimizer.zero_grad()
            given = self._forward(inputs)
            self.loss(given, torch.as_tensor(target).to(given)).backward()
            self.optimizer.step()
        self.noise = torch.get_rng_state()
        torch.set_rng_state(outer)

    def _forward(self, inputs: np.ndarray) -> Any:
        import torch

        like, count = next(self.module.parameters()), len(inputs)
        given = self.module(torch.as_tensor(inputs).to(like))
        if given.shape not in ((count,), (count, 1)):
            shape = tuple(given.shape)
            raise ArgumentError(f"the module must give {count} x 1 numbers, got {shape}")
        return given.reshape(count)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        import torch

        modes = [(part, part.training) for part in self.module.modules()]
        self.module.eval()
        with torch.no_grad():
            given = self._forward(inputs).double().cpu().numpy()
        for part, mode in modes:
            part.training = mode
        return given

    def leaves(self) -> list[Leaf]:
        groups = self.optimizer.param_groups
        trained = [p for group in groups for p in group["params"] if p.requires_grad]
        found = [(WEIGHTS, parameter) for parameter in trained]
        for parameter in trained:
            found += self.optimizer.state.get(parameter, {}).items()
        found += self.module.named_buffers()
        return [
            _tensor_leaf(kind, part)
            for kind, part in found
            if kind != "step" and hasattr(part, "is_floating_point") and part.is_floating_point()
        ]


def _tensor_leaf(kind: str, tensor: Any) -> Leaf:
    import torch

    def write(values: np.ndarray) -> None:
        with torch.no_grad():
            tensor.copy_(torch.as_tensor(values).reshape(tensor.shape))

    values = tensor.detach().reshape(-1).double().cpu().numpy()
    return Leaf(kind, values, write, torch.finfo(tensor.dtype).eps)


@dataclass
class Pure(Leaves):
    step: Callable[[Any, np.ndarray, np.ndarray], Any]
    function: Callable[[Any, np.ndarray], Any] | None
    parts: list[Any]  # the arrays of the state,
    tree: Any  # and how they make it

    def learn(self, inputs: np.ndarray, target: np.ndarray) -> None:
        import jax

        value = self.step(self.tree.unflatten(self.parts), inputs, target)
        self.parts, self.tree = jax.tree.flatten(value)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        if self.function is None:
            raise ArgumentError("learner must be (step, state, predict) to make predictions")
        given = self.function(self.tree.unflatten(self.parts), inputs)
        return np.asarray(given, dtype=float).reshape(len(inputs))

    def leaves(self) -> list[Leaf]:
        import jax.numpy as jnp

        found = []
        for place, kind in enumerate(_kinds_of(self.tree)):
            part = self.parts[place]
            dtype = part.dtype if hasattr(part, "dtype") else np.dtype(type(part))
            if jnp.issubdtype(dtype, jnp.floating):
                write = functools.partial(self._write, place, dtype)
                values = np.asarray(part, dtype=float).ravel()
                found.append(Leaf(kind, values, write, float(jnp.finfo(dtype).eps)))
        return found

    def _write(self, place: int, dtype: Any, values: np.ndarray) -> None:
        import jax.numpy as jnp

        old = self.parts[place]
        make = jnp.asarray if hasattr(old, "aval") else np.asarray  # a jax array stays one
        self.parts[place] = make(values.reshape(np.shape(old)), dtype)

    def fresh(self) -> Pure:
        return replace(self, parts=copy.deepcopy(self.parts))


@functools.cache
def _kinds_of(tree: Any) -> list[str]:
    """Tell weights by the name of the outermost part of a pytree, or as the first of a tuple."""
    import jax

    whole = tree.unflatten(range(tree.num_leaves))
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(whole)[0]]
    first = [
        not path or getattr(path[0], "idx", 1) == 0 or bool(_WEIGHT_NAME.search(str(path[0])))
        for path in paths
    ]
    return [
        WEIGHTS if weight or not any(first) else jax.tree_util.keystr(path)
        for path, weight in zip(paths, first, strict=True)
    ]


def adapt(learner: Any, names: Sequence[Any] | None = None) -> Learner:
    """Return a learner of any of the known libraries behind the one protocol.

    Parameters
    ----------
    learner
        A scikit-learn regressor with ``partial_fit``; a river regressor, or a pipeline that ends
        in one; ``(module, optimizer)`` of torch, with a third part for another loss than the mean
        squared error; or ``(step, state)`` with a pure function ``step(state, inputs, target)``
        that returns the next state, any pytree of arrays, with ``predict(state, inputs)`` as third
        part for predictions. In a tuple as state the weights come first, the optimizer's next.
    names
        Names of the columns, for river; by default 0, 1, and so on.

    Examples
    --------
    >>> def step(weights, inputs, target):
    ...     return weights - 0.1 * inputs.T @ (inputs @ weights - target)
    >>> learner = adapt((step, np.zeros(2)))
    >>> learner.learn(np.array([[1.0, 2.0]]), np.array([1.0]))
    >>> learner.state()
    array([0.1, 0.2])
    """
    if isinstance(learner, Learner):
        return learner
    if isinstance(learner, tuple) and len(learner) in (2, 3) and not hasattr(learner, "update"):
        return _adapt_tuple(*learner)
    library = library_of(learner)
    if library == "river":
        return _River(learner, None if names is None else list(names))
    classifies = hasattr(learner, "predict_proba") or hasattr(learner, "decision_function")
    if library == "sklearn" and not classifies:
        return _Sklearn(learner)
    raise ArgumentError(f"{_ACCEPTED}, got {type(learner).__name__}")


def _adapt_tuple(first: Any, second: Any, third: Any = None) -> Learner:
    torch = sys.modules.get("torch")  # who has a module of torch has imported it
    if torch is not None and isinstance(first, torch.nn.Module):
        known = {id(parameter) for parameter in first.parameters()}
        groups = getattr(second, "param_groups", [{"params": [second]}])
        if any(id(parameter) not in known for group in groups for parameter in group["params"]):
            raise ArgumentError("a torch module must come with an optimizer of its parameters")
        return _Torch(first, second, third or torch.nn.MSELoss(), torch.get_rng_state())
    if not callable(first):
        raise ArgumentError(f"{_ACCEPTED}, got a tuple that begins with {type(first).__name__}")
    import jax

    return Pure(first, third, *jax.tree.flatten(second))
