r"""Sequential quadratic programming for the min-max problem under budgets: the default method.

Stage 1 minimises :math:`\max_k l_k`; stage 2 the mean of the :math:`l_k` with none above its value
after stage 1 plus a small slack, without which the feasible set has no interior. The result is,
of all models with the smallest worst loss, one that no client can improve on without harm to
another. With the mean or a fixed temperature instead of the maximum one stage is enough: all
weights are then positive, so its optimum is Pareto-optimal.

A round, top-down:

1. `SQP.step` evaluates the points of the request, takes the longest step that the search accepts
   (`subproblem.Search`), or requests shorter ones.
2. `_arrive` takes the curvature at the new iterate: the Lagrangian's Hessian, a sum over clients,
   or one more L-BFGS pair (`curvature`).
3. The quadratic programme (`subproblem`, solved in its dual by `qp`) gives the next step and the
   multipliers. With exact curvature this is Newton's method on the KKT conditions near a solution.
4. `_consider` requests the step, or ends the stage: when the KKT residual is within the tolerance,
   when the quadratic model predicts no further change, or when no step lowers the violations.
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

# A client's part of the Hessian is n × n: with 2,000 parameters 32 MB for each point of a request.
_EXACT_PARAMS = 2000

# KKT residual at which a stage ends. The solver of the subproblem is accurate to about 1e-9, and
# budgets count as met up to FEASIBILITY_TOLERANCE, so that a smaller residual proves nothing more.
_TOLERANCE = 1e-6

# A stage of the min-max problem ends before that when the quadratic model predicts that its
# objective would change by no more than this; a share of the slack of stage 2, which must cover
# what stage 1 left.
_GAP, _GAP_OF_SLACK = 3e-6, 0.06

# Defaults of the options that differ between exact curvature and L-BFGS. The limits on rounds are
# several times what converging runs take. With L-BFGS many full steps are rejected, so that shorter
# ones are requested beside them.
_EXACT_OPTIONS: Mapping[str, Any] = {
    "rounds": (200, 200), "lookahead": (), "n_full_points": 1, "patience": 6,
}  # fmt: skip
_LBFGS_OPTIONS: Mapping[str, Any] = {
    "rounds": (1000, 1000), "lookahead": (0.5, 0.2, 0.05, 0.01), "n_full_points": 2, "patience": 10,
}  # fmt: skip

# KKT residual up to which an indefinite Hessian is lifted instead of mixed.
_NEAR_OPTIMUM = 1e-2

# The damping above which a step is left as long as it is: it is then mostly what the budgets
# demand.
_STIFF = 10.0

# Penalty of a violation in the merit before any multiplier is known.
_FIRST_PENALTY = 1.0

# The step length at which the search ends: the merit's differences are then rounding.
_SHORTEST = 1e-12

# Share of the slack by which a budget may be exceeded where stage 2 begins. A price is near .1 and
# seldom above 3, so that meeting the budget costs less than the slack.
_OF_SLACK = 0.2

_DECADES = 6.0  # of the residual, from a typical first one of 1 to the default tolerance


@dataclass(frozen=True)
class SQPState:
    """The iterate, the step being tried, the multipliers, and the curvature learned so far.

    ``search.lengths[i]`` is the step length of the request's point ``i``. ``caps`` are the losses
    that stage 2 may not exceed, one per client, empty in stage 1. ``loss_weights`` and
    ``row_weights`` are the multipliers of the last step; ``prices`` and ``worst_weights`` those
    with which stage 1 ended. ``cut_short`` is true if a stage ended before it converged.
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
        """Return the weights under which the Lagrangian's curvature is requested or learned."""
        return Multipliers(self.loss_weights, self.row_weights)


