r"""Curvature of a batch times several directions at once, from the graph of one forward pass.

With the outputs :math:`z = f(\theta)` of a model and the loss :math:`\ell(z)`, the Gauss-Newton
product is

.. math:: G u = J^\top \, \nabla^2 \ell(z) \, J u, \qquad J = \partial z / \partial \theta .

It has no negative curvature, along which differences grow although the run does not diverge; for a
linear model it is the Hessian. The graph is only read: the forward pass happens once, so that
dropout, batch normalisation and other side effects of a closure happen once.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["gauss_newton", "hessian", "outputs_of"]


def outputs_of(found: Any) -> list[Tensor]:
    """Return the tensors of what a model returned that a loss can depend on."""
    if isinstance(found, Tensor):
        return [found] if found.requires_grad and found.is_floating_point() else []
    if isinstance(found, Mapping):
        if "logits" in found:
            return outputs_of(found["logits"])
        found = list(found.values())
    if isinstance(found, list | tuple):
        tensors = [tensor for part in found for tensor in outputs_of(part)]
        return [tensor for tensor in tensors if tensor.ndim] or tensors
    return []


def _grads(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    *,
    needed: bool = False,
) -> list[Tensor]:
    """Return derivatives along several weights at once; zeros where nothing depends.

    Where they are needed, some input must matter.
    """
    count = len(weights[0])
    kept = [
        (output, weight)
        for output, weight in zip(outputs, weights, strict=True)
        if output.requires_grad
    ]
    if not kept:
        return [part.new_zeros((count, *part.shape)) for part in inputs]
    ends, along = zip(*kept, strict=True)
    try:
        made = _batched(ends, inputs, along) if count > 1 else _single(ends, inputs, along)
    except NotImplementedError:  # of sparse gradients, which torch does not batch
        made = _single(ends, inputs, along)
    if needed and all(part is None for part in made):
        raise RuntimeError("an operation can be differentiated only once")
    return [
        part.new_zeros((count, *part.shape)) if found is None else found
        for part, found in zip(inputs, made, strict=True)
    ]


def _batched(ends: Any, inputs: Any, along: Any) -> Sequence[Tensor | None]:
    return torch.autograd.grad(
        ends, inputs, along, retain_graph=True, allow_unused=True, is_grads_batched=True
    )


def _single(ends: Any, inputs: Any, along: Any) -> Sequence[Tensor | None]:
    rows = [
        torch.autograd.grad(ends, inputs, each, retain_graph=True, allow_unused=True)
        for each in zip(*along, strict=True)
    ]
    return [
        None if column[0] is None else torch.stack([part.to_dense() for part in column])
        for column in zip(*rows, strict=True)
    ]


def _slopes(
    ends: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """Return derivatives that can be derived once more."""
    made = torch.autograd.grad(ends, inputs, weights, create_graph=True, allow_unused=True)
    return [
        torch.zeros_like(part) if found is None else found
        for part, found in zip(inputs, made, strict=True)
    ]


def gauss_newton(
    loss: Tensor, outputs: Sequence[Tensor], weights: Sequence[Tensor], along: Sequence[Tensor]
) -> list[Tensor]:
    """Return the Gauss-Newton products of a batch, (count, *shape) for each weight.

    Parameters
    ----------
    loss
        Loss of the batch, with its graph.
    outputs
        What the model returned, with its graph.
    weights
        Parameters of the model.
    along
        Directions, (count, *shape) for each weight.

    Examples
    --------
    >>> weight = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> output = weight @ torch.tensor([3.0, 1.0])
    >>> gauss_newton(output**2, [output], [weight], [torch.eye(2)])
    [tensor([[18.,  6.],
            [ 6.,  2.]])]
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # operations that are not batched are only slower
        slopes = _slopes([loss], outputs)
        seeds = [torch.zeros_like(output).requires_grad_() for output in outputs]
        pulled = _slopes(outputs, weights, seeds)
        pushed = _grads(pulled, seeds, along, needed=True)
        curved = _grads(slopes, outputs, pushed)
        return _grads(outputs, weights, curved)


def hessian(loss: Tensor, weights: Sequence[Tensor], along: Sequence[Tensor]) -> list[Tensor]:
    """Return the Hessian products of a batch, (count, *shape) for each weight."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _grads(_slopes([loss], weights), weights, along)
