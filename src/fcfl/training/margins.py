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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fcfl._types import ClientId, Vector
from fcfl.audit.forecast import SHARED_ROWS, TRUSTED_ROWS
from fcfl.problem.constraints import SHIFT, Constraints, Pooled, Row, no_rows
from fcfl.problem.evaluation import Problem
from fcfl.rules import LEAST_ROWS, RATE_KINDS, Rule

Pooling: TypeAlias = Literal["auto", "none"]

TELLS = 0.9  # chance at parity from which a client's own rows decide, whatever the confidence
POOLED_FROM = 8  # clients; with two or three the flat prior of the spread decides, not the data
LEAST_POOLED = 3  # clients that must compare a pair of groups for its average to mean anything
ODD = 0.025  # chance that a client like the others is named, over all comparisons
KEPT_SHARE = 0.1  # of the room, which bounds leave on each side of parity
CERTAIN = float(np.nextafter(1.0, 0.0))  # the largest probability with a finite quantile

SPREADS = np.arange(0.0, 0.4001, 0.002)  # the grid of the spread between clients, flat prior


@dataclass(frozen=True)
class Sampling:
    """What samples of training rows tell about each row, at the rates of some model.

    ``smaller`` is the smaller of the two groups; ``opposite`` the deviation with the two groups'
    weights exchanged, that of the other tail of a ratio.
    """

    parity: Vector
    deviation: Vector
    opposite: Vector
    room: Vector
    smaller: Vector

    @property
    def kept_at_parity(self) -> Vector:
        """Chance that a model with equal rates keeps each row on a sample."""
        return kept_chance(np.zeros(len(self.room)), self.room, self.deviation, self.opposite)

    @property
    def tells(self) -> NDArray[np.bool_]:
        """Whether a client's own rows can tell each comparison."""
        return self.kept_at_parity >= TELLS


def sample(constraints: Constraints, counts: Vector, rates: Vector) -> Sampling:
    """Describe the sampling of each row; ``rates`` and ``counts`` are stacked by client."""
    row, column, value = constraints.entry_row, constraints.entry_column, constraints.entry_value
    n = len(constraints)

    def total(of_entries: Vector) -> Vector:
        return np.bincount(row, of_entries, minlength=n).astype(np.float64)

    first = value > 0
    rows_a, rows_b = total(counts[column] * first), total(counts[column] * ~first)
    weight_a, weight_b = total(value * first), total(-value * ~first)
    parity = _parity_rates(constraints, counts, rates)
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = parity * (1.0 - parity)
        inverse_a, inverse_b = 1.0 / np.maximum(rows_a, 1e-9), 1.0 / np.maximum(rows_b, 1e-9)
        deviation = np.sqrt(noise * (weight_a**2 * inverse_a + weight_b**2 * inverse_b))
        opposite = np.sqrt(noise * (weight_b**2 * inverse_a + weight_a**2 * inverse_b))
    room = constraints.bounds - parity * (weight_a - weight_b)
    return Sampling(parity, deviation, opposite, room, np.minimum(rows_a, rows_b))


def _parity_rates(constraints: Constraints, counts: Vector, rates: Vector) -> Vector:
    """The rate of the groups that each row's rule compares, together, at a client or overall.

    It counts `SHARED_ROWS` more rows at the federation's rate, so that it is never 0 or 1.
    """
    everywhere = _numbered((row.attribute, row.kind) for row in constraints.rows)
    at_client = _numbered((row.client, row.attribute, row.kind) for row in constraints.rows)

    def total(group: NDArray[np.int64]) -> tuple[Vector, Vector]:
        """Selected rows and all rows behind the rates that each group of rows touches."""
        width = constraints.n_columns
        touched = np.unique(group[constraints.entry_row] * width + constraints.entry_column)
        owner, column = np.divmod(touched, width)
        selected = np.bincount(owner, counts[column] * rates[column]).astype(np.float64)
        return selected[group], np.bincount(owner, counts[column]).astype(np.float64)[group]

    selected, n = total(everywhere)
    overall = (selected + 1.0) / (n + 2.0)
    selected, n = total(at_client)
    return np.asarray((selected + SHARED_ROWS * overall) / (n + SHARED_ROWS))


