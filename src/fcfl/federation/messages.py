"""All that crosses the wire: three questions of the server, and the answers of a site."""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import TypeAlias, get_args

from fcfl import _types
from fcfl._types import ClientId, RateId, Report, Request, Vector
from fcfl.client.counts import Counts
from fcfl.data import Category, CategorySummary, Number, NumberSummary, Schema, Statistics
from fcfl.federation.wire import WireError, pack, unpack
from fcfl.rules import Rule


@dataclass(frozen=True)
class Terms:
    """Which columns have which part, and how rows are held out: known before anybody answers."""

    label: str
    sensitive: tuple[str, ...]
    drop: tuple[str, ...] = ()
    positive: str | None = None
    test_size: float = 0.3
    seed: int = 0


@dataclass(frozen=True)
class Agreement:
    """What all sites have agreed on: how rows are encoded, what is compared, which rules hold.

    ``checksums`` are those that the sites gave of their own files: rows must not change half way.
    """

    terms: Terms
    labels: tuple[str, str]
    levels: Mapping[str, tuple[str, ...]]
    schema: Schema
    rates: tuple[RateId, ...]
    rules: tuple[Rule, ...]
    min_group_rows: int
    checksums: Mapping[ClientId, str]


@dataclass(frozen=True)
class Introduce:
    """A question: who the site is, and what its columns hold."""

    terms: Terms


@dataclass(frozen=True)
class Evaluate:
    """A question: what the site reports on these points."""

    agreement: Agreement
    request: Request


@dataclass(frozen=True)
class Count:
    """A question: how a model decides on the site's training and held-out rows."""

    agreement: Agreement
    params: Vector


@dataclass(frozen=True)
class Introduction:
    """A site's name, the statistics of its columns and its policy.

    Levels and groups that occur in fewer than ``withhold_below`` rows are not in it.
    """

    name: ClientId
    version: str
    checksum: str
    labels: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]
    statistics: Statistics
    rules: tuple[Rule, ...] = ()
    min_group_rows: int = 1
    withhold_below: int = 1
    policy_sha256: str | None = None


@dataclass(frozen=True)
class Reported:
    """A site's reports, one for each point."""

    name: ClientId
    reports: tuple[Report, ...]


@dataclass(frozen=True)
class Counted:
    """Hard counts of a site's rows, and its smooth report on the training rows."""

    name: ClientId
    report: Report
    train: Counts
    test: Counts


@dataclass(frozen=True)
class Refusal:
    """A site that cannot or will not answer says why."""

    name: ClientId
    sentence: str


Question: TypeAlias = Introduce | Evaluate | Count
Answer: TypeAlias = Introduction | Reported | Counted | Refusal

_VALUES: tuple[type, ...] = (
    Terms, Agreement, Counts, *get_args(Rule),
    Schema, Number, Category, Statistics, NumberSummary, CategorySummary,
    *(cls for cls in vars(_types).values() if isinstance(cls, type) and is_dataclass(cls)),
)  # fmt: skip
_QUESTIONS: dict[str, type] = {cls.__name__: cls for cls in (Introduce, Evaluate, Count, *_VALUES)}
_ANSWERS: dict[str, type] = {
    cls.__name__: cls for cls in (Introduction, Reported, Counted, Refusal, *_VALUES)
}


def seal(letter: Question | Answer) -> bytes:
    """A letter as bytes."""
    return pack(letter, _QUESTIONS | _ANSWERS)


def open_question(message: bytes) -> Question:
    """What the server asks."""
    question = unpack(message, _QUESTIONS)
    if not isinstance(question, Question):
        raise WireError(f"Expected a question, got {type(question).__name__}.")
    return question


def open_answer(message: bytes) -> Answer:
    """What a site answers; its parts have their types, not yet their sense."""
    answer = unpack(message, _ANSWERS)
    if not isinstance(answer, Answer):
        raise WireError(f"Expected an answer, got {type(answer).__name__}.")
    if not isinstance(answer.name, str):
        raise WireError(f"Expected a site's name, got {answer.name!r}.")
    return answer
