"""AgnosticFair, or FA (Du et al., 2021): robust to a reweighing of rows by an adversary.

It lowers the covariance of group and logit under the worst reweighing; it does not enforce budgets.
The kernel's reference points are rows of the clients, disclosed to the server and to all clients.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.optimize import linprog

from fcfl._checks import check_count, check_non_negative, check_params, check_positive
from fcfl._types import Matrix, Point, RateKind, Reports, Request, Vector
from fcfl.errors import SolverError
from fcfl.methods.baselines import Iterate, after_round, check_steps
from fcfl.methods.method import RoundInfo, describe_round
from fcfl.problem import Evaluation, Problem, evaluate_point

from .questions import KernelSums

_SLACK_PRICE = 1e3  # of covariance beyond its bound, both scaled to a largest entry of one


@dataclass(frozen=True)
class AgnosticFairState(Iterate):
    """``kernel_weights`` are the adversary's; the first round only counts, they are then zero."""

    kernel_weights: Vector


@dataclass(frozen=True)
class AgnosticFair:
    r"""Minimise the mean of :math:`w_i \ell_i` plus ``penalty`` times the squared covariances.

    Row weights are :math:`w_i = \sum_j \alpha_j K(x_i, x_j)` over reference points. The adversary
    chooses :math:`0 \le \alpha_j \le` ``largest_weight`` by a linear programme: highest weighted
    loss, :math:`\sum_i w_i = n`, covariance within ``covariance``. It moves a share
    :math:`2 / (t + 2)` of the way each round, the learner one gradient step.
    """

    step_size: float = 0.5
    rounds: int = 300
    tolerance: float = 1e-3
    penalty: float = 1.0
    covariance: float = 0.05
    largest_weight: float = 5.0
    n_references: int = 50
    name: str = "agnostic-fair"
    state_class: ClassVar[type[AgnosticFairState]] = AgnosticFairState
    help: ClassVar[str] = (
        "the loss and covariance under the worst reweighting of rows; discloses 50 rows, does "
        "not enforce budgets"
    )
    enforces_budgets: ClassVar[bool] = False
    over_sites: ClassVar[bool] = False
    rate_kinds: ClassVar[tuple[RateKind, ...]] = ("selection",)

    def __post_init__(self) -> None:
        check_steps(self)
        check_non_negative("penalty", self.penalty)
        check_non_negative("covariance", self.covariance)
        check_positive("largest_weight", self.largest_weight)
        check_positive("n_references", self.n_references)
        check_count("n_references", self.n_references)

    def fraction_done(self, state: AgnosticFairState) -> float:
        """Return share of the rounds taken."""
        return state.rounds[0] / self.rounds

    def init(self, params: Vector, problem: Problem) -> AgnosticFairState:
        """Ask for counts and kernel sums."""
        params = check_params(params)
        if problem.references is None:
            raise ValueError(
                "`problem.references` must hold rows for 'agnostic-fair', got none. It needs the "
                "rows of a table in one process; choose another method elsewhere."
            )
        sets = group_sets(problem)
        n = problem.references.shape[0]
        width, no_centres = bandwidth(problem.references), np.zeros(len(sets))
        question = KernelSums(problem.references, width, sets, no_centres, np.zeros(n))
        request = Request((Point(params, extras=(question,)),))
        return AgnosticFairState(problem, params, request, "running", "", (0,), np.zeros(n))

    def step(
        self, state: AgnosticFairState, reports: Reports
    ) -> tuple[AgnosticFairState, RoundInfo]:
        """Move the learner against the present weights, then the adversary."""
        problem, taken = state.problem, state.rounds[0] + 1
        point = state.request.points[0]
        at, question = evaluate_point(problem, point.params, reports), point.extras[0]
        assert isinstance(question, KernelSums)
        sums = _added(at, "kernel_sums")
        n = float(problem.n_rows.sum())
        onward, still = at.params, False
        if point.want == "values":
            weights = np.full(sums.shape[1], n / max(float(sums[1].sum()), 1e-300))
            weights = np.minimum(weights, self.largest_weight)
            groups = sum(report.group_counts[list(question.sets)] for report in at.reports)
            question = replace(question, centres=np.asarray(groups) / n)
        else:
            gradient = self._gradient(at, sums, question, n)
            onward = at.params - self.step_size * gradient
            answer = worst_weights(sums, n, self.largest_weight, self.covariance)
            weights = state.kernel_weights + 2.0 / (taken + 2.0) * (answer - state.kernel_weights)
            gain = float((weights - state.kernel_weights) @ sums[0]) / n
            still = bool(max(np.abs(gradient).max(), abs(gain)) <= self.tolerance)
        state = replace(state, params=at.params, kernel_weights=weights)
        what = "Neither the learner nor the adversary moves" if still else None
        state = after_round(state, at, taken, self.rounds, stationary=what)
        if state.status == "running":
            asked = Point(onward, "gradients", extras=(replace(question, weights=weights),))
            state = replace(state, request=Request((asked,)))
        return state, describe_round(at, round=taken, stage=1, step=self.step_size)

    def _gradient(self, at: Evaluation, sums: Matrix, question: KernelSums, n: float) -> Vector:
        r"""Gradient of :math:`\frac1n \sum w_i \ell_i + c \sum C_s^2 + \frac\lambda2|\theta|^2`."""
        grads = _added(at, "kernel_grads") / n
        covariances = sums[2:] @ question.weights / n
        gradient: Vector = grads[0] + 2.0 * self.penalty * covariances @ grads[1:]
        return gradient + at.problem.l2 * at.params


