"""A client that releases only noisy sums, within a privacy budget."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fcfl._checks import is_finite
from fcfl._types import ClientId, Matrix, Point, RateId, Report, Vector
from fcfl.client.client import Counted, Introduction, Setup
from fcfl.client.discrete_gaussian import Integers, discrete_gaussian
from fcfl.data.client_data import ClientData, dense, row_blocks
from fcfl.errors import DataError
from fcfl.models.linear import Linear
from fcfl.models.loss import CROSS_ENTROPY
from fcfl.models.model import hard_selection, rate_members
from fcfl.policy import PrivacyBudget, check_rules_kept
from fcfl.privacy import (
    LEAST_SCALE,
    NORM,
    Part,
    Release,
    attributes_of,
    cells_of,
    epsilon_of,
    mu_of,
    rates_of_a_row,
)
from fcfl.rules import Rule

GRID_BITS = 10  # features are multiples of 2**-10
_FINE_BITS = 16  # precision of features before they are scaled to the maximum norm
_PARAM_BITS = 20
_WEIGHT_BITS = 20  # precision of residuals and slopes
_LARGEST_FEATURE = 64.0
_LOGIT_BITS, _LARGEST_LOGIT = 10, 16  # grid of logits at which residuals and slopes are tabulated
_BLOCK = 4096  # rows per block; sums over a block are below 2**53, so that floats are exact
_LARGEST_PARAMS = 1e5
_ROUNDING = 1e-9  # relative tolerance of a sum of squares

ONLY_SUMS = (
    "A client with a privacy budget reports neither exact counts nor losses, rates or gradients, "
    "only noisy sums: train with method 'private' (`--privacy epsilon=E,delta=D`)."
)
Costs: TypeAlias = tuple[float, float]
"""Squared ``mu`` of releases from training rows, and of releases from held-out rows."""


@dataclass(frozen=True, eq=False)
class PrivateRows:
    """Rows of one part, prepared for releases, with features as integers in grid steps.

    ``groups`` has the group of each row by attribute, or None if no rate compares the group.
    """

    features: NDArray[np.int16]
    labels: Vector
    members: Matrix
    groups: Mapping[str, NDArray[np.object_]]
    rates: tuple[RateId, ...]
    cut: float = 0.0

    def release(self, release: Release, point: Point) -> Matrix:
        """Return the requested sum with noise of the standard deviation of the release."""
        total, unit = self.exact_sum(release, point)
        sd = release.noise_sd(self.rates, self.cut) / unit
        if release.kind != "moments":
            return with_noise(total, sd) * unit
        on_diagonal = np.equal(*np.triu_indices(self.features.shape[1]))
        noisy = np.empty(total.size)
        noisy[~on_diagonal] = with_noise(total[~on_diagonal], sd)
        noisy[on_diagonal] = with_noise(total[on_diagonal], math.sqrt(2) * sd)
        return noisy * unit

    def exact_sum(self, release: Release, point: Point) -> tuple[Integers, float]:
        """Return the sum without noise, as integers and their unit. Never send it to the server."""
        if release.kind == "moments":
            upper = np.triu_indices(self.features.shape[1])
            return self._weighted_sums(self.features)[upper], 2.0 ** (-2 * GRID_BITS)
        if release.kind == "gradient":
            signs = 1.0 - 2.0 * self.labels
            return self._weighted_sums(signs[:, None])[0], 2.0 ** (-GRID_BITS - 1)
        if release.kind == "rates":
            ups = np.where(self._selected(point), 1.0, -1.0)
            return _whole(ups @ self.members), 0.5
        if release.kind == "scores":
            return self._weighted_sums(self._scores(point)), 2.0 ** (-GRID_BITS - _WEIGHT_BITS)
        return self._cell_counts(release, point), 1.0

    def _scores(self, point: Point) -> Matrix:
        """Return scores minus ½, and the slopes of each rate, rounded towards zero."""
        factor = 2.0 / math.sqrt(rates_of_a_row(self.rates))

        def slope(z: Vector) -> Vector:
            score = expit(point.sharpness * (z - self.cut))
            return np.asarray(factor * score * (1.0 - score))

        logits = self._logits(point)
        above = _looked_up(logits, lambda z: expit(z) - 0.5)
        return np.column_stack([above, _looked_up(logits, slope)[:, None] * self.members])

    def _logits(self, point: Point) -> Vector:
        """Return logits in grid steps times parameter steps, exact in any summation order."""
        if np.linalg.norm(point.params) > _LARGEST_PARAMS:
            raise DataError(f"`params` must have a norm of at most {_LARGEST_PARAMS:g}.")
        params = np.rint(point.params * 2.0**_PARAM_BITS)
        logits = np.empty(len(self.features))
        for rows, block in self._blocks():
            logits[rows] = block @ params
        return logits

    def _selected(self, point: Point) -> NDArray[np.bool_]:
        """Return decisions, comparing logits with the cut in the same unit."""
        return hard_selection(self._logits(point), self.cut * 2.0 ** (GRID_BITS + _PARAM_BITS))

    def _blocks(self) -> Iterator[tuple[slice, Matrix]]:
        for rows in row_blocks(len(self.features), _BLOCK):
            yield rows, self.features[rows].astype(np.float64)

    def _weighted_sums(self, weights: NDArray[Any]) -> Integers:
        """Return sums of features weighted by each column of ``weights``, without rounding."""
        total = np.zeros((weights.shape[1], self.features.shape[1]), dtype=np.int64)
        for rows, block in self._blocks():
            total += _whole(weights[rows].T @ block)
        return total

    def _cell_counts(self, release: Release, point: Point) -> Integers:
        selected = None if release.kind == "counts" else self._selected(point)
        counts = []
        for cell in cells_of(self.rates, release.kind):
            inside: NDArray[np.bool_] = self.groups[cell.attribute] == cell.group
            if cell.label is not None:
                inside = inside & (self.labels == cell.label)
            if selected is not None:
                inside = inside & (selected == cell.selected)
            counts.append(inside.sum())
        return np.array(counts, dtype=np.int64)


def private_rows(data: ClientData, rates: Sequence[RateId], cut: float = 0.0) -> PrivateRows:
    """Return rows scaled to at most `NORM`. Rows with a logit of at least ``cut`` are selected."""
    if data.weights is not None:
        raise DataError("`weights` must be left out with a privacy budget.")
    parts = [whole_features(dense(data.X[rows])) for rows in row_blocks(data.n_rows, _BLOCK)]
    none = np.zeros((0, data.n_features + 1), dtype=np.int16)
    return PrivateRows(
        np.concatenate([none, *parts]),
        data.y,
        rate_members(data, rates),
        {attribute: _compared(data, rates, attribute) for attribute in attributes_of(rates)},
        tuple(rates),
        cut,
    )


def whole_features(X: Matrix) -> NDArray[np.int16]:
    """Return features and a constant in grid steps, scaled to at most `NORM`, rounded to zero."""
    clipped = np.clip(X, -_LARGEST_FEATURE, _LARGEST_FEATURE)
    fine = np.rint(np.column_stack([clipped, np.ones(len(X))]) * 2.0**_FINE_BITS)
    squares = np.square(fine.astype(np.int64)).sum(axis=1)
    shorter = np.minimum(1.0, NORM * 2.0**_FINE_BITS / np.sqrt(squares.astype(np.float64)))
    limit = math.floor(NORM**2 * 4.0**GRID_BITS)
    while True:
        whole = np.trunc(fine * shorter[:, None] * 2.0 ** (GRID_BITS - _FINE_BITS))
        whole = whole.astype(np.int64)
        too_long = np.square(whole).sum(axis=1) > limit  # possible because floats are rounded
        if not too_long.any():
            return np.asarray(whole, dtype=np.int16)
        shorter[too_long] *= 1.0 - 2.0**-12


def with_noise(total: Integers, sd: float) -> Vector:
    """Add discrete Gaussian noise to integers, on a lattice that is fine enough for ``sd``."""
    finer = max(math.ceil(math.log2(LEAST_SCALE / sd)), 0)
    largest = max(int(total.max(initial=0)), -int(total.min(initial=0)))  # abs may overflow
    if finer > 60 or largest >= 2 ** (62 - finer):
        raise DataError("The sums are too large for so little noise. Request a smaller epsilon.")
    noise = discrete_gaussian(math.ceil(sd * 2**finer), total.size).reshape(total.shape)
    return ((total << finer) + noise) / 2.0**finer


def _compared(data: ClientData, rates: Sequence[RateId], attribute: str) -> NDArray[np.object_]:
    """Return the group of each row, or None if no rate compares the group."""
    if attribute not in data.levels:
        return np.full(data.n_rows, None)
    named = {rate.group for rate in rates if rate.attribute == attribute}
    groups = [level if level in named else None for level in data.levels[attribute]]
    return np.array([*groups, None], dtype=object)[data.groups[attribute]]


def _whole(values: Matrix) -> Integers:
    return values.astype(np.int64)


def _looked_up(logits: Vector, function: Callable[[Vector], Vector]) -> Vector:
    """Return ``function`` at each logit rounded to the grid, as integers rounded towards zero."""
    last = _LARGEST_LOGIT << _LOGIT_BITS
    grid = np.arange(-last, last + 1) / 2.0**_LOGIT_BITS
    table = np.trunc(function(grid) * 2.0**_WEIGHT_BITS)
    steps = np.rint(logits * 2.0 ** (_LOGIT_BITS - GRID_BITS - _PARAM_BITS))
    return np.asarray(table[np.clip(steps, -last, last).astype(np.int64) + last])


@dataclass
class PrivacySpent:
    """Sums of squared ``mu`` of the releases from each part, by the split of the rows.

    Within a split, no row is in both parts. A row may be in different parts of different splits, so
    that the costs of all splits are added.
    """

    splits: Mapping[str, Costs] = field(default_factory=dict)

    def plus(self, costs: Costs, split: str = "") -> "PrivacySpent":
        """Return the sums after a further response from the rows of this split."""
        train, test = self.splits.get(split, (0.0, 0.0))
        return PrivacySpent({**self.splits, split: (train + costs[0], test + costs[1])})

    @property
    def mu(self) -> float:
        """Total ``mu``, with the larger cost of the two parts in each split."""
        return math.sqrt(sum(map(max, self.splits.values())))

    def epsilon(self, delta: float) -> float:
        """Return the epsilon spent so far at this delta."""
        return epsilon_of(self.mu, delta)

    def check_within(self, budget: PrivacyBudget) -> None:
        """Raise `DataError` if the budget is exceeded."""
        if self.mu**2 > mu_of(budget.epsilon, budget.delta) ** 2 * (1 + _ROUNDING):
            raise DataError(
                f"The privacy budget of epsilon {budget.epsilon:g} at delta {budget.delta:g} would "
                f"be exceeded: this response brings it to {self.epsilon(budget.delta):.4g}. "
                "Request a smaller epsilon, or end the run."
            )


def costs_of(points: Sequence[Point]) -> Costs:
    """Return the sum of squared ``mu`` of each part.

    Raise `DataError` if a request is not a release or its parameters are invalid.
    """
    costs: dict[Part, float] = {"train": 0.0, "test": 0.0}
    for point in points:
        releases = [extra for extra in point.extras if isinstance(extra, Release)]
        if not releases or len(releases) != len(point.extras) or point.want != "values":
            raise DataError(ONLY_SUMS)
        if len({one.kind for one in releases}) != len(releases):
            raise DataError("A release must not be requested twice at one point.")
        if not (is_finite(point.sharpness) and point.sharpness >= 1):
            raise DataError(f"`sharpness` must be at least 1, got {point.sharpness!r}.")
        if not np.isfinite(point.params).all():
            raise DataError("`params` must be finite numbers.")
        for one in releases:
            if not (is_finite(one.mu) and 0 < one.mu <= 10):
                raise DataError(f"`mu` must be above 0 and at most 10, got {one.mu!r}.")
            costs[one.part] += one.mu**2
    return costs["train"], costs["test"]


class PrivateClient:
    """Client that releases only noisy sums over its rows, within a privacy budget."""

    def __init__(
        self,
        name: ClientId,
        train: ClientData,
        test: ClientData | None = None,
        *,
        privacy: PrivacyBudget,
        rules: Sequence[Rule] = (),
    ) -> None:
        self.name, self.privacy, self.rules = name, privacy, tuple(rules)
        self.spent = PrivacySpent()
        held_out = train.take([]) if test is None else test
        self._data: dict[Part, ClientData] = {"train": train, "test": held_out}
        self._rows: dict[Part, tuple[Any, PrivateRows]] = {}

    def introduce(self) -> Introduction:
        """Return the declared groups, without disclosing which groups have rows."""
        levels = self._data["train"].levels
        return Introduction(self.name, levels, levels, self.rules, privacy=self.privacy)

    def report(self, setup: Setup, points: Sequence[Point]) -> tuple[Report, ...]:
        """Return releases, after recording their cost."""
        check_rules_kept(self.name, self.rules, setup.rules)
        if not isinstance(setup.model, Linear) or setup.model.loss != CROSS_ENTROPY:
            raise DataError(
                "With a privacy budget, the model must be linear with the loss 'cross-entropy': "
                "sensitivities of other models are not known."
            )
        if len(set(setup.rates)) != len(setup.rates):  # duplicates would increase the sensitivity
            raise DataError("`rates` must not contain duplicates.")
        spent = self.spent.plus(costs_of(points))
        spent.check_within(self.privacy)
        self.spent = spent
        return tuple(self._released(setup, point) for point in points)

    def count(self, setup: Setup, params: Vector) -> Counted:
        """Raise `DataError`, because exact counts are not released."""
        raise DataError(ONLY_SUMS)

    def _released(self, setup: Setup, point: Point) -> Report:
        """Return a report of releases, with placeholders for rows, groups and loss."""
        releases: tuple[Any, ...] = point.extras  # checked by `costs_of`
        found = {one.kind: self._part(setup, one).release(one, point) for one in releases}
        nothing = np.zeros(len(setup.rates))
        return Report(1.0, 0.0, nothing, nothing, extras=found)

    def _part(self, setup: Setup, release: Release) -> PrivateRows:
        key = (setup.rates, setup.model.cut)
        if release.part not in self._rows or self._rows[release.part][0] != key:
            self._rows[release.part] = key, private_rows(self._data[release.part], *key)
        return self._rows[release.part][1]
