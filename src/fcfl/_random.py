"""Randomness that depends on a seed and a client's name, and on nothing else."""

import zlib

import numpy as np

from fcfl._types import ClientId


def client_seed(seed: int, client: ClientId) -> np.random.SeedSequence:
    """Return a source of randomness for one client, whoever else takes part."""
    return np.random.SeedSequence([seed, zlib.crc32(client.encode())])
