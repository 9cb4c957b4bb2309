"""Clients: the requests they answer, and a client whose rows are in memory."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from fcfl import __version__
from fcfl import policy as policies
from fcfl._types import ClientId, Point, RateId, Report, Request, Vector
from fcfl.client.counts import Counts, count_rows, count_scores
from fcfl.client.thresholds import RateWindow, best_thresholds, decision_weights
from fcfl.data import Schema, Statistics
from fcfl.data.client_data import ClientData
from fcfl.errors import DataError
from fcfl.models.kernels import CurvatureSum
from fcfl.models.model import (
    GroupThresholds,
    Model,
    ModelRows,
    at_threshold,
    rate_members,
    rows_behind,
    score_sums,
    smooth_selection,
)
from fcfl.rules import Rule, check_budget_clients


@dataclass(frozen=True)
class Setup:
    """The model, the rates in their order, and the rules in force.

    Groups with fewer than ``min_group_rows`` rows are not compared. With ``thresholds`` the
    decisions that are counted use them.
    """

    model: Any  # a `fcfl.models.model.Model`
    rates: tuple[RateId, ...]
    rules: tuple[Rule, ...] = ()
    min_group_rows: float = 1.0
    thresholds: GroupThresholds | None = None

    def for_client(self, name: ClientId) -> "Setup":
        """Return the setup without budgets and thresholds of other clients."""
        rules = tuple(_own_budget(name, rule) for rule in self.rules)
        thresholds = None if self.thresholds is None else self.thresholds.for_client(name)
        return replace(self, rules=rules, thresholds=thresholds)


def _own_budget(name: ClientId, rule: Rule) -> Rule:
    if not isinstance(rule.budget, Mapping):
        return rule
    own = rule.budget.get(name)
    return replace(rule, budget=None if own is None else {name: own})


@dataclass(frozen=True)
class Evaluate:
    """Request reports at these points."""

    setup: Setup
    request: Request

    def for_client(self, name: ClientId) -> "Evaluate":
        """Return the request with this client's weights and budgets only."""
        points = tuple(_own_weights(name, point) for point in self.request.points)
        return Evaluate(self.setup.for_client(name), Request(points))


@dataclass(frozen=True)
class Count:
    """Request counts of a model's decisions on training and held-out rows."""

    setup: Setup
    params: Vector

    def for_client(self, name: ClientId) -> "Count":
        """Return the request with this client's budgets only."""
        return replace(self, setup=self.setup.for_client(name))


@dataclass(frozen=True)
class Vote:
    """Request a ballot on the choices offered, by a preference that stays with the client.

    ``choices`` has each client's own figures, computed from its own counts.
    """

    choices: Mapping[ClientId, policies.Choices]

    def for_client(self, name: ClientId) -> "Vote":
        """Return the request with this client's choices only."""
        return Vote({name: self.choices[name]})


OnRows: TypeAlias = Evaluate | Count
"""A request about rows, under a model."""
Question: TypeAlias = OnRows | Vote


def _own_weights(name: ClientId, point: Point) -> Point:
    weights = point.curvature_weights
    own = None if weights is None else {name: weights[name]}
    extras = tuple(extra.for_client(name) for extra in point.extras)
    return replace(point, curvature_weights=own, extras=extras)


@dataclass(frozen=True)
class Introduction:
    """A client's description of itself, sent before the first request.

    ``levels`` are the groups of each sensitive attribute, in the order of the rates; ``present``
    are those with training rows here. ``rules`` are the client's own, which the rules in force must
    keep. Groups with fewer than ``min_group_rows`` rows are not reported.

    Clients whose tables are not encoded yet add labels and statistics of their columns, without
    levels and groups of fewer than ``withhold_below`` rows. A client with a ``privacy`` budget
    answers releases only and sends its declared ``schema``. Without ``sends_spread`` its policy
    forbids `GradientSpread`.
    """

    name: ClientId
    levels: Mapping[str, tuple[str, ...]]
    present: Mapping[str, tuple[str, ...]]
    rules: tuple[Rule, ...] = ()
    min_group_rows: int = 1
    version: str = __version__
    checksum: str = ""
    labels: tuple[str, ...] = ()
    statistics: Statistics | None = None
    withhold_below: int = 1
    policy_sha256: str | None = None
    privacy: policies.PrivacyBudget | None = None
    schema: Schema | None = None
    sends_spread: bool = True


