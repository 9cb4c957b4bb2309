"""A client's part in masked sums: it makes keys, masks its numbers, and helps to open the sum.

The protocol is that of Bonawitz et al. (2017), for many sums: u and v share a mask that one adds
and the other subtracts, and every client adds a mask of its own. Who dropped out before it answered
has its single-use key opened, who answered its own mask; nobody has both opened, so that an answer
that comes late, of a client that was given up, stays masked.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcfl._checks import check_curvature_weights
from fcfl._types import ClientId, CurvatureWeights
from fcfl.client.client import Client
from fcfl.errors import DataError, FCFLError
from fcfl.federation.federation import answer
from fcfl.federation.journal import Journal
from fcfl.federation.masks.arithmetic import PRIME, Words, encode_numbers, split_secret
from fcfl.federation.masks.hidden import OnRowsAnswer, hide, with_own_rows
from fcfl.federation.masks.messages import (
    Bytes,
    MaskedAnswer,
    MaskedAsk,
    MaskQuestion,
    PrepareMasks,
    Revealed,
    SumKey,
    SumTerms,
    Unmask,
)
from fcfl.federation.serialise import digest
from fcfl.policy import MaskPolicy

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

WEIGHT_RANGE = 8.0  # the most that a client's loss, or its rates, may weigh beside another's loss
_ROUNDING = 1e-9
_NONCE = bytes(12)  # every sealing key is used once
_STREAM_NONCE = bytes(16)  # so is every key of a stream


@dataclass(frozen=True)
class Used:
    """A single-use key was used, for this sum and with these ``weights`` of the client's own.

    ``rows`` identifies the rows that were reported on: under one mask others must not be.
    ``keys`` are the single-use public keys of all clients of the sum, ``points`` what it is about.
    """

    run: str
    nonce: str
    weights: str
    rows: str
    sum_digest: str
    points: str
    keys: Mapping[ClientId, str]


@dataclass(frozen=True)
class Opened:
    """Shares were revealed for a sum: of the self-masks of those that answered, and no others."""

    run: str
    sum_digest: str
    answered: tuple[ClientId, ...]


class MaskJournal:
    """The keys that a client has used in a run, and what it has revealed."""

    def __init__(self, journal: Journal, run: str = "") -> None:
        self._journal, self.run = journal, run

    @property
    def secret(self) -> bytes:
        """The secret from which single-use keys of this run are made."""
        with self._journal.locked():
            return self._journal.secret(f"masks {self.run}")

    def use(self, used: Used) -> None:
        """Record that keys are used; reject any that was used for another question.

        The others' keys, too: of a key that is in two sums, one sum may open the key, the other
        the mask.
        """
        with self._journal.locked():
            for other in self._used():
                if other == used:
                    return
                if other.nonce == used.nonce:
                    raise DataError(
                        "This client's key for a masked sum was used before, for another question; "
                        "it is used once. Resume the run, and new keys are made."
                    )
                again = set(other.keys.values()) & set(used.keys.values())
                if again and other.sum_digest != used.sum_digest:
                    name = next(name for name, key in used.keys.items() if key in again)
                    raise DataError(
                        f"The key given for {name!r} was in another masked sum before; it is used "
                        "once. Resume the run, and new keys are made."
                    )
            self._journal.append(used)

    def reveal(
        self, sum_digest: str, answered: tuple[ClientId, ...], dropped: Mapping[ClientId, str]
    ) -> None:
        """Record whose self-masks are revealed; those of the others never are.

        ``dropped`` has the keys that are revealed, which must be those of this sum.
        """
        with self._journal.locked():
            used = next((one for one in self._used() if one.sum_digest == sum_digest), None)
            if used is None:
                raise DataError(
                    "This client has masked nothing for the sum that it is asked to open: the "
                    "question is of another sum or another run."
                )
            if set(used.keys) != {*answered, *dropped}:
                raise DataError("The sum that is to be opened was over other clients.")
            for name, key in dropped.items():
                if key != used.keys[name]:
                    raise DataError(
                        f"The key of {name!r} that is to be opened is not the one in this sum."
                    )
            if not self._is_opened(used, answered):
                self._journal.append(Opened(self.run, sum_digest, answered))

    def _used(self) -> list[Used]:
        return [one for one in self._journal.read(Used) if one.run == self.run]

    def _is_opened(self, used: Used, answered: tuple[ClientId, ...]) -> bool:
        """Reject a second list of clients, of the same sum or of one about the same points."""
        about = {one.sum_digest for one in self._used() if one.points == used.points}
        opened = [one for one in self._journal.read(Opened) if one.run == self.run]
        for other in opened:
            if other.sum_digest not in about or other.answered == answered:
                continue
            if other.sum_digest == used.sum_digest:
                raise DataError(
                    "This client has revealed its shares of this sum for another list of clients; "
                    "it does so once."
                )
            raise DataError(
                "This client has helped to open a sum over other clients at the same parameters; "
                "the difference of the two would be single clients' curvatures. Train with another "
                "`seed`."
            )
        return any(other.sum_digest == used.sum_digest for other in opened)


class MaskHolder:
    """A client's keys, its journal and what it insists on.

    ``rows`` identifies what its reports are made of, where that may change: a key that was used
    for other rows is refused.
    """

    def __init__(
        self,
        name: ClientId,
        private: bytes,
        journal: MaskJournal,
        policy: MaskPolicy,
        *,
        rows: str = "",
    ) -> None:
        self.name, self.public, self._rows = name, public_of(private), rows
        self._private, self._journal, self._policy = private, journal, policy
        self._shared: dict[str, bytes] = {}  # by the other's public key

    def prepare(self, terms: SumTerms) -> SumKey:
        """Return the client's key for its first sum."""
        self._check_terms(terms)
        return self._make_key(terms, secrets.token_hex(16))

    def check(self, question: MaskedAsk) -> None:
        """Reject a sum that would isolate this client; record any other.

        Before anything is summed: a client that does not take part need not spend on it.
        """
        self._check_terms(question.terms)
        if self.name not in question.sum_keys:
            return
        self._check_members(question)
        weights = tuple(check_curvature_weights(self.name, point) for point in question.curved)
        for own, least in zip(weights, question.least_weights, strict=True):
            self._check_weights(own, least)
        self._journal.use(
            Used(
                run=self._journal.run,
                nonce=question.sum_keys[self.name].nonce,
                weights=digest(weights),
                rows=self._rows,
                sum_digest=question.sum_digest,
                points=question.points_digest,
                keys=_publics(question),
            )
        )

    def mask(self, question: MaskedAsk, answer: OnRowsAnswer) -> MaskedAnswer:
        """Return the answer with the summed part under masks. Call `check` first."""
        terms, about = question.terms, question.sum_digest
        plain, numbers = hide(question.question, answer)
        next_key = self._make_key(terms, derive(self._journal.secret, "next", about).hex())
        if self.name not in question.sum_keys:
            return MaskedAnswer(plain, np.zeros(0, dtype=np.uint64), {}, "", next_key)
        words = encode_numbers(self.name, numbers, len(question.sum_keys))
        seed = derive(self._journal.secret, "self", about)
        words = words + stream(derive(seed, "self", about), words.size)
        own = self._sum_private(terms, question.sum_keys[self.name].nonce)
        words = words + pair_masks(self.name, own, _publics(question), about, words.size)
        shares = self._share(terms, seed, "self", about)
        return MaskedAnswer(plain, words, shares, commitment(seed), next_key)

    def unmask(self, question: Unmask) -> Revealed:
        """Return one share for each client of the sum: of its own mask, or of its key."""
        terms, answered = question.terms, tuple(sorted(question.self_shares))
        self._check_terms(terms)
        if self.name not in answered or set(answered) & set(question.sum_keys):
            raise DataError(
                f"A client of a sum has answered or dropped out, not both, and {self.name!r} has "
                "answered."
            )
        needed = max(terms.threshold, self._policy.least)
        if len(answered) < needed:
            raise DataError(
                f"A masked sum must be over at least {needed} clients, got {len(answered)}."
            )
        self._journal.reveal(question.sum_digest, answered, _publics(question))
        about = question.sum_digest
        shares = {
            peer: self._open(terms, peer, sealed, "self", about)
            for peer, sealed in question.self_shares.items()
        }
        shares |= {
            peer: self._open(terms, peer, key.shares, "key", key.public)
            for peer, key in question.sum_keys.items()
        }
        return Revealed({peer: _as_bytes(share) for peer, share in shares.items()})

    def _check_terms(self, terms: SumTerms) -> None:
        """Reject too few clients, a threshold that a lying server could pass twice, other keys."""
        count, least = len(terms.keys), self._policy.least
        if count < least:
            raise DataError(f"A masked sum must be over at least {least} clients, got {count}.")
        if not count < 2 * terms.threshold <= 2 * count:
            raise DataError(
                f"The threshold of a masked sum over {count} clients must be more than half of "
                f"them and at most all, got {terms.threshold}."
            )
        known = {**self._policy.peers, self.name: self.public}
        for peer, key in terms.keys.items():
            pinned = known.get(peer)
            if pinned is None and self._policy.peers:
                raise DataError(f"This client's policy has no key of {peer!r} under masks.peers.")
            if pinned not in (None, key):
                raise DataError(f"The key given for {peer!r} is not the one that is known here.")
        if self.name not in terms.keys:
            raise DataError(f"The clients of a masked sum must include {self.name!r}.")

    def _check_members(self, question: MaskedAsk) -> None:
        """Reject too few clients in the sum, and keys that their owners did not make."""
        terms, members = question.terms, question.sum_keys
        needed = max(terms.threshold, self._policy.least)
        if len(members) < needed or not set(members) <= set(terms.keys):
            raise DataError(
                f"A masked sum must be over at least {needed} clients of the run, got "
                f"{len(members)}."
            )
        own = members[self.name]
        if public_of(self._sum_private(terms, own.nonce)) != own.public:
            raise DataError(
                "The key for a masked sum was not made by this client, or its journal is new. "
                "Resume the run, and new keys are made."
            )
        for peer, key in members.items():  # a share that opens shows that the peer made the key
            self._open(terms, peer, key.shares, "key", key.public)

    def _check_weights(self, weights: CurvatureWeights, least: float) -> None:
        """Reject weights that would set this client apart from the others of the sum.

        Every client checks its own against the same bound, so that all are alike. The loss has one
        of its own: it bends everywhere, where a rate may not bend at all.
        """
        loss, rates, most = (
            weights.loss,
            rates_size(weights),
            WEIGHT_RANGE * least * (1 + _ROUNDING),
        )
        if not (least > 0 and least * (1 - _ROUNDING) <= loss <= most and rates <= most):
            raise DataError(
                f"Client {self.name!r} has weights of {loss:g} on its loss and {rates:g} on its "
                f"rates in a masked sum, where the first must lie between {least:g} and "
                f"{WEIGHT_RANGE * least:g} and the second be no more: the client would stand apart "
                "from the others."
            )

    def _sum_private(self, terms: SumTerms, nonce: str) -> bytes:
        return derive(self._journal.secret, "sum key", terms.digest, nonce)

    def _make_key(self, terms: SumTerms, nonce: str) -> SumKey:
        private = self._sum_private(terms, nonce)
        public = public_of(private)
        return SumKey(nonce, public, self._share(terms, private, "key", public))

    def _share(self, terms: SumTerms, secret: bytes, kind: str, about: str) -> dict[str, Bytes]:
        """Shares of a secret, sealed for each client. They are a function of the secret."""
        key = derive(self._journal.secret, "coefficients", kind, terms.digest, about)
        coefficients = uniform_below_prime(key, terms.threshold - 1)
        shares = split_secret(secret, coefficients, len(terms.names))
        sealed = {}
        for peer, share in zip(terms.names, shares, strict=True):
            purpose = (kind, terms.digest, self.name, peer, about)
            sealed[peer] = _as_bytes(seal(self._shared_with(terms, peer), share, *purpose))
        return sealed

    def _open(
        self,
        terms: SumTerms,
        peer: ClientId,
        sealed: Mapping[ClientId, Bytes],
        kind: str,
        about: str,
    ) -> bytes:
        if peer not in terms.keys or self.name not in sealed:
            raise DataError(f"There is no share of {peer!r} for this client in the sum.")
        purpose = (kind, terms.digest, peer, self.name, about)
        return unseal(self._shared_with(terms, peer), sealed[self.name].tobytes(), *purpose)

    def _shared_with(self, terms: SumTerms, peer: ClientId) -> bytes:
        """The secret shared with another client for good, computed once."""
        public = terms.keys[peer]
        if public not in self._shared:
            self._shared[public] = agree_on_secret(self._private, public)
        return self._shared[public]


