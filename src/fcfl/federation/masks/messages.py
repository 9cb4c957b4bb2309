"""The messages of a masked sum: three requests and their answers.

Nothing here needs `cryptography`: a site that masks nothing need not have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, Point, Report
from fcfl.client.client import Counted, Evaluate, OnRows, Setup
from fcfl.federation.serialise import digest

Bytes: TypeAlias = NDArray[np.uint8]


@dataclass(frozen=True)
class SumTerms:
    """The clients of a run's masked sums: every client's long-lived public key, as hex digits.

    ``threshold`` is how many clients must help to open a sum.
    """

    run: str
    threshold: int
    keys: Mapping[ClientId, str]

    @property
    def names(self) -> tuple[ClientId, ...]:
        """All clients; the i-th has the shares with number i + 1."""
        return tuple(sorted(self.keys))

    @cached_property
    def digest(self) -> str:
        """Identifies the terms."""
        return digest(self)


@dataclass(frozen=True)
class SumKey:
    """A client's key for one sum: its public half, and shares of the private one.

    Each share is sealed for one client. The client makes the key again from the ``nonce``.
    """

    nonce: str
    public: str
    shares: Mapping[ClientId, Bytes]

    def for_client(self, name: ClientId) -> "SumKey":
        """With the share for one client only."""
        return replace(self, shares={name: self.shares[name]})


@dataclass(frozen=True)
class PrepareMasks:
    """A question, once in a run: the client's key for its first sum."""

    terms: SumTerms

    def for_client(self, name: ClientId) -> "PrepareMasks":
        """The same for all."""
        return self


@dataclass(frozen=True)
class MaskedAsk:
    """A question about rows; what is needed as a sum only is answered under masks.

    The sum is over the clients that ``sum_keys`` names. ``least_weights`` has, for each point that
    wants curvature, how much every client's part weighs at least.
    """

    question: OnRows
    terms: SumTerms
    sum_keys: Mapping[ClientId, SumKey]
    least_weights: tuple[float, ...] = ()

    @property
    def setup(self) -> Setup:
        """The setup of the request about rows."""
        return self.question.setup

    @property
    def curved(self) -> tuple[Point, ...]:
        """The points that want curvature."""
        points = self.question.request.points if isinstance(self.question, Evaluate) else ()
        return tuple(point for point in points if point.want == "curvature")

    def for_client(self, name: ClientId) -> "MaskedAsk":
        """With the client's own weights, budgets and shares only."""
        keys = {peer: key.for_client(name) for peer, key in self.sum_keys.items()}
        return replace(self, question=self.question.for_client(name), sum_keys=keys)

    @cached_property
    def points_digest(self) -> str:
        """Identifies what is reported on: the model, the rates, which are summed, the points."""
        setup, question = self.setup, self.question
        model = setup.model if is_dataclass(setup.model) else type(setup.model).__name__
        scopes = tuple((rule.metric, rule.attribute, rule.scope) for rule in setup.rules)
        common: object = replace(question, setup=Setup(None, ()))
        if isinstance(question, Evaluate):
            points = question.request.points
            common = tuple(replace(point, curvature_weights=None, extras=()) for point in points)
        return digest((model, setup.rates, setup.min_group_rows, scopes, common))

    @cached_property
    def sum_digest(self) -> str:
        """Identifies the sum: all that must be the same for every client that takes part."""
        keys = {name: self.sum_keys[name].public for name in sorted(self.sum_keys)}
        return digest((self.terms, keys, self.least_weights, self.points_digest))


@dataclass(frozen=True)
class Unmask:
    """A question: shares that open a sum.

    ``self_shares`` are those of clients whose masked answers are in it, ``sum_keys`` the keys of
    clients that were to take part and did not answer.
    """

    terms: SumTerms
    sum_digest: str
    self_shares: Mapping[ClientId, Mapping[ClientId, Bytes]]
    sum_keys: Mapping[ClientId, SumKey]

    def for_client(self, name: ClientId) -> "Unmask":
        """With what is sealed for one client only."""
        shares = {peer: {name: sealed[name]} for peer, sealed in self.self_shares.items()}
        keys = {peer: key.for_client(name) for peer, key in self.sum_keys.items()}
        return replace(self, self_shares=shares, sum_keys=keys)


MaskQuestion: TypeAlias = PrepareMasks | MaskedAsk | Unmask


@dataclass(frozen=True)
class MaskedAnswer:
    """An answer without what is summed; all that is summed together as ``words`` under masks.

    ``self_shares`` are those of the client's self-mask, to which ``commitment`` binds it. A client
    that is not in the sum sends no words. ``next_key`` is its key for the next sum.
    """

    answer: tuple[Report, ...] | Counted
    words: NDArray[np.uint64]
    self_shares: Mapping[ClientId, Bytes]
    commitment: str
    next_key: SumKey


@dataclass(frozen=True)
class Revealed:
    """One share for each client of a sum: of its self-mask, or of its key if it dropped out."""

    shares: Mapping[ClientId, Bytes]
