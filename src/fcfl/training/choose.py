"""Choose the L2 weight and the objective by leave-one-out losses computed by the clients.

All candidates are trained together under the budgets, with one exchange per round, from a warm
start at the fit without budgets. Then each client sums the leave-one-out losses of its rows
(`fcfl.models.influence`), and two rules select the candidate:

1. Under the objective nearest to the mean, take the largest L2 weight whose mean loss over all
   rows is within one paired standard error of the lowest.
2. Take another objective only if it lowers the held-out loss of the worst client by more than one
   paired standard error. Clients' losses are first shrunk towards the mean over all rows, more for
   clients with larger standard errors, so that chance in a small client does not decide.

Starting points are also compared by training from them together.
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

L2_GRID = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)  # smaller weights overfit rates and gain no accuracy
MIDDLE_L2 = 1e-2
OBJECTIVES = (np.inf, 0.1)  # the mean, and near the maximum

TOLERANCE = 1e-3  # KKT residual of a fit used only for comparison
ROUNDS = 12  # limit for the fit of a candidate
START_ROUNDS = 60  # limit for the fit from a starting point
CHOOSING = "choosing l2 and objective"
BETTER = 1e-3  # relative improvement required to prefer a later start

K = TypeVar("K")
Candidate = tuple[float, Any]


# --- settings to choose ---------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenSettings:
    """The L2 weight and the objective: a given value, or ``"auto"`` to choose one."""

    l2: float | Literal["auto"]
    objective: float | Literal["max", "mean", "auto"]

    @property
    def is_open(self) -> bool:
        """Whether the L2 weight or the objective is to be chosen."""
        return "auto" in (self.l2, self.objective)

    def candidates(self, n_clients: int) -> list[Candidate]:
        """Return every combination; with one client all objectives are equal, so try only one."""
        weights = L2_GRID if self.l2 == "auto" else (float(self.l2),)
        objectives: Sequence[Any] = (self.objective,)
        if self.objective == "auto":
            objectives = OBJECTIVES if n_clients > 1 else OBJECTIVES[:1]
        return [(l2, objective) for objective in objectives for l2 in weights]

    @property
    def first(self) -> Candidate:
        """Settings of the first fit, which has no budgets."""
        l2 = MIDDLE_L2 if self.l2 == "auto" else float(self.l2)
        return l2, np.inf if self.objective in ("auto", "max") else self.objective


def objective_of(method: Any) -> Any:
    """Return the objective of a method, or None if it is not a `Traits.objectives` value."""
    fixed = traits_of(method).objectives
    return getattr(method, "objective", fixed[0] if len(fixed) == 1 else None)


def with_objective(method: Any, objective: Any) -> Any:
    """Return the method with this objective if the method has the option."""
    has_choice = is_dataclass(method) and "objective" in {field.name for field in fields(method)}
    return replace(method, objective=objective) if has_choice else method


def check_open_settings(
    method: Any,
    l2: float | Literal["auto"] | None,
    objective: float | Literal["max", "mean", "auto"] | None,
) -> None:
    """Raise `ValueError` for settings that the method does not support."""
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
    """Return the given settings, with ``"auto"`` or the default for each missing one.

    Without a ``model``, a linear model is assumed. A network uses its default L2 weight, because
    the choice requires features of rows.
    """
    how = as_method(method)
    default_l2 = None if model is None else model.default_l2
    if default_l2 is not None and "auto" in (l2, objective):
        raise ValueError("`l2` and `objective` 'auto' require a linear model; set both values.")
    check_open_settings(how, l2, objective)
    chooses = traits_of(how).is_cross_validated
    weight, target = l2, objective
    if weight is None:
        weight = ("auto" if default_l2 is None else default_l2) if chooses else 0.0
    if target is None:
        is_left_open = chooses and isinstance(method, str) and default_l2 is None
        target = "auto" if is_left_open else getattr(how, "objective", None)
    return OpenSettings(weight, target)  # type: ignore[arg-type]


# --- fits trained together ------------------------------------------------------------------------


@dataclass(frozen=True)
class Lane:
    """One of several fits trained together: method, state, and reports on the last request."""

    method: Any
    state: Any
    reports: Reports = field(default_factory=dict)


def run_together(lanes: Mapping[K, Lane], run: Run, what: str) -> dict[K, Lane]:
    """Train all lanes until each ends, with one exchange per round; report ``what`` as purpose."""
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
            slowest = min(lane.method.fraction_done(lane.state) for lane in reached.values())
            done = max(done, slowest)  # residuals may increase, progress must not decrease
            info = RoundInfo(n_exchanges, 0, "", np.nan, np.nan, np.nan, 0.0, what)
            run.session.on_round(info, done)
    return reached


def _purpose(what: str) -> str:
    return f"the rates of models for {what}"


def _quick(method: Any, rounds: int) -> Any:
    """Return the method with loose tolerances and a limit on rounds."""
    return replace(method, rounds=(rounds, 0), tolerance=TOLERANCE, feasibility=TOLERANCE)


@dataclass(frozen=True)
class Screened:
    """Result of a fit from one starting point: its objective and largest violation."""

    entry: Start
    state: SQPState
    objective: float
    violation: float


def best_start(
    run: Run, method: Any, state: SQPState, others: Mapping[str, Vector]
) -> tuple[SQPState, tuple[Start, ...]]:
    """Return the best start among ``state`` and ``others``, because the problem has local optima.

    Each start is trained to a loose tolerance. The one with the lowest feasible objective is kept.
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
    """Return the first feasible result whose objective is within `BETTER` of the lowest.

    If no result is feasible, return the one with the smallest violation.
    """
    feasible = [fit for fit in screened if fit.violation <= TOLERANCE]
    if not feasible:
        return min(screened, key=lambda fit: fit.violation)
    lowest = min(fit.objective for fit in feasible)
    return next(fit for fit in feasible if fit.objective <= lowest + BETTER * abs(lowest))


