"""Shamir's threshold shares of a secret: any t of them give it, t - 1 say nothing of it."""

from collections.abc import Mapping, Sequence

PRIME = 2**256 + 297  # the smallest prime above any secret of 32 bytes
SHARE_BYTES = 33


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
