"""The line search over requests: several step lengths are asked about in one exchange.

An exchange takes seconds and a point milliseconds, so a request carries the full step and
shorter ones. When the full step is refused, the answer about a shorter one is already here.
"""

from dataclasses import replace

import numpy as np

from fcfl._types import Point, Request
from fcfl.methods.sqp.augmented import Augmented, Rows
from fcfl.methods.sqp.lagrangian import curvature_weights
from fcfl.methods.sqp.merit import Search, least_penalty, lowered_penalties, merit_of_rows
from fcfl.methods.sqp.restoration import restoration_rounds
from fcfl.methods.sqp.sqp_options import Options
from fcfl.methods.sqp.sqp_state import SQPState, rounds_left
from fcfl.methods.sqp.stages import end_cut_short
from fcfl.methods.sqp.subproblem import Step
from fcfl.problem.constraints import FEASIBILITY_TOLERANCE

# What a unit of violation weighs in the merit before any multiplier is known. 3 and .5 took more
# rounds on eleven problems (24 and 11 %).
_FIRST_PENALTY = 1.0

# The step length at which the search gives up: the merit's differences are then rounding.
_SHORTEST = 1e-12


def begin_search(
    options: Options, state: SQPState, rows: tuple[Rows, Rows], step: Step, penalty: float
) -> Search:
    """A search over all lengths of ``step``, compared with the merits of the last iterates.

    Comparing with the worst of several merits, not with the last one (a nonmonotone search;
    Grippo, Lampariello and Lucidi, 1986), lets full steps pass where the constraints' curvature
    raises the merit for a moment: the Maratos effect. After a raised penalty the past is
    forgotten: merits under different penalties do not compare. ``rows`` are those at the iterate
    and those that the step leads to, to first order.

    With exact curvature each penalty moves towards twice its multiplier in every round: fixed far
    above multipliers near .1 it would refuse full steps. With learnt curvature it is lowered only
    when it has refused some.
    """
    is_comparable = penalty <= state.penalty
    before = state.search.merits if is_comparable else ()
    multipliers, penalties = step.constraint_weights, state.search.penalties
    is_known = penalties.size == multipliers.size
    if options.exact:
        known = penalties if is_known else np.full(multipliers.size, _FIRST_PENALTY)
        penalties = lowered_penalties(known, multipliers, least_penalty(multipliers))
    elif is_known and is_comparable and step.infeasibility <= FEASIBILITY_TOLERANCE:
        penalties = np.minimum(state.search.next_penalties(multipliers), penalty)
    else:
        penalties = np.full(multipliers.size, penalty)
    bend = -0.5 * float(step.lagrangian_grad @ step.direction)
    weights = step.objective_weights, step.constraint_weights
    return Search(
        lengths=options.lengths,
        settled=False,
        merits=(*before, merit_of_rows(rows[0]))[-options.patience :],
        predicted_decrease=(step.objective_decrease, step.violation_decreases),
        penalties=penalties,
        bend=bend,
        augmented=Augmented(*rows, weights, penalties, bend) if options.exact else None,
    )


def search_again(options: Options, state: SQPState, length: float, *, settled: bool) -> SQPState:
    """Ask about ``length``: to take it when ``settled``, else with its own shorter lengths."""
    if length < _SHORTEST:
        return end_cut_short(state)
    lengths = (length,) if settled else tuple(length * part for part in options.lengths)
    state = replace(state, search=replace(state.search, lengths=lengths, settled=settled))
    if rounds_left(options, state) <= 0:
        return end_cut_short(state)
    return with_request(options, state)


def with_request(options: Options, state: SQPState) -> SQPState:
    """The state with a request for the points ``params + length * direction``.

    The longest ones carry everything the next iterate needs, the others values only.
    """
    weights = curvature_weights(state.problem, state.multipliers) if options.exact else None
    n_full = options.n_full_points
    if rounds_left(options, state) <= max(restoration_rounds(options, state), 1):
        # There may be no second round in which to ask again about a shorter step.
        n_full = len(state.search.lengths)
    points = []
    for position, length in enumerate(state.search.lengths):
        params = state.params + length * state.direction
        if position >= n_full:
            points.append(Point(params, "values"))
        else:
            points.append(Point(params, "curvature" if options.exact else "gradients", weights))
    return replace(state, request=Request(tuple(points)))