# --- the choice -----------------------------------------------------------------------------------


def choose(
    run: Run, problem: Problem, settings: OpenSettings, start: Stage
) -> tuple[Selection, Lane | None, Lane | None]:
    """Train all candidates under the budgets and select one.

    Return the choice, its fit, and the fit without budgets at the same L2 weight, which is trained
    together with the candidates. ``start`` is an earlier fit without budgets.
    """
    candidates = settings.candidates(len(problem.clients))
    if len(candidates) == 1 or not run.method.is_exact(start.params.size):
        return _unchosen(settings, len(candidates)), None, None

    def lane(problem: Problem, candidate: Candidate) -> Lane:
        l2, objective = candidate
        quick = _quick(with_objective(run.method, objective), ROUNDS)
        return Lane(quick, quick.restart(start.state, replace(problem, l2=l2), start.reports))

    free, nearest = start.state.problem, candidates[0][1]
    lanes = {(True, candidate): lane(problem, candidate) for candidate in candidates}
    lanes |= {(False, (l2, nearest)): lane(free, (l2, nearest)) for l2, _ in candidates}
    with run.federation.phase("choose"):
        ended = run_together(lanes, run, CHOOSING)
        held_out = _held_out(run, [ended[True, candidate].state for candidate in candidates])
    if held_out is None:
        return _unchosen(settings, len(candidates)), None, None
    selection = decide(candidates, held_out)
    chosen = candidates[selection.table.index(selection.chosen)]
    return selection, ended[True, chosen], ended[False, (chosen[0], nearest)]


