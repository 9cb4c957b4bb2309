r"""Feasibility restoration: the last rounds of a stage that will be cut short go to the budgets.

A stage that converges keeps its budgets by itself. One that runs out of rounds before would end
after a long step, and budgets that bend are exceeded after each of those. Its last rounds
therefore take nearly the shortest steps that meet the linearised budgets,

.. math:: \min_{d,t,s}\; t / \kappa + \tfrac12 d^T B d + \rho \sum_j s_j, \qquad \kappa \gg 1,

with the constraints of `subproblem`. docs/networks.md says how often that suffices.
"""

from dataclasses import replace

import numpy as np

from fcfl.methods.sqp.elastic import find_step
from fcfl.methods.sqp.merit import Search, merit_of_rows
from fcfl.methods.sqp.quasi_newton import Curvature
from fcfl.methods.sqp.sqp_options import LEARNT_LENGTHS, NEAR_OPTIMUM, Options
from fcfl.methods.sqp.sqp_state import SQPState, rounds_left, target_of
from fcfl.problem.constraints import FEASIBILITY_TOLERANCE
from fcfl.problem.evaluation import Evaluation

# The factor κ on curvature and penalty, by which the losses count less: their share of the step is
# then below what the linearisation is worth, and the programme is still well conditioned.
_STIFFNESS = 1e4

# The largest penalty κρ. Far above it the multipliers span so many orders of magnitude that the
# programmes cannot be solved in double precision.
_LARGEST_PENALTY = 1e8

# Rounds of restoration, chosen by measurement on simulated runs that are cut short: of 120, 13 end
# above 1e-6 (docs/networks.md; tests/methods/sqp holds them to that). Learnt curvature knows less
# about how a budget bends and takes more rounds than five. They are at most half of the stage:
# with more, too few rounds would be left to get near the budgets in the first place.
_EXACT_ROUNDS, _LEARNT_ROUNDS = 5, 8

# A stage whose residual is within this factor of `feasibility` may still converge in its last
# rounds, and exceeds no budget by more than the residual if it does not: it needs no restoration.
_NEARLY = 100.0


def restoration_rounds(options: Options, state: SQPState) -> int:
    """How many of the stage's last rounds restore feasibility: 0 when it is about to converge."""
    if len(state.problem.constraints) == 0:
        return 0
    limit = options.rounds[state.stage - 1]
    # Newton's method needs one or two rounds from NEAR_OPTIMUM, L-BFGS needs many.
    soon = NEAR_OPTIMUM if options.exact else 0.0
    if state.kkt <= max(soon, _NEARLY * options.feasibility):
        return 0
    learnt = max(_EXACT_ROUNDS, min(_LEARNT_ROUNDS, limit // 4))
    return min(_EXACT_ROUNDS if options.exact else learnt, limit // 2)


def is_restoring(options: Options, state: SQPState) -> bool:
    """Whether the next step restores feasibility."""
    return 1 <= rounds_left(options, state) <= restoration_rounds(options, state)


def was_restoring(options: Options, state: SQPState) -> bool:
    """Whether the step whose reports have just been counted restored feasibility."""
    return rounds_left(options, state) < restoration_rounds(options, state)


def restoration_step(
    options: Options, state: SQPState, at: Evaluation, curvature: Curvature
) -> SQPState:
    """The direction that restores feasibility, and the search along it.

    Multipliers and curvature stay as they are: those of this programme say nothing about the
    problem's own. While a budget is exceeded, the caps of stage 2 do not count: budgets are a
    requirement, the last bit of a client's loss is not. They are therefore not part of the
    predicted decrease, nor of the merit.
    """
    stiffness = max(1.0, min(_STIFFNESS, _LARGEST_PENALTY / state.penalty))
    stiff, penalty = curvature.scaled(stiffness), stiffness * state.penalty
    target, n_caps = target_of(options, state), state.caps.size
    is_met = at.largest_violation <= FEASIBILITY_TOLERANCE
    kept = target if is_met else replace(target, caps=np.zeros(0))
    step, penalty, _ = find_step(at, kept, stiff, penalty, stiffness * state.loss_weights)
    decreases = step.violation_decreases[-at.violations.size :]
    no_caps = np.zeros(n_caps)
    search = Search(
        lengths=(1.0, *LEARNT_LENGTHS),
        settled=False,
        merits=(merit_of_rows(target.rows(at)),),
        predicted_decrease=(step.objective_decrease, np.append(no_caps, decreases)),
        penalties=np.append(no_caps, np.full(decreases.size, penalty)),
    )
    return replace(state, direction=step.direction, search=search)
