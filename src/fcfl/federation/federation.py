"""Send requests to all clients and check their responses. Callers have no access to rows.

Each response is checked once, on arrival: shapes, finite numbers and possible counts.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from fcfl._checks import LARGEST, check_curvature_sum, check_report, is_count, is_finite
from fcfl._types import (
    ROW_SIGNS,
    ClientId,
    Point,
    RateId,
    RateKind,
    Report,
    Reports,
    Request,
    SummedReports,
    Vector,
    without_curvature,
)
from fcfl.client.client import (
    Client,
    Count,
    Counted,
    Evaluate,
    Introduction,
    LocalClient,
    Question,
    Setup,
    Vote,
    add_own,
)
from fcfl.client.counts import Counts
from fcfl.client.thresholds import RateWindow
from fcfl.data import Schema, Statistics
from fcfl.data.cells import Summary
from fcfl.data.client_data import ClientData
from fcfl.errors import AbsentClientError, FCFLError, ReportError
from fcfl.federation.loop import ExchangeCount, Phase
from fcfl.models.kernels import CurvatureSum
from fcfl.policy import Ballot, Choices, Policy, PrivacyBudget, places
from fcfl.rules import Rule

Check = Callable[[ClientId, Any], None]
CheckReports = Callable[..., None]
"""Function that checks the reports of a client, optionally for other points."""


class Federation:
    """Clients by name, as objects in this process.

    Each response is checked on arrival. `ReportError` names the sender of an invalid response.
    `RemoteFederation` sends the same requests as messages to sites.
    """

    clients_have_rows: ClassVar[bool] = False  # in-process clients may evaluate formulas

    def __init__(self, clients: Mapping[ClientId, Client]) -> None:
        if not clients:
            raise ValueError("`clients` must name at least one client, got none.")
        self._clients = dict(clients)
        self._known_counts = KnownCounts()
        self._exchanges = ExchangeCount()

    @classmethod
    def from_rows(
        cls,
        train: Mapping[ClientId, ClientData],
        test: Mapping[ClientId, ClientData] | None = None,
        *,
        privacy: PrivacyBudget | None = None,
    ) -> "Federation":
        """Return a federation of clients with training rows and optional held-out rows in memory.

        With a ``privacy`` budget for each client, clients add noise to all reports.
        """
        make: Callable[..., Client] = LocalClient
        if privacy is not None:
            from fcfl.client.private import PrivateClient

            make = partial(PrivateClient, privacy=privacy)
        held_out = test or {}
        return cls({name: make(name, rows, held_out.get(name)) for name, rows in train.items()})

    @property
    def names(self) -> tuple[ClientId, ...]:
        """Return the names of all clients in the server's order."""
        return tuple(self._clients)

    @property
    def failures(self) -> Mapping[ClientId, str]:
        """Return the reason why each absent client missed the last exchange; in-process, empty."""
        return {}

    @property
    def exchanges(self) -> ExchangeCount:
        """Return the number of requests by phase, shared with federations derived from this one."""
        return self._exchanges

    def phase(self, phase: Phase) -> AbstractContextManager[None]:
        """Count exchanges under ``phase`` inside a ``with`` statement."""
        return self.exchanges.in_phase(phase)

    def introduce(self) -> dict[ClientId, Introduction]:
        """Return every client's introduction."""
        self.exchanges.add()
        introductions = {name: client.introduce() for name, client in self._clients.items()}
        for name, introduction in introductions.items():
            check_introduction(name, introduction)
        return introductions

    def report(self, setup: Setup, request: Request) -> Reports:
        """Return the reports, one per point, of each client that responded."""
        of_rows, n_rates = self.clients_have_rows, len(setup.rates)

        def check(name: ClientId, answer: Any, points: tuple[Point, ...] = request.points) -> None:
            check_reports(name, answer, points, n_rates, of_rows=of_rows)
            for report in answer:
                self._check_rows(name, setup, report)

        return self._evaluate(Evaluate(setup, request), check)

    def count(self, setup: Setup, params: Vector) -> dict[ClientId, Counted]:
        """Return counts of a model's decisions on each client's rows; all clients must respond."""
        of_rows = self.clients_have_rows

        def check(name: ClientId, answer: Any) -> None:
            check_counted(name, answer, params, setup.rates, of_rows=of_rows)
            self._check_rows(name, setup, answer.report)
            self._check_rows(name, setup, answer.test, "held out")

        counted = self._ask(Count(setup, params), check)
        self.check_all_answered("how the model does on its rows")
        return counted

    def check_chooses_thresholds(self) -> None:
        """Raise `FCFLError` before training if a client cannot choose thresholds."""
        for name, client in self._clients.items():
            optional(client, "choose_thresholds", "`thresholds` 'group'", name)

    def choose_thresholds(
        self,
        setup: Setup,
        params: Vector,
        attribute: str,
        windows: Mapping[ClientId, tuple[RateWindow, ...]],
    ) -> dict[ClientId, Mapping[str, float]]:
        """Return each client's thresholds: the smallest selected logit of each group."""
        self.check_chooses_thresholds()
        self.exchanges.add()
        chosen = {}
        for name, client in self._clients.items():
            own = windows.get(name, ())
            choose = optional(client, "choose_thresholds", "`thresholds` 'group'", name)
            chosen[name] = choose(setup.for_client(name), params, attribute, own)
            check_thresholds(name, chosen[name], own)
        return chosen

    def vote(self, choices: Mapping[ClientId, Choices]) -> dict[ClientId, Ballot]:
        """Return each client's ballot on its offers; all clients must respond."""

        def check(name: ClientId, answer: Any) -> None:
            check_ballot(name, answer, choices[name])

        ballots = self._ask(Vote(choices), check)
        self.check_all_answered("which budgets it can live with")
        return ballots

    def under(self, policies: Mapping[ClientId, Policy]) -> "Federation":
        """Return a federation in which the given clients have policies, as at sites."""
        clients = dict(self._clients)
        for name, policy in policies.items():
            clients[name] = optional(clients[name], "under", "a policy of its own", name)(policy)
        return self._sharing(clients)

    def bind(self, setup: Setup) -> "Bound":
        """Return the federation with a fixed setup, for the training loop."""
        return Bound(self, setup)

    def only(self, name: ClientId) -> "Federation":
        """Return a federation of one client."""
        return self._sharing({name: self._clients[name]})

    def _sharing(self, clients: Mapping[ClientId, Client]) -> "Federation":
        """Return a federation of ``clients`` that shares this federation's exchange count."""
        other = Federation(clients)
        other._exchanges = self.exchanges
        return other

    def _evaluate(self, question: Evaluate, check: CheckReports) -> Reports:
        """Return each client's checked reports; curvatures are summed on arrival."""
        if all(point.want != "curvature" for point in question.request.points):
            return self._ask(question, check)
        return self._evaluate_curved(question, check)

    def _evaluate_curved(self, question: Evaluate, check: CheckReports) -> Reports:
        """Return each client's reports without curvatures, and the sums of the curvatures.

        Matrices that clients send are checked one by one. Matrices that `report_into` adds in place
        are checked only as a sum.
        """
        self.exchanges.add()
        points = question.request.points
        bare = without_curvature(points)
        sums = [CurvatureSum(p.params.size) if p.want == "curvature" else None for p in points]
        reports: dict[ClientId, tuple[Report, ...]] = {}
        for name, client in self._clients.items():
            report_into = getattr(client, "report_into", None)
            if report_into is not None:
                said = report_into(question.setup, points, sums)
                check(name, said, bare)
            else:
                said = client.report(question.setup, points)
                check(name, said)
                said = tuple(add_own(report, one) for report, one in zip(said, sums, strict=True))
            reports[name] = said
        totals = [None if one is None else one.total for one in sums]
        for total in totals:
            if total is not None:
                check_curvature_sum(total)
        return SummedReports(reports, totals)

    def _ask(self, question: Question, check: Check) -> dict[ClientId, Any]:
        """Return each client's checked response."""
        self.exchanges.add()
        answers = {name: answer(client, question) for name, client in self._clients.items()}
        for name, said in answers.items():
            check(name, said)
        return answers

    def _check_rows(
        self, name: ClientId, setup: Setup, said: Report | Counts, part: Hashable = None
    ) -> None:
        """Raise `ReportError` if row counts of a site change during a run."""
        if self.clients_have_rows:
            about = (part, setup.rates, setup.min_group_rows)
            self._known_counts.check(name, about, said.n_rows, said.group_counts)

    def check_all_answered(self, what: str) -> None:
        """Raise `AbsentClientError` if a client did not answer the last request."""
        for name, sentence in self.failures.items():
            raise AbsentClientError(
                f"Client {name!r} did not report {what}: {sentence} Resume when it is back."
            )


