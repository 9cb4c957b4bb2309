r"""Constraints of training for budgets on new rows: pooled estimates, margins and rate limits.

A row :math:`a \cdot r \le b` of the constraints compares the rates of two groups. Let :math:`p` be
the rate over all rows of the compared groups. At *parity* all of these groups have the rate p. The
*slack* s of a row is its distance from the bound at parity. The sampling standard deviation of the
row's value near parity is

.. math:: s_D = \sqrt{p (1 - p) \sum_g a_g^2 / n_g}

**Own rows.** A client's own rows suffice for a comparison if a model at parity would satisfy the
budget on them in nine of ten samples, :math:`P(|s_D Z| \le s) \ge .9`.

**Pooling.** If at least `POOLED_FROM` clients compare the same groups, the budget applies to the
empirical Bayes estimate, which is linear in the rates:

.. math:: w_k D_k + (1 - w_k) \sum_j o_j D_j \le b_k

The weights are those of `shrinkage`, for the spread :math:`\tau` of the differences between
clients. As the number of rows grows, w tends to one, which is the constraint of the paper.

**Margin.** Training bounds the value by :math:`b - s + M`. M is the largest mean at which the
estimate satisfies the budget with the requested confidence c. If too few rows make c unreachable,
M may lower the probability at parity by half of the relative miss that c allows:

.. math:: P(|M + \sigma Z| \le s) \ge \min(c', \tfrac12 (1 + c') P(|\sigma Z| \le s))

Here :math:`\sigma` is :math:`s_D` or the estimate's standard deviation. The confidence c' of a row
divides the miss of c among the pairs of groups and the kinds of rates.

**Bias.** A fit is optimistic about its own rows. The expected change of rate q on new rows is
:math:`d_q = \nu_q \operatorname{tr}(H^{-1} C_q)` with the net multiplier :math:`\nu = A^T \mu`
(`fcfl.models.influence`). Hard rates also differ from smooth rates, and in large groups this
difference persists on new rows. Both differences are subtracted from the bound.

**Rate shift.** A model that selects nobody satisfies every budget on equal rates. Therefore two
linear rows limit the difference between the federation's rate and that of the model without budgets
to ``max_rate_shift``. The same limit at every client made many fits infeasible (adult-5 by sex, six
splits: .69 of budgets met in 71 exchanges with it, .88 in 42 without it).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fcfl._types import ClientId, Vector
from fcfl.audit.verdicts import SHARED_ROWS, TRUSTED_ROWS
from fcfl.problem import SHIFT, Constraints, Pooled, Problem, Row, no_rows
from fcfl.rules import LEAST_ROWS, RATE_KINDS, Rule

Pooling: TypeAlias = Literal["auto", "none"]
Indices: TypeAlias = NDArray[np.int64]

# Defaults of user options.
MAX_ACCURACY_LOSS = 0.02  # training accuracy that margins may cost
MAX_RATE_SHIFT = 0.05  # of the federation's rates, from the model without budgets

# Constants of the guarantee in `docs/promise.md`.
TELLS = 0.9  # probability at parity from which a client's own rows suffice, for every confidence
ODD = 0.025  # probability of listing a client that does not differ, over all comparisons

# Chosen in `benchmarks.promise`, with other seeds than those of its figures.
POOLED_FROM = 8  # clients; with two or three the flat prior would determine the spread
KEPT_SHARE = 0.1  # share of the slack that bounds keep on each side of parity
RUNGS = (0.5, 0.8, 0.9, 0.95, 0.99)  # confidences to try if the requested one costs too much

LEAST_POOLED = 3  # clients; with two, a mean and a spread leave no degree of freedom
SPREADS = np.arange(0.0, 0.4001, 0.002)  # grid of the spread between clients, flat prior
CERTAIN = float(np.nextafter(1.0, 0.0))  # largest probability with a finite quantile


@dataclass(frozen=True)
class Sampling:
    """Sampling distribution of each constraint row, at the rates of a given model.

    ``parity`` is the common rate at parity, ``slack`` the distance of the bound from parity.
    ``deviation`` is the standard deviation of the row's value at parity. ``tilt`` times
    ``deviation`` is that of the opposite tail, where a ratio exchanges the weights of its groups.
    ``smaller`` is the number of rows in the smaller group.
    """

    parity: Vector
    deviation: Vector
    tilt: Vector
    slack: Vector
    smaller: Vector


def sample(constraints: Constraints, counts: Vector, rates: Vector) -> Sampling:
    """Return the sampling distributions for ``rates`` and ``counts`` stacked by client."""
    row, column, value = constraints.entry_row, constraints.entry_column, constraints.entry_value

    def total(of_entries: Vector) -> Vector:
        return np.bincount(row, of_entries, minlength=len(constraints)).astype(np.float64)

    first = value > 0
    rows_a, rows_b = total(counts[column] * first), total(counts[column] * ~first)
    weight_a, weight_b = total(value * first), total(-value * ~first)
    inverse_a, inverse_b = 1.0 / np.maximum(rows_a, 1e-9), 1.0 / np.maximum(rows_b, 1e-9)
    spread = weight_a**2 * inverse_a + weight_b**2 * inverse_b
    exchanged = weight_b**2 * inverse_a + weight_a**2 * inverse_b
    parity = _parity_rates(constraints, counts, rates)
    return Sampling(
        parity=parity,
        deviation=np.sqrt(parity * (1.0 - parity) * spread),
        tilt=np.sqrt(exchanged / spread),
        slack=constraints.bounds - parity * (weight_a - weight_b),
        smaller=np.minimum(rows_a, rows_b),
    )


def _parity_rates(constraints: Constraints, counts: Vector, rates: Vector) -> Vector:
    """Return the rate over all groups that each row's rule compares, at its client or overall.

    `SHARED_ROWS` rows at the federation's rate are added, so that the rate is never 0 or 1.
    """

    def total(*names: str) -> tuple[Vector, Vector]:
        """Return selected and all rows of each constraint, pooled over those with equal names."""
        numbers: dict[object, int] = {}
        keys = [tuple(getattr(row, name) for name in names) for row in constraints.rows]
        group = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
        width = constraints.n_columns
        touched = np.unique(group[constraints.entry_row] * width + constraints.entry_column)
        owner, column = np.divmod(touched, width)
        selected = np.bincount(owner, counts[column] * rates[column]).astype(np.float64)
        return selected[group], np.bincount(owner, counts[column]).astype(np.float64)[group]

    selected, n = total("attribute", "kind")
    overall = (selected + 1.0) / (n + 2.0)
    selected, n = total("client", "attribute", "kind")
    return np.asarray((selected + SHARED_ROWS * overall) / (n + SHARED_ROWS))


def kept_chance(mean: Vector | float, slack: Vector, deviation: Vector, tilt: Vector) -> Vector:
    """Return the probability that a value with this mean is within ``slack`` on both sides of 0."""
    scale = np.maximum(deviation, 1e-300)
    return np.asarray(ndtr((slack - mean) / scale) - ndtr(-(slack + mean) / (tilt * scale)))


def margins(slack: Vector, confidence: Vector, deviation: Vector, tilt: Vector) -> Vector:
    """Return M, the largest distance above parity at which each row may be trained."""
    at_parity = kept_chance(0.0, slack, deviation, tilt)
    target = np.minimum(confidence, 0.5 * (1.0 + confidence) * at_parity)
    fits = kept_chance(slack, slack, deviation, tilt) >= target
    low, high = np.where(fits, slack, 0.0), slack
    for _ in range(50):
        middle = 0.5 * (low + high)
        inside = kept_chance(middle, slack, deviation, tilt) >= target
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low


def shared_confidence(constraints: Constraints, confidence: float) -> Vector:
    """Return c' of each row, dividing a budget's miss among its groups and kinds of rates."""
    shared = np.empty(len(constraints))
    budgets = _grouped(constraints, lambda _, row: (row.client, *_rule_of(row)))
    for rows in budgets.values():
        groups = {constraints.rows[i].group_a for i in rows}
        kinds = len(RATE_KINDS[constraints.rows[rows[0]].metric])
        shared[rows] = 1.0 - (1.0 - confidence) * 2.0 / max(len(groups) * kinds, 2)
    return shared


# --- pooled estimates -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Shrinkage:
    """Empirical Bayes estimates of one comparison at several clients.

    ``own`` is the weight of each client's own difference, ``average`` the weight of each client in
    the average, ``deviation`` the standard deviation of each estimate, and ``spread`` the posterior
    mean of the spread. ``surprise`` is each client's distance from the prediction of the others, in
    standard deviations.
    """

    own: Vector
    average: Vector
    deviation: Vector
    spread: float
    surprise: Vector


def shrinkage(differences: Vector, deviations: Vector) -> Shrinkage:
    r"""Return empirical Bayes weights of clients' differences, integrated over the spread.

    .. math:: \pi(\tau) \propto \sqrt V \prod_k N(D_k; m, \tau^2 + s_k^2),
              \quad V = 1 / \sum_k (\tau^2 + s_k^2)^{-1}

    where m is the precision-weighted mean. The grid is `SPREADS`, with a flat prior.
    """
    D, s2 = differences, np.maximum(deviations**2, 1e-12)
    precision = 1.0 / (SPREADS[:, None] ** 2 + s2)
    own = SPREADS[:, None] ** 2 * precision
    V = 1.0 / precision.sum(axis=1)
    m = V * (precision @ D)
    squares = (precision * (D - m[:, None]) ** 2).sum(axis=1)
    share = _posterior(V, np.log(precision).sum(axis=1), squares)
    means = own * D + (1.0 - own) * m[:, None]
    inner = share @ (own * s2 + (1.0 - own) ** 2 * V[:, None])
    between = share @ (means - share @ means) ** 2
    return Shrinkage(
        own=share @ own,
        average=share @ (precision * V[:, None]),
        deviation=np.sqrt(inner + between),
        spread=float(share @ SPREADS),
        surprise=_surprise(D, s2, precision),
    )


def _posterior(V: Vector, log_precision: Vector, squares: Vector) -> Vector:
    """Return the posterior probability of each spread in `SPREADS`."""
    log = 0.5 * (np.log(V) + log_precision - squares)
    share = np.exp(log - log.max(axis=0))
    return np.asarray(share / share.sum(axis=0))


def _surprise(D: Vector, s2: Vector, precision: Vector) -> Vector:
    """Return each client's distance from the prediction of the others, in standard deviations.

    Arrays have shape (spreads, clients). They are the quantities of `shrinkage` without the client.
    """
    P = precision.sum(axis=1, keepdims=True) - precision
    m = ((precision @ D)[:, None] - precision * D) / P
    squares = (precision @ D**2)[:, None] - precision * D**2 - P * m**2
    logs = np.log(precision).sum(axis=1, keepdims=True) - np.log(precision)
    share = _posterior(1.0 / P, logs, np.maximum(squares, 0.0))
    mean = (share * m).sum(axis=0)
    variance = (share * (SPREADS[:, None] ** 2 + s2 + 1.0 / P + (m - mean) ** 2)).sum(axis=0)
    return np.asarray(np.abs(D - mean) / np.sqrt(variance))


@dataclass(frozen=True)
class Enforced:
    """The constraint rows that a run enforces, with their statistics at the model without budgets.

    Row j of ``budgets`` is an estimate if ``is_pooled[j]``. Row j of ``own`` is the same comparison
    on the client's own rows, which have ``weight`` in the estimate. ``deviation`` and ``tilt`` are
    those of the estimate. ``trust`` is the share of the gap between hard and smooth rates that
    persists on new rows. ``tells`` is true where the client's own rows suffice. ``spread`` is the
    estimated spread of each pooled comparison. ``odd`` lists clients that differ from the others.
    """

    budgets: Constraints
    own: Constraints
    counts: Vector
    weight: Vector
    deviation: Vector
    tilt: Vector
    trust: Vector
    tells: NDArray[np.bool_]
    is_pooled: NDArray[np.bool_]
    spread: dict[str, float]
    odd: tuple[ClientId, ...]

    @property
    def pools(self) -> bool:
        """Whether any comparison is pooled."""
        return bool(self.is_pooled.any())

    @property
    def telling(self) -> Constraints:
        """Pooled comparisons on own rows, for clients whose own rows suffice."""
        return self.own.take(np.flatnonzero(self.tells & self.is_pooled))

    @property
    def decisive(self) -> Constraints:
        """Constraints of decisions: own rows where they suffice, otherwise estimates."""
        kept = np.flatnonzero(~(self.tells & self.is_pooled))
        return self.budgets.take(kept).plus(self.telling)


def enforced(
    constraints: Constraints,
    rules: Sequence[Rule],
    counts: Vector,
    hard: Vector,
    pooling: Pooling,
    min_group_rows: float | None,
) -> Enforced:
    """Return the enforced rows, with pooled estimates where enough clients compare the same groups.

    ``constraints`` compares all groups with at least ``min_group_rows`` rows, by default 1. The
    ``hard`` rates are those of the model without budgets. Comparisons that are not pooled are
    dropped if a group has fewer rows than its rule requires.
    """
    is_pooled = pooled_rows(constraints, pooling)
    min_rows = np.array([_least_rows(row, rules, min_group_rows) for row in constraints.rows])
    kept = np.flatnonzero(is_pooled | (sample(constraints, counts, hard).smaller >= min_rows))
    own, is_pooled = constraints.take(kept), is_pooled[kept]
    sampling, values = sample(own, counts, hard), own.apply(hard)
    weight, deviation = np.ones(len(own)), sampling.deviation.copy()
    trust = sampling.smaller / (sampling.smaller + TRUSTED_ROWS)
    pairs = [rows for rows in _pairs(own).values() if is_pooled[rows[0]]]
    limit = ndtri(1.0 - ODD / max(0.5 * sum(map(len, pairs)), 1.0))
    shares, averages = np.zeros((len(own), len(pairs))), np.zeros((len(own), len(pairs)))
    spread, odd = {}, dict[ClientId | None, None]()
    for j, rows in enumerate(pairs):
        estimate = shrinkage(values[rows], sampling.deviation[rows])
        weight[rows], deviation[rows] = estimate.own, estimate.deviation
        shares[rows, j], averages[rows, j] = 1.0 - estimate.own, estimate.average
        together = sampling.smaller[rows].sum()
        trusted = together / (together + TRUSTED_ROWS)
        trust[rows] = estimate.own * trust[rows] + (1.0 - estimate.own) * trusted
        row = own.rows[rows[0]]
        spread[f"{row.attribute}: {row.group_a} - {row.group_b} ({row.kind})"] = estimate.spread
        odd |= dict.fromkeys(own.rows[i].client for i in rows[estimate.surprise > limit])
    budgets = own
    if pairs:
        pooled = Pooled(shares, np.array([own.weigh_rates(average) for average in averages.T]))
        budgets = replace(own, entry_value=own.entry_value * weight[own.entry_row], pooled=pooled)
    tells = kept_chance(0.0, sampling.slack, sampling.deviation, sampling.tilt) >= TELLS
    return Enforced(
        budgets, own, counts, weight, deviation, sampling.tilt, trust, tells, is_pooled, spread,
        tuple(client for client in odd if client is not None),
    )  # fmt: skip


def pooled_rows(constraints: Constraints, pooling: Pooling) -> NDArray[np.bool_]:
    """Return which rows become pooled estimates; ``constraints`` compares all non-empty groups."""
    is_pooled = np.zeros(len(constraints), dtype=bool)
    if pooling == "none":
        return is_pooled
    pairs, clients = _pairs(constraints).values(), dict[object, set[ClientId | None]]()
    rules = [_rule_of(row) for row in constraints.rows]
    for i, row in enumerate(constraints.rows):
        clients.setdefault(rules[i], set()).add(row.client)
    for rows in pairs:
        n_clients = len(clients[rules[rows[0]]] - {None})
        is_pooled[rows] = len(rows) >= LEAST_POOLED and n_clients >= POOLED_FROM
    return is_pooled


def _least_rows(row: Row, rules: Sequence[Rule], given: float | None) -> float:
    """Return the minimum number of rows of a group in this comparison."""
    minima = [
        rule.least_rows(row.client, given)
        for rule in rules
        if (rule.name, rule.metric, rule.attribute) == _rule_of(row)
        and (rule.scope == "global") == (row.client is None)
    ]
    return max(minima, default=LEAST_ROWS[0])


# --- bounds ---------------------------------------------------------------------------------------


def rate_limits(known: Enforced, rates: Vector, max_shift: float) -> Constraints:
    """Return two rows per rate that keep it within ``max_shift`` of ``rates``, federation-wide."""
    own, counts = known.own, known.counts
    limits = no_rows(own.n_columns)
    kinds = _grouped(own, lambda _, row: (row.attribute, row.kind))
    for (attribute, kind), rows in kinds.items():
        columns = np.unique(own.entry_column[np.isin(own.entry_row, rows)])
        shares = counts[columns] / max(float(counts[columns].sum()), 1e-300)
        rate = float(shares @ rates[columns])
        limits = limits.plus(
            Constraints(
                rows=(Row(None, SHIFT, SHIFT, attribute, kind, "", "", max_shift),) * 2,
                blocks=np.arange(2),
                bounds=np.array([rate + max_shift, max_shift - rate]),
                entry_row=np.repeat([0, 1], columns.size),
                entry_column=np.tile(columns, 2),
                entry_value=np.append(shares, -shares),
                n_columns=own.n_columns,
            )
        )
    return limits


@dataclass(frozen=True)
class Tightened:
    """Tightened bounds of smooth rates and of decisions, for each constraint row.

    ``rows_short`` is the factor by which the number of training rows would have to grow for the
    confidence. It is infinite without slack at parity, as for a difference of 0 or a ratio of 1.
    ``can_tell`` is true where the estimate of a model at parity is inside in nine of ten samples.
    """

    smooth: Vector
    decided: Vector
    rows_short: Vector
    can_tell: NDArray[np.bool_]

    def where_rows_tell(self, plain: Vector) -> "Tightened":
        """Return the bounds with ``plain`` in place of margins where not ``can_tell``."""
        return replace(
            self,
            smooth=np.where(self.can_tell, self.smooth, plain),
            decided=np.where(self.can_tell, self.decided, plain),
        )


def tightened(
    known: Enforced,
    smooth: Vector,
    hard: Vector,
    bias: Vector,
    confidence: float,
    per_new_row: Vector | float = 0.0,
) -> Tightened:
    """Tighten the bounds of the budgets for a confidence; see the module.

    ``smooth`` and ``hard`` are the rates of the model trained with the plain budgets, ``bias`` the
    expected increase of each row's value on new rows. ``per_new_row`` is the number of training
    rows per new row of each row's client. It is 0 if the population should satisfy the budgets.
    """
    sampling, b = sample(known.own, known.counts, hard), known.budgets.bounds
    deviation = np.sqrt(known.deviation**2 + per_new_row * sampling.deviation**2)
    c, slack = shared_confidence(known.budgets, confidence), np.maximum(sampling.slack, 0.0)
    M = margins(slack, c, deviation, known.tilt)
    gap = known.trust * known.budgets.apply(hard - smooth)
    width = np.maximum(M, KEPT_SHARE * slack)
    limit = width - KEPT_SHARE * slack
    z = ndtri(np.minimum(0.5 * (1.0 + c), CERTAIN))
    short = np.full(slack.size, np.inf)
    np.divide(z * deviation, slack, out=short, where=slack > 0)
    return Tightened(
        smooth=np.minimum(b, b - slack + width - np.clip(bias + gap, -limit, limit)),
        decided=b - known.trust * (1.0 - KEPT_SHARE) * (slack - M),
        rows_short=short**2,
        can_tell=kept_chance(0.0, slack, deviation, known.tilt) >= TELLS,
    )


def rows_per_new_row(
    problem: Problem, rows: Sequence[Row], new_rows: float | None
) -> Vector | float:
    """Return the number of training rows per new row, of each constraint row's client.

    ``new_rows`` is the number of new rows of each client, None for its population (returns 0). A
    federation-wide constraint uses the clients' mean number of rows.
    """
    if new_rows is None:
        return 0.0
    trained = dict[ClientId | None, float](zip(problem.clients, problem.n_rows, strict=True))
    trained[None] = float(problem.n_rows.mean())
    return np.array([trained[row.client] for row in rows]) / new_rows


# --- groups of rows -------------------------------------------------------------------------------


def _rule_of(row: Row) -> tuple[str, str, str]:
    """Return the key of the rule that a row belongs to."""
    return row.rule, row.metric, row.attribute


def _grouped(constraints: Constraints, key: Callable[[int, Row], Any]) -> dict[Any, Indices]:
    """Return the positions of rows by key, in order of first occurrence, without the key None."""
    found: dict[Any, list[int]] = {}
    for i, row in enumerate(constraints.rows):
        found.setdefault(key(i, row), []).append(i)
    return {name: np.array(places) for name, places in found.items() if name is not None}


def _pairs(constraints: Constraints) -> dict[Any, Indices]:
    """Return the positions of single clients' rows, by rule and pair of compared groups."""
    weight = np.zeros(len(constraints))
    np.maximum.at(weight, constraints.entry_row, constraints.entry_value)

    def key(i: int, row: Row) -> Any:
        pair = row.kind, row.group_a, row.group_b, float(weight[i])
        return None if row.client is None else (*_rule_of(row), *pair)

    return _grouped(constraints, key)
