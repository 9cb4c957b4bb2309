r"""One round of SQP: accept a step or search on, and from a new iterate solve for the next step.

From an iterate :math:`\theta` with multipliers the next step solves the quadratic programme of
`subproblem` under the curvature B of the Lagrangian; its weights are the next multipliers. Near a
solution with exact curvature this is Newton's method on the KKT conditions: the residual falls
quadratically.
"""

from dataclasses import replace

from fcfl._types import ClientId, Reports
from fcfl.methods.method import RoundInfo, describe_round
from fcfl.methods.sqp.damping import first_damping
from fcfl.methods.sqp.elastic import (
    PENALTY_GROWTH,
    PENALTY_LIMIT,
    find_step,
    is_stuck,
    step_within_slack,
)
from fcfl.methods.sqp.exact_step import QuadraticModel, damped_step
from fcfl.methods.sqp.lagrangian import (
    Multipliers,
    active_grads,
    lagrangian_grad,
    lagrangian_hessian,
    loss_weights,
)
from fcfl.methods.sqp.line_search import begin_search, search_again, with_request
from fcfl.methods.sqp.model_gap import nothing_to_gain
from fcfl.methods.sqp.quasi_newton import Curvature, LimitedMemory
from fcfl.methods.sqp.restoration import is_restoring, restoration_step, was_restoring
from fcfl.methods.sqp.sqp_options import FAR_FROM_OPTIMUM, LIFTED, Options
from fcfl.methods.sqp.sqp_state import SQPState, count_round, reset_search, rounds_left, target_of
from fcfl.methods.sqp.stages import begin_stage_2, end_infeasible, end_run, wants_stage_2
from fcfl.methods.sqp.subproblem import Step, kkt_residual
from fcfl.problem.evaluation import Evaluation, evaluate_point


def take_round(options: Options, state: SQPState, reports: Reports) -> tuple[SQPState, RoundInfo]:
    """Take the longest acceptable step of the request, or search on along it.

    A step of which only values are known is asked for again, alone, and then taken.
    """
    points = [
        evaluate_point(state.problem, point.params, reports, index)
        for index, point in enumerate(state.request.points)
    ]
    stage, state = state.stage, count_round(state)
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
        state = search_again(options, state, shorter, settled=False)
    else:
        shown, length = points[accepted], search.lengths[accepted]
        if options.exact and not search.settled and not was_restoring(options, state):
            ratio = search.ratio(accepted, target.rows(shown))
            state = replace(state, damping=state.damping.taken(ratio, length))
        if state.request.points[accepted].want == "values":
            state = search_again(options, state, length, settled=True)
        else:
            state = _arrive(options, replace(state, search=search.ended(length)), shown)
    return state, describe_round(shown, round=sum(state.rounds), stage=stage, step=length)


def stale_clients(reports: Reports) -> list[ClientId]:
    """Clients for whom an earlier report stands in, because they did not answer."""
    return [name for name, answers in reports.items() if any(one.age for one in answers)]


def make_provisional(before: SQPState, after: SQPState) -> SQPState:
    """What remains of a round when some of its reports were stale.

    A stale report is about another point, so no merit may be compared with it: the next step is
    taken without a line search, and past merits are forgotten. Nothing is concluded from it
    either: a stage that would end with it is not over, the round is only counted.
    """
    if after.status != "running" or after.stage != before.stage:
        after = replace(before, rounds=after.rounds)
    return replace(after, search=replace(after.search, settled=True, merits=()))


def _arrive(options: Options, state: SQPState, at: Evaluation) -> SQPState:
    """Make ``at`` the iterate, and solve for the next step.

    Exact curvature was asked for under the multipliers of the step that led here; with L-BFGS the
    step itself is learnt from.
    """
    if not options.exact:
        state = replace(state, memory=_learn(options, state, at), params=at.params)
        return _next_step(options, state, at, state.memory)
    target = target_of(options, state)
    hessian = lagrangian_hessian(state.multipliers, target, at)
    damping, step = state.damping, at.params - state.params
    if not damping.metric.size:
        damping = first_damping(hessian)
    elif state.kkt > FAR_FROM_OPTIMUM:
        damping = damping.forgotten()
    elif state.search.lengths[0] == 1 and step.any():
        damping = damping.arrived(step)
    active = active_grads(state.multipliers, target, at)
    weight = float(state.loss_weights.sum())
    model = QuadraticModel(hessian, active, weight, is_near=state.kkt <= LIFTED)
    state = replace(state, params=at.params)
    if is_restoring(options, state):
        curvature, damping = model.damped(damping)
        return _next_step(options, replace(state, damping=damping), at, curvature)
    given = state.penalty, state.loss_weights
    found, damping = damped_step(at, target, model, damping, given)
    return _go_along(options, replace(state, damping=damping), at, found)