def answer(client: Client, question: Question) -> Any:
    """Return the response of a client, in-process or at a site."""
    if isinstance(question, Evaluate):
        return client.report(question.setup, question.request.points)
    if isinstance(question, Count):
        return client.count(question.setup, question.params)
    return optional(client, "vote", "a negotiation")(question)


def optional(client: Client, method: str, purpose: str, name: ClientId = "") -> Any:
    """Return an optional method of a client; raise `FCFLError` if the client lacks it."""
    if not hasattr(client, method):
        who = f"Client {name!r}" if name else "This client"
        raise FCFLError(f"{who} has no `{method}`, which {purpose} needs.")
    return getattr(client, method)


@dataclass(frozen=True)
class Bound:
    """Federation with a fixed setup, as a runtime of the training loop."""

    federation: Federation
    setup: Setup

    def evaluate(self, request: Request) -> Reports:
        """Return each client's reports on the points of the request."""
        return self.federation.report(self.setup, request)


def check_introduction(name: ClientId, said: Introduction) -> None:
    """Raise `ReportError` for invalid names, statistics, labels or policy of an introduction."""
    if not isinstance(said, Introduction):
        raise ReportError(f"Client {name!r} sent no introduction.")
    if said.name != name:
        raise ReportError(f"Client {name!r} sent the introduction of {said.name!r}.")
    texts = [said.version, said.checksum, *said.labels, *said.levels, *said.present]
    for levels in (*said.levels.values(), *said.present.values()):
        texts += levels
    _expect(name, "names", all(isinstance(text, str) for text in texts))
    _expect(name, "rules", all(isinstance(rule, Rule) for rule in said.rules))
    counts = (said.min_group_rows, said.withhold_below)
    _expect(name, "policy counts", all(is_count(n) and n >= 1 for n in counts))
    _expect(name, "what it sends", isinstance(said.sends_spread, bool))
    sha256 = said.policy_sha256
    _expect(name, "a policy checksum", sha256 is None or isinstance(sha256, str))
    _expect(name, "privacy", said.privacy is None or isinstance(said.privacy, PrivacyBudget))
    _expect(name, "schema", said.schema is None or isinstance(said.schema, Schema))
    if said.statistics is None:
        return
    _expect(name, "statistics", isinstance(said.statistics, Statistics))
    for column, summary in said.statistics.columns.items():
        valid = isinstance(summary, Summary) and summary.is_valid()
        _expect(name, f"statistics of column {column!r}", valid)


