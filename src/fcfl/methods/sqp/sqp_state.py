"""What SQP remembers between rounds, and the few things that are read off it in many places."""

from dataclasses import dataclass, replace

import numpy as np

from fcfl._types import Request, Vector, brief_repr
from fcfl.methods.method import Status
from fcfl.methods.sqp.damping import Damping, no_damping
from fcfl.methods.sqp.lagrangian import Multipliers
from fcfl.methods.sqp.merit import Search
from fcfl.methods.sqp.quasi_newton import LimitedMemory, no_memory
from fcfl.methods.sqp.sqp_options import Options
from fcfl.methods.sqp.subproblem import Target
from fcfl.problem.evaluation import Problem


@dataclass(frozen=True)
class SQPState:
    """The iterate, the step being tried, the multipliers, and what has been learnt of curvature.

    ``search.lengths[i]`` is the step length of the request's point ``i``. ``caps`` are the losses
    that stage 2 may not exceed, one per client, empty in stage 1. ``loss_weights`` and
    ``row_weights`` are the multipliers of the last step; ``prices`` and ``worst_weights`` those
    with which stage 1 ended. ``cut_short`` says that some stage ended before it converged.
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
        """The weights under which the Lagrangian's curvature is requested or learnt."""
        return Multipliers(self.loss_weights, self.row_weights)


def first_state(params: Vector, problem: Problem, penalty: float) -> SQPState:
    """The state before any report, with equal weights for all clients and no request yet."""
    n_clients, n_rows = len(problem.clients), len(problem.constraints)
    return SQPState(
        problem=problem,
        params=params,
        request=Request(()),
        status="running",
        message="",
        stage=1,
        rounds=(0, 0),
        caps=np.zeros(0),
        penalty=penalty,
        direction=np.zeros(params.size),
        # The first point is only evaluated: there is nothing to compare it with.
        search=Search((1.0,), True, (), (0.0, np.zeros(0)), np.zeros(0)),
        loss_weights=np.full(n_clients, 1.0 / n_clients),
        row_weights=np.zeros(n_rows),
        lagrangian_grad=np.zeros(0),
        memory=no_memory(params.size),
        damping=no_damping(),
        kkt=np.inf,
        prices=np.zeros(n_rows),
        worst_weights=np.zeros(n_clients),
        cut_short=False,
    )


def target_of(options: Options, state: SQPState) -> Target:
    """What the present stage minimises and keeps; stage 2 always minimises the mean."""
    return Target(np.inf if state.stage == 2 else options.temperature, state.caps)


def rounds_left(options: Options, state: SQPState) -> int:
    """Rounds until the limit of the present stage; negative when stale reports prolonged it."""
    return options.rounds[state.stage - 1] - state.rounds[state.stage - 1]


def count_round(state: SQPState) -> SQPState:
    """The state with one more round of the present stage."""
    first, second = state.rounds
    return replace(state, rounds=(first + (state.stage == 1), second + (state.stage == 2)))


def reset_search(state: SQPState) -> SQPState:
    """The state without the merits of past iterates, which a new merit cannot be compared with."""
    return replace(state, search=replace(state.search, merits=()))