def rules_in_force(
    rules: Sequence[Rule], introductions: Mapping[ClientId, Introduction]
) -> tuple[Rule, ...]:
    """Return the stricter of the run's rules and each client's own."""
    names = list(introductions)
    check_budget_clients(rules, names)
    merged = tuple(rules)
    for name, said in introductions.items():
        own: list[Rule] = []
        for rule in said.rules:
            if rule.attribute not in said.levels:
                known = ", ".join(map(repr, said.levels))
                raise DataError(
                    f"Client {name!r} has a policy on {rule.attribute!r}, which must be one of the "
                    f"run's sensitive columns, got {known}."
                )
            if rule.scope != "global":  # binds this client and nobody else
                budget = rule.budget_of(name)
                rule = replace(rule, budget=None if budget is None else {name: budget})
            own.append(rule)
        merged = policies.stricter(merged, tuple(own), names)
    return merged


def all_levels(introductions: Mapping[ClientId, Introduction]) -> dict[str, tuple[str, ...]]:
    """Return the groups of each attribute at all clients, in the order in which they are met."""
    found: dict[str, dict[str, None]] = {}
    for said in introductions.values():
        for attribute, levels in said.levels.items():
            found.setdefault(attribute, {}).update(dict.fromkeys(levels))
    return {attribute: tuple(levels) for attribute, levels in found.items()}


@dataclass(frozen=True)
class Counted:
    """Hard counts of a client's rows under a model, and its smooth report on the training rows.

    ``decided`` are the hard rates of the training rows by weight; counts ignore weights.
    """

    report: Report
    train: Counts
    test: Counts
    decided: Vector | None = None

    @property
    def rates(self) -> Vector:
        """Share of each group's training rows that are selected."""
        if self.decided is not None:
            return self.decided
        return np.asarray(self.train.group_selected / np.maximum(self.train.group_counts, 1.0))


class Client(Protocol):
    """An object that answers requests about its rows.

    The methods `report_into`, `choose_thresholds` and `vote` of `LocalClient` are optional.
    """

    def introduce(self) -> Introduction:
        """Return the client's description of itself."""
        ...

    def report(self, setup: Setup, points: Sequence[Point]) -> tuple[Report, ...]:
        """Return one report per point, on the training rows."""
        ...

    def count(self, setup: Setup, params: Vector) -> Counted:
        """Count a model's decisions on the training and on the held-out rows."""
        ...