def check_site_introduction(name: ClientId, said: Introduction) -> None:
    """Check an introduction, which must have statistics or a schema for a common encoding."""
    check_introduction(name, said)
    _expect(name, "statistics", said.statistics is not None or said.schema is not None)


def check_reports(
    name: ClientId,
    answers: object,
    points: tuple[Point, ...],
    n_rates: int,
    *,
    of_rows: bool = False,
) -> None:
    """Raise `ReportError` unless there is one valid report for each point."""
    if not isinstance(answers, (tuple, list)):
        kind = type(answers).__name__
        raise ReportError(f"Client {name!r} sent one {kind}, expected a tuple of reports.")
    if len(answers) != len(points):
        raise ReportError(
            f"Client {name!r} sent {len(answers)} reports for a request of {len(points)} points."
        )
    for point, report in zip(points, answers, strict=True):
        check_report(name, report, point, n_rates, of_rows=of_rows)


def check_counted(
    name: ClientId,
    said: Counted,
    params: Vector,
    rates: Sequence[RateId],
    *,
    of_rows: bool = False,
) -> None:
    """Raise `ReportError` for counts that are negative, of other groups or above the row count.

    If ``of_rows``, counts and report must have the same number of training rows.
    """
    if not isinstance(said, Counted):
        raise ReportError(f"Client {name!r} sent {type(said).__name__} instead of counts.")
    check_report(name, said.report, Point(params), len(rates), of_rows=of_rows)
    decided = said.report if said.decided is None else replace(said.report, rates=said.decided)
    check_report(name, decided, Point(params, "decisions"), len(rates), of_rows=of_rows)
    for part, counts in (("training", said.train), ("held-out", said.test)):
        _expect(name, f"counts of its {part} rows", _are_counts(counts, rates))
    if of_rows:
        alike = said.train.n_rows == said.report.n_rows
        alike = alike and np.array_equal(said.train.group_counts, said.report.group_counts)
        _expect(name, "counts of its training rows", bool(alike) or not said.train.n_rows)


