"""Choose the L2 weight and the objective by leave-one-out losses inside the clients.

All candidates are trained in lock step from the fit without budgets, one exchange a round, under
the budgets. Then each client sums what its rows would lose in a model trained without them
(`fcfl.models.influence`), and:

1. The L2 weight is the largest whose mean over all rows, under the objective nearest to the mean,
   is within one paired standard error of the lowest.
2. A more min-max objective is chosen only if it lowers the held-out loss of the client served
   worst by more than one paired standard error. Clients' losses are shrunk towards the mean of all
   rows by how well their rows determine them, so that a client of few rows does not decide by
   chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from fcfl._types import ClientId, CurvatureWeights, Matrix, Point, Reports, Vector
from fcfl.errors import ReportError
from fcfl.federation.federation import Bound
from fcfl.methods.sqp import SQPState
from fcfl.models.influence import LeaveOneOut
from fcfl.problem.evaluation import Evaluation, Problem, evaluate_point
from fcfl.results.result import Selection, SelectionLine, objective_name
from fcfl.training.lanes import Lane, ask_together, run_together
from fcfl.training.session import OnRound
from fcfl.training.settings import Candidate, OpenSettings

ROUNDS, TOLERANCE = 12, 1e-3  # of a fit that is only compared
WHAT = "choosing l2 and objective"


def choose(
    clients: Bound,
    problem: Problem,
    method: Any,
    settings: OpenSettings,
    start: tuple[SQPState, Reports],
    on_round: OnRound | None = None,
) -> tuple[Selection, Lane | None, Lane | None]:
    """Train all candidates under the budgets; the choice, its fit, and that without budgets.

    ``start`` is a fit without budgets, with the reports on its last request. Beside the candidates
    one is trained at each of their L2 weights: budgets are compared with the model without them at
    the same weight.
    """
    candidates = settings.candidates(len(problem.clients))
    if len(candidates) == 1 or not method.is_exact(start[0].params.size):
        return _unchosen(settings, len(candidates)), None, None
    lanes = {(True, one): _lane(method, problem, one, start) for one in candidates}
    nearest = candidates[0][1]
    for l2 in dict.fromkeys(l2 for l2, _ in candidates):
        lanes[False, (l2, nearest)] = _lane(method, start[0].problem, (l2, nearest), start)
    ended = run_together(lanes, clients, WHAT, on_round)
    found = _held_out(clients, problem, {one: ended[True, one] for one in candidates})
    if found is None:
        return _unchosen(settings, len(candidates)), None, None
    selection = decide(candidates, found)
    chosen = next(
        one
        for one in candidates
        if (one[0], objective_name(one[1])) == (selection.l2, selection.objective)
    )
    return selection, ended[True, chosen], ended[False, (selection.l2, nearest)]


def _lane(
    method: Any, problem: Problem, candidate: Candidate, start: tuple[SQPState, Reports]
) -> Lane:
    l2, objective = candidate
    quick = replace(
        method,
        objective=objective,
        rounds=(ROUNDS, 0),
        tolerance=TOLERANCE,
        feasibility=TOLERANCE,
    )
    return Lane(quick, quick.restart(start[0], replace(problem, l2=l2), start[1]))


@dataclass(frozen=True)
class HeldOut:
    """Sums of one client's leave-one-out losses under all candidates, and of their products."""

    n_rows: float
    sums: Vector
    products: Matrix

    @property
    def means(self) -> Vector:
        """Mean held-out loss under each candidate."""
        return self.sums / self.n_rows

    def variance(self, i: int, j: int | None = None) -> float:
        """Variance of candidate i's mean loss, or of its difference from candidate j's."""
        square, shift = self.products[i, i], self.means[i]
        if j is not None:
            square = square - 2.0 * self.products[i, j] + self.products[j, j]
            shift = shift - self.means[j]
        return float(max(square / self.n_rows - shift**2, 0.0) / max(self.n_rows - 1.0, 1.0))


def _held_out(
    clients: Bound, problem: Problem, lanes: Mapping[Candidate, Lane]
) -> dict[ClientId, HeldOut] | None:
    """Every client's sums; None where they cannot be had: a fit that bends nowhere, or own clients.

    Two exchanges: the curvature of the candidates' losses, then the sums.
    """
    states = [lane.state for lane in lanes.values()]
    points = [[loss_curvature(state)] for state in states]
    answers = ask_together(points, clients, WHAT)
    factors = []
    for state, reports in zip(states, answers, strict=True):
        factor = inverse_factor(evaluate_point(state.problem, state.params, reports), state)
        if factor is None:
            return None
        factors.append(factor)
    weights = {
        client: np.array([float(state.loss_weights[place]) for state in states])
        for place, client in enumerate(problem.clients)
    }
    question = LeaveOneOut(tuple(state.params for state in states), tuple(factors), weights)
    try:
        (told,) = ask_together([[Point(states[0].params, extras=(question,))]], clients, WHAT)
    except ReportError:  # a client of your own need not know the question
        return None
    found = {}
    for client, (report,) in told.items():
        losses = report.extras["loo_losses"]
        found[client] = HeldOut(float(losses[0]), losses[1:], report.extras["loo_products"])
    return found


