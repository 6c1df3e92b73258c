"""What an optimizer of torch makes of phases that alternate, by products with their curvatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vjp
from torch.nn.attention import SDPBackend, sdpa_kernel

from resonax.core.errors import ArgumentError, check_whole, shorten, suggest
from resonax.learners import Momentum, from_torch
from resonax.learners.adaptive import Adaptive
from resonax.theory.phases import Alternation, alternation
from resonax.theory.subspace import Phase, check_batches

__all__ = ["phases"]

CURVATURES = ("gauss-newton", "hessian")
Loss = Callable[[Any, Any], Tensor]
_pull: Any = vjp  # whose type speaks of a third value that is not asked for


def phases(
    model: torch.nn.Module,
    loss_fn: Loss,
    optimizer: torch.optim.Optimizer,
    batches_by_phase: Mapping[str, Sequence[Any]],
    *,
    steps: int | Sequence[int],
    curvature: str = "gauss-newton",
    curvature_batches: int = 8,
    **options: Any,
) -> Alternation:
    """Judge phases that alternate in the training of a model, at its weights as they are.

    The model runs in ``eval`` mode and in 32 bits, without autocast and not compiled; nothing of
    model and optimizer changes. Directions are kept in the memory of the host.

    Parameters
    ----------
    model, loss_fn, optimizer
        As they are trained: ``loss_fn(model(x), y)`` is the mean loss of a batch. Adam, AdamW and
        RMSprop must have made steps, as their second moment enters the theory.
    batches_by_phase
        Some batches ``(x, y)`` of each phase, of the size that is trained on, by its name. With 4
        of each or more, their spread gives an interval. Where x is a tuple or a dictionary, it
        holds the arguments of the model.
    steps
        How many steps a phase lasts, or how many each.
    curvature
        ``gauss-newton`` or ``hessian``.
    curvature_batches
        Batches of each phase, the first ones, from which curvatures are taken; gradients, which
        cost less, are taken from all: 64 batches and more separate their means from their noise.
    **options
        Of `resonax.theory.phases.alternation`: ``periods``, ``momenta``, ``lrs``,
        ``directions``, ``follow_square``, ``length``, ``confidence``, ``memory``, ``advance``.

    Examples
    --------
    >>> net = torch.nn.Linear(1, 1, bias=False)
    >>> x = torch.ones(4, 1)
    >>> batches = {"still": [(0.7 * x, x)], "loud": [(1.2 * x, x)]}
    >>> sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.99)
    >>> print(phases(net, torch.nn.functional.mse_loss, sgd, batches, steps=11, momenta=[0.5]))
    diverges: ...
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if curvature not in CURVATURES:
        raise suggest("curvature", curvature, CURVATURES)
    check_whole("curvature_batches", curvature_batches, low=1)
    named = {name: one for name, one in model.named_parameters() if one.requires_grad}
    if not named:
        raise ArgumentError("the model has no parameter that is trained")
    lengths = check_batches(batches_by_phase, steps)
    form, square = _form(optimizer, list(named.values()))
    products = _Products(model, loss_fn, named, curvature)
    made = []
    with products.at_rest():
        for (name, batches), length in zip(batches_by_phase.items(), lengths, strict=True):
            gradients = np.stack([products.gradient(batch) for batch in batches])

            few = batches[:curvature_batches]

            def product(vector: np.ndarray, few: Sequence[Any] = few) -> np.ndarray:
                return products.of(vector, few)

            made.append(Phase(product, gradients, length, name))
        return alternation(made, form, square=square, **options)


