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

Starts are compared in lock step, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from fcfl._checks import check_non_negative
from fcfl._types import ClientId, Matrix, Point, Reports, Vector, reports_on
from fcfl.errors import ReportError
from fcfl.methods.method import RoundInfo, next_state, traits_of
from fcfl.methods.sqp import SQPState
from fcfl.methods.sqp.sqp import inverse_factor, loss_curvature, target_of
from fcfl.models.influence import LeaveOneOut
from fcfl.models.model import Model
from fcfl.problem import Problem, evaluate_point
from fcfl.results.result import Selection, SelectionLine, Start, objective_name
from fcfl.training.run import Run, Stage, as_method

L2_GRID = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)  # below, rates are overfitted for no more accuracy
MIDDLE_L2 = 1e-2
OBJECTIVES = (np.inf, 0.1)  # the mean, and near the maximum

TOLERANCE = 1e-3  # KKT residual of a fit that is only compared
ROUNDS = 12  # of a fit of candidate settings
START_ROUNDS = 60  # of a fit from one of several starts
CHOOSING = "choosing l2 and objective"
BETTER = 1e-3  # share by which a later start must be lower to be preferred

K = TypeVar("K")
Candidate = tuple[float, Any]


# --- settings that are left open ------------------------------------------------------------------


@dataclass(frozen=True)
class OpenSettings:
    """The L2 weight and the objective: ``"auto"``, or the value that is given."""

    l2: float | Literal["auto"]
    objective: float | Literal["max", "mean", "auto"]

    @property
    def is_open(self) -> bool:
        """Whether anything is left to choose."""
        return "auto" in (self.l2, self.objective)

    def candidates(self, n_clients: int) -> list[Candidate]:
        """Return every combination; with one client all objectives are the same."""
        weights = L2_GRID if self.l2 == "auto" else (float(self.l2),)
        objectives: Sequence[Any] = (self.objective,)
        if self.objective == "auto":
            objectives = OBJECTIVES if n_clients > 1 else OBJECTIVES[:1]
        return [(l2, objective) for objective in objectives for l2 in weights]

    @property
    def first(self) -> Candidate:
        """Settings of the fit without budgets from which everything starts."""
        l2 = MIDDLE_L2 if self.l2 == "auto" else float(self.l2)
        return l2, np.inf if self.objective in ("auto", "max") else self.objective


def objective_of(method: Any) -> Any:
    """Return what a method minimises over clients, None where it is something of its own."""
    fixed = traits_of(method).objectives
    return getattr(method, "objective", fixed[0] if len(fixed) == 1 else None)


def with_objective(method: Any, objective: Any) -> Any:
    """Return the method with this objective, where it has a choice."""
    has_choice = is_dataclass(method) and "objective" in {field.name for field in fields(method)}
    return replace(method, objective=objective) if has_choice else method


def check_open_settings(
    method: Any,
    l2: float | Literal["auto"] | None,
    objective: float | Literal["max", "mean", "auto"] | None,
) -> None:
    """Raise `ValueError` for settings that the method does not have."""
    traits = traits_of(method)
    if isinstance(l2, str):
        if l2 != "auto" or not traits.is_cross_validated:
            raise ValueError(f"`l2` must be a number, or 'auto' with method 'sqp', got {l2!r}.")
    elif l2 is not None:
        check_non_negative("l2", l2)
    kind = objective if isinstance(objective, str) else "temperature"
    known = (*traits.objectives, *(("auto",) if traits.is_cross_validated else ()))
    if objective is not None and kind not in known:
        raise ValueError(
            "`objective` must be 'max', 'mean', 'auto' or a positive number, with method 'sqp', "
            f"got {objective!r} for {method.name!r}."
        )


def open_settings(
    method: Any,
    model: Model | None,
    l2: float | Literal["auto"] | None,
    objective: float | Literal["max", "mean", "auto"] | None,
) -> OpenSettings:
    """Return what is given, and what is left to choose; without a ``model``, for a linear one.

    A network has a default L2 weight: choosing needs the features of rows.
    """
    how = as_method(method)
    default_l2 = None if model is None else model.default_l2
    if default_l2 is not None and "auto" in (l2, objective):
        raise ValueError("`l2` and `objective` 'auto' need a linear model: give numbers.")
    check_open_settings(how, l2, objective)
    chooses = traits_of(how).is_cross_validated
    weight, target = l2, objective
    if weight is None:
        weight = ("auto" if default_l2 is None else default_l2) if chooses else 0.0
    if target is None:
        is_left_open = chooses and isinstance(method, str) and default_l2 is None
        target = "auto" if is_left_open else getattr(how, "objective", None)
    return OpenSettings(weight, target)  # type: ignore[arg-type]