@dataclass(frozen=True)
class SQP:
    r"""Options of the fast method.

    Parameters
    ----------
    objective
        ``"max"`` minimises the largest loss (the paper); ``"mean"`` the mean of the clients'
        losses; a temperature :math:`\delta` the smooth maximum between them: small is near the
        maximum, infinite is the mean.
    curvature
        ``"exact"``: each client sends its part of the Lagrangian's Hessian; ``"lbfgs"``: learnt
        from gradients, for any number of parameters; ``"auto"``: exact up to 2,000 parameters.
    rounds
        The most exchanges in each stage; by default 200 with exact curvature, 1,000 with learnt.
    tolerance
        KKT residual at which a stage ends. By default 1e-6; but where there are two stages and
        exact curvature, either ends as soon as the undamped quadratic model expects its objective
        to change by at most 3e-6. A number, such as 1e-6, asks for that residual alone.
    feasibility
        A stage ends only when no budget is violated by more than this, nor by more than
        ``tolerance``; a first stage that the model ends may leave 1e-5 to the second.
    lookahead
        Shorter step lengths that are asked for together with the full step; by default none with
        exact curvature, (0.5, 0.2, 0.05, 0.01) otherwise.
    n_full_points
        How many of the lengths, the full one first, are asked for with everything the next iterate
        needs; the others with values only. Taking one of those costs a second round. By default 1
        with exact curvature, 2 otherwise.
    penalty
        Largest multiplier of a budget; raised when a budget needs more. The weights of violations
        in the merit follow the multipliers.
    max_penalty
        The largest that it may be raised to: budgets that need more end a run as infeasible.
    slack
        How much a client's loss may rise in stage 2. The default keeps the worst loss within 1e-4
        of its minimum, with room for rounding and the tolerance.
    protects
        What stage 2 keeps: ``"all"`` clients' losses at the end of stage 1, or only the ``"worst"``
        one (both below Eq. 15 of the paper): then a client's loss may rise up to the worst.
    patience
        A step is compared with the worst merit of this many last iterates, so that the curvature of
        the constraints does not block full steps (the Maratos effect); by default 6 with exact
        curvature, 10 otherwise.
    memory
        How many of the last steps L-BFGS learns from.
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
        """Return whether clients send curvature."""
        return self.curvature == "exact" or (self.curvature == "auto" and n_params <= _EXACT_PARAMS)

    def resolved(self, n_params: int) -> "Options":
        """Return the options with every default resolved for a model of ``n_params`` parameters."""
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
        """Request everything at ``params``, with the same weight for every client."""
        params = checks.check_params(params)
        return _with_request(self.resolved(params.size), _first_state(params, problem, self))

    def restart(
        self, state: SQPState, problem: Problem, reports: Reports | None = None
    ) -> SQPState:
        """Start again where ``state`` ended, with its multipliers and its curvature.

        The problem may have other bounds, more rows at the end, or another L2 weight. ``reports``
        are those on ``state.request``; if they contain the end, it is not requested again.
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
        """Take the longest acceptable step of the request, or search on.

        With a stale report among ``reports`` the round is provisional: the next step is taken
        without a line search, and no stage ends.
        """
        after, info = _take_round(self.resolved(state.params.size), state, reports)
        stale = [name for name, answers in reports.items() if any(one.age for one in answers)]
        if not stale:
            return after, info
        return _make_provisional(state, after), replace(info, note=f"stale: {', '.join(stale)}")

    def fraction_done(self, state: SQPState) -> float:
        """Return how far the residual has come towards the tolerance, in powers of ten."""
        if state.status != "running":
            return 1.0
        tolerance = _TOLERANCE if self.tolerance is None else self.tolerance
        decades = np.log10(max(state.kkt, tolerance) / tolerance)
        part = 1.0 - min(decades / _DECADES, 1.0)
        stages = 2 if self.objective == "max" and len(state.problem.clients) > 1 else 1
        return float((state.stage - 1 + part) / stages)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a ``method`` with the defaults resolved that depend on the model.

    ``temperature`` is ``None`` for the maximum and infinite for the mean of the clients' losses;
    with ``exact``, clients send curvature; ``rounds`` has a limit for each stage; ``gap`` is the
    change that the quadratic model may still predict at the end of a stage, 0 to end by the
    residual only.
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
        """Return the step lengths to try first: the full step and the shorter ones."""
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
        # The first point is only evaluated: there is nothing to compare it with.
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
    """Return what the present stage minimises and keeps; stage 2 always minimises the mean."""
    return Target(np.inf if state.stage == 2 else options.temperature, state.caps)


def _rounds_left(options: Options, state: SQPState) -> int:
    """Return the rounds until the limit of the stage; negative if stale reports extended it."""
    return options.rounds[state.stage - 1] - state.rounds[state.stage - 1]


# --- one round ------------------------------------------------------------------------------------


def _take_round(options: Options, state: SQPState, reports: Reports) -> tuple[SQPState, RoundInfo]:
    """Take the longest acceptable step of the request, or search on along it.

    A step of which only values are known is requested again, alone, and then taken.
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
        # A quarter of the shortest length that failed: together with `lookahead` the next request
        # spans two more orders of magnitude.
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
    """Request ``length``: to take it when ``settled``, otherwise with its own shorter lengths."""
    if length < _SHORTEST:
        return _cut_short(state)
    lengths = (length,) if settled else tuple(length * part for part in options.lengths)
    state = replace(state, search=replace(state.search, lengths=lengths, settled=settled))
    return _with_request(options, state) if _rounds_left(options, state) > 0 else _cut_short(state)


def _with_request(options: Options, state: SQPState) -> SQPState:
    """Request the points ``params + length * direction``.

    The longest ones carry everything that the next iterate needs, the others values only. In the
    last round all of them do, because a shorter step cannot be requested again.
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
    """Return what remains of a round in which some reports were stale.

    A stale report is about another point, so no merit may be compared with it: the next step is
    taken without a line search, and past merits are dropped. No stage ends by it; the round is only
    counted.
    """
    if after.status != "running" or after.stage != before.stage:
        after = replace(before, rounds=after.rounds)
    return replace(after, search=replace(after.search, settled=True, merits=()))


# --- the next step --------------------------------------------------------------------------------


