"""The line search over requests: several step lengths are asked about in one exchange.

An exchange takes seconds and a point milliseconds, so a request carries the full step and
shorter ones. When the full step is refused, the answer about a shorter one is already here.
"""

from dataclasses import replace

import numpy as np

from fcfl._types import Point, Request
from fcfl.server.method import FEASIBILITY_TOLERANCE
from fcfl.server.sqp.lagrangian import curvature_weights
from fcfl.server.sqp.merit import Merit, Search
from fcfl.server.sqp.restoration import restoration_rounds
from fcfl.server.sqp.sqp_options import Options
from fcfl.server.sqp.sqp_state import SQPState, rounds_left
from fcfl.server.sqp.stages import end_cut_short
from fcfl.server.sqp.subproblem import Step

# The step length at which the search gives up: the merit's differences are then rounding.
_SHORTEST = 1e-12


def begin_search(
    options: Options, state: SQPState, merit: Merit, step: Step, penalty: float
) -> Search:
    """A search over all lengths of ``step``, compared with the merits of the last iterates.

    Comparing with the worst of several merits, not with the last one (a nonmonotone search;
    Grippo, Lampariello and Lucidi, 1986), lets full steps pass where the constraints' curvature
    raises the merit for a moment: the Maratos effect. After a raised penalty the past is
    forgotten: merits under different penalties do not compare.

    With learnt curvature penalties are lowered when they refuse full steps; with the exact one
    that cost rounds (measured).
    """
    is_comparable = penalty <= state.penalty
    before = state.search.merits if is_comparable else ()
    penalties = np.full(step.constraint_weights.size, penalty)
    is_known = is_comparable and state.search.penalties.size == penalties.size
    if is_known and step.infeasibility <= FEASIBILITY_TOLERANCE and not options.exact:
        penalties = np.minimum(state.search.next_penalties(step.constraint_weights), penalty)
    return Search(
        lengths=options.lengths,
        settled=False,
        merits=(*before, merit)[-options.patience :],
        predicted_decrease=(step.objective_decrease, step.violation_decreases),
        penalties=penalties,
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
