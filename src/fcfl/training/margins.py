r"""What each budget needs beyond its training rows: estimates, margins and limits on rates.

A row :math:`a \cdot r \le b` of group rates compares two groups. Write :math:`p` for the rate of
the groups compared, together; *parity* gives all of them the rate p, and is inside the bound by
its *room*. Over samples the row's value has, near parity, the standard deviation

.. math:: s = \sqrt{p (1 - p) \sum_g a_g^2 / n_g}

**Own rows.** A client's rows can tell a comparison if parity would stay within the budget by its
own rows in nine of ten samples, :math:`P(|s Z| \le \epsilon) \ge .9`.

**Pooling.** Where at least `POOLED_FROM` clients compare the same groups, a budget is about the
estimate of empirical Bayes, which is linear in the rates:

.. math:: w_k D_k + (1 - w_k) \sum_j o_j D_j \le b_k

with the weights of `shrinkage`, from the spread :math:`\tau` of the federation's own differences.
As rows grow, w tends to one: the paper's constraint.

**Margin.** The value is trained to at most :math:`b - room + M`, where M is the largest mean whose
estimate stays inside with the confidence c asked for, or, where rows are too few, gives away half
of the miss that c allows beside parity:

.. math:: P(|M + \sigma Z| \le room) \ge \min(c', \tfrac12 (1 + c') P(|\sigma Z| \le room))

Here :math:`\sigma` is s, or the estimate's standard deviation; c' shares the miss of c out over
the pairs of groups and the kinds of rates.

**Bias.** A fit is optimistic about its own rows. Rate q is expected to differ on new rows by
:math:`d_q = \nu_q \operatorname{tr}(H^{-1} C_q)` with the net multiplier :math:`\nu = A^T \mu`
(`fcfl.models.influence`). Decisions differ from smooth rates, too, which new rows repeat in
large groups. Both are subtracted from the bound.

**Rate shift.** Selecting nobody satisfies every budget on equal rates. So the federation's rate may
differ from that of the model without budgets by at most ``max_rate_shift``: two linear rows. The
same limit at every client made many fits infeasible (adult-5 by sex, six splits: .69 of budgets
kept at 71 exchanges, without it .88 at 42).
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

# Options of users, with their defaults.
MAX_ACCURACY_LOSS = 0.02  # that margins may cost on training rows
MAX_RATE_SHIFT = 0.05  # of the federation's rates, from the model without budgets

# The promise: `docs/promise.md` defines which rows can tell and who is named.
TELLS = 0.9  # chance at parity from which a client's own rows decide, whatever the confidence
ODD = 0.025  # chance that a client like the others is named, over all comparisons

# Chosen in `benchmarks.promise`, on other seeds than those of its figures.
POOLED_FROM = 8  # clients; with two or three the flat prior of the spread decides, not the data
KEPT_SHARE = 0.1  # of the room: bounds leave as much on each side of parity
RUNGS = (0.5, 0.8, 0.9, 0.95, 0.99)  # confidences to try where the one asked for costs too much

LEAST_POOLED = 3  # clients: of two, a mean and a spread leave no degree of freedom
SPREADS = np.arange(0.0, 0.4001, 0.002)  # the grid of the spread between clients, flat prior
CERTAIN = float(np.nextafter(1.0, 0.0))  # the largest probability with a finite quantile


@dataclass(frozen=True)
class Sampling:
    """What samples of training rows tell about each row, at the rates of some model.

    ``deviation`` is that of the row's value at parity. Multiplied by ``tilt`` it is that of the
    other tail, in which a ratio exchanges the weights of its groups. ``smaller`` has the rows of
    the smaller group.
    """

    parity: Vector
    deviation: Vector
    tilt: Vector
    room: Vector
    smaller: Vector


def sample(constraints: Constraints, counts: Vector, rates: Vector) -> Sampling:
    """Describe the sampling of each row; ``rates`` and ``counts`` are stacked by client."""
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
        room=constraints.bounds - parity * (weight_a - weight_b),
        smaller=np.minimum(rows_a, rows_b),
    )


def _parity_rates(constraints: Constraints, counts: Vector, rates: Vector) -> Vector:
    """Return the rate of all groups that each row's rule compares, at a client or overall.

    It counts `SHARED_ROWS` more rows at the federation's rate, so that it is never 0 or 1.
    """

    def total(*names: str) -> tuple[Vector, Vector]:
        """Selected rows and all rows behind the rates that rows with equal names touch."""
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


def kept_chance(mean: Vector | float, room: Vector, deviation: Vector, tilt: Vector) -> Vector:
    """Return the chance that a value ``mean`` above parity is within ``room`` on both sides."""
    scale = np.maximum(deviation, 1e-300)
    return np.asarray(ndtr((room - mean) / scale) - ndtr(-(room + mean) / (tilt * scale)))


def margins(room: Vector, confidence: Vector, deviation: Vector, tilt: Vector) -> Vector:
    """Return M: how far above parity each row may be trained; see the module."""
    at_parity = kept_chance(0.0, room, deviation, tilt)
    target = np.minimum(confidence, 0.5 * (1.0 + confidence) * at_parity)
    fits = kept_chance(room, room, deviation, tilt) >= target
    low, high = np.where(fits, room, 0.0), room
    for _ in range(50):
        middle = 0.5 * (low + high)
        inside = kept_chance(middle, room, deviation, tilt) >= target
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low


def shared_confidence(constraints: Constraints, confidence: float) -> Vector:
    """Return c' of each row: a budget's miss is shared out over groups and kinds of rates."""
    found = np.empty(len(constraints))
    budgets = _grouped(constraints, lambda _, row: (row.client, *_rule_of(row)))
    for rows in budgets.values():
        groups = {constraints.rows[i].group_a for i in rows}
        kinds = len(RATE_KINDS[constraints.rows[rows[0]].metric])
        found[rows] = 1.0 - (1.0 - confidence) * 2.0 / max(len(groups) * kinds, 2)
    return found


# --- estimates over clients -----------------------------------------------------------------------


@dataclass(frozen=True)
class Shrinkage:
    """Weights of one comparison over clients: own, of the average, and what is left unknown.

    ``surprise`` is how many standard deviations a client is from what the others predict.
    """

    own: Vector
    average: Vector
    deviation: Vector
    spread: float
    surprise: Vector


def shrinkage(differences: Vector, deviations: Vector) -> Shrinkage:
    r"""Return empirical Bayes weights of clients' differences, integrated over their spread.

    .. math:: \pi(\tau) \propto \sqrt V \prod_k N(D_k; m, \tau^2 + s_k^2),
              \quad V = 1 / \sum_k (\tau^2 + s_k^2)^{-1}

    with m the precision-weighted mean, on the grid `SPREADS` with a flat prior.
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
    log = 0.5 * (np.log(V) + log_precision - squares)
    share = np.exp(log - log.max(axis=0))
    return np.asarray(share / share.sum(axis=0))