def kept_chance(mean: Vector, room: Vector, deviation: Vector, opposite: Vector) -> Vector:
    """Chance that a value ``mean`` above parity is within ``room`` of it on both sides."""
    with np.errstate(divide="ignore", invalid="ignore"):
        above = ndtr((room - mean) / np.maximum(deviation, 1e-300))
        below = ndtr(-(room + mean) / np.maximum(opposite, 1e-300))
    return np.asarray(above - below)


def margins(sampling: Sampling, confidence: Vector, deviation: Vector, opposite: Vector) -> Vector:
    """Return M: how far above parity each row may be trained; see the module."""
    room = np.maximum(sampling.room, 0.0)
    at_parity = kept_chance(np.zeros(room.size), room, deviation, opposite)
    target = np.minimum(confidence, 0.5 * (1.0 + confidence) * at_parity)
    low, high = np.zeros(room.size), room.copy()
    fits = kept_chance(room, room, deviation, opposite) >= target
    low = np.where(fits, room, low)
    for _ in range(50):
        middle = 0.5 * (low + high)
        inside = kept_chance(middle, room, deviation, opposite) >= target
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low


def shared_confidence(constraints: Constraints, confidence: float) -> Vector:
    """Return c' of each row: a budget's miss is shared out over groups and kinds of rates."""
    found = np.empty(len(constraints))
    for rows in _grouped(constraints, lambda r: (r.client, r.metric, r.attribute, r.rule)).values():
        groups = {constraints.rows[i].group_a for i in rows}
        kinds = len(RATE_KINDS[constraints.rows[rows[0]].metric])
        found[rows] = 1.0 - (1.0 - confidence) * 2.0 / max(len(groups) * kinds, 2)
    return found


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
    r"""Empirical Bayes of clients' differences, integrated over their spread.

    .. math:: \pi(\tau) \propto \sqrt V \prod_k N(D_k; m, \tau^2 + s_k^2),
              \quad V = 1 / \sum_k (\tau^2 + s_k^2)^{-1}

    with m the precision-weighted mean, on the grid `SPREADS` with a flat prior.
    """
    D, s2 = differences, np.maximum(deviations**2, 1e-12)
    precision = 1.0 / (SPREADS[:, None] ** 2 + s2)
    own = SPREADS[:, None] ** 2 * precision
    V = 1.0 / precision.sum(axis=1)
    m = V * (precision @ D)
    share = _posterior(precision, V, m, D)
    means = own * D + (1.0 - own) * m[:, None]
    mean = share @ means
    inner = share @ (own * s2 + (1.0 - own) ** 2 * V[:, None])
    between = share @ (means - mean) ** 2
    return Shrinkage(
        own=share @ own,
        average=share @ (precision * V[:, None]),
        deviation=np.sqrt(inner + between),
        spread=float(share @ SPREADS),
        surprise=_surprise(D, s2, precision),
    )


def _posterior(precision: Vector, V: Vector, m: Vector, D: Vector) -> Vector:
    squares = (precision * (D - m[:, None]) ** 2).sum(axis=1)
    log = 0.5 * np.log(V) + 0.5 * np.log(precision).sum(axis=1) - 0.5 * squares
    share = np.exp(log - log.max())
    return np.asarray(share / share.sum())


def _surprise(D: Vector, s2: Vector, precision: Vector) -> Vector:
    """How far each client is from what the other clients predict, in standard deviations.

    All quantities of `shrinkage`, of every client's others at once: shape (spreads, clients).
    """
    P = precision.sum(axis=1, keepdims=True) - precision
    V = 1.0 / P
    m = V * ((precision @ D)[:, None] - precision * D)
    squares = (precision @ D**2)[:, None] - precision * D**2 - P * m**2
    logs = np.log(precision).sum(axis=1, keepdims=True) - np.log(precision)
    log = 0.5 * (np.log(V) + logs - np.maximum(squares, 0.0))
    share = np.exp(log - log.max(axis=0))
    share /= share.sum(axis=0)
    mean = (share * m).sum(axis=0)
    variance = (share * (SPREADS[:, None] ** 2 + s2 + V + (m - mean) ** 2)).sum(axis=0)
    return np.asarray(np.abs(D - mean) / np.sqrt(variance))


