"""Elementary functions of vectors, by their series: for 32 and 64 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from resonax.lanes.vectors import F64, I32, I64, Vector

__all__ = ["cos_sin", "exp", "power", "sine"]

_EXPONENT = {I32: 23, I64: 52}  # bits of the fraction, which stand below those of the exponent
_ROOT_HALF = {I32: 0x3F3504F3, I64: 0x3FE6A09E667F3BCD}


def _series(x: Vector, coefficients: Sequence[float]) -> Vector:
    """Return a polynomial, the coefficient of the highest power last."""
    value = x.full(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value.fma(x, coefficient)
    return value


def log(x: Vector) -> Vector:
    r"""Return the natural logarithm of a normal positive number.

    With :math:`x = 2^e m` and :math:`m` between :math:`\sqrt{1/2}` and :math:`\sqrt 2`,
    :math:`\log x = e\log 2 + 2\operatorname{artanh}\frac{m-1}{m+1}`.
    """
    double = x.element == F64
    word = I64 if double else I32
    bits = x.bits_as(word)
    exponent = (bits - _ROOT_HALF[word]).shift_signed(_EXPONENT[word])
    rest = (bits - (exponent << _EXPONENT[word])).bits_as(x.element) - 1.0
    ratio = rest / (rest + 2.0)
    terms = 11 if double else 5  # the next one is below the rounding
    tail = _series(ratio * ratio, [2 / (2 * k + 1) for k in range(terms)]) * ratio
    # log 2 in two parts: the first has few digits, so that its product is exact.
    high = 0.693145751953125
    whole = exponent.as_type(x.element)
    return whole.fma(high, whole.fma(math.log(2) - high, tail))


def exp(x: Vector) -> Vector:
    """Return the exponential of a number, by way of 64 bits; below -700 it is 0."""
    kind, x = x.element, x.as_type(F64)
    safe = x.intrinsic("maxnum", -700.0).intrinsic("minnum", 709.0)
    turns = (safe * (1 / math.log(2))).intrinsic("rint")
    high = 0.6931471803691238  # the upper 33 bits of log 2
    rest = turns.fma(-1.9082149292705877e-10, turns.fma(-high, safe))
    fraction = _series(rest, [1 / math.factorial(k) for k in range(14)])
    scale = ((turns.as_type(I64) + 1023) << 52).bits_as(F64)
    found = (x > -700.0).where(fraction * scale, 0.0)
    return (x > 709.0).where(math.inf, found).as_type(kind)


def power(base: Vector, exponent: Vector) -> Vector:
    """Return a base of at least 0 to an exponent of at least 0, by way of 64 bits."""
    kind = base.element
    base, exponent = base.as_type(F64), exponent.as_type(F64)
    found = exp(exponent * log(base))
    found = (base > 0.0).where(found, 0.0)
    return exponent.compare("==", 0.0).where(1.0, found).as_type(kind)


def sine(x: Vector) -> Vector:
    """Return the sine of an angle, by way of 64 bits."""
    return cos_sin(x.as_type(F64) * (0.5 / math.pi))[1].as_type(x.element)


def cos_sin(turns: Vector) -> tuple[Vector, Vector]:
    """Return cosine and sine of an angle in turns, by their series in a quarter turn."""
    double = turns.element == F64
    word, bits = (I64, 64) if double else (I32, 32)
    quarters = turns * 4.0
    # Beside this number there is no room for a fraction: the lowest bits count the quarters.
    large = 1.5 * 2.0 ** _EXPONENT[word]
    near = quarters + large
    place, angle = near.bits_as(word), (quarters - (near - large)) * (math.pi / 2)
    square = angle * angle
    cosine, sine = (
        _series(
            square, [(-1) ** k / math.factorial(2 * k + odd) for k in range(9 if double else 5)]
        )
        for odd in (0, 1)
    )
    sine = sine * angle
    is_odd = (place & 1).compare("!=", 0)
    cosine, sine = is_odd.where(sine, cosine), is_odd.where(cosine, sine)

    def flip(value: Vector, quarter: Vector) -> Vector:
        """Change the sign of a number in the third and fourth quarter."""
        return (value.bits_as(word) ^ ((quarter & 2) << (bits - 2))).bits_as(value.element)

    return flip(cosine, place + 1), flip(sine, place)
