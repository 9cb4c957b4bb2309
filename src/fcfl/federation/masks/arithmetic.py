"""Numbers as integers modulo 2^64, so that masks cancel in sums, and Shamir's shares of secrets."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, Matrix, Vector
from fcfl.errors import DataError

Words = NDArray[np.uint64]

FRACTION_BITS = 36  # of a number's first word: the sum of a thousand clients may reach 1.3e8

# A second word has what the first rounds off. Without it sums were off by 1e-10, which training
# amplifies: one run of twenty took another way, to another local optimum (`benchmarks.masks ends`).
# No more places than a number near 1 has: the last digits of a sum would else be those of whoever
# has the smallest number.
FINER_BITS = 16
WORDS = 2  # of each number

PRIME = 2**256 + 297  # the smallest prime above any secret of 32 bytes
SHARE_BYTES = 33


def largest_entry(n_clients: int) -> float:
    """Return the largest entry of each of so many clients whose sum cannot wrap."""
    return float(2.0 ** (63 - FRACTION_BITS) / n_clients) - 1.0


def encode_numbers(name: ClientId, numbers: Vector, n_clients: int) -> Words:
    """First and second words of the numbers, modulo 2^64; refused where a sum could wrap.

    The sentence leaves the site: it does not tell the number.
    """
    most = largest_entry(n_clients)
    if not np.abs(numbers).max(initial=0.0) <= most:  # also where it is no number
        raise DataError(
            f"Client {name!r} has too large a number to sum under masks; with {n_clients} clients "
            f"each must be at most {most:g}. Scale its columns, or train with "
            '`curvature = "lbfgs"`.'
        )
    scaled = np.ldexp(numbers, FRACTION_BITS)
    first = np.rint(scaled)
    second = np.rint(np.ldexp(scaled - first, FINER_BITS))
    return np.concatenate([first, second]).astype(np.int64).view(np.uint64)


def decode_numbers(words: Words) -> Vector:
    """The numbers again, of a sum whose masks are gone."""
    first, second = np.split(words.view(np.int64).astype(np.float64), WORDS)
    return np.ldexp(first + np.ldexp(second, -FINER_BITS), -FRACTION_BITS)


def upper_triangle(matrix: Matrix) -> Vector:
    """Return the entries of a symmetric matrix on and above the diagonal."""
    triangle: Vector = matrix[np.triu_indices(matrix.shape[0])]
    return triangle


def from_triangle(triangle: Vector, size: int) -> Matrix:
    """The symmetric matrix again."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = triangle
    return matrix + np.triu(matrix, 1).T


def split_secret(secret: bytes, coefficients: Sequence[int], count: int) -> list[bytes]:
    r"""Shares 1 … ``count`` of a secret: :math:`f(i) = s + \sum_j c_j i^j \bmod p`.

    The ``coefficients`` are uniform below the prime and secret; with t - 1 of them, t shares are
    needed.
    """
    polynomial = [*reversed(coefficients), int.from_bytes(secret, "big")]
    shares = []
    for x in range(1, count + 1):
        value = 0
        for coefficient in polynomial:
            value = (value * x + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "big"))
    return shares


def join_shares(shares: Mapping[int, bytes]) -> bytes:
    """The secret, from exactly as many shares as are needed, by their numbers.

    Raises
    ------
    ValueError
        When they are shares of no secret of 32 bytes.
    """
    weights = weights_at_zero(tuple(shares))
    values = [int.from_bytes(share, "big") for share in shares.values()]
    secret = sum(weight * value for weight, value in zip(weights, values, strict=True)) % PRIME
    if secret >= 2**256:
        raise ValueError("The shares do not belong together.")
    return secret.to_bytes(32, "big")


def weights_at_zero(numbers: Sequence[int]) -> list[int]:
    """Lagrange's weights: the value at 0 of a polynomial is the weighted sum of its values."""
    weights = []
    for own in numbers:
        above = below = 1
        for other in numbers:
            if other != own:
                above = above * other % PRIME
                below = below * (other - own) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights
