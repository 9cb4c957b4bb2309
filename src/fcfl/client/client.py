"""Requests to clients, and `LocalClient`, a client with its rows in memory."""

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
    """Model, rates in the order of all reports, and rules in force.

    Groups with fewer than ``min_group_rows`` rows are not compared. ``thresholds``, if given, are
    used for the decisions that are counted.
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
    """Request for reports at one or more points."""

    setup: Setup
    request: Request

    def for_client(self, name: ClientId) -> "Evaluate":
        """Return the request with this client's weights and budgets only."""
        points = tuple(_own_weights(name, point) for point in self.request.points)
        return Evaluate(self.setup.for_client(name), Request(points))


@dataclass(frozen=True)
class Count:
    """Request for counts of the decisions of a model on training and held-out rows."""

    setup: Setup
    params: Vector

    def for_client(self, name: ClientId) -> "Count":
        """Return the request with this client's budgets only."""
        return replace(self, setup=self.setup.for_client(name))


@dataclass(frozen=True)
class Vote:
    """Request for a ballot on ``choices``. The client's preference is not disclosed.

    ``choices`` maps each client to its results under each choice, computed from its own counts.
    """

    choices: Mapping[ClientId, policies.Choices]

    def for_client(self, name: ClientId) -> "Vote":
        """Return the request with this client's choices only."""
        return Vote({name: self.choices[name]})


OnRows: TypeAlias = Evaluate | Count
"""A request that is computed from rows under a model."""
Question: TypeAlias = OnRows | Vote


def _own_weights(name: ClientId, point: Point) -> Point:
    weights = point.curvature_weights
    own = None if weights is None else {name: weights[name]}
    extras = tuple(extra.for_client(name) for extra in point.extras)
    return replace(point, curvature_weights=own, extras=extras)


@dataclass(frozen=True)
class Introduction:
    """Description of a client, sent to the server before the first request.

    ``levels`` are the groups of each sensitive attribute, in the order of the rates. ``present``
    are the groups with training rows at the client. The rules in force must be at least as strict
    as the client's ``rules``. Groups with fewer than ``min_group_rows`` rows are not reported.

    If tables are not encoded yet, clients add labels and column statistics, without levels and
    groups of fewer than ``withhold_below`` rows. A client with a ``privacy`` budget responds to
    releases only and sends its declared ``schema``. ``sends_spread`` is false if the policy of the
    client forbids `GradientSpread`.
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
    """Merge the rules of the run with those of the clients, keeping the stricter budgets."""
    names = list(introductions)
    check_budget_clients(rules, names)
    merged = tuple(rules)
    for name, introduction in introductions.items():
        own: list[Rule] = []
        for rule in introduction.rules:
            if rule.attribute not in introduction.levels:
                known = ", ".join(map(repr, introduction.levels))
                raise DataError(
                    f"Client {name!r} has a policy on {rule.attribute!r}, which must be one of the "
                    f"run's sensitive columns, got {known}."
                )
            if rule.scope != "global":  # binds only this client
                budget = rule.budget_of(name)
                rule = replace(rule, budget=None if budget is None else {name: budget})
            own.append(rule)
        merged = policies.stricter(merged, tuple(own), names)
    return merged


def all_levels(introductions: Mapping[ClientId, Introduction]) -> dict[str, tuple[str, ...]]:
    """Return the union of the clients' groups of each attribute, in order of first occurrence."""
    found: dict[str, dict[str, None]] = {}
    for introduction in introductions.values():
        for attribute, levels in introduction.levels.items():
            found.setdefault(attribute, {}).update(dict.fromkeys(levels))
    return {attribute: tuple(levels) for attribute, levels in found.items()}


@dataclass(frozen=True)
class Counted:
    """Hard counts of a client's rows under a model, and its smooth report on the training rows.

    ``decided`` are the weighted hard rates of the training rows. Counts ignore weights.
    """

    report: Report
    train: Counts
    test: Counts
    decided: Vector | None = None

    @property
    def rates(self) -> Vector:
        """Selection rate of the training rows of each group."""
        if self.decided is not None:
            return self.decided
        return np.asarray(self.train.group_selected / np.maximum(self.train.group_counts, 1.0))