class LocalClient:
    """Training and held-out rows of one client, encoded.

    Requests under rules looser than the client's own ``rules`` are rejected. Groups with fewer than
    ``min_group_rows`` rows are not reported. ``model`` replaces the one that is trained, for
    instance by the same module on a device of the client's own. ``preference`` decides its votes.
    """

    def __init__(
        self,
        name: ClientId,
        train: ClientData,
        test: ClientData | None = None,
        *,
        rules: Sequence[Rule] = (),
        min_group_rows: int = 1,
        model: Model | None = None,
        sends_scores: bool = True,
        preference: policies.Preference = policies.Preference(),  # noqa: B008 - frozen
    ) -> None:
        self.name = name
        self.train = train
        self.test = train.take([]) if test is None else test
        self.rules, self.min_group_rows = tuple(rules), min_group_rows
        self.preference = preference
        self._model, self._sends_scores = model, sends_scores
        self._setup: Setup | None = None
        self._rows: ModelRows | None = None

    def under(self, policy: policies.Policy) -> "LocalClient":
        """Return a client with the same rows, and the rules and preference of its own policy."""
        client = copy(self)
        client.rules, client.min_group_rows = policy.rules([self.name]), policy.min_group_rows
        client.preference = policy.preference or policies.Preference()
        client._setup = client._rows = None
        return client

    def introduce(self) -> Introduction:
        """Return the names of the groups, and the client's own rules."""
        levels = self.train.levels
        present = {
            name: tuple(groups[code] for code in np.unique(self.train.groups[name]) if code >= 0)
            for name, groups in levels.items()
        }
        return Introduction(self.name, levels, present, self.rules, self.min_group_rows)

    def report(self, setup: Setup, points: Sequence[Point]) -> tuple[Report, ...]:
        """Return one report per point, on the training rows."""
        return tuple(self.rows(setup).report(point) for point in points)

    def report_into(
        self, setup: Setup, points: Sequence[Point], sums: Sequence[CurvatureSum | None]
    ) -> tuple[Report, ...]:
        """Return the reports, their curvatures added to the sums over clients, one per point."""
        rows: Any = self.rows(setup)
        return tuple(
            rows.report_into(point, total)
            if total is not None and hasattr(type(rows), "report_into")
            else add_own(rows.report(point), total)
            for point, total in zip(points, sums, strict=True)
        )

    def count(self, setup: Setup, params: Vector) -> Counted:
        """Return hard counts of all rows, and the smooth report on the training rows."""
        report, decisions = self.report(setup, (Point(params), Point(params, "decisions")))
        train, test = (self._counts(setup, part, params) for part in (self.train, self.test))
        if setup.thresholds is None:
            return Counted(report, train, test, decisions.rates)
        report = replace(report, rates=self._smooth_rates(setup, params, report))
        return Counted(report, train, test)

    def choose_thresholds(
        self, setup: Setup, params: Vector, attribute: str, windows: Sequence[RateWindow]
    ) -> Mapping[str, float]:
        """Return the threshold of each group with the most correct decisions within the windows."""
        policies.check_rules_kept(self.name, self.rules, setup.rules)
        data, codes = self.train, self.train.groups[attribute]
        model = self._model_of(setup)
        scores = model.logits(params, data.X) - model.cut
        members = {group: codes == code for code, group in enumerate(data.levels[attribute])}
        costs = decision_weights(data.y, model.threshold, data.weights)
        return best_thresholds(scores, data.y, members, windows, costs)

    def vote(self, question: Vote) -> policies.Ballot:
        """Return the client's ballot, by its own preference."""
        return self.preference.cast_ballot(question.choices[self.name])

    def rows(self, setup: Setup) -> ModelRows:
        """Return the rows under the model, cached for the next request."""
        if setup.thresholds is not None:
            setup = replace(setup, thresholds=None)  # reports do not depend on them
        if setup != self._setup or self._rows is None:
            policies.check_rules_kept(self.name, self.rules, setup.rules)
            model = self._model_of(setup)
            rows: ModelRows = model.rows(self.name, self.train, setup.rates)
            if self.min_group_rows > 1:
                rows = rows.with_groups_of(self.min_group_rows)
            self._setup, self._rows = setup, rows
        return self._rows

    def _counts(self, setup: Setup, data: ClientData, params: Vector) -> Counts:
        model = self._model_of(setup)
        logits = model.logits(params, data.X)
        counts = count_rows(logits, data, setup.rates, self._cuts(setup, data), model.loss)
        if self._sends_scores and model.loss.has_probabilities:
            asked = dict.fromkeys(rate.attribute for rate in setup.rates)
            groups = {attribute: data.groups[attribute] for attribute in asked}
            scores = count_scores(model.loss.scores(logits), data.y, groups, data.levels)
            counts = replace(counts, scores=scores)
        return counts.with_groups_of(self.min_group_rows)

    def _model_of(self, setup: Setup) -> Model:
        """Return the model that is trained, or the client's own at the same threshold."""
        if self._model is None:
            return cast(Model, setup.model)
        self._model = at_threshold(self._model, setup.model.threshold)
        return self._model

    def _cuts(self, setup: Setup, data: ClientData) -> Vector | float:
        """Return the logit from which on each row is selected."""
        cut = self._model_of(setup).cut
        if setup.thresholds is None:
            return cut
        return cut + setup.thresholds.of_data(self.name, data)

    def _smooth_rates(self, setup: Setup, params: Vector, report: Report) -> Vector:
        """Return the smooth rates of the training rows about the thresholds of their groups."""
        data = self.train
        logits = self._model_of(setup).logits(params, data.X)
        score = smooth_selection(logits, self._cuts(setup, data))
        members = rate_members(data, setup.rates, self.name)
        if data.weights is not None:
            members *= data.weights[:, None]
        rates = score_sums(score, members) / np.maximum(rows_behind(members), 1e-300)
        return np.where(report.group_counts > 0, np.clip(rates, 0.0, 1.0), 0.0)


def add_own(report: Report, total: CurvatureSum | None) -> Report:
    """Return the report without its curvature, which is added to ``total``."""
    if total is None or report.curvature is None:
        return report
    total.add(report.curvature)
    return replace(report, curvature=None)