@dataclass(frozen=True)
class Enforced:
    """The rows that a run enforces, and what is known of them at the model without budgets.

    Row j of ``budgets`` is an estimate for its client; ``own`` are the same comparisons on the
    client's own rows. ``weight`` is that of a client's own rows in the estimate, ``deviation`` and
    ``opposite`` those of the estimate, ``trust`` how far decisions, not smooth rates, count.
    ``tells`` says whose own rows can tell, ``odd`` which clients contradict the others.
    """

    budgets: Constraints
    own: Constraints
    counts: Vector
    weight: Vector
    deviation: Vector
    opposite: Vector
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
    def decisive(self) -> Constraints:
        """What decisions must keep: own rows that can tell, else the estimates."""
        own = np.flatnonzero(self.tells & self.is_pooled)
        kept = np.flatnonzero(~(self.tells & self.is_pooled))
        return self.budgets.take(kept).plus(self.own.take(own))


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
    smaller = sample(constraints, counts, hard).smaller
    kept = np.flatnonzero(is_pooled | (smaller >= least))
    own = constraints.take(kept)
    return _estimates(own, counts, hard, is_pooled[kept])


def pooled_rows(constraints: Constraints, pooling: Pooling) -> NDArray[np.bool_]:
    """Return which rows are estimates over clients, of those of all groups with any rows."""
    keys = _pairs(constraints) if pooling == "auto" else {}
    clients_of: dict[object, set[ClientId | None]] = {}
    for (rule, *_), rows in keys.items():
        names = clients_of.setdefault(rule, set())
        names.update(constraints.rows[i].client for i in rows)
    is_pooled = np.zeros(len(constraints), dtype=bool)
    for (rule, *_), rows in keys.items():
        if len(rows) >= LEAST_POOLED and len(clients_of[rule]) >= POOLED_FROM:
            is_pooled[rows] = True
    return is_pooled


def _estimates(
    own: Constraints, counts: Vector, hard: Vector, is_pooled: NDArray[np.bool_]
) -> Enforced:
    """The rows with those that are pooled shrunk towards the averages over clients."""
    sampling = sample(own, counts, hard)
    n = len(own)
    weight, deviation = np.ones(n), sampling.deviation.copy()
    trust = sampling.smaller / (sampling.smaller + TRUSTED_ROWS)
    weights, averages, spread = [], [], {}
    odd: dict[ClientId, None] = {}
    pairs = [rows for rows in _pairs(own).values() if is_pooled[rows[0]]]
    most = ndtri(1.0 - ODD / max(0.5 * sum(map(len, pairs)), 1.0))
    values = own.apply(hard)
    for rows in pairs:
        found = shrinkage(values[rows], sampling.deviation[rows])
        weight[rows], deviation[rows] = found.own, found.deviation
        column = np.zeros(n)
        column[rows] = 1.0 - found.own
        weights.append(column)
        average = np.zeros(n)
        average[rows] = found.average
        averages.append(own.weigh_rates(average))
        together = sampling.smaller[rows].sum()
        trusted = together / (together + TRUSTED_ROWS)
        trust[rows] = found.own * trust[rows] + (1.0 - found.own) * trusted
        row = own.rows[rows[0]]
        spread[f"{row.attribute}: {row.group_a} - {row.group_b} ({row.kind})"] = found.spread
        for i, surprise in zip(rows, found.surprise, strict=True):
            client = own.rows[i].client
            if surprise > most and client is not None:
                odd[client] = None
    budgets = own
    if weights:
        scaled = replace(own, entry_value=own.entry_value * weight[own.entry_row])
        budgets = replace(scaled, pooled=Pooled(np.array(weights).T, np.array(averages)))
    ratio = sampling.opposite / np.maximum(sampling.deviation, 1e-300)
    return Enforced(
        budgets, own, counts, weight, deviation, deviation * ratio, trust,
        sampling.tells, is_pooled, spread, tuple(odd),
    )  # fmt: skip


def _least_rows(row: Row, rules: Sequence[Rule], given: float | None) -> float:
    if given is not None:
        return given
    least = [
        rule.least_rows(row.client)
        for rule in rules
        if (rule.name, rule.metric, rule.attribute) == (row.rule, row.metric, row.attribute)
        and (rule.scope == "global") == (row.client is None)
    ]
    return max(least, default=LEAST_ROWS[0])


