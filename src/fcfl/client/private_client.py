"""A client that says noisy sums only, and of these no more than its privacy budget allows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fcfl._checks import is_finite
from fcfl._types import ClientId, Matrix, Point, Report, Vector
from fcfl.accountant import epsilon_of, mu_of
from fcfl.client.private_rows import PrivateRows, private_rows
from fcfl.client.questions import Counted, Introduction, Setup
from fcfl.data.client_data import ClientData
from fcfl.errors import DataError
from fcfl.models.linear import Linear
from fcfl.models.loss import CROSS_ENTROPY
from fcfl.policy import PrivacyBudget, check_rules_kept
from fcfl.releases import Part, Release
from fcfl.rules import Rule

_ROUNDING = 1e-9  # share by which squares that add up to a budget may exceed it


@dataclass
class PrivacySpent:
    """Squares of what was released of each part's rows, by the way the rows were split.

    Within one split no row is in both parts; a row that one split trains on another may hold out,
    so that splits add up.
    """

    splits: dict[str, dict[Part, float]] = field(default_factory=dict)

    def plus(self, costs: Mapping[Part, float], split: str = "") -> "PrivacySpent":
        """This and one more answer about the rows in this split."""
        before = self.splits.get(split, {})
        parts: tuple[Part, Part] = ("train", "test")
        after = {part: before.get(part, 0.0) + costs.get(part, 0.0) for part in parts}
        return PrivacySpent({**self.splits, split: after})

    @property
    def mu(self) -> float:
        """Of each split the part of which more was released."""
        return math.sqrt(sum(max(squares.values()) for squares in self.splits.values()))

    def epsilon(self, delta: float) -> float:
        """What was spent so far, at this delta."""
        return epsilon_of(self.mu, delta)

    def check_within(self, budget: PrivacyBudget) -> None:
        """Refuse what would pass the budget."""
        if self.mu**2 > mu_of(budget.epsilon, budget.delta) ** 2 * (1 + _ROUNDING):
            raise DataError(
                f"The privacy budget of epsilon {budget.epsilon:g} at delta {budget.delta:g} would "
                f"be passed: this answer would bring it to {self.epsilon(budget.delta):.4g}. Ask "
                "with a smaller epsilon, or end here."
            )


def costs_of(points: Sequence[Point]) -> dict[Part, float]:
    """Squares of what answers to these points cost each part; refuses all but releases."""
    costs: dict[Part, float] = {}
    for point in points:
        releases = [extra for extra in point.extras if isinstance(extra, Release)]
        if not releases or len(releases) != len(point.extras):
            raise _refusal("loss, rates or gradients")
        if point.want != "values":
            raise _refusal("gradients or curvature")
        if len({one.kind for one in releases}) != len(releases):
            raise DataError("A release is asked for once at each point.")
        if not (is_finite(point.sharpness) and point.sharpness > 0):
            raise DataError(f"`sharpness` must be a positive number, got {point.sharpness!r}.")
        if not np.isfinite(point.params).all():
            raise DataError("`params` must be finite numbers.")
        for one in releases:
            if not (is_finite(one.mu) and 0 < one.mu <= 10 and 0.1 <= one.norm <= 16):
                raise DataError(
                    f"A release must have a `mu` from 0 to 10 and a `norm` from 0.1 to 16, got "
                    f"{one.mu!r} and {one.norm!r}."
                )
            costs[one.part] = costs.get(one.part, 0.0) + one.mu**2
    return costs


class PrivateClient:
    """Rows of one client, of which noisy sums are released within a privacy budget.

    ``levels`` are the groups that may be compared, declared and not read off the rows; by default
    those of the rows' own declaration. Everything else than a release is refused.
    """

    def __init__(
        self,
        name: ClientId,
        train: ClientData,
        test: ClientData | None = None,
        *,
        privacy: PrivacyBudget,
        rules: Sequence[Rule] = (),
        spent: PrivacySpent | None = None,
    ) -> None:
        self.name, self.privacy, self.rules = name, privacy, tuple(rules)
        self._data: dict[Part, ClientData] = {"train": train}
        self._data["test"] = train.take([]) if test is None else test
        self.spent = PrivacySpent() if spent is None else spent
        self._rows: dict[object, PrivateRows] = {}

    def introduce(self) -> Introduction:
        """The declared groups; which of them have rows here is not said."""
        levels = self._data["train"].levels
        return Introduction(self.name, levels, levels, self.rules, privacy=self.privacy)

    def report(self, setup: Setup, points: Sequence[Point]) -> tuple[Report, ...]:
        """Releases only; what they cost is counted before they are computed."""
        check_rules_kept(self.name, self.rules, setup.rules)
        _check_model(setup.model)
        if len(set(setup.rates)) != len(setup.rates):  # a row would count as often as it is named
            raise DataError("A rate is asked for once.")
        spent = self.spent.plus(costs_of(points))
        spent.check_within(self.privacy)
        self.spent = spent
        return tuple(self._released(setup, point) for point in points)

    def count(self, setup: Setup, params: Vector) -> Counted:
        """Exact counts are not said."""
        raise _refusal("exact counts")

    def _released(self, setup: Setup, point: Point) -> Report:
        """A report that says nothing but its releases: one row, no group, no loss."""
        said: dict[str, Matrix] = {}
        for release in point.extras:
            assert isinstance(release, Release)
            said |= release.answer(self._part(setup, release), point)
        nothing = np.zeros(len(setup.rates))
        return Report(1.0, 0.0, nothing, nothing, extras=said)

    def _part(self, setup: Setup, release: Release) -> PrivateRows:
        key = (release.part, setup.rates, release.norm, setup.model.cut)
        if key not in self._rows:
            self._rows = {k: rows for k, rows in self._rows.items() if k[1:] == key[1:]}  # type: ignore[index]
            self._rows[key] = private_rows(self._data[release.part], *key[1:])
        return self._rows[key]


def _check_model(model: object) -> None:
    if not isinstance(model, Linear) or model.loss != CROSS_ENTROPY:
        raise DataError(
            "A client with a privacy budget reports on linear models with cross-entropy only: the "
            "sensitivities of others are not known."
        )


def _refusal(what: str) -> DataError:
    return DataError(
        f"A client with a privacy budget does not say {what}, only noisy sums: train with method "
        "'private' (`--privacy epsilon=E,delta=D`)."
    )