def loss_curvature(state: SQPState) -> Point:
    """The point that asks for the Hessian of the losses alone, in the objective's weights."""
    none = np.zeros(state.problem.n_rates)
    weights = {
        client: CurvatureWeights(float(weight), none)
        for client, weight in zip(state.problem.clients, state.loss_weights, strict=True)
    }
    return Point(state.params, "curvature", weights)


def inverse_factor(at: Evaluation, state: SQPState) -> Matrix | None:
    """F with ``F @ F.T`` the inverse of the losses' Hessian; None if it is not positive definite.

    ``at`` is the answer to `loss_curvature`.
    """
    ridge = at.problem.l2 * state.loss_weights.sum() * np.eye(at.params.size)
    try:
        root = np.linalg.cholesky(ridge + at.curvature)
    except np.linalg.LinAlgError:
        return None
    return np.asarray(solve_triangular(root, np.eye(at.params.size), lower=True).T)


def decide(candidates: Sequence[Candidate], found: Mapping[ClientId, HeldOut]) -> Selection:
    """The choice among candidates, the first objective being the one nearest to the mean."""
    names = list(found)
    rows = np.array([one.n_rows for one in found.values()])
    means = np.array([one.means for one in found.values()])
    overall = rows @ means / rows.sum()
    best = [
        _flattest(candidates, objective, overall, found)
        for objective in dict.fromkeys(one[1] for one in candidates)
    ]
    base = best[0]
    variances = np.array([one.variance(base) for one in found.values()])
    own = _own_weight(means[:, base], variances)
    shrunk = own[:, None] * means + (1.0 - own)[:, None] * overall
    worst = int(np.argmax(shrunk[:, base]))
    errors = [np.sqrt(found[names[worst]].variance(i, base)) for i in range(len(candidates))]
    gains = shrunk[worst, base] - shrunk.max(axis=0)
    better = [i for i in best[1:] if gains[i] > errors[i]]
    chosen = max(better, key=lambda i: gains[i]) if better else base
    table = tuple(
        SelectionLine(
            l2=l2,
            objective=objective_name(objective),  # type: ignore[arg-type]
            worst_client=names[int(np.argmax(shrunk[:, i]))],
            worst_loss=float(shrunk[:, i].max()),
            mean_loss=float(overall[i]),
            standard_error_of_difference=float(errors[i]),
        )
        for i, (l2, objective) in enumerate(candidates)
    )
    line = table[chosen]
    return Selection(
        l2=line.l2,
        objective=line.objective,
        chosen=line,
        table=table,
        sentence=_sentence(table, base, chosen, best, len(names)),
    )


def _flattest(
    candidates: Sequence[Candidate],
    objective: Any,
    overall: Vector,
    found: Mapping[ClientId, HeldOut],
) -> int:
    """The largest L2 weight whose mean loss is within a paired standard error of the lowest."""
    own = [i for i, one in enumerate(candidates) if one[1] == objective]
    lowest = min(own, key=lambda i: overall[i])
    rows = np.array([one.n_rows for one in found.values()])

    def error(i: int) -> float:
        variances = np.array([one.variance(i, lowest) for one in found.values()])
        return float(np.sqrt(rows**2 @ variances) / rows.sum())

    near = [i for i in own if overall[i] <= overall[lowest] + error(i)]
    return max(near, key=lambda i: candidates[i][0])


def _own_weight(means: Vector, variances: Vector) -> Vector:
    """How much of a client's mean loss is its own rather than chance: 1 where rows abound."""
    if means.size < 2:
        return np.ones(means.size)
    between = max(float(means.var(ddof=1)) - float(variances.mean()), 0.0)
    return np.asarray(between / np.maximum(between + variances, 1e-300))


def _sentence(
    table: Sequence[SelectionLine], base: int, chosen: int, best: Sequence[int], n_clients: int
) -> str:
    line, mean = table[chosen], table[base]
    objective = line.objective if isinstance(line.objective, str) else f"{line.objective:g}"
    said = (
        f"Chose l2 {line.l2:g} and objective {objective} by leave-one-out losses: "
        f"{line.mean_loss:.4f} over all rows"
    )
    if n_clients == 1:
        return f"{said}."
    if line.worst_loss <= line.mean_loss and chosen == base:
        return f"{said}; clients differ by no more than chance."
    said += f", {line.worst_loss:.4f} for {line.worst_client!r}, the client served worst."
    if chosen != base:
        return (
            f"{said} The mean objective would give it {mean.worst_loss:.4f}, which is worse by "
            f"more than a standard error ({line.standard_error_of_difference:.4f})."
        )
    if len(best) > 1:
        said += " Weighing that client more does not lower its loss by more than a standard error."
    return said


def _unchosen(settings: OpenSettings, n_candidates: int) -> Selection:
    """A moderate choice, where nothing can be compared, and why."""
    l2, objective = settings.first
    chosen = f"l2 was set to {l2:g}, a middle value"
    if settings.objective != "auto":
        objective = settings.objective
    if settings.l2 != "auto":
        chosen = "The objective was set to the mean"
    why = (
        "leave-one-out losses need exact curvature, which a model with this many parameters or "
        "these clients do not have."
    )
    if n_candidates == 1:
        why = "one client has only one objective."
    return Selection(
        l2=l2,
        objective=objective_name(objective),  # type: ignore[arg-type]
        sentence=f"{chosen}: {why}",
    )
