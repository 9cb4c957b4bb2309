"""The sites as a runtime: the same question as in one process, asked by letter."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fcfl._types import ClientId, Point, Report, Reports, Request, Vector
from fcfl.errors import AbsentClientError, ReportError
from fcfl.federation.arrivals import check_counted, check_introduction, check_reported
from fcfl.federation.exchange import Correspondence, Traffic
from fcfl.federation.messages import (
    Agreement,
    Answer,
    Count,
    Counted,
    Evaluate,
    Introduction,
    Reported,
    Terms,
)
from fcfl.federation.transport import Post
from fcfl.rules import Rule

T = TypeVar("T")


class Sites:
    """Sites that hold their own rows. One that does not answer, or not well, is left out.

    ``failures`` says why, for those left out of the last exchange.
    """

    def __init__(
        self,
        post: Post,
        names: Sequence[ClientId],
        terms: Terms,
        *,
        timeout: float = 600.0,
        on_message: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._letters = Correspondence(post, names, terms, timeout=timeout, on_message=on_message)
        self._agreement: Agreement | None = None
        self._counted: tuple[Vector, Reports] | None = None

    @property
    def names(self) -> tuple[ClientId, ...]:
        """All sites of the run, sorted as text."""
        return self._letters.names

    @property
    def traffic(self) -> Mapping[ClientId, Traffic]:
        """What each site has cost so far."""
        return self._letters.traffic

    @property
    def exchanges(self) -> int:
        """How often all sites were asked something."""
        return self._letters.exchanges

    @property
    def failures(self) -> Mapping[ClientId, str]:
        """Why sites were left out of the last exchange."""
        return self._letters.failures

    def meet(self) -> dict[ClientId, Introduction]:
        """What every site says of itself; all must come."""

        def check(answer: Answer) -> None:
            if isinstance(answer, Introduction):
                check_introduction(answer)

        return self._letters.meet(check)

    def agree(self, agreement: Agreement) -> None:
        """From now on questions are asked on these terms."""
        self._agreement = agreement

    def evaluate(self, request: Request) -> Reports:
        """Every site's reports on every point, of those that answered."""
        known = self._already_counted(request)
        if known is not None:
            return known
        agreement = self._agreed()
        n_rates = len(agreement.rates)

        def check(answer: Answer) -> None:
            check_reported(_expect(answer, Reported), request, n_rates)

        answers = self._letters.ask(
            lambda name: Evaluate(agreement_for(name, agreement), request_for(name, request)),
            check,
        )
        return {name: _expect(found, Reported).reports for name, found in answers.items()}

    def count(self, params: Vector) -> dict[ClientId, Counted]:
        """Hard counts of every site's rows under a model; all must answer."""
        agreement = self._agreed()

        def check(answer: Answer) -> None:
            check_counted(_expect(answer, Counted), Point(params), len(agreement.rates))

        answers = self._letters.ask(
            lambda name: Count(agreement_for(name, agreement), params), check
        )
        if self.failures:
            name, sentence = next(iter(self.failures.items()))
            raise AbsentClientError(
                f"Site {name!r} did not say how the model does on its rows: {sentence} "
                "Resume when it is back."
            )
        counted = {name: _expect(found, Counted) for name, found in answers.items()}
        reports: dict[ClientId, tuple[Report, ...]] = {c: (counted[c].report,) for c in counted}
        self._counted = (params, reports)
        return counted

    def _already_counted(self, request: Request) -> Reports | None:
        """Reports on a model whose rows were just counted cost no second exchange."""
        if self._counted is None or len(request.points) != 1:
            return None
        params, reports = self._counted
        point = request.points[0]
        is_known = point.want == "values" and np.array_equal(point.params, params)
        return reports if is_known else None

    def _agreed(self) -> Agreement:
        if self._agreement is None:
            raise ValueError("`agree` must come before a question about rows.")
        return self._agreement


def agreement_for(name: ClientId, agreement: Agreement) -> Agreement:
    """The agreement without the budgets and checksums of others."""
    return replace(
        agreement,
        rules=tuple(_budget_of(name, rule) for rule in agreement.rules),
        checksums={name: agreement.checksums[name]},
    )


def _budget_of(name: ClientId, rule: Rule) -> Rule:
    if not isinstance(rule.budget, Mapping):
        return rule
    own = rule.budget.get(name)
    return replace(rule, budget=None if own is None else {name: own})


def request_for(name: ClientId, request: Request) -> Request:
    """The request with the weights of one client only: the others' are not its business."""
    points = []
    for point in request.points:
        weights = point.curvature_weights
        if weights is not None:
            point = replace(point, curvature_weights={name: weights[name]})
        points.append(point)
    return Request(tuple(points))


def _expect(answer: Answer, kind: type[T]) -> T:
    if not isinstance(answer, kind):
        sent, wanted = type(answer).__name__, kind.__name__
        raise ReportError(f"Client {answer.name!r} sent {sent} instead of {wanted}.")
    return answer