def _surprise(D: Vector, s2: Vector, precision: Vector) -> Vector:
    """Return how far each client is from what the others predict, in standard deviations.

    All quantities of `shrinkage`, of every client's others at once: shape (spreads, clients).
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
    """The rows that a run enforces, and what is known of them at the model without budgets.

    Row j of ``budgets`` is an estimate for its client where ``is_pooled``; ``own`` are the same
    comparisons on the client's own rows, which have the ``weight`` in the estimate. ``deviation``
    and ``tilt`` are those of the estimate. ``trust`` is the share of the gap between hard and
    smooth rates that new rows repeat. Where ``tells``, a client's own rows can tell. ``odd`` are
    the clients that contradict the others.
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
        """The own rows of clients that can tell, where the budget is an estimate."""
        return self.own.take(np.flatnonzero(self.tells & self.is_pooled))

    @property
    def decisive(self) -> Constraints:
        """What decisions must keep: own rows that can tell, else the estimates."""
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
    """Decide which rows are estimates over clients, at the rates of the model without budgets.

    ``constraints`` has the rows of all groups with ``min_group_rows`` rows, if that is given, else
    with any. Of comparisons that are not pooled, groups with too few rows for their rule are left
    out.
    """
    is_pooled = pooled_rows(constraints, pooling)
    least = np.array([_least_rows(row, rules, min_group_rows) for row in constraints.rows])
    kept = np.flatnonzero(is_pooled | (sample(constraints, counts, hard).smaller >= least))
    own, is_pooled = constraints.take(kept), is_pooled[kept]
    sampling, values = sample(own, counts, hard), own.apply(hard)
    weight, deviation = np.ones(len(own)), sampling.deviation.copy()
    trust = sampling.smaller / (sampling.smaller + TRUSTED_ROWS)
    pairs = [rows for rows in _pairs(own).values() if is_pooled[rows[0]]]
    most = ndtri(1.0 - ODD / max(0.5 * sum(map(len, pairs)), 1.0))
    shares, averages = np.zeros((len(own), len(pairs))), np.zeros((len(own), len(pairs)))
    spread, odd = {}, dict[ClientId | None, None]()
    for j, rows in enumerate(pairs):
        found = shrinkage(values[rows], sampling.deviation[rows])
        weight[rows], deviation[rows] = found.own, found.deviation
        shares[rows, j], averages[rows, j] = 1.0 - found.own, found.average
        together = sampling.smaller[rows].sum()
        trusted = together / (together + TRUSTED_ROWS)
        trust[rows] = found.own * trust[rows] + (1.0 - found.own) * trusted
        row = own.rows[rows[0]]
        spread[f"{row.attribute}: {row.group_a} - {row.group_b} ({row.kind})"] = found.spread
        odd |= dict.fromkeys(own.rows[i].client for i in rows[found.surprise > most])
    budgets = own
    if pairs:
        pooled = Pooled(shares, np.array([own.weigh_rates(average) for average in averages.T]))
        budgets = replace(own, entry_value=own.entry_value * weight[own.entry_row], pooled=pooled)
    tells = kept_chance(0.0, sampling.room, sampling.deviation, sampling.tilt) >= TELLS
    return Enforced(
        budgets, own, counts, weight, deviation, sampling.tilt, trust, tells, is_pooled, spread,
        tuple(client for client in odd if client is not None),
    )  # fmt: skip


