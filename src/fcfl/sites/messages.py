"""All messages between server and sites: requests and responses, as bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fcfl._types import ClientId, Report
from fcfl.client.client import (
    Counted,
    Introduction,
    Question,
)
from fcfl.data import Columns
from fcfl.data.cells import Schema
from fcfl.data.table import SITE
from fcfl.extras import LocalTraining
from fcfl.federation.serialise import Serialiser, peek
from fcfl.models.influence import GradientSpread, LeaveOneOut
from fcfl.models.linear import Linear
from fcfl.models.loss import LOSSES
from fcfl.policy import Ballot
from fcfl.privacy import Release
from fcfl.sites.named_module import NamedModule


@dataclass(frozen=True)
class Terms:
    """The role of each column, and how test rows are held out."""

    label: str
    sensitive: tuple[str, ...]
    drop: tuple[str, ...] = ()
    positive: str | None = None
    test_size: float = 0.3
    seed: int = 0
    drop_unlabelled: bool = False

    @property
    def columns(self) -> Columns:
        """The role of each column in every site's table."""
        return Columns(SITE, self.label, self.sensitive, self.drop, self.positive)


@dataclass(frozen=True)
class Agreement:
    """How all sites encode their rows.

    ``checksums`` identify each site's own files, which must not change during a run.
    """

    terms: Terms
    labels: tuple[str, str]
    levels: Mapping[str, tuple[str, ...]]
    schema: Schema
    checksums: Mapping[ClientId, str]


@dataclass(frozen=True)
class Introduce:
    """Request a site's introduction: its name, and statistics of its columns."""

    terms: Terms


@dataclass(frozen=True)
class Ask:
    """A request about rows that are encoded as ``agreement`` defines."""

    agreement: Agreement
    question: Question


@dataclass(frozen=True)
class Answer:
    """A site's response, with the site's name."""

    name: ClientId
    content: "Introduction | tuple[Report, ...] | Counted | Ballot | Refusal"


@dataclass(frozen=True)
class Refusal:
    """The reason why a site rejects a request."""

    sentence: str


ToSite: TypeAlias = Introduce | Ask

EXTRAS = (LocalTraining, GradientSpread, LeaveOneOut, Release)
"""Extras that sites support beside losses, rates and curvature; each is a sum over many rows."""

_QUESTIONS = Serialiser(Introduce | Ask, also=(Linear, NamedModule, *EXTRAS, *LOSSES.values()))
_ANSWERS = Serialiser(Answer)


def encode_message(message: ToSite | Answer) -> bytes:
    """Return a message as bytes."""
    return (_ANSWERS if isinstance(message, Answer) else _QUESTIONS).dump(message)


def decode_question(message: bytes) -> ToSite:
    """Return the server's request; raise `WireError` for any other bytes."""
    question: ToSite = _QUESTIONS.load(message)
    return question


def decode_answer(message: bytes) -> Answer:
    """Return a site's response; its types are checked, its values are not."""
    answer: Answer = _ANSWERS.load(message)
    return answer


def claimed_name(message: bytes) -> ClientId | None:
    """Return the name in a response that cannot be decoded, so that errors can name the site."""
    return peek(message, "name")