class Client(Protocol):
    """Protocol of a client, which responds to requests about its rows.

    The methods `report_into`, `choose_thresholds` and `vote` of `LocalClient` are optional.
    """

    def introduce(self) -> Introduction:
        """Return the description of the client."""
        ...

    def report(self, setup: Setup, points: Sequence[Point]) -> tuple[Report, ...]:
        """Return one report on the training rows per point."""
        ...

    def count(self, setup: Setup, params: Vector) -> Counted:
        """Return counts of the decisions of a model on training and held-out rows."""
        ...


class LocalClient:
    """Client with encoded training and held-out rows in memory.

    Requests under rules less strict than ``rules`` are rejected. Groups with fewer than
    ``min_group_rows`` rows are not reported. ``model`` replaces the model of the request, for
    example by the same module on another device. ``preference`` determines the votes.
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
        """Return a client with the same rows, and the rules and preference of ``policy``."""
        client = copy(self)
        client.rules, client.min_group_rows = policy.rules([self.name]), policy.min_group_rows
        client.preference = policy.preference or policies.Preference()
        client._setup = client._rows = None
        return client

    def introduce(self) -> Introduction:
        """Return the groups and the rules of the client."""
        levels = self.train.levels
        present = {
            name: tuple(groups[code] for code in np.unique(self.train.groups[name]) if code >= 0)
            for name, groups in levels.items()
        }
        return Introduction(self.name, levels, present, self.rules, self.min_group_rows)

    def report(self, setup: Setup, points: Sequence[Point]) -> tuple[Report, ...]:
        """Return one report on the training rows per point."""
        return tuple(self.rows(setup).report(point) for point in points)

    def report_into(
        self, setup: Setup, points: Sequence[Point], sums: Sequence[CurvatureSum | None]
    ) -> tuple[Report, ...]:
        """Return the reports without curvatures, which are added to ``sums``, one per point."""
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
        """Return thresholds by group that maximise correct decisions within the rate windows."""
        policies.check_rules_kept(self.name, self.rules, setup.rules)
        data, codes = self.train, self.train.groups[attribute]
        model = self._model_of(setup)
        scores = model.logits(params, data.X) - model.cut
        members = {group: codes == code for code, group in enumerate(data.levels[attribute])}
        costs = decision_weights(data.y, model.threshold, data.weights)
        return best_thresholds(scores, data.y, members, windows, costs)

    def vote(self, question: Vote) -> policies.Ballot:
        """Return the ballot of the client, according to its preference."""
        return self.preference.cast_ballot(question.choices[self.name])

    def rows(self, setup: Setup) -> ModelRows:
        """Return the training rows under the model, cached for the next request."""
        if setup.thresholds is not None:
            setup = replace(setup, thresholds=None)  # reports do not depend on thresholds
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
            attributes = dict.fromkeys(rate.attribute for rate in setup.rates)
            groups = {attribute: data.groups[attribute] for attribute in attributes}
            scores = count_scores(model.loss.scores(logits), data.y, groups, data.levels)
            counts = replace(counts, scores=scores)
        return counts.with_groups_of(self.min_group_rows)

    def _model_of(self, setup: Setup) -> Model:
        """Return the model of the setup, or the client's model with the same threshold."""
        if self._model is None:
            return cast(Model, setup.model)
        self._model = at_threshold(self._model, setup.model.threshold)
        return self._model

    def _cuts(self, setup: Setup, data: ClientData) -> Vector | float:
        """Return the smallest logit at which each row is selected."""
        cut = self._model_of(setup).cut
        if setup.thresholds is None:
            return cut
        return cut + setup.thresholds.of_data(self.name, data)

    def _smooth_rates(self, setup: Setup, params: Vector, report: Report) -> Vector:
        """Return the smooth rates of the training rows at the thresholds of their groups."""
        data = self.train
        logits = self._model_of(setup).logits(params, data.X)
        score = smooth_selection(logits, self._cuts(setup, data))
        members = rate_members(data, setup.rates, self.name)
        if data.weights is not None:
            members *= data.weights[:, None]
        rates = score_sums(score, members) / np.maximum(rows_behind(members), 1e-300)
        return np.where(report.group_counts > 0, np.clip(rates, 0.0, 1.0), 0.0)


def add_own(report: Report, total: CurvatureSum | None) -> Report:
    """Add the curvature of the report to ``total``, and return the report without curvature."""
    if total is None or report.curvature is None:
        return report
    total.add(report.curvature)
    return replace(report, curvature=None)