# --- trainings in lock step -----------------------------------------------------------------------


@dataclass(frozen=True)
class Lane:
    """One of the trainings: its method and state, and the reports on its last request."""

    method: Any
    state: Any
    reports: Reports = field(default_factory=dict)


def run_together(lanes: Mapping[K, Lane], run: Run, what: str) -> dict[K, Lane]:
    """Train all lanes to their ends; ``what`` they are for is reported with every exchange."""
    reached, n_exchanges, done = dict(lanes), 0, 0.0
    while running := {k: lane for k, lane in reached.items() if lane.state.status == "running"}:
        requests = [lane.state.request.points for lane in running.values()]
        together = run.ask([point for points in requests for point in points], _purpose(what))
        end = 0
        for (key, lane), points in zip(running.items(), requests, strict=True):
            end += len(points)
            reports = reports_on(together, slice(end - len(points), end))
            state, _ = next_state(lane.method, lane.state, reports)
            reached[key] = replace(lane, state=state, reports=reports)
        n_exchanges += 1
        if run.session.on_round is not None:
            least = min(lane.method.fraction_done(lane.state) for lane in reached.values())
            done = max(done, least)  # residuals rise at times
            info = RoundInfo(n_exchanges, 0, "", np.nan, np.nan, np.nan, 0.0, what)
            run.session.on_round(info, done)
    return reached


def _purpose(what: str) -> str:
    return f"how models do, for {what}"


def _quick(method: Any, rounds: int) -> Any:
    return replace(method, rounds=(rounds, 0), tolerance=TOLERANCE, feasibility=TOLERANCE)


@dataclass(frozen=True)
class Screened:
    """Where a start led to, the objective there, and by how much budgets are exceeded."""

    entry: Start
    state: SQPState
    objective: float
    violation: float


def best_start(
    run: Run, method: Any, state: SQPState, others: Mapping[str, Vector]
) -> tuple[SQPState, tuple[Start, ...]]:
    """Continue from the best of ``state`` and ``others``: the problem has local optima.

    All are trained to a loose tolerance; the one that ends lowest within the budgets is kept.
    """
    quick, problem, what = _quick(method, START_ROUNDS), state.problem, "comparing starts"
    lanes = {"unconstrained optimum": Lane(quick, quick.restart(state, problem))}
    lanes |= {name: Lane(quick, quick.init(start, problem)) for name, start in others.items()}
    screened = []
    with run.federation.phase("starts"):
        ended = run_together(lanes, run, what)
        points = [Point(lane.state.params) for lane in ended.values()]
        reports = run.ask(points, _purpose(what))
    for place, (name, lane) in enumerate(ended.items()):
        at = evaluate_point(problem, lane.state.params, reports, place)
        target = target_of(lane.method.resolved(at.params.size), lane.state)
        value = float(target.objectives(at.losses).max())
        entry = Start(name, float(at.losses.max()), float(at.losses.mean()))
        screened.append(Screened(entry, lane.state, value, at.largest_violation))
    return method.restart(best_of(screened).state, problem), tuple(s.entry for s in screened)


def best_of(screened: Sequence[Screened]) -> Screened:
    """Return the lowest within the budgets, the earliest of those that are about the same.

    Where none is within them, return the one that exceeds them least.
    """
    inside = [one for one in screened if one.violation <= TOLERANCE]
    if not inside:
        return min(screened, key=lambda one: one.violation)
    lowest = min(one.objective for one in inside)
    return next(one for one in inside if one.objective <= lowest + BETTER * abs(lowest))


# --- the choice -----------------------------------------------------------------------------------


def choose(
    run: Run, problem: Problem, settings: OpenSettings, start: Stage
) -> tuple[Selection, Lane | None, Lane | None]:
    """Train all candidates under the budgets; return the choice, its fit, and that without budgets.

    ``start`` is a fit without budgets. Beside the candidates one is trained at each of their L2
    weights: budgets are compared with the model without them at the same weight.
    """
    candidates = settings.candidates(len(problem.clients))
    if len(candidates) == 1 or not run.method.is_exact(start.params.size):
        return _unchosen(settings, len(candidates)), None, None

    def lane(problem: Problem, candidate: Candidate) -> Lane:
        l2, objective = candidate
        quick = _quick(with_objective(run.method, objective), ROUNDS)
        return Lane(quick, quick.restart(start.state, replace(problem, l2=l2), start.reports))

    free, nearest = start.state.problem, candidates[0][1]
    lanes = {(True, one): lane(problem, one) for one in candidates}
    lanes |= {(False, (l2, nearest)): lane(free, (l2, nearest)) for l2, _ in candidates}
    with run.federation.phase("choose"):
        ended = run_together(lanes, run, CHOOSING)
        found = _held_out(run, [ended[True, one].state for one in candidates])
    if found is None:
        return _unchosen(settings, len(candidates)), None, None
    selection = decide(candidates, found)
    chosen = candidates[selection.table.index(selection.chosen)]
    return selection, ended[True, chosen], ended[False, (chosen[0], nearest)]


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