def rates_size(weights: CurvatureWeights) -> float:
    """How much the rates of a client weigh together."""
    return float(np.abs(weights.rates).sum())


def pair_masks(
    name: ClientId, private: bytes, publics: Mapping[ClientId, str], about: str, size: int
) -> Words:
    """The sum of the masks that a client shares with others: added below them, else subtracted."""
    masks = np.zeros(size, dtype=np.uint64)
    for peer, public in publics.items():
        if peer != name:
            mask = stream(derive(agree_on_secret(private, public), "pair", about), size)
            masks = masks + mask if name < peer else masks - mask
    return masks


def commitment(seed: bytes) -> str:
    """Return a commitment to a self-mask, which does not reveal it."""
    return hashlib.sha256(b"fcfl-masks-1 commitment" + seed).hexdigest()


def _publics(question: MaskedAsk | Unmask) -> dict[ClientId, str]:
    return {name: key.public for name, key in question.sum_keys.items()}


def _as_bytes(content: bytes) -> Bytes:
    return np.frombuffer(content, dtype=np.uint8).copy()


def answer_masked(client: Client | None, holder: MaskHolder, question: MaskQuestion) -> Any:
    """Answer any request of a masked sum; only reports need the client's rows."""
    if isinstance(question, PrepareMasks):
        return holder.prepare(question.terms)
    if not isinstance(question, MaskedAsk):
        return holder.unmask(question)
    assert client is not None
    own = replace(question, question=with_own_rows(client, holder.name, question.question))
    holder.check(own)
    return holder.mask(own, answer(client, own.question))


# --- keys -----------------------------------------------------------------------------------------
# A client has one long-lived key, known by its public half, and a single-use one for every sum.
# The long-lived keys of two clients seal what they send each other through the server; the
# single-use ones make the mask that one of them adds and the other subtracts.


def derive(secret: bytes, *purpose: str) -> bytes:
    """32 bytes from a secret, others for every other purpose."""
    info = json.dumps(["fcfl-masks-1", *purpose]).encode()
    return HKDF(SHA256(), 32, salt=None, info=info).derive(secret)


def public_of(private: bytes) -> str:
    """The public half of a key, as text."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def agree_on_secret(private: bytes, public: str) -> bytes:
    """Return the secret that only the owners of both keys can compute."""
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
    """Decrypt what the other client sealed for this purpose; reject anything else."""
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