def rate_limits(known: Enforced, rates: Vector, most: float) -> Constraints:
    """Rows that keep the federation's rates within ``most`` of those given, two for each rate."""
    constraints, counts = known.own, known.counts
    limits = no_rows(constraints.n_columns)
    for (attribute, kind), own in _grouped(constraints, lambda r: (r.attribute, r.kind)).items():
        columns = _columns(constraints, own)
        shares = counts[columns] / max(float(counts[columns].sum()), 1e-300)
        rate = float(shares @ rates[columns])
        for sign in (1.0, -1.0):
            row = Row(None, SHIFT, SHIFT, attribute, kind, "", "", most)
            limits = limits.plus(
                Constraints(
                    rows=(row,),
                    blocks=np.zeros(1, dtype=np.int64),
                    bounds=np.array([sign * rate + most]),
                    entry_row=np.zeros(columns.size, dtype=np.int64),
                    entry_column=columns,
                    entry_value=sign * shares,
                    n_columns=constraints.n_columns,
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
    new_rows: Vector | None = None,
) -> Tightened:
    """Lower the bounds of the budgets for a confidence; see the module.

    ``smooth`` and ``hard`` are the rates of the model trained with the plain budgets, ``bias`` by
    how much each row is expected to be larger on new rows. With ``new_rows``, the training rows
    of each row's client divided by new ones, a sample is to keep the budgets, not the population.
    """
    sampling = sample(known.own, known.counts, hard)
    extra = 0.0 if new_rows is None else new_rows
    deviation = np.sqrt(known.deviation**2 + extra * sampling.deviation**2)
    opposite = np.sqrt(known.opposite**2 + extra * sampling.opposite**2)
    c = shared_confidence(known.budgets, confidence)
    room = np.maximum(sampling.room, 0.0)
    M = margins(sampling, c, deviation, opposite)
    gap = known.trust * known.budgets.apply(hard - smooth)
    width = np.maximum(M, KEPT_SHARE * room)
    most = width - KEPT_SHARE * room
    shift = np.clip(bias + gap, -most, most)
    b = known.budgets.bounds
    z = ndtri(np.minimum(0.5 * (1.0 + c), CERTAIN))
    short = np.full(room.size, np.inf)
    np.divide(z * deviation, room, out=short, where=room > 0)
    can_tell = kept_chance(np.zeros(room.size), room, deviation, opposite) >= TELLS
    return Tightened(
        np.minimum(b, b - room + width - shift),
        b - known.trust * (1.0 - KEPT_SHARE) * (room - M),
        short**2,
        can_tell,
    )


def rows_per_new_row(
    problem: Problem, rows: Sequence[Row], new_rows: float | None
) -> Vector | None:
    """Return the training rows of each row's client, or of all, per new row of theirs.

    ``new_rows`` is the number of new rows of each client, or None.
    """
    if new_rows is None:
        return None
    own = dict(zip(problem.clients, problem.n_rows, strict=True))
    together = float(problem.n_rows.mean())
    trained = [together if row.client is None else own[row.client] for row in rows]
    return np.array(trained) / new_rows


def _numbered(keys: Iterable[object]) -> NDArray[np.int64]:
    """Return the number of each key, in the order in which keys are met."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _grouped(constraints: Constraints, key: Callable[[Row], Any]) -> dict[Any, NDArray[np.int64]]:
    """Return the positions of rows by a key, in the order in which keys are met."""
    found: dict[Any, list[int]] = {}
    for i, row in enumerate(constraints.rows):
        found.setdefault(key(row), []).append(i)
    return {name: np.array(places) for name, places in found.items()}


def _pairs(constraints: Constraints) -> dict[tuple[object, ...], NDArray[np.int64]]:
    """Rows of single clients that compare the same two groups by the same rule."""
    weight = np.zeros(len(constraints))
    np.maximum.at(weight, constraints.entry_row, constraints.entry_value)
    found: dict[tuple[object, ...], list[int]] = {}
    for i, row in enumerate(constraints.rows):
        if row.client is not None:
            rule = row.rule, row.metric, row.attribute
            key = (rule, row.kind, row.group_a, row.group_b, float(weight[i]))
            found.setdefault(key, []).append(i)
    return {key: np.array(rows) for key, rows in found.items()}


def _columns(constraints: Constraints, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rates that some rows touch."""
    inside = np.isin(constraints.entry_row, rows)
    return np.unique(constraints.entry_column[inside])
