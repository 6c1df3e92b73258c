"""Sketches of gradients: a few numbers of each batch, whatever it holds."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["data_sketch", "gradient_sketch", "random_signs"]

_HELD, _TENSORS = 8, 8  # numbers of a tensor, and tensors that are looked at
_KINDS = 1024  # whole numbers are told apart by their remainder

_NUMBERS = 16


def random_signs(weights: Sequence[Tensor]) -> list[Tensor]:
    """Return a random sign for each number of each weight, always the same."""
    made = []
    for number, weight in enumerate(weights):
        generator = torch.Generator(weight.device).manual_seed(number)
        size = (weight.numel(),)
        drawn = torch.randint(
            0, 2, size, generator=generator, device=weight.device, dtype=torch.int8
        )
        made.append(2 * drawn - 1)
    return made


def gradient_sketch(weights: Sequence[Tensor], signs: Sequence[Tensor]) -> Tensor:
    """Return a few sums of the entries of a gradient with random signs.

    They keep inner products of gradients (Charikar, Chen and Farach-Colton, 2002).
    """
    found = [
        _sums(weight.grad, sign)
        for weight, sign in zip(weights, signs, strict=True)
        if weight.grad is not None
    ]
    return torch.stack(found).sum(dim=0)


def data_sketch(tensors: Sequence[Tensor]) -> Tensor:
    """Return a few sums of what a batch holds, with random signs.

    Of numbers the mean row is taken, of whole numbers, such as labels and tokens, how often each
    comes, and of both the mean. A gradient repeats with the square of the inputs, which may be
    twice as fast as they.
    """
    made = []
    for place, one in enumerate(tensors[:_TENSORS]):
        if one.is_floating_point() or one.is_complex():
            mean = (one.abs() if one.is_complex() else one).detach().float()
            mean = (mean.mean(dim=0) if mean.ndim else mean).reshape(-1)
            level = mean.mean()
        else:
            kinds = one.detach().reshape(-1).long().remainder(_KINDS)
            mean = torch.bincount(kinds, minlength=_KINDS) / max(1, kinds.numel())
            level = one.detach().float().mean()
        made += [mean.float().cpu() @ _signs(len(mean), place), level.cpu().reshape(1)]
    return torch.cat(made)


@functools.lru_cache(maxsize=_TENSORS)
def _signs(size: int, place: int) -> Tensor:
    generator = torch.Generator().manual_seed(place)
    return 2.0 * torch.randint(0, 2, (size, _HELD), generator=generator) - 1


def _sums(gradient: Tensor, signs: Tensor) -> Tensor:
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    signed = dense.detach().reshape(-1).float() * signs
    return nn.functional.pad(signed, (0, -signed.numel() % _NUMBERS)).reshape(-1, _NUMBERS).sum(0)
