r"""Exact draws of the discrete Gaussian, from the operating system's randomness.

.. math:: P(X = k) \propto e^{-k^2 / 2 s^2}, \qquad k \in \mathbb{Z}

Draws use rejection sampling from a discrete Laplace distribution (Canonne, Kamath and Steinke,
2020, algorithms 2 and 3). Rounding errors never affect a draw. A coin of probability
:math:`p = e^{-\gamma}` compares p with 64 bits of a uniform number. If the difference exceeds the
errors of both, more bits cannot change the outcome. Otherwise, about once in 2**37 coins, bits of
the number and digits of p are added until the difference exceeds the errors.
"""

import os
import secrets
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fcfl._types import Vector

Integers: TypeAlias = NDArray[np.int64]
Bits: TypeAlias = NDArray[np.uint64]
Exactly: TypeAlias = Callable[[int], tuple[int, int]]

LARGEST_SCALE = 2**46  # draws up to this scale are exact as floats
_CLOSE = 2.0**-38  # difference of number and probability below which decimals are used
_DIGITS = 60  # decimal digits of the probability, added in each iteration


def discrete_gaussian(scale: int, size: int) -> Integers:
    """Return ``size`` independent draws with parameter ``scale``, in lattice steps."""
    if not 1 <= scale <= LARGEST_SCALE:
        raise ValueError(
            f"`scale` must be a whole number from 1 to {LARGEST_SCALE}, got {scale!r}."
        )
    width_bits = max(round(scale * 0.9).bit_length() - 1, 0)  # Laplace width near the scale
    drawn: list[Integers] = [np.zeros(0, dtype=np.int64)]
    missing = size
    while missing:
        proposed = _discrete_laplace(width_bits, missing + missing // 2 + 16)
        found = proposed[_accepted(proposed, scale, width_bits)][:missing]
        drawn.append(found)
        missing -= found.size
    return np.concatenate(drawn)


def _accepted(proposed: Integers, scale: int, width_bits: int) -> NDArray[np.bool_]:
    r"""Accept proposals with :math:`\gamma = (|y| - s^2/t)^2 / 2 s^2`, where t is their width."""
    width, square = 1 << width_bits, scale * scale
    distance = np.abs(proposed) - square / width
    exponents = 0.5 * (distance / scale) ** 2

    def exactly(index: int) -> tuple[int, int]:
        off = abs(int(proposed[index])) * width - square
        return off * off, 2 * square * width * width

    return _coins(exponents, exactly)


def _discrete_laplace(width_bits: int, size: int) -> Integers:
    r"""Draw up to ``size`` times from :math:`P(k) \propto e^{-|k|/t}`, :math:`t = 2^{width\_bits}`.

    The absolute value is a remainder u below t, accepted with probability :math:`e^{-u/t}`, plus t
    times a geometric number. The sign is random, and negative zeros are rejected.
    """
    width = 1 << width_bits
    remainder = (_bits(2 * size) & np.uint64(width - 1)).astype(np.int64)
    kept = _coins(remainder / width, lambda index: (int(remainder[index]), width))
    remainder = remainder[kept]
    quotient = _geometric(remainder.size)
    value = remainder + width * quotient
    negative = (_bits(value.size) & np.uint64(1)).astype(bool)
    value = np.where(negative, -value, value)
    return np.asarray(value[~(negative & (value == 0))])


def _geometric(size: int) -> Integers:
    """Draw geometric numbers: heads, with probability 1/e each, before the first tail."""
    count = np.zeros(size, dtype=np.int64)
    active = np.arange(size)
    while active.size:
        active = active[_coins(np.ones(active.size), lambda index: (1, 1))]
        count[active] += 1
    return count


def _coins(exponents: Vector, exactly: Exactly) -> NDArray[np.bool_]:
    r"""Toss independent coins with probability :math:`e^{-\gamma}`.

    ``exactly(i)`` returns :math:`\gamma_i` as a fraction, and ``exponents[i]`` is its float value.
    """
    bits = _bits(exponents.size)
    distance = bits * 2.0**-64 - np.exp(-exponents)
    up: NDArray[np.bool_] = distance < 0
    for index in np.flatnonzero(np.abs(distance) <= _CLOSE):
        up[index] = _exact_coin(int(bits[index]), *exactly(int(index)))
    return up


def _exact_coin(bits: int, numerator: int, denominator: int) -> bool:
    r"""Return whether a uniform number with these leading bits is below :math:`e^{-\gamma}`."""
    n_bits, digits = 64, _DIGITS
    while True:
        with localcontext(prec=digits):
            gamma = Decimal(numerator) / Decimal(denominator)
            p = (-gamma).exp()
            error = p * (1 + gamma) * Decimal(10) ** (3 - digits)
            low = Decimal(bits) / Decimal(1 << n_bits)
            high = Decimal(bits + 1) / Decimal(1 << n_bits)
            slack = error + Decimal(10) ** (3 - digits)
        if high <= p - slack:
            return True
        if low >= p + slack:
            return False
        bits, n_bits = (bits << 64) | secrets.randbits(64), n_bits + 64
        digits += _DIGITS


def _bits(size: int) -> Bits:
    """Return words of 64 random bits."""
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