@dataclass(frozen=True)
class HeldOut:
    """Sums of one client's leave-one-out losses under all candidates, and of their products.

    ``sums`` has shape (candidates,), ``products`` (candidates, candidates).
    """

    n_rows: float
    sums: Vector
    products: Matrix

    @property
    def means(self) -> Vector:
        """Mean leave-one-out loss under each candidate."""
        return self.sums / self.n_rows

    def variance(self, i: int, j: int | None = None) -> float:
        """Return the variance of candidate i's mean loss, or of its difference from candidate j."""
        square, shift = self.products[i, i], self.means[i]
        if j is not None:
            square = square - 2.0 * self.products[i, j] + self.products[j, j]
            shift = shift - self.means[j]
        return float(max(square / self.n_rows - shift**2, 0.0) / max(self.n_rows - 1.0, 1.0))


def _held_out(run: Run, states: Sequence[SQPState]) -> dict[ClientId, HeldOut] | None:
    """Return every client's sums, using one exchange for curvature and one for the losses.

    Return None if a Hessian is singular or a user-defined client does not send the sums.
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
    extra = LeaveOneOut(tuple(state.params for state in states), tuple(factors), weights)
    try:
        reports = run.ask([Point(states[0].params, extras=(extra,))], what)
    except ReportError:
        return None
    extras = {client: report.extras for client, (report,) in reports.items()}
    return {
        client: HeldOut(float(sums["loo_losses"][0]), sums["loo_losses"][1:], sums["loo_products"])
        for client, sums in extras.items()
    }


def decide(candidates: Sequence[Candidate], held_out: Mapping[ClientId, HeldOut]) -> Selection:
    """Select a candidate; the first objective must be the one nearest to the mean."""
    names, clients = list(held_out), list(held_out.values())
    rows = np.array([client.n_rows for client in clients])
    means = np.array([client.means for client in clients])
    overall = rows @ means / rows.sum()

    def flattest(objective: Any) -> int:
        """Return the candidate with the largest L2 weight whose mean loss is near the lowest."""
        places = [i for i, c in enumerate(candidates) if c[1] == objective]
        lowest = min(places, key=lambda i: overall[i])

        def error(i: int) -> float:
            variances = np.array([client.variance(i, lowest) for client in clients])
            return float(np.sqrt(rows**2 @ variances) / rows.sum())

        near = [i for i in places if overall[i] <= overall[lowest] + error(i)]
        return max(near, key=lambda i: candidates[i][0])

    best = [flattest(objective) for objective in dict.fromkeys(c[1] for c in candidates)]
    base = best[0]
    weights = _own_weight(means[:, base], np.array([client.variance(base) for client in clients]))
    shrunk = weights[:, None] * means + (1.0 - weights)[:, None] * overall
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
    """Return shrinkage weights of clients' mean losses, 1 for a client without variance."""
    if means.size < 2:
        return np.ones(means.size)
    between = max(float(means.var(ddof=1)) - float(variances.mean()), 0.0)
    return np.asarray(between / np.maximum(between + variances, 1e-300))


def _sentence(table: Sequence[SelectionLine], base: int, chosen: int, n_clients: int) -> str:
    """Return a sentence on the choice and its losses."""
    line, mean = table[chosen], table[base]
    sentence = (
        f"Chose l2 {line.l2:g} and objective {line.objective} by leave-one-out losses: "
        f"{line.mean_loss:.4f} over all rows"
    )
    if n_clients > 1 and (line.worst_loss > line.mean_loss or chosen != base):
        sentence += f", {line.worst_loss:.4f} for {line.worst_client!r}, the client served worst"
    if chosen != base:
        error = line.standard_error_of_difference
        sentence += f" ({mean.worst_loss:.4f} under the mean; standard error {error:.4f})"
    return f"{sentence}."


def _unchosen(settings: OpenSettings, n_candidates: int) -> Selection:
    """Return the default choice with the reason why candidates were not compared."""
    l2, objective = settings.first
    name: Any = objective_name(objective if settings.objective == "auto" else settings.objective)
    why = "leave-one-out losses require exact curvature from this model and all clients"
    if n_candidates == 1:
        why = "with one client all objectives are equal"
    sentence = f"Used l2 {l2:g} and objective {name} without comparing candidates: {why}."
    return Selection(l2=l2, objective=name, sentence=sentence)
