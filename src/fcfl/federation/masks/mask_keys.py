"""Keys of masked sums: X25519 between two clients, HKDF, and what is made of it.

A client has one long-lived key, known by its public half, and a single-use one for every sum. The
long-lived keys of two clients seal what they send each other through the server; the single-use
ones make the mask that one of them adds and the other subtracts. Only a single-use key is ever
given away, in shares, when its owner dropped out before it could send anything masked by it.
"""

import json

import numpy as np

from fcfl.errors import DataError, FCFLError
from fcfl.federation.masks.fixed_point import Words
from fcfl.federation.masks.shamir import PRIME

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:  # pragma: no cover - the extra is installed where this is tested
    raise FCFLError(
        "Masked sums need the package `cryptography`: pip install 'fcfl[masks]'"
    ) from error

_NONCE = bytes(12)  # every sealing key is used once
_STREAM_NONCE = bytes(16)  # so is every key of a stream


def derive(secret: bytes, *purpose: str) -> bytes:
    """32 bytes from a secret, others for every other purpose."""
    info = json.dumps(["fcfl-masks-1", *purpose]).encode()
    return HKDF(SHA256(), 32, salt=None, info=info).derive(secret)


def public_of(private: bytes) -> str:
    """The public half of a key, as text."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def agree_on_secret(private: bytes, public: str) -> bytes:
    """What only the owners of both keys can compute."""
    try:
        other = X25519PublicKey.from_public_bytes(bytes.fromhex(public))
        return X25519PrivateKey.from_private_bytes(private).exchange(other)
    except ValueError:
        raise DataError(f"A public key for masks must be 64 hex digits, got {public!r}.") from None


def seal(shared: bytes, content: bytes, *purpose: str) -> bytes:
    """Encrypt for the client with which a secret is shared.

    The purpose must never come twice with other contents.
    """
    return ChaCha20Poly1305(derive(shared, "seal", *purpose)).encrypt(_NONCE, content, None)


def unseal(shared: bytes, sealed: bytes, *purpose: str) -> bytes:
    """What the other client encrypted for this purpose; anything else is refused."""
    try:
        key = derive(shared, "seal", *purpose)
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        raise DataError(
            "A share is not what the other client sealed for this sum: it was changed, or it "
            "belongs to another question or another key."
        ) from None


def stream(key: bytes, size: int) -> Words:
    """So many uniform words from a key: ChaCha20's keystream."""
    encryptor = Cipher(ChaCha20(key, _STREAM_NONCE), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * size)), dtype="<u8").astype(np.uint64)


def uniform_below_prime(key: bytes, count: int) -> list[int]:
    """Numbers for `split_secret`, uniform up to 2^-127: 48 bytes each, modulo the prime."""
    words = stream(key, 6 * count).tobytes()
    return [int.from_bytes(words[i : i + 48], "big") % PRIME for i in range(0, 48 * count, 48)]
