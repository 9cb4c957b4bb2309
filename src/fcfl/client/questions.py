"""What a client may be asked, and what it answers: all that ever leaves it.

In one process these are arguments and results; between machines they are messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fcfl import __version__
from fcfl._types import ClientId, Point, RateId, Report, Request, Vector
from fcfl.client.counts import Counts
from fcfl.data import Schema, Statistics
from fcfl.models.group_thresholds import GroupThresholds
from fcfl.policy import PrivacyBudget
from fcfl.preference import Choices
from fcfl.rules import Rule


@dataclass(frozen=True)
class Setup:
    """What a client must know to answer: the model, the rates in their order, the rules in force.

    Groups with fewer than ``min_group_rows`` rows are not compared. With ``thresholds`` decisions
    are counted by these.
    """

    model: Any  # a `fcfl.models.model.Model`
    rates: tuple[RateId, ...]
    rules: tuple[Rule, ...] = ()
    min_group_rows: float = 1.0
    thresholds: GroupThresholds | None = None

    def for_client(self, name: ClientId) -> "Setup":
        """Without the budgets and thresholds of others: they are not its business."""
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
    """A question: what the client reports on these points."""

    setup: Setup
    request: Request

    def for_client(self, name: ClientId) -> "Evaluate":
        """With the client's own weights and budgets only."""
        points = tuple(_own_weights(name, point) for point in self.request.points)
        return Evaluate(self.setup.for_client(name), Request(points))


@dataclass(frozen=True)
class Count:
    """A question: how a model decides on the client's training and held-out rows."""

    setup: Setup
    params: Vector

    def for_client(self, name: ClientId) -> "Count":
        """With the client's own budgets only."""
        return replace(self, setup=self.setup.for_client(name))


@dataclass(frozen=True)
class Vote:
    """A question: the client's ballot on what it is offered, by a preference that stays with it.

    ``choices`` has every client's own figures, which came from its own counts.
    """

    choices: Mapping[ClientId, Choices]

    def for_client(self, name: ClientId) -> "Vote":
        """With what this client is offered only."""
        return Vote({name: self.choices[name]})


OnRows: TypeAlias = Evaluate | Count
"""A question about rows, under a model."""
Question: TypeAlias = OnRows | Vote


def _own_weights(name: ClientId, point: Point) -> Point:
    weights = point.curvature_weights
    own = None if weights is None else {name: weights[name]}
    extras = tuple(extra.for_client(name) for extra in point.extras)
    return replace(point, curvature_weights=own, extras=extras)


@dataclass(frozen=True)
class Introduction:
    """What a client says of itself before it is asked anything.

    ``levels`` are the groups of each sensitive attribute, in the order in which rates have them;
    ``present`` those with training rows here. A client may insist on ``rules`` of its own, and on
    saying nothing of groups with fewer than ``min_group_rows`` rows. The rest is for clients whose
    tables are not encoded yet: labels and statistics of their columns, without levels and groups
    that occur in fewer than ``withhold_below`` rows. ``mask_key`` is its public key, in a run with
    masked sums. With a ``privacy`` budget it answers releases only, and names what it has declared.
    Without ``sends_spread`` its policy has it send no `GradientSpread`.
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
    mask_key: str = ""
    privacy: PrivacyBudget | None = None
    schema: Schema | None = None
    sends_spread: bool = True


@dataclass(frozen=True)
class Counted:
    """Hard counts of a client's rows under a model, and its smooth report on the training rows.

    ``decided`` are the hard rates of training rows where counts do not tell them: rows may have
    weights, which counts leave out.
    """

    report: Report
    train: Counts
    test: Counts
    decided: Vector | None = None

    @property
    def rates(self) -> Vector:
        """Shares of each group's training rows that are selected."""
        if self.decided is not None:
            return self.decided
        return np.asarray(self.train.group_selected / np.maximum(self.train.group_counts, 1.0))
