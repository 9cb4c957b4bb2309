"""The options of `SQP` with every default resolved for one number of parameters.

`SQP` is what a user writes, with options left open; `Options` is what the functions of this package
take. They are pure functions of it, of a state, and of reports.
"""

from dataclasses import dataclass
from typing import Literal

# A client's part of the Hessian is n × n: with 2,000 parameters 32 MB for each point of a request.
EXACT_PARAMS = 2000

# KKT residual at which a stage ends. The solver of the subproblem is accurate to about 1e-9, and
# budgets count as met up to FEASIBILITY_TOLERANCE, so that a smaller residual proves nothing more.
TOLERANCE = 1e-6

# A stage of the min-max problem ends before that when the undamped quadratic model says that its
# objective, and the violations times their prices, would change by no more than this. The last ten
# rounds of a hard problem change them by less (docs/rounds.md). Compared with it is also a share of
# the slack of stage 2, which must have room for what stage 1 left.
GAP, GAP_OF_SLACK = 3e-6, 0.06

# Rounds in each stage. Adult takes at most 15 + 15 with exact curvature and 60 + 60 with L-BFGS
# (tests/methods/sqp), a network of 93,441 parameters 220 + 68 (docs/networks.md). These limits are
# several times as many: they stop a run that does not converge.
EXACT_ROUNDS, LEARNT_ROUNDS = 200, 1000

# Shorter step lengths that are asked about together with the full step. With damped exact curvature
# most full steps pass; with learnt curvature many are refused.
EXACT_LENGTHS: tuple[float, ...] = ()
LEARNT_LENGTHS: tuple[float, ...] = (0.5, 0.2, 0.05, 0.01)

# Points of a request that carry everything the next iterate needs. A shorter step of which only
# values are known costs a second round when it is taken, a full point that is not taken costs its
# gradients. A network, whose gradients are expensive, takes one (`fcfl.torch`).
EXACT_FULL_POINTS, LEARNT_FULL_POINTS = 1, 2

# Merits of past iterates of which the worst is compared with. With exact curvature 1, 3 and 10 took
# 11, 15 and 13 % more rounds than 6 (sixteen problems, docs/rounds.md).
EXACT_PATIENCE, LEARNT_PATIENCE = 6, 10

# KKT residual from which on Newton's method needs one or two rounds.
NEAR_OPTIMUM = 3e-3

# KKT residual above which the lengths of the last steps say nothing about the next: from far and
# badly scaled starts a limit on growth kept steps short for ever.
FAR_FROM_OPTIMUM = 1.0

# KKT residual from which on an indefinite Hessian is lifted, not mixed. With 3e-3 it took as many
# rounds over 83 problems, without a limit 14 % more (docs/rounds.md).
LIFTED = 1e-2


@dataclass(frozen=True, slots=True)
class Options:
    """What the functions of this package need to know of an `SQP`; `SQP` documents the fields.

    ``temperature`` is ``None`` for the maximum and infinite for the mean of the clients' losses;
    ``exact`` says whether clients send curvature; ``rounds`` has a limit for each stage; ``gap`` is
    what a stage may leave to be gained by the quadratic model, 0 where the residual alone counts.
    """

    temperature: float | None
    exact: bool
    rounds: tuple[int, int]
    tolerance: float
    gap: float
    feasibility: float
    lookahead: tuple[float, ...]
    n_full_points: int
    penalty: float
    max_penalty: float
    slack: float
    protects: Literal["all", "worst"]
    patience: int
    memory: int

    @property
    def lengths(self) -> tuple[float, ...]:
        """The step lengths that are tried first: the full step and the shorter ones."""
        return (1.0, *self.lookahead)


def default_rounds(exact: bool) -> tuple[int, int]:
    """The limit on rounds in each stage."""
    return (EXACT_ROUNDS, EXACT_ROUNDS) if exact else (LEARNT_ROUNDS, LEARNT_ROUNDS)


def default_full_points(exact: bool) -> int:
    """How many points of a request carry more than values."""
    return EXACT_FULL_POINTS if exact else LEARNT_FULL_POINTS


def default_lookahead(exact: bool) -> tuple[float, ...]:
    """Shorter lengths that are asked about together with the full step."""
    return EXACT_LENGTHS if exact else LEARNT_LENGTHS


def default_patience(exact: bool) -> int:
    """How many merits of past iterates are remembered."""
    return EXACT_PATIENCE if exact else LEARNT_PATIENCE