def _held_out(run: Run, states: Sequence[SQPState]) -> dict[ClientId, HeldOut] | None:
    """Return every client's sums, from the curvature of the losses and then the losses.

    Return None where a Hessian is singular, or a client of your own does not send the sums.
    """
    what, factors = _purpose(CHOOSING), []
    reports = run.ask([loss_curvature(state) for state in states], what)
    for place, state in enumerate(states):
        at = evaluate_point(state.problem, state.params, reports, place)
        factor = inverse_factor(at, state)
        if factor is None:
            return None
        factors.append(factor)
    weights = {
        client: np.array([float(state.loss_weights[place]) for state in states])
        for place, client in enumerate(states[0].problem.clients)
    }
    question = LeaveOneOut(tuple(state.params for state in states), tuple(factors), weights)
    try:
        reports = run.ask([Point(states[0].params, extras=(question,))], what)
    except ReportError:
        return None
    extras = {client: report.extras for client, (report,) in reports.items()}
    return {
        client: HeldOut(float(own["loo_losses"][0]), own["loo_losses"][1:], own["loo_products"])
        for client, own in extras.items()
    }


def decide(candidates: Sequence[Candidate], found: Mapping[ClientId, HeldOut]) -> Selection:
    """Choose among candidates, the first objective being the one nearest to the mean."""
    names, clients = list(found), list(found.values())
    rows = np.array([one.n_rows for one in clients])
    means = np.array([one.means for one in clients])
    overall = rows @ means / rows.sum()

    def flattest(objective: Any) -> int:
        """The largest L2 weight whose mean loss is near the lowest."""
        own = [i for i, one in enumerate(candidates) if one[1] == objective]
        lowest = min(own, key=lambda i: overall[i])

        def error(i: int) -> float:
            variances = np.array([one.variance(i, lowest) for one in clients])
            return float(np.sqrt(rows**2 @ variances) / rows.sum())

        near = [i for i in own if overall[i] <= overall[lowest] + error(i)]
        return max(near, key=lambda i: candidates[i][0])

    best = [flattest(objective) for objective in dict.fromkeys(one[1] for one in candidates)]
    base = best[0]
    own = _own_weight(means[:, base], np.array([one.variance(base) for one in clients]))
    shrunk = own[:, None] * means + (1.0 - own)[:, None] * overall
    worst = int(np.argmax(shrunk[:, base]))
    errors = [np.sqrt(clients[worst].variance(i, base)) for i in range(len(candidates))]
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
    line, sentence = table[chosen], _sentence(table, base, chosen, len(names))
    return Selection(
        l2=line.l2, objective=line.objective, chosen=line, table=table, sentence=sentence
    )


def _own_weight(means: Vector, variances: Vector) -> Vector:
    """Return how much of a client's mean loss is its own, not chance: 1 where rows abound."""
    if means.size < 2:
        return np.ones(means.size)
    between = max(float(means.var(ddof=1)) - float(variances.mean()), 0.0)
    return np.asarray(between / np.maximum(between + variances, 1e-300))


def _sentence(table: Sequence[SelectionLine], base: int, chosen: int, n_clients: int) -> str:
    line, mean = table[chosen], table[base]
    said = (
        f"Chose l2 {line.l2:g} and objective {line.objective} by leave-one-out losses: "
        f"{line.mean_loss:.4f} over all rows"
    )
    if n_clients > 1 and (line.worst_loss > line.mean_loss or chosen != base):
        said += f", {line.worst_loss:.4f} for {line.worst_client!r}, the client served worst"
    if chosen != base:
        error = line.standard_error_of_difference
        said += f" ({mean.worst_loss:.4f} under the mean; standard error {error:.4f})"
    return f"{said}."


def _unchosen(settings: OpenSettings, n_candidates: int) -> Selection:
    """Return a moderate choice where nothing can be compared, and why."""
    l2, objective = settings.first
    name: Any = objective_name(objective if settings.objective == "auto" else settings.objective)
    why = "leave-one-out losses need exact curvature, which this model or these clients do not have"
    if n_candidates == 1:
        why = "one client has only one objective"
    sentence = f"Trained with l2 {l2:g} and objective {name}, without a comparison: {why}."
    return Selection(l2=l2, objective=name, sentence=sentence)