def check_thresholds(name: ClientId, said: object, windows: Sequence[RateWindow]) -> None:
    """Raise `ReportError` unless each group of the windows has one finite threshold."""
    groups = {group for window in windows for group in window.groups}
    holds = isinstance(said, Mapping) and set(said) == groups
    _expect(name, "thresholds", holds and all(map(is_finite, said.values())))  # type: ignore[attr-defined]


def check_ballot(name: ClientId, said: Ballot, choices: Choices) -> None:
    """Raise `ReportError` for missing or inconsistent approvals, ranks or gains of a ballot."""
    if not isinstance(said, Ballot):
        raise ReportError(f"Client {name!r} sent {type(said).__name__} instead of a ballot.")
    n_offers = len(choices.offers)
    holds = len(said.approves) == n_offers and all(isinstance(a, bool) for a in said.approves)
    _expect(name, "marks of what it approves", holds)
    holds = len(said.ranks) == n_offers and all(map(is_finite, said.ranks))
    ranks = np.array(said.ranks)
    _expect(name, "places of the offers", holds and np.array_equal(places(-ranks), ranks))
    holds = is_count(said.walks_to) and said.walks_to < len(choices.alone)
    _expect(name, "a model it would have alone", holds)
    if said.gains:
        holds = len(said.gains) == n_offers and all(map(is_finite, said.gains))
        holds = holds and all(abs(gain) <= 1 for gain in said.gains)
        marked = tuple(gain >= 0 for gain in said.gains)
        _expect(name, "gains", holds and marked == said.approves)


class KnownCounts:
    """Row counts and group counts of each client, which must not change during a run."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[float, ...]] = {}

    def check(self, name: ClientId, part: Hashable, n_rows: float, group_counts: Vector) -> None:
        """Raise `ReportError` if counts of a ``part`` of a client's rows have changed."""
        said = (float(n_rows), *map(float, group_counts))
        known = self._known.setdefault((name, part), said)
        if said != known:
            first, now = next((a, b) for a, b in zip(known, said, strict=True) if a != b)
            raise ReportError(
                f"Client {name!r} sent a row count of {now:g} where it had sent {first:g}; its "
                "rows must not change during a run."
            )


def _are_counts(counts: object, rates: Sequence[RateId]) -> bool:
    if not isinstance(counts, Counts):
        return False
    cells = (counts.true_negative, counts.false_positive, counts.false_negative)
    if not all(is_count(n) and n <= LARGEST for n in (*cells, counts.true_positive)):
        return False
    if not (is_finite(counts.loss_sum) and 0 <= counts.loss_sum <= LARGEST):
        return False
    for array in (counts.group_counts, counts.group_selected):
        if not isinstance(array, np.ndarray) or array.shape != (len(rates),):
            return False
        if array.dtype != np.float64 or not (array == np.floor(np.abs(array))).all():
            return False
    if not (counts.group_selected <= counts.group_counts).all():
        return False
    return all(_are_within(counts, rates, kind) for kind in ROW_SIGNS)


def _are_within(counts: Counts, rates: Sequence[RateId], kind: RateKind) -> bool:
    """Return whether the disjoint groups of each attribute have at most the rows of the client."""
    selected = counts.false_positive, counts.true_positive
    others = counts.true_negative, counts.false_negative
    signs = ROW_SIGNS[kind]
    most_selected = sum(
        (selected if sign > 0 else others)[label] for label, sign in enumerate(signs) if sign
    )
    most = sum(selected[label] + others[label] for label, sign in enumerate(signs) if sign)
    for attribute in {rate.attribute for rate in rates}:
        own = [(r.kind, r.attribute) == (kind, attribute) for r in rates]
        if (
            counts.group_selected[own].sum() > most_selected
            or counts.group_counts[own].sum() > most
        ):
            return False
    return True


def _expect(name: ClientId, what: str, holds: bool) -> None:
    if not holds:
        raise ReportError(f"Client {name!r} sent invalid {what}.")
