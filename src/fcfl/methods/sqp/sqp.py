r"""Sequential quadratic programming for the min-max problem under budgets: the default method.

Stage 1 minimises :math:`\max_k l_k`. Stage 2 minimises the mean of the :math:`l_k`, with each loss
at most its value after stage 1 plus a small slack. Without the slack the feasible set would have no
interior. The result has the smallest worst loss and is Pareto-optimal: no client's loss can
decrease unless another increases. With the mean or a fixed temperature in place of the maximum, one
stage is sufficient, because all weights are positive and the optimum is therefore Pareto-optimal.

A round has four steps:

1. `SQP.step` evaluates the points of the request and takes the longest step that the search accepts
   (`subproblem.Search`), or requests shorter ones.
2. `_arrive` computes the curvature at the new iterate (`curvature`). It is the Hessian of the
   Lagrangian, a sum over clients, or the L-BFGS memory with one more pair.
3. The quadratic programme (`subproblem`, solved in its dual by `qp`) determines the next step and
   the multipliers. With exact curvature, this is Newton's method on the KKT conditions near a
   solution.
4. `_consider` requests the step or ends the stage. A stage ends when the KKT residual is within the
   tolerance, the quadratic model predicts no further change, or no step lowers the violations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import solve_triangular

from fcfl import _checks as checks
from fcfl._types import (
    CurvatureWeights,
    Matrix,
    Point,
    Reports,
    Request,
    Vector,
    brief_repr,
    reports_on,
)
from fcfl.methods.method import RoundInfo, Status, describe_round
from fcfl.methods.sqp.curvature import Damping, LimitedMemory, first_damping, no_memory
from fcfl.methods.sqp.subproblem import (
    PENALTY_GROWTH,
    PENALTY_LIMIT,
    Found,
    Multipliers,
    Search,
    Target,
    active_grads,
    curvature_weights,
    find_step,
    is_stuck,
    kkt_residual,
    lagrangian_grad,
    lagrangian_hessian,
    least_penalty,
    lowered_penalties,
    merit_of_rows,
    model_gap,
    step_within_slack,
)
from fcfl.problem import (
    FEASIBILITY_TOLERANCE,
    Evaluation,
    Problem,
    conflict_sentence,
    evaluate_point,
)

# A client's part of the Hessian is n × n. With 2,000 parameters it has 32 MB per requested point.
_EXACT_PARAMS = 2000

# KKT residual at which a stage ends. A smaller one has no benefit, because the subproblem's solver
# is accurate to about 1e-9 and budgets are met up to FEASIBILITY_TOLERANCE.
_TOLERANCE = 1e-6

# Predicted change of the objective below which a stage of the min-max problem ends earlier. It is
# limited to a share of the slack of stage 2, because the slack must cover the error of stage 1.
_GAP, _GAP_OF_SLACK = 3e-6, 0.06

# Defaults of the options that differ between exact curvature and L-BFGS. The limits on rounds are
# several times those of converging runs. With L-BFGS many full steps are rejected, so shorter ones
# are requested in the same exchange.
_EXACT_OPTIONS: Mapping[str, Any] = {
    "rounds": (200, 200), "lookahead": (), "n_full_points": 1, "patience": 6,
}  # fmt: skip
_LBFGS_OPTIONS: Mapping[str, Any] = {
    "rounds": (1000, 1000), "lookahead": (0.5, 0.2, 0.05, 0.01), "n_full_points": 2, "patience": 10,
}  # fmt: skip

# KKT residual up to which eigenvalues of an indefinite Hessian are lifted; above, it is mixed with
# the metric.
_NEAR_OPTIMUM = 1e-2

# Damping above which a long step is accepted, because budgets then determine most of it.
_STIFF = 10.0

# Penalty of a violation in the merit before multipliers are available.
_FIRST_PENALTY = 1.0

# Step length at which the search ends, because differences of the merit are rounding errors.
_SHORTEST = 1e-12

# Largest violation at the start of stage 2, as a share of the slack. Prices are near .1 and rarely
# above 3, so that meeting the budget costs less than the slack.
_OF_SLACK = 0.2

_DECADES = 6.0  # from a typical initial residual of 1 to the default tolerance


@dataclass(frozen=True)
class SQPState:
    """The iterate, the trial step, the multipliers, and the estimated curvature.

    ``search.lengths[i]`` is the step length of the request's point ``i``. ``caps`` are the upper
    bounds on losses in stage 2, one per client, empty in stage 1. ``loss_weights`` and
    ``row_weights`` are the multipliers of the last step, ``prices`` and ``worst_weights`` those at
    the end of stage 1. ``cut_short`` is true if a stage ended before convergence.
    """

    problem: Problem
    params: Vector
    request: Request
    status: Status
    message: str
    stage: int
    rounds: tuple[int, int]
    caps: Vector
    penalty: float
    direction: Vector
    search: Search
    loss_weights: Vector
    row_weights: Vector
    lagrangian_grad: Vector
    memory: LimitedMemory
    damping: Damping
    kkt: float
    prices: Vector
    worst_weights: Vector
    cut_short: bool

    __repr__ = brief_repr

    @property
    def multipliers(self) -> Multipliers:
        """Multipliers for which the Lagrangian's curvature is requested or estimated."""
        return Multipliers(self.loss_weights, self.row_weights)


