"""Copies in blocks of memory: equal, kept apart, and filled again only when nobody holds them."""

from __future__ import annotations

import io
import weakref
from collections import deque

import pytest
import torch
from torch.nn.functional import mse_loss

from resonax.torch import Guard
from resonax.torch.batches import form_of
from resonax.torch.copies import Copies

SPAN = 40  # copies that are held, more than fit into a block


def made(copies: Copies, number: int) -> list[torch.Tensor]:
    batch = (torch.full((3, 5), float(number)), torch.arange(3) + number)
    return copies.of(batch, form_of([batch])[0])


def addresses(copies: Copies, count: int) -> set[int]:
    """Return where ``count`` more copies lie, of which the last are held.

    Each is looked at when it is let go: what has been filled again meanwhile stays wrong.
    """
    held, found = deque(), set()
    for number in range(count):
        held.append((number, *made(copies, number)))
        found.add(held[-1][1].data_ptr())
        if len(held) > SPAN:
            assert_is_copy(*held.popleft())
    for one in held:
        assert_is_copy(*one)
    return found


def assert_is_copy(number: int, x: torch.Tensor, y: torch.Tensor) -> None:
    assert (x == number).all()
    assert y.tolist() == [number, number + 1, number + 2]


def test_memory_is_filled_again_and_copies_that_are_held_stay_as_they_are():
    copies = Copies()
    first = addresses(copies, 300)
    assert len(first) <= 4 * 32  # as many as are held, in whole blocks, and one more
    assert addresses(copies, 300) <= first


@pytest.mark.parametrize(
    "kept",
    [lambda one: one, lambda one: one[1:], lambda one: one.detach(), lambda one: one.numpy()],
)
def test_what_somebody_else_holds_is_not_filled_again(kept):
    copies = Copies()
    addresses(copies, 2)  # alone, as their form may not come again
    held = kept(made(copies, 7)[0])
    addresses(copies, 300)
    assert (torch.as_tensor(held) == 7).all()


def test_a_last_batch_of_another_shape_is_copied_by_itself():
    copies, x = Copies(), torch.randn(2, 5, requires_grad=True)
    addresses(copies, 50)
    (odd,) = copies.of([x], form_of([(x,)])[0])
    assert torch.equal(odd, x.detach())
    assert not odd.requires_grad
    assert odd.data_ptr() != x.data_ptr()
    assert odd.untyped_storage().nbytes() == odd.nbytes


def test_the_order_of_a_tensor_in_memory_stays():
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    copies = Copies()
    for _ in range(3):
        (copy,) = copies.of([image], form_of([(image,)])[0])
        assert copy.stride() == image.stride()
        assert torch.equal(copy, image)


def test_copies_begin_where_tensors_of_their_own_would():
    copies = Copies()
    assert all(one.data_ptr() % 64 == 0 for k in range(40) for one in made(copies, k))


def test_a_guard_that_is_closed_lets_go_of_the_memory_of_its_batches():
    model = torch.nn.Linear(5, 1)
    guard = Guard(model, torch.optim.Adam(model.parameters()), instrument="replay")
    ends = []
    for _ in range(40):
        batch = torch.randn(3, 5), torch.randn(3, 1)
        guard.step(lambda x, y: mse_loss(model(x), y), *batch)
        kept = guard._inner._steps[-1:]
        ends += [weakref.ref(one) for kept, _ in kept for one in kept.parts[0]]
    del kept
    assert sum(one() is not None for one in ends) > 40
    guard.close()
    assert not any(one() is not None for one in ends)


def test_copies_can_be_saved():
    copies, file = Copies(), io.BytesIO()
    held = [made(copies, number) for number in range(40)]
    torch.save(held, file)
    file.seek(0)
    loaded = torch.load(file)
    for two in zip(loaded, held, strict=True):
        assert all(torch.equal(*pair) for pair in zip(*two, strict=True))
