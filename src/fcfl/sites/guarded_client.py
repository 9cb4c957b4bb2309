"""A site's client: it answers as one in memory does, within the limits of the site's policy."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fcfl._types import ClientId, Point, RateId, Report, Vector
from fcfl.client.counts import Counts, count_rows
from fcfl.client.local_client import LocalClient
from fcfl.client.questions import Counted, Introduction, Setup, Vote
from fcfl.data import ClientData
from fcfl.errors import DataError
from fcfl.models.rates import hard_selection
from fcfl.preference import Ballot, Preference
from fcfl.rules import Rule
from fcfl.sites.withholding import (
    Decisions,
    ToldDecisions,
    told_rates,
    without_small_groups,
)


class GuardedClient:
    """Rows of which nothing is said that concerns fewer than ``least`` of them.

    ``folder`` has the decisions whose counts were told, by ``rows``, which identifies the rows and
    their order. With ``least`` 1 every answer is that of a `LocalClient`.
    """

    def __init__(
        self,
        name: ClientId,
        train: ClientData,
        test: ClientData | None,
        folder: Path,
        *,
        rows: str,
        least: int = 1,
        rules: Sequence[Rule] = (),
        min_group_rows: int = 1,
        preference: Preference = Preference(),  # noqa: B008 - frozen
    ) -> None:
        train = without_small_groups(train, least)
        test = None if test is None else without_small_groups(test, least)
        self._client = LocalClient(
            name,
            train,
            test,
            rules=rules,
            min_group_rows=min_group_rows,
            tells_scores=False,
            preference=preference,
        )
        self._folder, self._rows, self._least = folder, rows, least

    def introduce(self) -> Introduction:
        """A site introduces itself before its rows are encoded."""
        raise DataError("A site introduces itself by its table.")

    def report(self, setup: Setup, points: Sequence[Point]) -> tuple[Report, ...]:
        """One report per point."""
        if self._least == 1:
            return self._client.report(setup, points)
        return tuple(self._report(setup, point) for point in points)

    def count(self, setup: Setup, params: Vector) -> Counted:
        """Hard counts of all rows, and the smooth report on the training rows."""
        if self._least == 1:
            return self._client.count(setup, params)
        report, decisions = self.report(setup, (Point(params), Point(params, "decisions")))
        parts = (("train", self._client.train), ("test", self._client.test))
        train, test = (self._counts(setup, params, *part) for part in parts)
        return Counted(report, train, test, decisions.rates)

    def vote(self, question: Vote) -> Ballot:
        """The site's ballot: its preference is not about rows, and stays here."""
        return self._client.vote(question)

    def _report(self, setup: Setup, point: Point) -> Report:
        train = self._client.train
        setup = replace(setup, rates=tuple(told_rates(train, setup.rates, self._least)))
        (report,) = self._client.report(setup, (point,))
        if point.want != "decisions":
            return report
        decisions = self._settled(setup, point.params, "train", train)
        counts = _counted(decisions, train, setup.rates)
        counts = counts.with_groups_of(self._client.min_group_rows)
        rates = counts.group_selected / np.maximum(counts.group_counts, 1.0)
        confusion = np.array([
            *(counts.true_negative, counts.false_positive),
            *(counts.false_negative, counts.true_positive),
        ], dtype=np.float64)  # fmt: skip
        return replace(report, rates=rates, confusion=confusion)

    def _counts(self, setup: Setup, params: Vector, part: str, data: ClientData) -> Counts:
        """The counts of one part; of no row where there are too few."""
        if data.n_rows < self._least:
            data = data.take([])
        rates = told_rates(data, setup.rates, self._least)
        decisions = self._settled(setup, params, part, data)
        losses = setup.model.loss.each(setup.model.logits(params, data.X), data.y)
        counts = replace(_counted(decisions, data, rates), loss_sum=float(losses.sum()))
        return counts.with_groups_of(self._client.min_group_rows)

    def _settled(self, setup: Setup, params: Vector, part: str, data: ClientData) -> Decisions:
        """The model's decisions, or those told before that differ in too few rows."""
        decisions = hard_selection(setup.model.logits(params, data.X), setup.model.cut)
        if not decisions.size:
            return decisions
        digest = hashlib.sha256(f"{self._rows} {part}".encode()).hexdigest()[:32]
        return ToldDecisions(self._folder / f"told-{digest}.bits", self._least).settle(decisions)


def _counted(decisions: Decisions, data: ClientData, rates: Sequence[RateId]) -> Counts:
    """Counts of decisions; the loss is not known."""
    return replace(count_rows(np.where(decisions, 1.0, -1.0), data, rates, 0.0), loss_sum=0.0)