@dataclass(frozen=True)
class SQP:
    r"""Options of sequential quadratic programming.

    Parameters
    ----------
    objective
        Function of the clients' losses to minimise: ``"max"`` for the largest (as in the paper),
        ``"mean"`` for the mean, or a temperature :math:`\delta` for the smooth maximum. A low
        temperature approximates the maximum, an infinite one the mean.
    curvature
        ``"exact"`` requests each client's part of the Lagrangian's Hessian. ``"lbfgs"`` estimates
        it from gradients, for any number of parameters. ``"auto"``: exact up to 2,000 parameters.
    rounds
        Maximum number of exchanges in each stage, by default 200 with exact curvature, else 1,000.
    tolerance
        KKT residual at which a stage ends, by default 1e-6. With two stages and exact curvature,
        the default also ends a stage if the undamped quadratic model predicts a change of the
        objective of at most 3e-6. An explicit number disables this second criterion.
    feasibility
        Largest violation of a budget at the end of a stage. Violations are also at most
        ``tolerance``, because they are part of the KKT residual. If the model's prediction ends
        stage 1, violations up to 1e-5 may remain, and stage 2 removes them.
    lookahead
        Shorter step lengths to request together with the full step, by default none with exact
        curvature and (0.5, 0.2, 0.05, 0.01) otherwise.
    n_full_points
        Number of step lengths, longest first, for which gradients and curvature are requested. The
        other lengths are requested with values only, and taking one of them costs a second round.
        By default 1 with exact curvature, 2 otherwise.
    penalty
        Initial limit on the multipliers of budgets, raised if a budget requires a larger one. The
        weights of violations in the merit follow the multipliers.
    max_penalty
        Largest value to which the limit is raised. A run whose budgets require more is infeasible.
    slack
        Largest increase of a client's loss in stage 2. The default keeps the worst loss within 1e-4
        of its minimum, including rounding and the tolerance.
    protects
        Whether stage 2 bounds ``"all"`` clients' losses by their values after stage 1, or by the
        ``"worst"`` of these values (both below Eq. 15 of the paper).
    patience
        Number of last iterates whose worst merit a step must improve on, so that the curvature of
        the constraints does not block full steps (the Maratos effect). By default 6 with exact
        curvature, 10 otherwise.
    memory
        Number of steps in the L-BFGS memory.
    """

    objective: Literal["max", "mean"] | float = "max"
    curvature: Literal["auto", "exact", "lbfgs"] = "auto"
    rounds: tuple[int, int] | None = None
    tolerance: float | None = None
    feasibility: float = FEASIBILITY_TOLERANCE
    lookahead: tuple[float, ...] | None = None
    n_full_points: int | None = None
    penalty: float = 10.0
    max_penalty: float = PENALTY_LIMIT
    slack: float = 5e-5
    protects: Literal["all", "worst"] = "all"
    patience: int | None = None
    memory: int = 30
    name: str = "sqp"
    state_class: ClassVar[type[SQPState]] = SQPState
    objectives: ClassVar[tuple[str, ...]] = ("max", "mean", "temperature")
    is_cross_validated: ClassVar[bool] = True
    n_stages: ClassVar[int] = 2

    def __post_init__(self) -> None:
        named = isinstance(self.objective, str) and self.objective in ("max", "mean")
        if not named and not (checks.is_number(self.objective) and self.objective > 0):
            raise ValueError(
                "`objective` must be 'max', 'mean' or a positive number (a temperature), "
                f"got {self.objective!r}."
            )
        checks.check_choice("curvature", self.curvature, ("auto", "exact", "lbfgs"))
        if self.tolerance is not None:
            checks.check_positive("tolerance", self.tolerance)
        checks.check_positive("feasibility", self.feasibility)
        checks.check_positive("penalty", self.penalty)
        checks.check_positive("max_penalty", self.max_penalty)
        checks.check_non_negative("slack", self.slack)
        checks.check_choice("protects", self.protects, ("all", "worst"))
        for length in self.lookahead or ():
            if not 0 < length < 1:
                raise ValueError(f"`lookahead` must hold lengths between 0 and 1, got {length!r}.")
        if self.rounds is not None:
            checks.check_stage_rounds("rounds", self.rounds)
        counts = [1 if self.rounds is None else self.rounds[0]]
        for name in ("patience", "memory", "n_full_points"):
            if getattr(self, name) is not None:
                counts.append(checks.check_count(name, getattr(self, name)))
        if min(counts) < 1:
            raise ValueError(
                "`rounds` of stage 1, `patience`, `memory` and `n_full_points` must be at least 1."
            )

    def is_exact(self, n_params: int) -> bool:
        """Return whether exact curvature is requested for this number of parameters."""
        return self.curvature == "exact" or (self.curvature == "auto" and n_params <= _EXACT_PARAMS)

    def resolved(self, n_params: int) -> "Options":
        """Return the options with all defaults for a model of ``n_params`` parameters."""
        exact = self.is_exact(n_params)
        defaults = _EXACT_OPTIONS if exact else _LBFGS_OPTIONS
        open_to = {name: getattr(self, name) for name in defaults}
        given = {name: value for name, value in open_to.items() if value is not None}
        temperature: float | None = None
        if self.objective != "max":
            temperature = np.inf if self.objective == "mean" else float(self.objective)
        one_stage = temperature is not None or (self.rounds is not None and self.rounds[1] == 0)
        by_residual = self.tolerance is not None or not exact or one_stage
        return Options(
            method=self,
            temperature=temperature,
            exact=exact,
            tolerance=_TOLERANCE if self.tolerance is None else self.tolerance,
            gap=0.0 if by_residual else min(_GAP, _GAP_OF_SLACK * self.slack),
            **{**defaults, **given},
        )

    def init(self, params: Vector, problem: Problem) -> SQPState:
        """Request values and derivatives at ``params``, with equal weights of all clients."""
        params = checks.check_params(params)
        return _with_request(self.resolved(params.size), _first_state(params, problem, self))

    def restart(
        self, state: SQPState, problem: Problem, reports: Reports | None = None
    ) -> SQPState:
        """Return a warm start at the end of ``state``, with its multipliers and curvature.

        The problem may have other bounds, additional rows at the end, or another L2 weight.
        ``reports`` are those on ``state.request``. If they include the final point, it is not
        requested again.
        """
        options = self.resolved(state.params.size)
        fresh = _first_state(state.params, problem, self)
        added = len(problem.constraints) - state.row_weights.size
        if added >= 0:
            fresh = replace(fresh, row_weights=np.append(state.row_weights, np.zeros(added)))
        fresh = replace(
            fresh,
            loss_weights=state.loss_weights / state.loss_weights.sum(),
            memory=state.memory,
            damping=replace(state.damping, lengths=()),
        )
        fresh = _with_request(options, fresh)
        if reports is not None and options.exact:
            for place, point in enumerate(state.request.points):
                if point.want == "curvature" and np.array_equal(point.params, state.params):
                    known = reports_on(reports, slice(place, place + 1))
                    return replace(self.step(fresh, known)[0], rounds=(0, 0))
        return fresh

    def step(self, state: SQPState, reports: Reports) -> tuple[SQPState, RoundInfo]:
        """Take the longest acceptable step of the request, or request shorter ones.

        If a report is stale, the round is provisional: the next step is taken without a line
        search, and no stage ends.
        """
        after, info = _take_round(self.resolved(state.params.size), state, reports)
        stale = [name for name, answers in reports.items() if any(one.age for one in answers)]
        if not stale:
            return after, info
        return _make_provisional(state, after), replace(info, note=f"stale: {', '.join(stale)}")

    def fraction_done(self, state: SQPState) -> float:
        """Return the progress of the KKT residual towards the tolerance on a logarithmic scale."""
        if state.status != "running":
            return 1.0
        tolerance = _TOLERANCE if self.tolerance is None else self.tolerance
        decades = np.log10(max(state.kkt, tolerance) / tolerance)
        part = 1.0 - min(decades / _DECADES, 1.0)
        stages = 2 if self.objective == "max" and len(state.problem.clients) > 1 else 1
        return float((state.stage - 1 + part) / stages)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a ``method`` with all defaults, which depend on the model.

    ``temperature`` is ``None`` for the maximum and infinite for the mean of the clients' losses.
    ``exact`` is true if clients send curvature. ``rounds`` has a limit for each stage. ``gap`` is
    the predicted change of the objective at which a stage ends, 0 to use the residual only.
    """

    method: SQP
    temperature: float | None
    exact: bool
    tolerance: float
    gap: float
    rounds: tuple[int, int]
    lookahead: tuple[float, ...]
    n_full_points: int
    patience: int

    @property
    def lengths(self) -> tuple[float, ...]:
        """Step lengths of the first request: the full step and shorter ones."""
        return (1.0, *self.lookahead)


def _first_state(params: Vector, problem: Problem, method: SQP) -> SQPState:
    """Return the state before any report, with equal weights for all clients and no request."""
    n_clients, n_rows = len(problem.clients), len(problem.constraints)
    none = np.zeros(0), np.zeros(0)
    return SQPState(
        problem=problem,
        params=params,
        request=Request(()),
        status="running",
        message="",
        stage=1,
        rounds=(0, 0),
        caps=np.zeros(0),
        penalty=method.penalty,
        direction=np.zeros(params.size),
        # The first point has no predecessor, so it is accepted without a comparison.
        search=Search((1.0,), True, (), none, none, none, np.zeros(0), 0.0, False),
        loss_weights=np.full(n_clients, 1.0 / n_clients),
        row_weights=np.zeros(n_rows),
        lagrangian_grad=np.zeros(0),
        memory=no_memory(params.size),
        damping=Damping(),
        kkt=np.inf,
        prices=np.zeros(n_rows),
        worst_weights=np.zeros(n_clients),
        cut_short=False,
    )


def target_of(options: Options, state: SQPState) -> Target:
    """Return the objective and caps of the present stage; stage 2 always minimises the mean."""
    return Target(np.inf if state.stage == 2 else options.temperature, state.caps)


def _rounds_left(options: Options, state: SQPState) -> int:
    """Return the rounds before the limit of the stage, negative if stale reports extended it."""
    return options.rounds[state.stage - 1] - state.rounds[state.stage - 1]


# --- one round ------------------------------------------------------------------------------------


def _take_round(options: Options, state: SQPState, reports: Reports) -> tuple[SQPState, RoundInfo]:
    """Take the longest acceptable step of the request, or request shorter ones along it.

    An accepted step with values only is requested again with derivatives, and then taken.
    """
    points = [
        evaluate_point(state.problem, point.params, reports, index)
        for index, point in enumerate(state.request.points)
    ]
    stage, (first, second) = state.stage, state.rounds
    state = replace(state, rounds=(first + (stage == 1), second + (stage == 2)))
    search, target = state.search, target_of(options, state)
    passing = (i for i, at in enumerate(points) if search.accepts(i, target.rows(at)))
    accepted = next(passing, None)
    if accepted is None:
        shown, length = points[-1], 0.0
        # A quarter of the shortest rejected length: with `lookahead`, the next request covers two
        # more orders of magnitude.
        shorter = min(search.lengths) / 4
        if options.exact:
            shorter = search.shorter(target.rows(shown))
            state = replace(state, damping=state.damping.refused())
        state = _search_again(options, state, shorter, settled=False)
    else:
        shown, length = points[accepted], search.lengths[accepted]
        if options.exact and not search.settled:
            ratio = search.ratio(accepted, target.rows(shown))
            state = replace(state, damping=state.damping.taken(ratio, length))
        if state.request.points[accepted].want == "values":
            state = _search_again(options, state, length, settled=True)
        else:
            state = replace(state, search=replace(search, lengths=(length,)))
            state = _arrive(options, state, shown)
    return state, describe_round(shown, round=sum(state.rounds), stage=stage, step=length)


def _search_again(options: Options, state: SQPState, length: float, *, settled: bool) -> SQPState:
    """Request ``length`` alone, to be taken, if ``settled``; else request shorter ones as well."""
    if length < _SHORTEST:
        return _cut_short(state)
    lengths = (length,) if settled else tuple(length * part for part in options.lengths)
    state = replace(state, search=replace(state.search, lengths=lengths, settled=settled))
    return _with_request(options, state) if _rounds_left(options, state) > 0 else _cut_short(state)


def _with_request(options: Options, state: SQPState) -> SQPState:
    """Request the points ``params + length * direction``.

    The longest ones are requested with derivatives, the others with values only. In the last round
    all are requested with derivatives, because no further request is possible.
    """
    weights = curvature_weights(state.problem, state.multipliers) if options.exact else None
    lengths = state.search.lengths
    n_full = options.n_full_points if _rounds_left(options, state) > 1 else len(lengths)
    points = []
    for position, length in enumerate(lengths):
        params = state.params + length * state.direction
        if position >= n_full:
            points.append(Point(params, "values"))
        else:
            points.append(Point(params, "curvature" if options.exact else "gradients", weights))
    return replace(state, request=Request(tuple(points)))


def _make_provisional(before: SQPState, after: SQPState) -> SQPState:
    """Return the state after a round with stale reports.

    A stale report describes another point, so its merit cannot be compared. The next step is taken
    without a line search, and past merits are discarded. If the round would end a stage, its only
    effect is on the count of rounds.
    """
    if after.status != "running" or after.stage != before.stage:
        after = replace(before, rounds=after.rounds)
    return replace(after, search=replace(after.search, settled=True, merits=()))


# --- the next step --------------------------------------------------------------------------------


def _arrive(options: Options, state: SQPState, at: Evaluation) -> SQPState:
    """Make ``at`` the iterate and compute the next step."""
    if options.exact:
        damping, found = _damped_step(options, state, at)
        state = replace(state, damping=damping)
    else:
        memory = _learn(options, state, at)
        target = target_of(options, state)
        found = find_step(at, target, memory, state.penalty, state.loss_weights)
    return _consider(options, replace(state, params=at.params), at, found)


def _damped_step(options: Options, state: SQPState, at: Evaluation) -> tuple[Damping, Found]:
    """Compute a step under exact curvature, damped until it is not much longer than the last ones.

    With little damping, a step may be ten times as long as its predecessor, where the linearisation
    of the rates is invalid. The curvature was requested under the multipliers of the last step.
    """
    target, damping, step = target_of(options, state), state.damping, at.params - state.params
    hessian = lagrangian_hessian(state.multipliers, target, at)
    if not damping.metric.size:
        damping = first_damping(hessian)
    elif state.search.lengths[0] == 1 and step.any():
        damping = damping.arrived(step)
    active = active_grads(state.multipliers, target, at)
    weight, is_near = float(state.loss_weights.sum()), state.kkt <= _NEAR_OPTIMUM

    def solved(damping: Damping) -> tuple[Damping, Found]:
        curvature, damping = damping.curvature(hessian, active, weight, is_near=is_near)
        return damping, find_step(at, target, curvature, state.penalty, state.loss_weights)

    first = damping, found = solved(damping)
    while not damping.reaches(found.step.direction):
        if damping.level > _STIFF:
            return first
        damping, found = solved(damping.raised())
    return damping, found


def _learn(options: Options, state: SQPState, at: Evaluation) -> LimitedMemory:
    r"""Return the L-BFGS memory with one more pair: the step and the change of the gradient.

    Both gradients are those of the Lagrangian under the multipliers of the step. ``B s`` is known
    without a product, because the step solves :math:`B d = -\nabla L`.
    """
    if state.lagrangian_grad.size == 0:
        return state.memory
    here = lagrangian_grad(state.multipliers, target_of(options, state), at)
    change, model_change = (
        here - state.lagrangian_grad,
        -state.search.lengths[0] * state.lagrangian_grad,
    )
    return state.memory.updated(
        at.params - state.params, change, model_change, options.method.memory
    )


def _consider(options: Options, state: SQPState, at: Evaluation, found: Found) -> SQPState:
    """Request the computed step, or end the stage.

    A stage ends in one of four cases:

    1. The KKT residual is within the tolerance and the budgets are met.
    2. The quadratic model predicts no change.
    3. The limit on rounds is reached.
    4. No step lowers the violations under the largest penalty. Under a smaller penalty, raise it
       and compute the step again at the same point.
    """
    target, step = target_of(options, state), found.step
    kkt = kkt_residual(at, target, step)
    state = replace(
        state,
        penalty=found.penalty,
        direction=step.direction,
        search=_begin_search(options, state, found),
        loss_weights=found.multipliers.losses,
        row_weights=found.multipliers.rows,
        lagrangian_grad=step.lagrangian_grad,
        kkt=kkt,
    )
    if isinstance(found.curvature, LimitedMemory):
        state = replace(state, memory=found.curvature)
    is_over = kkt <= options.tolerance and at.largest_violation <= options.method.feasibility
    if is_over or _predicts_no_change(options, state, found):
        return _finish_stage(options, state, at, found)
    if found.penalty > options.method.max_penalty and options.method.max_penalty < PENALTY_LIMIT:
        return _end_infeasible(state, at)  # a step may raise a penalty above the default limit
    if is_stuck(found, options.tolerance):
        if found.penalty >= options.method.max_penalty:
            return _end_infeasible(state, at)
        penalty = PENALTY_GROWTH * found.penalty
        state = replace(state, penalty=penalty)
        found = find_step(at, target, found.curvature, penalty, state.loss_weights)
        return _consider(options, state, at, found)
    if _rounds_left(options, state) <= 0:
        return _finish_stage(options, replace(state, cut_short=True), at, found)
    return _with_request(options, state)


def _begin_search(options: Options, state: SQPState, found: Found) -> Search:
    """Return a search over the lengths of a step, with the merits of the last iterates.

    With exact curvature, every round moves each penalty towards twice its multiplier. Multipliers
    are near .1, and penalties far above them would reject full steps. With L-BFGS a penalty is
    lowered only after it rejected a full step.
    """
    step, penalty = found.step, found.penalty
    multipliers, penalties = step.constraint_weights, state.search.penalties
    is_known = penalties.size == multipliers.size
    if options.exact:
        known = penalties if is_known else np.full(multipliers.size, _FIRST_PENALTY)
        penalties = lowered_penalties(known, multipliers, least_penalty(multipliers))
    elif is_known and penalty <= state.penalty and step.infeasibility <= FEASIBILITY_TOLERANCE:
        penalties = np.minimum(state.search.next_penalties(multipliers), penalty)
    else:
        penalties = np.full(multipliers.size, penalty)
    return Search(
        lengths=options.lengths,
        settled=False,
        merits=(*state.search.merits, merit_of_rows(step.here))[-options.patience :],
        here=step.here,
        predicted=step.predicted,
        multipliers=(step.objective_weights, multipliers),
        penalties=penalties,
        half_curvature=step.half_curvature,
        uses_augmented=options.exact,
    )


# --- the ends of stages ---------------------------------------------------------------------------


def _has_stage_2(options: Options, state: SQPState) -> bool:
    """Return whether stage 2 follows the present stage; smooth objectives have one stage."""
    several = options.temperature is None and len(state.problem.clients) > 1
    return state.stage == 1 and several and options.rounds[1] > 0


def _largest_allowed(options: Options, state: SQPState) -> float:
    """Return the largest violation at the end of a stage; stage 2 can remove small ones."""
    if not _has_stage_2(options, state):
        return options.method.feasibility
    return max(options.method.feasibility, _OF_SLACK * options.method.slack)


def _predicts_no_change(options: Options, state: SQPState, found: Found) -> bool:
    """Return whether the quadratic model predicts no relevant change.

    Return False if the Hessian is not positive definite on the null space of the active rows,
    because the point may be a saddle point.
    """
    if state.damping.is_mixed or options.gap == 0 or len(state.problem.clients) == 1:
        return False
    exceeded = found.step.here[1].max(initial=0.0)
    allowed = _largest_allowed(options, state)
    return bool(exceeded <= allowed and model_gap(found.step) <= options.gap)


def _finish_stage(options: Options, state: SQPState, at: Evaluation, found: Found) -> SQPState:
    r"""Begin stage 2 from the evaluation ``at``, or end the run.

    Stage 2 minimises the mean subject to :math:`l_k(\theta) \le l_k(\theta_1) + \text{slack}`. If
    only the worst client is protected, the largest of these bounds applies to all k. With
    exact curvature, the first step is as long as the slack allows to second order.
    """
    if not _has_stage_2(options, state) or at.largest_violation > _largest_allowed(options, state):
        return _end_run(state)
    kept = (
        at.losses if options.method.protects == "all" else np.full(at.losses.size, at.losses.max())
    )
    state = replace(
        _with_stage_1_multipliers(state),
        stage=2,
        caps=kept + options.method.slack,
        search=replace(state.search, merits=()),
    )
    target, curvature = target_of(options, state), found.curvature
    if options.exact and options.method.slack > 0:
        before = state.multipliers
        found = step_within_slack(
            at, target, curvature, state.penalty, options.method.slack, before
        )
    else:
        found = find_step(at, target, curvature, state.penalty, state.loss_weights)
    return _consider(options, state, at, found)


def _with_stage_1_multipliers(state: SQPState) -> SQPState:
    """Store the multipliers of stage 1, because those of stage 2 refer to another objective."""
    return replace(state, prices=state.row_weights, worst_weights=state.loss_weights)


def _end_run(state: SQPState) -> SQPState:
    """Set the final status: ``converged``, or ``stopped`` if a stage was cut short."""
    if state.stage == 1:
        state = _with_stage_1_multipliers(state)
    if state.cut_short:
        counts = f"{state.rounds[0]} + {state.rounds[1]} rounds"
        message = f"Stopped at a KKT residual of {state.kkt:.1e} after {counts}."
        return replace(state, status="stopped", message=message)
    return replace(state, status="converged", message=f"KKT residual {state.kkt:.1e}.")


def _cut_short(state: SQPState) -> SQPState:
    """End the run without stage 2, at an iterate whose evaluation is not available."""
    return _end_run(replace(state, cut_short=True))


def _end_infeasible(state: SQPState, at: Evaluation) -> SQPState:
    """End the run at a stationary point of the violations.

    The multipliers there are those of the violations only, so no prices are reported. In stage 2
    the violated constraint is a cap on a loss, and the run ends with the present iterate.
    """
    if state.stage == 2:
        return _cut_short(state)
    message = conflict_sentence(at, state.row_weights)
    return replace(state, status="infeasible", message=message, worst_weights=state.loss_weights)


# --- the curvature of the losses alone ------------------------------------------------------------


def loss_curvature(state: SQPState) -> Point:
    """Return the point that requests the Hessian of the losses, weighted as in the objective."""
    none = np.zeros(state.problem.n_rates)
    weights = {
        client: CurvatureWeights(float(weight), none)
        for client, weight in zip(state.problem.clients, state.loss_weights, strict=True)
    }
    return Point(state.params, "curvature", weights)


def inverse_factor(at: Evaluation, state: SQPState) -> Matrix | None:
    """Return F such that ``F @ F.T`` is the inverse Hessian of the losses, None if indefinite.

    ``at`` is the evaluation of `loss_curvature`.
    """
    ridge = at.problem.l2 * state.loss_weights.sum() * np.eye(at.params.size)
    try:
        root = np.linalg.cholesky(ridge + at.curvature)
    except np.linalg.LinAlgError:
        return None
    return np.asarray(solve_triangular(root, np.eye(at.params.size), lower=True).T)
