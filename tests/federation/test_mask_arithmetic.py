"""Shares, keys, streams and fixed point: what masked sums stand on."""

import math

import numpy as np
import pytest

from fcfl.errors import DataError

pytest.importorskip("cryptography")

from fcfl.federation.masks.arithmetic import (
    PRIME,
    decode_numbers,
    encode_numbers,
    from_triangle,
    join_shares,
    largest_entry,
    split_secret,
    upper_triangle,
    weights_at_zero,
)
from fcfl.federation.masks.holder import (
    agree_on_secret,
    derive,
    public_of,
    seal,
    stream,
    uniform_below_prime,
    unseal,
)

SECRET = bytes(range(100, 132))


def numbered(shares, chosen):
    return {number: shares[number - 1] for number in chosen}


@pytest.mark.parametrize(("needed", "count"), [(1, 1), (2, 3), (4, 5), (7, 20)])
def test_any_t_shares_give_the_secret(needed, count):
    rng = np.random.default_rng(needed)
    shares = split_secret(SECRET, uniform_below_prime(bytes(32), needed - 1), count)
    for _ in range(10):
        chosen = rng.permutation(np.arange(1, count + 1))[:needed].tolist()
        assert join_shares(numbered(shares, chosen)) == SECRET


def test_with_one_share_less_every_secret_is_as_possible_as_any_other():
    """For each secret there is exactly one polynomial through t - 1 shares: they tell nothing."""
    needed, count = 4, 5
    shares = split_secret(SECRET, uniform_below_prime(bytes(32), needed - 1), count)
    known = {number: int.from_bytes(shares[number - 1], "big") for number in (1, 3, 4)}
    for candidate in (0, 1, 2**255, int.from_bytes(SECRET, "big"), PRIME - 1):
        through = {0: candidate, **known}
        missing = [lagrange(through, x) for x in (2, 5)]
        for x, value in zip((2, 5), missing, strict=True):
            joined = {**known, x: value}
            weights = weights_at_zero(tuple(joined))
            total = sum(w * v for w, v in zip(weights, joined.values(), strict=True)) % PRIME
            assert total == candidate


def lagrange(points, x):
    total = 0
    for a, value in points.items():
        term = value
        for b in points:
            if b != a:
                term = term * (x - b) * pow(a - b, -1, PRIME) % PRIME
        total += term
    return total % PRIME


def test_shares_of_other_secrets_do_not_join():
    key = b"k" * 32
    one = split_secret(SECRET, uniform_below_prime(bytes(32), 2), 5)
    other = split_secret(bytes(32), uniform_below_prime(key, 2), 5)
    mixed = {1: one[0], 2: other[1], 3: one[2]}
    try:
        assert join_shares(mixed) != SECRET
    except ValueError as error:
        assert "do not belong together" in str(error)


def test_two_keys_agree_and_a_third_does_not():
    mine, yours, theirs = (derive(bytes([i]) * 32, "test") for i in range(3))
    assert agree_on_secret(mine, public_of(yours)) == agree_on_secret(yours, public_of(mine))
    assert agree_on_secret(mine, public_of(yours)) != agree_on_secret(theirs, public_of(mine))
    with pytest.raises(DataError, match="must be 64 hex digits"):
        agree_on_secret(mine, "no key")


def test_what_is_sealed_opens_for_its_purpose_only():
    mine, yours, theirs = (derive(bytes([i]) * 32, "test") for i in range(3))
    ours = agree_on_secret(mine, public_of(yours))
    sealed = seal(ours, b"a share", "self", "question 1")
    assert unseal(ours, sealed, "self", "question 1") == b"a share"
    broken = bytes([sealed[0] ^ 1]) + sealed[1:]
    for shared, content, purpose in [
        (ours, sealed, ("self", "question 2")),
        (ours, sealed, ("key", "question 1")),
        (agree_on_secret(theirs, public_of(mine)), sealed, ("self", "question 1")),
        (ours, broken, ("self", "question 1")),
    ]:
        with pytest.raises(DataError, match="not what the other client sealed"):
            unseal(shared, content, *purpose)


def test_masks_are_uniform_and_differ_by_key():
    """Each of the 64 bits is set half of the time, and bytes are as a χ² test has them."""
    words = stream(derive(bytes(32), "one"), 20_000)
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(words.size)
    counts = np.bincount(words.view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi2 - 255) < 5 * np.sqrt(2 * 255)
    assert (stream(derive(bytes(32), "two"), 20_000) == words).sum() == 0


@pytest.mark.parametrize("n_clients", [3, 5, 1000])
def test_sums_come_out_and_what_could_wrap_is_refused_by_name(n_clients):
    rng = np.random.default_rng(n_clients)
    most = largest_entry(n_clients)
    parts = [rng.uniform(-1, 1, 50) * most for _ in range(n_clients)]
    parts[0][:2] = most, -most
    total = sum(encode_numbers("a", part, n_clients) for part in parts)
    assert np.abs(decode_numbers(total) - np.sum(parts, axis=0)).max() < n_clients * 2.0**-37 + 1e-6
    small = [rng.uniform(-1, 1, 50) for _ in range(n_clients)]
    total = sum(encode_numbers("a", part, n_clients) for part in small)
    exact = [math.fsum(column) for column in zip(*small, strict=True)]
    assert np.abs(decode_numbers(total) - exact).max() <= 1e-15 * n_clients  # as doubles add up
    extreme = sum(encode_numbers("a", np.array([most]), n_clients) for _ in range(n_clients))
    assert decode_numbers(extreme)[0] == pytest.approx(n_clients * most)
    sentences = set()
    for wrong in (most * 1.001 + 2, -1e3 * most, -np.inf, np.nan):
        with pytest.raises(DataError, match="Client 'north' has too large a number") as error:
            encode_numbers("north", np.array([0.0, wrong]), n_clients)
        sentences.add(str(error.value))
    assert len(sentences) == 1  # it does not tell the number


def test_a_symmetric_matrix_is_half_of_itself():
    half = np.random.default_rng(0).normal(size=(7, 7))
    matrix = half + half.T
    triangle = upper_triangle(matrix)
    assert triangle.size == 28
    assert np.array_equal(from_triangle(triangle, 7), matrix)