def _learn(options: Options, state: SQPState, at: Evaluation) -> LimitedMemory:
    r"""One more pair of L-BFGS: the step, and how the Lagrangian's gradient changed along it.

    The multipliers are those of the step on both sides, so that the difference is curvature only.
    ``B s`` is known without a product: the step solves :math:`B d = -\nabla L`.
    """
    if state.lagrangian_grad.size == 0 or was_restoring(options, state):
        return state.memory  # the first point; or a step that did not solve the equation above
    step = at.params - state.params
    here = lagrangian_grad(state.multipliers, target_of(options, state), at)
    change = here - state.lagrangian_grad
    model_change = -state.search.lengths[0] * state.lagrangian_grad
    return state.memory.updated(step, change, model_change, options.memory)


def _next_step(options: Options, state: SQPState, at: Evaluation, curvature: Curvature) -> SQPState:
    """Solve for the next step, and see whether the stage is over."""
    if is_restoring(options, state):
        return with_request(options, restoration_step(options, state, at, curvature))
    target = target_of(options, state)
    found = find_step(at, target, curvature, state.penalty, state.loss_weights)
    return _go_along(options, state, at, found)


def _go_along(
    options: Options, state: SQPState, at: Evaluation, found: tuple[Step, float, Curvature]
) -> SQPState:
    """Go on along a step, under the multipliers that are its own."""
    target = target_of(options, state)
    step, penalty, curvature = found
    if isinstance(curvature, LimitedMemory):
        state = replace(state, memory=curvature)
    multipliers = Multipliers(
        loss_weights(target, at, step), step.constraint_weights[state.caps.size :]
    )
    return _go_on(options, state, at, curvature, (step, penalty, multipliers))


def _go_on(
    options: Options,
    state: SQPState,
    at: Evaluation,
    curvature: Curvature,
    found: tuple[Step, float, Multipliers],
) -> SQPState:
    """Ask about the step that was found, under its penalty and multipliers; or end the stage.

    A stage ends when the KKT residual is within the tolerance and the budgets are met; when by the
    model nothing is to be gained; when it is out of rounds; or when no step lowers the violations,
    even under the largest penalty. Until the last the penalty grows and the step is solved for
    again, at the same point.
    """
    target, assumed = target_of(options, state), state.multipliers
    step, penalty, multipliers = found
    kkt = kkt_residual(at, target, step)
    rows = target.rows(at), target.linearised(at, step.direction)
    state = replace(
        state,
        penalty=penalty,
        direction=step.direction,
        search=begin_search(options, state, rows, step, penalty),
        loss_weights=multipliers.losses,
        row_weights=multipliers.rows,
        lagrangian_grad=step.lagrangian_grad,
        kkt=kkt,
    )
    is_over = kkt <= options.tolerance and at.largest_violation <= options.feasibility
    if is_over or nothing_to_gain(options, state, at, step, assumed):
        return _finish_stage(options, state, at, curvature)
    if penalty > options.max_penalty and options.max_penalty < PENALTY_LIMIT:
        return end_infeasible(state, at)  # beyond its default, steps alone may raise the penalty
    if is_stuck(at, target, step, penalty, options.tolerance):
        if penalty >= options.max_penalty:
            return end_infeasible(state, at)
        state = replace(reset_search(state), penalty=PENALTY_GROWTH * penalty)
        return _next_step(options, state, at, curvature)
    if rounds_left(options, state) <= 0:
        return _finish_stage(options, replace(state, cut_short=True), at, curvature)
    return with_request(options, state)


def _finish_stage(
    options: Options, state: SQPState, at: Evaluation, curvature: Curvature
) -> SQPState:
    """Go on to stage 2 from ``at``, where everything it needs is known already; or end.

    With exact curvature its first step is as long as the slack allows to second order, and the
    multipliers are those that belong to it.
    """
    if not wants_stage_2(options, state, at):
        return end_run(state)
    before, state = state.multipliers, begin_stage_2(options, state, at)
    if not options.exact or options.slack == 0 or is_restoring(options, state):
        return _next_step(options, state, at, curvature)
    target = target_of(options, state)
    step, penalty, factor = step_within_slack(at, target, curvature, state.penalty, options.slack)
    multipliers = Multipliers(
        loss_weights(target, at, step) + factor * before.losses,
        step.constraint_weights[state.caps.size :] + factor * before.rows,
    )
    return _go_on(options, state, at, curvature.scaled(factor), (step, penalty, multipliers))
