r"""The optimisation problem of a method, its evaluation at a point, and the prices of budgets.

`build_constraints` converts rules to linear rows over group rates. `Evaluation` computes losses,
violations and their gradients from the reports of the clients:

.. math:: v = A r - b \le 0

where r stacks the rates of all clients, client by client. Rows that bound the same disparity (both
signs, all pairs of groups) form a *block*. The violation of a block is the largest violation of its
rows; the paper writes it as :math:`|D_k| - \epsilon_k`.

At an optimum the multipliers of the rows give the shadow price of every budget (`budget_prices`):

.. math:: \text{price} = -\frac{\partial f^*}{\partial \epsilon}
          = \sum_j \mu_j \frac{\partial b_j}{\partial \epsilon}

with :math:`f^*` the optimum, :math:`\epsilon` the budget, and :math:`\mu_j` and :math:`b_j` the
multipliers and bounds of the rows with this budget. Prices are first-order changes: they are valid
for small relaxations, if the optimum is differentiable in the budget. After a larger relaxation,
the budget may be inactive. If budgets cannot be met together, `conflict_sentence` names those to
relax.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from fcfl._types import ClientId, Matrix, RateId, Report, Reports, Vector, brief_repr, curvature_sum
from fcfl.rules import Rule, with_label

FEASIBILITY_TOLERANCE = 1e-6  # largest smooth violation of a row that counts as satisfied

SHIFT = "shift"  # `Row.rule` of rows that limit the shift of a rate, not a disparity

_DENSE_ENTRIES = 100_000  # with at most this many entries, a dense matrix is faster


@dataclass(frozen=True, slots=True)
class Row:
    """Description of one inequality ``weight_a * rate_a - rate_b <= bound``.

    For a difference, the weight is 1 and the bound is the budget. For a ratio, the weight is the
    budget and the bound is 0.

    ``client`` is ``None`` for a rule over the pooled rows of all clients. ``rule`` is "difference",
    "ratio" or "shift" (see `fcfl.training.margins`). ``metric`` is the compared quantity, ``kind``
    the kind of both rates, and ``group_a`` and ``group_b`` are groups of ``attribute``.
    """

    client: ClientId | None
    rule: str
    metric: str
    attribute: str
    kind: str
    group_a: str
    group_b: str
    budget: float


@dataclass(frozen=True)
class Pooled:
    """Averages of rates over clients; several rows use the same average.

    ``weights`` has shape (rows, averages) and ``averages`` has shape (averages, columns). The term
    ``weights @ averages @ rates`` is added to the rows. It is stored as two factors, because their
    product has an entry for every pair of clients.
    """

    weights: Matrix
    averages: Matrix


@dataclass(frozen=True)
class Constraints:
    """Linear rows over the stacked rates (client by client), stored as sparse triples.

    The matrix has ``entry_value[i]`` in row ``entry_row[i]`` and column ``entry_column[i]``. Most
    entries are zero, because the rows of a client depend on its own rates only. ``blocks[i]`` is
    the block of row ``i``; rows of a block are adjacent. If estimates are shrunk towards averages
    over clients, ``pooled`` is the term with these averages, and it is added to the rows.
    """

    rows: tuple[Row, ...]
    blocks: NDArray[np.int64]
    bounds: Vector
    entry_row: NDArray[np.int64]
    entry_column: NDArray[np.int64]
    entry_value: Vector
    n_columns: int
    pooled: Pooled | None = None

    __repr__ = brief_repr

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def matrix(self) -> Any:
        """Matrix from stacked rates to rows without the pooled term; an ndarray if it is small."""
        shape = (len(self.rows), self.n_columns)
        triples = (self.entry_value, (self.entry_row, self.entry_column))
        matrix = sparse.csr_array(triples, shape=shape)
        return matrix.toarray() if shape[0] * shape[1] <= _DENSE_ENTRIES else matrix

    @cached_property
    def block_starts(self) -> NDArray[np.int64]:
        """Index of the first row of each block."""
        return np.flatnonzero(np.diff(self.blocks, prepend=-1))

    def with_bounds(self, bounds: Vector) -> "Constraints":
        """Return a copy with other bounds."""
        return replace(self, bounds=bounds)

    def take(self, kept: NDArray[np.int64]) -> "Constraints":
        """Return the rows at the positions ``kept``, in this order."""
        place = np.full(len(self), -1)
        place[kept] = np.arange(kept.size)
        inside = np.flatnonzero(place[self.entry_row] >= 0)
        _, blocks = np.unique(self.blocks[kept], return_inverse=True)
        pooled = self.pooled
        return Constraints(
            rows=tuple(self.rows[i] for i in kept),
            blocks=blocks.astype(np.int64),
            bounds=self.bounds[kept],
            entry_row=place[self.entry_row[inside]],
            entry_column=self.entry_column[inside],
            entry_value=self.entry_value[inside],
            n_columns=self.n_columns,
            pooled=None if pooled is None else replace(pooled, weights=pooled.weights[kept]),
        )

    def plus(self, others: "Constraints") -> "Constraints":
        """Return these rows followed by ``others``, which must have no pooled term."""
        pooled = self.pooled
        if pooled is not None:
            none = np.zeros((len(others), pooled.weights.shape[1]))
            pooled = replace(pooled, weights=np.vstack([pooled.weights, none]))
        return Constraints(
            rows=self.rows + others.rows,
            blocks=np.append(self.blocks, self.blocks.max(initial=-1) + 1 + others.blocks),
            bounds=np.append(self.bounds, others.bounds),
            entry_row=np.append(self.entry_row, len(self) + others.entry_row),
            entry_column=np.append(self.entry_column, others.entry_column),
            entry_value=np.append(self.entry_value, others.entry_value),
            n_columns=self.n_columns,
            pooled=pooled,
        )

    def apply(self, rates: Vector) -> Vector:
        """Return the left-hand sides ``matrix @ rates``, including the pooled term."""
        left: Vector = self.matrix @ rates
        if self.pooled is not None:
            left = left + self.pooled.weights @ (self.pooled.averages @ rates)
        return left

    def violations(self, rates: Vector) -> Vector:
        """Return ``matrix @ rates - bounds``; a row is feasible if it is ``<= 0``."""
        return self.apply(rates) - self.bounds

    def gradients(
        self, rate_grad: Callable[[int], Vector], rows: NDArray[np.int64], n_params: int
    ) -> Matrix:
        """Return the gradients of the selected rows, of shape (selected rows, n_params).

        ``rate_grad(column)`` must return the gradient of one rate. It is called only for rates
        with nonzero entries in these rows.
        """
        chosen = self.matrix[rows]
        if sparse.issparse(chosen):
            touched = np.unique(chosen.indices)
        else:
            touched = np.flatnonzero(chosen.any(axis=0))
        if self.pooled is not None and self.pooled.weights[rows].any():
            touched = np.union1d(touched, np.flatnonzero(self.pooled.averages.any(axis=0)))
        rates = np.array([rate_grad(int(column)) for column in touched])
        rates = rates.reshape(touched.size, n_params)
        gradients: Matrix = chosen[:, touched] @ rates
        if self.pooled is not None:
            averages = self.pooled.averages[:, touched] @ rates
            gradients = gradients + self.pooled.weights[rows] @ averages
        return gradients

    def weigh_rates(self, row_weights: Vector) -> Vector:
        """Return ``matrix.T @ row_weights``: the weight of each rate in the sum of rows."""
        weights: Vector = self.matrix.T @ row_weights
        if self.pooled is not None:
            weights = weights + self.pooled.averages.T @ (self.pooled.weights.T @ row_weights)
        return weights

    def worst_rows(self, violations: Vector) -> NDArray[np.int64]:
        """Return the first row with the largest violation in each block."""
        if len(self.rows) == 0:
            return np.zeros(0, dtype=np.int64)
        largest = np.maximum.reduceat(violations, self.block_starts)
        candidates = np.flatnonzero(violations >= largest[self.blocks])
        _, first = np.unique(self.blocks[candidates], return_index=True)
        return candidates[first]


@dataclass(frozen=True, slots=True)
class _Population:
    """Rows whose rates are compared: those of one client, or the pooled rows of all clients.

    ``shares[i, q]`` is the weight of rate ``q`` of client ``members[i]`` in the pooled rate.
    """

    client: ClientId | None
    counts: Vector
    members: NDArray[np.int64]
    shares: Matrix


def _populations(
    rule: Rule, clients: Sequence[ClientId], group_counts: Matrix
) -> Iterator[_Population]:
    """Yield the populations of a rule: each client, or for scope "global" all rows pooled."""
    if rule.scope == "global":
        total = group_counts.sum(axis=0)
        shares = group_counts / np.where(total > 0, total, 1.0)
        yield _Population(None, total, np.arange(len(clients)), shares)
        return
    for position, (client, counts) in enumerate(zip(clients, group_counts, strict=True)):
        yield _Population(client, counts, np.array([position]), np.ones((1, counts.size)))


def build_constraints(
    rules: Sequence[Rule],
    clients: Sequence[ClientId],
    rates: Sequence[RateId],
    group_counts: Matrix,
    min_group_rows: float | None = 1.0,
) -> tuple[Constraints, tuple[str, ...]]:
    """Return the constraints of all rules, and a sentence for every group with too few data rows.

    ``group_counts`` has one row per client and one column per rate. Each rule adds one block per
    client with a budget, or one block over all clients. A block has one constraint for every
    ordered pair of groups that both have enough data rows. The minimum is ``min_group_rows``, or
    the default of the rule if ``min_group_rows`` is None.
    """
    builder = _Builder(len(rates), len(clients))
    notes: dict[str, None] = {}
    for rule in rules:
        for population in _populations(rule, clients, group_counts):
            budget = rule.budget_of(population.client)
            if budget is None:
                continue
            builder.open_block()
            min_rows = rule.least_rows(population.client, min_group_rows)
            for kind in rule.kinds:
                columns = [
                    (column, rate)
                    for column, rate in enumerate(rates)
                    if rate.kind == kind and rate.attribute == rule.attribute
                ]
                present = [(c, r) for c, r in columns if population.counts[c] >= min_rows]
                for column, rate in columns:
                    if (column, rate) not in present:
                        notes[_too_few(population.client, rate, population.counts[column])] = None
                for (column_a, a), (column_b, b) in permutations(present, 2):
                    names = (kind, a.group, b.group, budget)
                    row = Row(population.client, rule.name, rule.metric, rule.attribute, *names)
                    weight_a, weight_b, bound = rule.pair_row(budget)
                    sides = ((column_a, weight_a), (column_b, weight_b))
                    builder.add(row, bound, population, sides)
    return builder.build(), tuple(notes)


def name_of(row: Row) -> str:
    """Return the name of a row in messages: its client, metric and attribute."""
    whose = "all clients together" if row.client is None else repr(row.client)
    return f"{whose} ({'rate shift' if row.rule == SHIFT else row.metric}, {row.attribute})"


def exceeded_by(constraints: Constraints, rates: Vector, tolerance: float) -> dict[str, float]:
    """Return the largest violation above ``tolerance`` for each row name."""
    found: dict[str, float] = {}
    for row, over in zip(constraints.rows, constraints.violations(rates), strict=True):
        if over > tolerance:
            found[name_of(row)] = max(found.get(name_of(row), 0.0), float(over))
    return found


def no_rows(n_columns: int) -> Constraints:
    """Return constraints without rows."""
    none, empty = np.zeros(0, dtype=np.int64), np.zeros(0)
    return Constraints((), none, empty, none, none, empty, n_columns)


def _too_few(client: ClientId | None, rate: RateId, n_rows: float) -> str:
    """Return a note about a group that is left out because it has too few rows."""
    who = "The clients together have" if client is None else f"Client {client!r} has"
    return (
        f"{who} {n_rows:g} {'row' if n_rows == 1 else 'rows'}{with_label(rate.kind)} of "
        f"{rate.attribute} = {rate.group!r}: "
        "that group is left out of the comparison."
    )


class _Builder:
    """Collector of rows and their sparse entries; `build` returns the `Constraints`."""

    def __init__(self, n_rates: int, n_clients: int) -> None:
        self.n_rates = n_rates
        self.n_columns = n_rates * n_clients
        self.n_blocks = 0
        self.rows: list[Row] = []
        self.blocks: list[int] = []
        self.bounds: list[float] = []
        self.entries: list[tuple[int, int, float]] = []

    def open_block(self) -> None:
        """Start a new block; an empty block is dropped."""
        self.n_blocks = self.blocks[-1] + 1 if self.blocks else 0

    def add(
        self, row: Row, bound: float, population: _Population, sides: Iterable[tuple[int, float]]
    ) -> None:
        for column, weight in sides:
            for member, share in zip(population.members, population.shares[:, column], strict=True):
                if share:
                    place = int(member) * self.n_rates + column
                    self.entries.append((len(self.rows), place, weight * float(share)))
        self.rows.append(row)
        self.blocks.append(self.n_blocks)
        self.bounds.append(bound)

    def build(self) -> Constraints:
        triples = np.array(self.entries, dtype=np.float64).reshape(-1, 3)
        return Constraints(
            rows=tuple(self.rows),
            blocks=np.array(self.blocks, dtype=np.int64),
            bounds=np.array(self.bounds, dtype=np.float64),
            entry_row=triples[:, 0].astype(np.int64),
            entry_column=triples[:, 1].astype(np.int64),
            entry_value=triples[:, 2].copy(),
            n_columns=self.n_columns,
        )


@dataclass(frozen=True)
class Problem:
    r"""Clients, their row counts, the constraints, and the L2 weight added to every loss.

    A method minimises a function of the losses :math:`l_k(\theta) + \frac{\lambda}{2} |\theta|^2`
    subject to :math:`A r(\theta) \le b`.

    Each item of ``comparisons`` has the positions of rates that a rule compares with each other;
    the rule need not have a budget. ``references`` are rows disclosed to the server, for methods
    that require them.
    """

    clients: tuple[ClientId, ...]
    n_rows: Vector
    n_rates: int
    constraints: Constraints
    l2: float = 0.0
    rates: tuple[RateId, ...] = ()
    comparisons: tuple[tuple[int, ...], ...] = ()
    references: Matrix | None = None

    __repr__ = brief_repr


def build_problem(
    rules: Sequence[Rule],
    rates: Sequence[RateId],
    reports: Reports,
    *,
    l2: float = 0.0,
    min_group_rows: float | None = 1.0,
) -> tuple[Problem, tuple[str, ...]]:
    """Return the problem, and a sentence for every group that has too few rows to be compared.

    ``reports`` has one report per client, of which only the counts are used.
    """
    clients = tuple(reports)
    counts = np.array([reports[client][0].group_counts for client in clients])
    counts = counts.reshape(len(clients), len(rates))
    constraints, notes = build_constraints(rules, clients, rates, counts, min_group_rows)
    n_rows = np.array([reports[client][0].n_rows for client in clients])
    rates, compared = tuple(rates), compared_rates(rules, rates)
    return Problem(clients, n_rows, len(rates), constraints, l2, rates, compared), notes


def compared_rates(rules: Sequence[Rule], rates: Sequence[RateId]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the compared rates, for each kind and attribute in the rules."""
    kinds = dict.fromkeys((kind, rule.attribute) for rule in rules for kind in rule.kinds)
    return tuple(
        tuple(i for i, rate in enumerate(rates) if (rate.kind, rate.attribute) == key)
        for key in kinds
    )