def _added(at: Evaluation, part: str) -> Matrix:
    """Return a part of the reports, summed over clients."""
    total: Matrix = np.sum([report.extras[part] for report in at.reports], axis=0)
    return total


def group_sets(problem: Problem) -> tuple[int, ...]:
    """Return positions of selection rates: of each attribute all but the last group."""
    places: dict[str, list[int]] = {}
    for position, rate in enumerate(problem.rates):
        if rate.kind == "selection":
            places.setdefault(rate.attribute, []).append(position)
    return tuple(q for group in places.values() for q in (group[:-1] or group))


def bandwidth(references: Matrix) -> float:
    """Return the median distance between reference points, or 1 where there is none."""
    squares = np.einsum("ij,ij->i", references, references)
    distances = np.maximum(squares[:, None] + squares - 2.0 * references @ references.T, 0.0)
    apart = np.sqrt(distances[np.triu_indices(squares.size, 1)])
    apart = apart[apart > 1e-9]
    return float(np.median(apart)) if apart.size else 1.0


def worst_weights(sums: Matrix, n_rows: float, largest: float, covariance: float) -> Vector:
    r"""Return the adversary's weights :math:`\alpha`, those of the highest weighted loss.

    .. math:: \max_\alpha \tfrac1n \alpha^T L \quad\text{s.t.}\quad 0 \le \alpha_j \le B,\;
              \alpha^T N = n,\; |\alpha^T C_s| \le n \tau

    with L, N and the :math:`C_s` the lines of ``sums``. Where no weights have so small a
    covariance, the smallest excess is taken; where even B everywhere gives fewer than n rows, that.
    """
    largest_entries = np.abs(sums).max(axis=1, keepdims=True)
    scaled = sums / np.where(largest_entries > 0, largest_entries, 1.0)
    loss, rows, sets = scaled[0], scaled[1], scaled[2:]
    n_points, n_sets = loss.size, sets.shape[0]
    sizes = n_rows / np.where(largest_entries > 0, largest_entries, 1.0)[:, 0]
    total = min(float(sizes[1]), largest * float(rows.sum()))
    bounds = covariance * sizes[2:]
    bends = np.vstack([sets, -sets])
    slack = np.vstack([np.eye(n_sets), np.eye(n_sets)])
    found = linprog(
        np.concatenate([-loss, np.full(n_sets, _SLACK_PRICE)]),
        A_ub=np.hstack([bends, -slack]) if n_sets else None,
        b_ub=np.concatenate([bounds, bounds]) if n_sets else None,
        A_eq=np.concatenate([rows, np.zeros(n_sets)])[None],
        b_eq=[total],
        bounds=[(0.0, largest)] * n_points + [(0.0, None)] * n_sets,
        method="highs",
    )
    if found.x is None:
        raise SolverError(f"The adversary's linear programme was not solved: {found.message}")
    weights: Vector = np.clip(found.x[:n_points], 0.0, largest)
    return weights