def _arrive(options: Options, state: SQPState, at: Evaluation) -> SQPState:
    """Make ``at`` the iterate, and solve for the next step."""
    if options.exact:
        damping, found = _damped_step(options, state, at)
        state = replace(state, damping=damping)
    else:
        memory = _learn(options, state, at)
        target = target_of(options, state)
        found = find_step(at, target, memory, state.penalty, state.loss_weights)
    return _consider(options, replace(state, params=at.params), at, found)


def _damped_step(options: Options, state: SQPState, at: Evaluation) -> tuple[Damping, Found]:
    """Solve for a step under exact curvature, damped until it is not much longer than the last.

    With hardly any damping a step can become ten times as long from one round to the next, beyond
    where the rates' linearisation holds. Curvature was requested under the multipliers of the step
    that led here.
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

    Both gradients are those of the Lagrangian under the multipliers of the step. ``B s`` needs no
    product: the step solves :math:`B d = -\nabla L`.
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
    """Request the step that was found, under its penalty and multipliers; or end the stage.

    A stage ends when the KKT residual is within the tolerance and the budgets are met; when the
    quadratic model predicts no change; when it is out of rounds; or when no step lowers the
    violations even under the largest penalty. Before that the penalty grows, and the step is
    solved for again at the same point.
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
        return _end_infeasible(state, at)  # beyond its default, only steps may raise the penalty
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
    """Return a search over all lengths of a step, compared with the merits of the last iterates.

    With exact curvature each penalty moves towards twice its multiplier in every round: fixed far
    above multipliers near .1 it would reject full steps. With L-BFGS it is lowered only when it has
    rejected some.
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
        bend=step.bend,
        uses_augmented=options.exact,
    )


# --- the ends of stages ---------------------------------------------------------------------------


def _has_stage_2(options: Options, state: SQPState) -> bool:
    """Return whether a stage 2 follows; a smooth objective needs none."""
    several = options.temperature is None and len(state.problem.clients) > 1
    return state.stage == 1 and several and options.rounds[1] > 0


def _largest_allowed(options: Options, state: SQPState) -> float:
    """Return the violation with which a stage may end; stage 2 can lower what its slack covers."""
    if not _has_stage_2(options, state):
        return options.method.feasibility
    return max(options.method.feasibility, _OF_SLACK * options.method.slack)


def _predicts_no_change(options: Options, state: SQPState, found: Found) -> bool:
    """Return whether the quadratic model predicts that nothing is to be gained.

    A model whose Hessian is not positive definite along the active rows predicts nothing, because
    the point may be a saddle point.
    """
    if state.damping.is_mixed or options.gap == 0 or len(state.problem.clients) == 1:
        return False
    exceeded = found.step.here[1].max(initial=0.0)
    allowed = _largest_allowed(options, state)
    return bool(exceeded <= allowed and model_gap(found.step) <= options.gap)


def _finish_stage(options: Options, state: SQPState, at: Evaluation, found: Found) -> SQPState:
    r"""Begin stage 2 from ``at``, where all that it needs is known; or end.

    Stage 2 minimises the mean subject to :math:`l_k(\theta) \le l_k(\theta_1) + \text{slack}`.
    Where only the worst client is protected, the right side is the largest of them for all k. With
    exact curvature its first step is as long as the slack allows to second order.
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
    """Store the multipliers of stage 1: stage 2 has another objective, and others."""
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
    """End the run at an iterate that has not just been evaluated: without a stage 2."""
    return _end_run(replace(state, cut_short=True))


def _end_infeasible(state: SQPState, at: Evaluation) -> SQPState:
    """End at a stationary point of the violations.

    Its multipliers are those of the violations alone, so no prices are reported. In stage 2 it is a
    cap that cannot be met, and the iterate is good enough.
    """
    if state.stage == 2:
        return _cut_short(state)
    message = conflict_sentence(at, state.row_weights)
    return replace(state, status="infeasible", message=message, worst_weights=state.loss_weights)


# --- the curvature of the losses alone ------------------------------------------------------------


def loss_curvature(state: SQPState) -> Point:
    """Return the point that asks for the Hessian of the losses, in the objective's weights."""
    none = np.zeros(state.problem.n_rates)
    weights = {
        client: CurvatureWeights(float(weight), none)
        for client, weight in zip(state.problem.clients, state.loss_weights, strict=True)
    }
    return Point(state.params, "curvature", weights)


def inverse_factor(at: Evaluation, state: SQPState) -> Matrix | None:
    """Return F with ``F @ F.T`` the inverse Hessian of the losses; None if that is indefinite.

    ``at`` is the answer to `loss_curvature`.
    """
    ridge = at.problem.l2 * state.loss_weights.sum() * np.eye(at.params.size)
    try:
        root = np.linalg.cholesky(ridge + at.curvature)
    except np.linalg.LinAlgError:
        return None
    return np.asarray(solve_triangular(root, np.eye(at.params.size), lower=True).T)