def pooled_rows(constraints: Constraints, pooling: Pooling) -> NDArray[np.bool_]:
    """Return which rows are estimates over clients, of those of all groups with any rows."""
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
    least = [
        rule.least_rows(row.client, given)
        for rule in rules
        if (rule.name, rule.metric, rule.attribute) == _rule_of(row)
        and (rule.scope == "global") == (row.client is None)
    ]
    return max(least, default=LEAST_ROWS[0])


# --- bounds ---------------------------------------------------------------------------------------


def rate_limits(known: Enforced, rates: Vector, most: float) -> Constraints:
    """Return rows that keep the federation's rates within ``most`` of those given, two a rate."""
    own, counts = known.own, known.counts
    limits = no_rows(own.n_columns)
    kinds = _grouped(own, lambda _, row: (row.attribute, row.kind))
    for (attribute, kind), rows in kinds.items():
        columns = np.unique(own.entry_column[np.isin(own.entry_row, rows)])
        shares = counts[columns] / max(float(counts[columns].sum()), 1e-300)
        rate = float(shares @ rates[columns])
        limits = limits.plus(
            Constraints(
                rows=(Row(None, SHIFT, SHIFT, attribute, kind, "", "", most),) * 2,
                blocks=np.arange(2),
                bounds=np.array([rate + most, most - rate]),
                entry_row=np.repeat([0, 1], columns.size),
                entry_column=np.tile(columns, 2),
                entry_value=np.append(shares, -shares),
                n_columns=own.n_columns,
            )
        )
    return limits


@dataclass(frozen=True)
class Tightened:
    """Bounds of smooth rates, bounds of decisions, and by how much rows fall short, per row.

    ``rows_short`` is how many times as many rows a confidence takes, infinite where no number is
    enough: parity has no slack under a difference of 0 or a ratio of 1.
    ``can_tell`` are the rows whose estimate would stay inside at parity in nine of ten samples.
    """

    smooth: Vector
    decided: Vector
    rows_short: Vector
    can_tell: NDArray[np.bool_]

    def where_rows_tell(self, plain: Vector) -> "Tightened":
        """Return the same margins, left out of rows that cannot tell: those have plain bounds."""
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
    """Lower the bounds of the budgets for a confidence; see the module.

    ``smooth`` and ``hard`` are the rates of the model trained with the plain budgets, ``bias`` by
    how much each row is expected to be larger on new rows. With ``per_new_row``, the training rows
    of each row's client per new row, a sample is to keep the budgets, not the population.
    """
    sampling, b = sample(known.own, known.counts, hard), known.budgets.bounds
    deviation = np.sqrt(known.deviation**2 + per_new_row * sampling.deviation**2)
    c, room = shared_confidence(known.budgets, confidence), np.maximum(sampling.room, 0.0)
    M = margins(room, c, deviation, known.tilt)
    gap = known.trust * known.budgets.apply(hard - smooth)
    width = np.maximum(M, KEPT_SHARE * room)
    most = width - KEPT_SHARE * room
    z = ndtri(np.minimum(0.5 * (1.0 + c), CERTAIN))
    short = np.full(room.size, np.inf)
    np.divide(z * deviation, room, out=short, where=room > 0)
    return Tightened(
        smooth=np.minimum(b, b - room + width - np.clip(bias + gap, -most, most)),
        decided=b - known.trust * (1.0 - KEPT_SHARE) * (room - M),
        rows_short=short**2,
        can_tell=kept_chance(0.0, room, deviation, known.tilt) >= TELLS,
    )


def rows_per_new_row(
    problem: Problem, rows: Sequence[Row], new_rows: float | None
) -> Vector | float:
    """Return the training rows of each row's client, or the mean of all, per new row.

    ``new_rows`` is the number of new rows of each client. None stands for its population: 0.
    """
    if new_rows is None:
        return 0.0
    trained = dict[ClientId | None, float](zip(problem.clients, problem.n_rows, strict=True))
    trained[None] = float(problem.n_rows.mean())
    return np.array([trained[row.client] for row in rows]) / new_rows


# --- groups of rows -------------------------------------------------------------------------------


def _rule_of(row: Row) -> tuple[str, str, str]:
    return row.rule, row.metric, row.attribute


def _grouped(constraints: Constraints, key: Callable[[int, Row], Any]) -> dict[Any, Indices]:
    """Return the positions of rows by a key, in the order in which keys are met, but for None."""
    found: dict[Any, list[int]] = {}
    for i, row in enumerate(constraints.rows):
        found.setdefault(key(i, row), []).append(i)
    return {name: np.array(places) for name, places in found.items() if name is not None}


def _pairs(constraints: Constraints) -> dict[Any, Indices]:
    """Return rows of single clients that compare the same two groups by the same rule."""
    weight = np.zeros(len(constraints))
    np.maximum.at(weight, constraints.entry_row, constraints.entry_value)

    def key(i: int, row: Row) -> Any:
        pair = row.kind, row.group_a, row.group_b, float(weight[i])
        return None if row.client is None else (*_rule_of(row), *pair)

    return _grouped(constraints, key)
