"""All that crosses the wire: questions of the server, and the answers of a site, as bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import TypeAlias, get_args

from fcfl import _types
from fcfl._types import ClientId, Report
from fcfl.client.counts import Counts
from fcfl.client.questions import (
    Count,
    Counted,
    Evaluate,
    Introduction,
    Question,
    Setup,
    Vote,
)
from fcfl.data import Columns, encoding, statistics
from fcfl.data.encoding import Schema
from fcfl.data.own_table import SITE
from fcfl.extras import LocalTraining, LossesByLabel
from fcfl.federation.masks.mask_messages import (
    MaskedAnswer,
    MaskedAsk,
    MaskQuestion,
    PrepareMasks,
    Revealed,
    SumKey,
    SumTerms,
    Unmask,
)
from fcfl.federation.wire import WireError, pack, unpack, unpack_tree
from fcfl.models import loss
from fcfl.models.gradient_spread import GradientSpread
from fcfl.models.leave_one_out import LeaveOneOut
from fcfl.models.linear import Linear
from fcfl.policy import PrivacyBudget
from fcfl.preference import Ballot, Choices, Figures
from fcfl.releases import Release
from fcfl.rules import Rule
from fcfl.sites.named_module import NamedModule


@dataclass(frozen=True)
class Terms:
    """Which columns have which part, and how rows are held out: known before anybody answers.

    In a ``masked`` run the server gets curvature as a sum over sites only.
    """

    label: str
    sensitive: tuple[str, ...]
    drop: tuple[str, ...] = ()
    positive: str | None = None
    test_size: float = 0.3
    seed: int = 0
    masked: bool = False
    drop_unlabelled: bool = False

    @property
    def columns(self) -> Columns:
        """The part that each column plays in every site's table."""
        return Columns(SITE, self.label, self.sensitive, self.drop, self.positive)


@dataclass(frozen=True)
class Agreement:
    """What all sites have agreed on: how their rows are encoded.

    ``checksums`` are those that the sites gave of their own files: rows must not change half way.
    """

    terms: Terms
    labels: tuple[str, str]
    levels: Mapping[str, tuple[str, ...]]
    schema: Schema
    checksums: Mapping[ClientId, str]


@dataclass(frozen=True)
class Introduce:
    """Who the site is, and what its columns hold."""

    terms: Terms


@dataclass(frozen=True)
class Ask:
    """A question about the site's rows, encoded as agreed."""

    agreement: Agreement
    question: Question | MaskQuestion


@dataclass(frozen=True)
class Answer:
    """What a site says, with its name; a refusal says why there is no answer."""

    name: ClientId
    content: (
        "Introduction | tuple[Report, ...] | Counted | Ballot | Refusal"
        " | SumKey | MaskedAnswer | Revealed"
    )


@dataclass(frozen=True)
class Refusal:
    """A site that cannot or will not answer says why."""

    sentence: str


ToSite: TypeAlias = Introduce | Ask

EXTRAS = (LocalTraining, LossesByLabel, GradientSpread, LeaveOneOut, Release)
"""What sites answer beyond losses, rates and curvature: sums over many rows, as gradients are."""

_VALUES: tuple[type, ...] = (
    *(Terms, Agreement, Counts, Setup, Linear, NamedModule, Choices, Figures, *EXTRAS),
    *(PrivacyBudget, SumTerms, SumKey, *get_args(Rule)),
    *(
        cls
        for module in (_types, encoding, statistics, loss)  # points and reports, columns, losses
        for cls in vars(module).values()
        if isinstance(cls, type) and is_dataclass(cls)
    ),
)
_QUESTIONS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(Introduce, Ask, Evaluate, Count, Vote),
        *(PrepareMasks, MaskedAsk, Unmask, *_VALUES),
    )
}
_ANSWERS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(Answer, Introduction, Counted, Ballot, Refusal),
        *(MaskedAnswer, Revealed, *_VALUES),
    )
}


def encode_message(message: ToSite | Answer) -> bytes:
    """A message as bytes."""
    return pack(message, _QUESTIONS | _ANSWERS)


def decode_question(message: bytes) -> ToSite:
    """What the server asks."""
    question = unpack(message, _QUESTIONS, strict=True)
    if not isinstance(question, ToSite):
        raise WireError(f"Expected a question, got {type(question).__name__}.")
    return question


def decode_answer(message: bytes) -> Answer:
    """What a site answers; its parts have their types, not yet their sense."""
    answer = unpack(message, _ANSWERS, strict=True)
    if not isinstance(answer, Answer):
        raise WireError(f"Expected an answer, got {type(answer).__name__}.")
    return answer


def claimed_name(message: bytes) -> ClientId | None:
    """The name in an answer that cannot be read otherwise, so that its sender can be told of."""
    try:
        name = unpack_tree(message, strict=True)[0]["fields"]["name"]
    except (WireError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None