class _Products:
    """Gradients and products with the curvature of a model, on vectors of NumPy."""

    def __init__(
        self, model: torch.nn.Module, loss_fn: Loss, named: Mapping[str, Tensor], curvature: str
    ) -> None:
        self.model, self.loss_fn, self.names = model, loss_fn, tuple(named)
        self.curvature = curvature
        self.weights = tuple(one.detach().float() for one in named.values())
        self.device = self.weights[0].device
        others = {name: one.detach().clone() for name, one in model.named_buffers()}
        others |= {n: p.detach() for n, p in model.named_parameters() if n not in named}
        self.others = {n: o.float() if o.is_floating_point() else o for n, o in others.items()}

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Run the model as it predicts, by operations that have all derivatives."""
        modes = {module: module.training for module in self.model.modules()}
        with ExitStack() as stack:
            stack.callback(lambda: [setattr(one, "training", was) for one, was in modes.items()])
            self.model.eval()
            stack.enter_context(torch.autocast(self.device.type, enabled=False))
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            if hasattr(torch.compiler, "set_stance"):  # from torch 2.6 on
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield

    def outputs(self, weights: tuple[Tensor, ...], x: Any) -> Tensor:
        given = {**self.others, **dict(zip(self.names, weights, strict=True))}
        arguments = x if isinstance(x, tuple) else () if isinstance(x, Mapping) else (x,)
        words = dict(x) if isinstance(x, Mapping) else {}
        found = functional_call(self.model, given, arguments, words)
        if not isinstance(found, Tensor):
            raise ArgumentError(
                f"the model must return a tensor, got {type(found).__name__}: wrap it in a module "
                "that returns the tensor that loss_fn takes"
            )
        return found

    def loss(self, outputs: Tensor, y: Any) -> Tensor:
        found = self.loss_fn(outputs, y)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise ArgumentError("loss_fn must return one number, the mean loss of a batch")
        return found.reshape(())

    def pair(self, batch: Any) -> tuple[Any, Any]:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ArgumentError(f"a batch must be a pair (x, y), got {shorten(batch)}")
        return self._here(batch[0]), self._here(batch[1])

    def _here(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            moved = value.to(self.device)
            return moved.float() if moved.is_floating_point() else moved
        if isinstance(value, Mapping):
            return {name: self._here(one) for name, one in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(map(self._here, value))
        return value

    def gradient(self, batch: Any) -> np.ndarray:
        """Return the gradient of the loss on a batch."""
        x, y = self.pair(batch)
        return _flat(self._gradient(self.weights, x, y))

    def _gradient(self, weights: tuple[Tensor, ...], x: Any, y: Any) -> tuple[Tensor, ...]:
        loss, back = _pull(lambda *w: self.loss(self.outputs(w, x), y), *weights)
        return back(torch.ones_like(loss))

    def of(self, vector: np.ndarray, batches: Sequence[Any]) -> np.ndarray:
        """Return the products of the curvature of each batch with a vector."""
        parts = torch.from_numpy(np.ascontiguousarray(vector, np.float32)).to(self.device)
        sizes = [one.numel() for one in self.weights]
        split = zip(torch.split(parts, sizes), self.weights, strict=True)
        direction = tuple(part.reshape(one.shape) for part, one in split)
        whole = self.curvature == "hessian"
        one = self._hessian if whole else self._gauss_newton
        return np.stack([_flat(one(direction, *self.pair(batch))) for batch in batches])

    # Both by reverse differentiation alone, which more operations have than forward, and without
    # an error of torch's forward over reverse of mse_loss.

    def _hessian(self, direction: tuple[Tensor, ...], x: Any, y: Any) -> tuple[Tensor, ...]:
        return _pull(lambda *w: self._gradient(w, x, y), *self.weights)[1](direction)

    def _gauss_newton(self, direction: tuple[Tensor, ...], x: Any, y: Any) -> tuple[Tensor, ...]:
        outputs, back = _pull(lambda *w: self.outputs(w, x), *self.weights)
        (move,) = _pull(back, torch.zeros_like(outputs))[1](direction)

        def slope(z: Tensor) -> Tensor:
            loss, back = _pull(lambda z: self.loss(z, y), z)
            return back(torch.ones_like(loss))[0]

        (bent,) = _pull(slope, outputs)[1](move)
        return back(bent)


def _flat(parts: Sequence[Tensor]) -> np.ndarray:
    return torch.cat([one.detach().flatten() for one in parts]).float().cpu().numpy()


def _form(
    optimizer: torch.optim.Optimizer, weights: list[Tensor]
) -> tuple[Momentum | Adaptive, np.ndarray | None]:
    """Return an optimizer of torch as one of resonax, and its second moment of each weight."""
    group, name = _only(optimizer, weights), type(optimizer).__name__
    if isinstance(optimizer, torch.optim.SGD):
        keys = ("momentum", "dampening", "weight_decay", "nesterov")
        return from_torch(float(group["lr"]), **{key: group[key] for key in keys}), None
    is_adam = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW | torch.optim.NAdam)
    if not is_adam and not isinstance(optimizer, torch.optim.RMSprop):
        raise ArgumentError(f"optimizer must be SGD, Adam, AdamW, NAdam or RMSprop, got {name}")
    is_coupled = not (
        isinstance(optimizer, torch.optim.AdamW) or group.get("decoupled_weight_decay")
    )
    if group.get("weight_decay") and is_coupled:
        raise ArgumentError(f"{name} with weight_decay is not supported: use AdamW")
    if group.get("centered"):
        raise ArgumentError("RMSprop with centered=True is not supported")
    key = "exp_avg_sq" if is_adam else "square_avg"
    if group.get("amsgrad"):
        key = "max_exp_avg_sq"
    states = [optimizer.state.get(one, {}) for one in weights]
    if any(key not in state for state in states):
        raise ArgumentError(
            f"{name} has no second moment of some weights yet: call phases after some steps"
        )
    square = _flat([state[key].float() for state in states]).astype(float)
    lr, eps = float(group["lr"]), float(group["eps"])
    if not is_adam:
        momentum, beta2 = float(group["momentum"]), float(group["alpha"])
        return Adaptive(lr, momentum, beta2, eps, dampened=False), square
    beta1, beta2 = map(float, group["betas"])
    square /= 1 - beta2 ** max(float(state["step"]) for state in states)
    decay = float(group["weight_decay"])
    form = Adaptive(
        lr,
        beta1,
        beta2,
        eps,
        weight_decay=decay,
        lookahead=isinstance(optimizer, torch.optim.NAdam),
    )
    return form, square


def _only(optimizer: torch.optim.Optimizer, weights: list[Tensor]) -> dict[str, Any]:
    """Return the settings of the optimizer, which must be those of all weights of the model."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentError(f"optimizer must be of torch.optim, got {type(optimizer).__name__}")
    groups = optimizer.param_groups
    held = {id(one) for group in groups for one in group["params"]}
    if held != set(map(id, weights)):
        raise ArgumentError("the optimizer must train all parameters of the model, and no others")
    if groups[0].get("maximize"):
        raise ArgumentError("an optimizer that maximizes is not supported: negate the loss")
    for key in ("lr", "momentum", "betas", "alpha", "eps", "nesterov", "dampening"):
        if any(group.get(key) != groups[0].get(key) for group in groups):
            raise ArgumentError(f"all groups of the optimizer must have the same {key}")
    sizes = [sum(one.numel() for one in group["params"]) for group in groups]
    decays = [float(group.get("weight_decay", 0)) for group in groups]
    return {**groups[0], "weight_decay": float(np.average(decays, weights=sizes))}
