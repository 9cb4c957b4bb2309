r"""The two stages: how stage 2 begins, and how a run ends.

Stage 1 minimises :math:`\max_k l_k`, stage 2 the mean of the :math:`l_k` with none above its value
after stage 1: of all models with the smallest worst loss, one that nobody else can improve on.
"""

from dataclasses import replace

import numpy as np

from fcfl.methods.sqp.sqp_options import Options
from fcfl.methods.sqp.sqp_state import SQPState, reset_search
from fcfl.problem.evaluation import Evaluation
from fcfl.problem.prices import conflict_sentence

# The share of the slack that a budget may be exceeded by where stage 2 begins. A price is near .1
# and seldom above 3, so that meeting the budget costs less than the slack.
_OF_SLACK = 0.2


def has_stage_2(options: Options, state: SQPState) -> bool:
    """Whether a stage 2 follows.

    A smooth objective needs none: all its weights are positive, so its optimum is Pareto-optimal.
    """
    several = options.temperature is None and len(state.problem.clients) > 1
    return state.stage == 1 and several and options.rounds[1] > 0


def nearly_met(options: Options) -> float:
    """The violation up to which stage 2 can start: what its slack has room for."""
    return max(options.feasibility, _OF_SLACK * options.slack)


def wants_stage_2(options: Options, state: SQPState, at: Evaluation) -> bool:
    """Whether there is a stage 2, and ``at`` keeps the budgets so that it can start there."""
    return has_stage_2(options, state) and at.largest_violation <= nearly_met(options)


def begin_stage_2(options: Options, state: SQPState, at: Evaluation) -> SQPState:
    r"""Minimise the mean subject to :math:`l_k(\theta) \le l_k(\theta_1) + \text{slack}`.

    Where only the worst client is protected, the right side is the largest of them for all k.
    Without slack the feasible set has no interior at the optimum of stage 1: multipliers would be
    unbounded, and no step of positive length would be feasible.
    """
    state = _with_stage_1_multipliers(reset_search(state))
    kept = at.losses
    if options.protects == "worst":
        kept = np.full(kept.size, kept.max())
    return replace(state, stage=2, caps=kept + options.slack)


def end_run(state: SQPState) -> SQPState:
    """The state with its final status: ``converged``, or ``stopped`` if a stage was cut short."""
    if state.stage == 1:
        state = _with_stage_1_multipliers(state)
    if state.cut_short:
        counts = f"{state.rounds[0]} + {state.rounds[1]} rounds"
        message = f"Stopped at a KKT residual of {state.kkt:.1e} after {counts}."
        return replace(state, status="stopped", message=message)
    return replace(state, status="converged", message=f"KKT residual {state.kkt:.1e}.")


def end_cut_short(state: SQPState) -> SQPState:
    """The end of a run at an iterate that has not just been evaluated: without a stage 2."""
    return end_run(replace(state, cut_short=True))


def end_infeasible(state: SQPState, at: Evaluation) -> SQPState:
    """The end at a stationary point of the violations.

    There the multipliers are those of the violations alone, so no prices are reported. In stage 2
    it is a cap that cannot be met, and the iterate is good enough.
    """
    if state.stage == 2:
        return end_cut_short(state)
    message = conflict_sentence(at, state.row_weights)
    return replace(state, status="infeasible", message=message, worst_weights=state.loss_weights)


def _with_stage_1_multipliers(state: SQPState) -> SQPState:
    """Keep the multipliers of stage 1: stage 2 has another objective, and others."""
    return replace(state, prices=state.row_weights, worst_weights=state.loss_weights)
