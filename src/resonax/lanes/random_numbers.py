"""Counter-based random numbers, word by word those of `resonax.simulation.random_numbers`."""

from __future__ import annotations

from collections.abc import Callable

from resonax.lanes.emitter import Code, Index
from resonax.lanes.functions import cos_sin, log
from resonax.lanes.vectors import F64, Vector

__all__ = ["GROUP", "draw", "normal_pair", "uniform_pair"]

GROUP = 4  # steps drawn side by side: the rounds of one hide the latency of another
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))

Words = tuple[Vector, Vector]


def threefry(key: Words, counter: Words) -> Words:
    """Return two words of 32 random bits by Threefry-2x32 with 20 rounds."""
    words = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    left, right = counter[0] + words[0], counter[1] + words[1]
    for turn in range(5):
        for shift in _ROTATIONS[turn % 2]:
            left = left + right
            right = right.intrinsic("fshl", right, shift) ^ left
        left = left + words[(turn + 1) % 3]
        right = right + words[(turn + 2) % 3] + (turn + 1)
    return left, right


def _unit(word: Vector) -> Vector:
    """Return 32 random bits as a number in the open interval 0..1."""
    if word.code.real == F64:
        return word.from_unsigned(F64).fma(2.0**-32, 2.0**-33)
    return (word >> 9).as_type(word.code.real).fma(2.0**-23, 2.0**-24)


def uniform_pair(key: Words, counter: Words) -> tuple[Vector, Vector]:
    """Return two numbers uniform in the open interval 0..1."""
    even, odd = threefry(key, counter)
    return _unit(even), _unit(odd)


def normal_pair(key: Words, counter: Words) -> tuple[Vector, Vector]:
    """Return two standard normal numbers, after Box and Muller."""
    length, turns = uniform_pair(key, counter)
    radius = (log(length) * -2.0).intrinsic("sqrt")
    cosine, sine = cos_sin(turns)
    return radius * cosine, radius * sine


def draw(
    code: Code,
    pair: Callable[[Words, Words], tuple[Vector, Vector]],
    key: Words,
    step: Index,
    first: int,
    count: int,
    put: Callable[[int, Index, Vector], None],
) -> None:
    """Draw the numbers of `GROUP` steps, from slot ``first``, an even number, on.

    ``put`` is told how many steps ahead of ``step`` a number is, its place and the number; an odd
    ``count`` is followed by one number more.
    """
    width = code.lanes * GROUP
    lanes = [*range(code.lanes)]
    wide = code.choose(key[0], lanes * GROUP), code.choose(key[1], lanes * GROUP)
    ahead = [place for place in range(GROUP) for _ in lanes]
    steps = code.splat(step, width) + code.words(ahead)
    with code.loop((count + 1) // 2) as place:
        slot = code.splat(place + first // 2, width)
        for odd, numbers in enumerate(pair(wide, (steps, slot))):
            for group in range(GROUP):
                own = [group * code.lanes + lane for lane in lanes]
                put(group, place * 2 + odd, code.choose(numbers, own))