@dataclass(frozen=True)
class Evaluation:
    """Losses, violations and, if requested, gradients of all clients at one point.

    ``reports`` are in the order of ``problem.clients``. Properties are computed on first use and
    cached. ``curvature_sum`` is the sum of the clients' curvatures if it was accumulated in place.
    """

    problem: Problem
    params: Vector
    reports: tuple[Report, ...]
    curvature_sum: Matrix | None = None

    __repr__ = brief_repr

    @cached_property
    def losses(self) -> Vector:
        """Loss of each client, including the L2 term."""
        losses = np.array([report.loss for report in self.reports])
        losses += 0.5 * self.problem.l2 * (self.params @ self.params)
        return losses

    @cached_property
    def loss_grads(self) -> Matrix:
        """Gradients of the clients' losses, of shape (clients, params)."""
        return np.array([self.loss_grad(client) for client in range(len(self.reports))])

    @cached_property
    def rates(self) -> Vector:
        """Smooth rates of all clients, stacked client by client, of shape (clients * rates,)."""
        return np.concatenate([report.rates for report in self.reports])

    @cached_property
    def violations(self) -> Vector:
        """Violation of every row, of shape (rows,); a row is feasible if it is ``<= 0``."""
        return self.problem.constraints.violations(self.rates)

    @cached_property
    def worst_rows(self) -> NDArray[np.int64]:
        """Position of the row with the largest violation in each block."""
        return self.problem.constraints.worst_rows(self.violations)

    @property
    def block_violations(self) -> Vector:
        """Violation of each block: in the paper, disparity minus budget."""
        return self.violations[self.worst_rows]

    def violation_grads(self, rows: NDArray[np.int64]) -> Matrix:
        """Return the gradients of the violations of ``rows``."""
        return self.problem.constraints.gradients(self._rate_grad, rows, self.params.size)

    def _rate_grad(self, column: int) -> Vector:
        client, rate = divmod(column, self.problem.n_rates)
        grads = self.reports[client].rate_grads
        if grads is None:
            raise ValueError("Gradients were not requested at this point.")
        gradient: Vector = grads[rate]
        return gradient

    def loss_grad(self, client: int) -> Vector:
        """Return the gradient of one client's loss."""
        grad = self.reports[client].loss_grad
        if grad is None:
            raise ValueError("Gradients were not requested at this point.")
        return grad + self.problem.l2 * self.params

    def slopes(self, direction: Vector) -> tuple[Vector, Vector]:
        """Return derivatives of all losses and of all violations along ``direction``.

        This takes one product per client, and no gradients of the rows.
        """
        losses = np.array([report.loss_grad @ direction for report in self.reports])  # type: ignore[operator]
        losses += self.problem.l2 * (self.params @ direction)
        rates = np.concatenate([report.rate_grads @ direction for report in self.reports])  # type: ignore[operator]
        return losses, self.problem.constraints.apply(rates)

    @property
    def curvature(self) -> Matrix:
        """Sum of the clients' parts of the Hessian of the Lagrangian, of shape (params, params)."""
        if self.curvature_sum is not None:
            return self.curvature_sum
        total = np.zeros((self.params.size, self.params.size))
        for report in self.reports:
            if report.curvature is None:
                raise ValueError("Curvature was not requested at this point.")
            total += report.curvature
        return total

    @property
    def largest_violation(self) -> float:
        """Largest violation, or minus infinity without constraints."""
        return float(self.violations.max()) if self.violations.size else -np.inf


