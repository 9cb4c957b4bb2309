r"""Exact draws of the discrete Gaussian, from the operating system's randomness.

.. math:: P(X = k) \propto e^{-k^2 / 2 s^2}, \qquad k \in \mathbb{Z}

By rejection from a discrete Laplace law (Canonne, Kamath and Steinke, 2020, algorithms 2 and 3).
Floating point never decides. A coin of probability :math:`p = e^{-\gamma}` compares a uniform
number, of which 64 bits are drawn, with p. If these bits and p as a float differ by more than both
errors, more bits cannot change the outcome. Otherwise, once in 2**37 coins, more bits are drawn and
p is computed to more digits until they differ.
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

LARGEST_SCALE = 2**46  # draws are exact as floats
_CLOSE = 2.0**-38  # distance of uniform number and probability below which floats do not decide
_DIGITS = 60  # digits of a probability where floats do not decide; more each time


def discrete_gaussian(scale: int, size: int) -> Integers:
    """Return ``size`` independent draws with parameter ``scale``, in lattice steps."""
    if not 1 <= scale <= LARGEST_SCALE:
        raise ValueError(
            f"`scale` must be a whole number from 1 to {LARGEST_SCALE}, got {scale!r}."
        )
    width_bits = max(round(scale * 0.9).bit_length() - 1, 0)  # of the Laplace law, near the scale
    drawn: list[Integers] = [np.zeros(0, dtype=np.int64)]
    missing = size
    while missing:
        proposed = _discrete_laplace(width_bits, missing + missing // 2 + 16)
        found = proposed[_accepted(proposed, scale, width_bits)][:missing]
        drawn.append(found)
        missing -= found.size
    return np.concatenate(drawn)


def _accepted(proposed: Integers, scale: int, width_bits: int) -> NDArray[np.bool_]:
    r"""Toss coins with :math:`\gamma = (|y| - s^2/t)^2 / 2 s^2`, t the width of the proposals."""
    width, square = 1 << width_bits, scale * scale
    distance = np.abs(proposed) - square / width
    exponents = 0.5 * (distance / scale) ** 2

    def exactly(index: int) -> tuple[int, int]:
        off = abs(int(proposed[index])) * width - square
        return off * off, 2 * square * width * width

    return _coins(exponents, exactly)


def _discrete_laplace(width_bits: int, size: int) -> Integers:
    r"""Draw up to ``size`` times from :math:`P(k) \propto e^{-|k|/t}`, :math:`t = 2^{width\_bits}`.

    A draw is a remainder u below t, accepted with :math:`e^{-u/t}`, plus t times a geometric
    number, with a random sign. A negative zero is rejected.
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
    """Count heads of coins with probability 1/e before the first tail."""
    count = np.zeros(size, dtype=np.int64)
    going = np.arange(size)
    while going.size:
        going = going[_coins(np.ones(going.size), lambda index: (1, 1))]
        count[going] += 1
    return count


def _coins(exponents: Vector, exactly: Exactly) -> NDArray[np.bool_]:
    r"""Toss independent coins with probability :math:`e^{-\gamma}`.

    ``exactly(i)`` returns :math:`\gamma_i` as a fraction; ``exponents[i]`` is its float.
    """
    bits = _bits(exponents.size)
    distance = bits * 2.0**-64 - np.exp(-exponents)
    up: NDArray[np.bool_] = distance < 0
    for index in np.flatnonzero(np.abs(distance) <= _CLOSE):
        up[index] = _exact_coin(int(bits[index]), *exactly(int(index)))
    return up


def _exact_coin(bits: int, numerator: int, denominator: int) -> bool:
    r"""Return whether a uniform number that begins with these bits is below :math:`e^{-\gamma}`."""
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