def evaluate_point(
    problem: Problem, params: Vector, reports: Reports, index: int = 0
) -> Evaluation:
    """Return the evaluation at point ``index`` of the request."""
    at_point = tuple(reports[client][index] for client in problem.clients)
    return Evaluation(problem, params, at_point, curvature_sum(reports, index))


def smooth_max(values: ArrayLike, temperature: float) -> tuple[float, Vector]:
    r"""Return the smooth maximum of ``values`` (eq. 10 of the paper) and its gradient.

    .. math:: \hat m_\delta(v) = \delta \log \sum_i e^{v_i / \delta}
              \in [\max_i v_i,\; \max_i v_i + \delta \log n]

    The gradient is ``softmax(values / temperature)``, a point on the simplex. The maximum of an
    empty array is minus infinity.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size == 0:
        return -np.inf, np.zeros(0)
    largest = values.max()
    terms = np.exp((values - largest) / temperature)  # at most 1, to avoid overflow
    total = terms.sum()
    return float(largest + temperature * np.log(total)), terms / total


_NOTHING = 1e-9  # smaller multipliers are rounding errors of the dual solver


@dataclass(frozen=True)
class Price:
    """Decrease of the objective per unit by which one budget is relaxed.

    The budget of a difference rule is relaxed by increasing it, that of a ratio rule by decreasing
    it. ``client`` is ``None`` for a budget over the pooled rows of all clients.
    """

    client: ClientId | None
    rule: str
    metric: str
    attribute: str
    value: float


def budget_prices(at: Evaluation, row_weights: Vector) -> list[Price]:
    """Return the prices of all budgets in decreasing order; an inactive budget has price 0.

    ``row_weights`` are the multipliers of all rows at the optimum ``at``, of shape (rows,).
    """
    totals: dict[tuple[ClientId | None, str, str, str], float] = {}
    for index, row in enumerate(at.problem.constraints.rows):
        if row.rule == SHIFT:
            continue
        key = (row.client, row.rule, row.metric, row.attribute)
        weight = float(row_weights[index]) if row_weights[index] > _NOTHING else 0.0
        totals[key] = totals.get(key, 0.0) + weight * _bound_slope(at, index, row)
    listed = [Price(*key, value) for key, value in totals.items()]
    return sorted(listed, key=lambda price: -price.value)


def _bound_slope(at: Evaluation, index: int, row: Row) -> float:
    """Return the increase of a row's slack per unit by which its budget is relaxed.

    The increase is 1 for a difference, and ``rate_a``, which the budget multiplies, for a ratio.
    """
    if row.rule != "ratio" or row.budget == 0:
        return 1.0
    constraints = at.problem.constraints
    entries = constraints.entry_row == index
    multiplied = entries & (constraints.entry_value > 0)
    weights = constraints.entry_value[multiplied]
    return float(np.average(at.rates[constraints.entry_column[multiplied]], weights=weights))


def to_relax(at: Evaluation) -> list[tuple[Row, float]]:
    """Return the violated rows and their violations, the largest violation first.

    The point ``at`` should minimise the sum of absolute violations. As with an L1 penalty, few rows
    are then violated, so that few budgets need to be relaxed.
    """
    rows = at.problem.constraints.rows
    over = np.flatnonzero(at.violations > FEASIBILITY_TOLERANCE)
    listed = [(rows[i], float(at.violations[i])) for i in over]
    return sorted(listed, key=lambda item: -item[1])


def holding_against(at: Evaluation, row_weights: Vector) -> list[Row]:
    """Return satisfied rows with positive multipliers, which conflict with the violated rows."""
    rows = at.problem.constraints.rows
    met = at.violations <= FEASIBILITY_TOLERANCE
    return [rows[i] for i in np.flatnonzero(met & (row_weights > FEASIBILITY_TOLERANCE))]


def conflict_sentence(at: Evaluation, row_weights: Vector) -> str:
    """Return a sentence on the budgets to relax, the amounts, and the conflicting budgets.

    The sentence lists at most five of each. ``row_weights`` are the multipliers at the point.
    """
    relax = ", ".join(f"{name_of(row)} by {amount:.3g}" for row, amount in to_relax(at)[:5])
    against = list(dict.fromkeys(name_of(row) for row in holding_against(at, row_weights)))[:5]
    why = f" Conflicting budgets: {', '.join(against)}." if against else ""
    return f"The budgets cannot be met together near this model. Relax {relax}.{why}"
