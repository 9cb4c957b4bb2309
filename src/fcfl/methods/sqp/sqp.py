"""Our fast method: sequential quadratic programming for the min-max problem under budgets.

Each round linearises all losses and violations at the iterate, takes the curvature of the
Lagrangian (exact, a sum over clients, or learnt from gradients), and solves one small quadratic
programme for the step and the multipliers. Stage 1 minimises the largest loss; stage 2 the mean
loss with no client above its loss of stage 1 (plus a small slack, without which the feasible set
has no interior). With the mean or a fixed temperature instead of the maximum, one stage is enough:
its optimum is Pareto-optimal.

The parts, in the order of a round: `iteration` decides about the step that was asked about,
`lagrangian`, `damping` and `quasi_newton` give the curvature, `exact_step`, `elastic` and
`subproblem` the next step, `line_search`, `merit` and `augmented` the points to ask about and which
of them are taken, `restoration` the last steps of a run that is cut short, `stages` the end.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from fcfl._checks import (
    check_choice,
    check_count,
    check_non_negative,
    check_params,
    check_positive,
    check_stage_rounds,
    is_number,
)
from fcfl._types import Reports, Vector, reports_on
from fcfl.methods.method import RoundInfo
from fcfl.methods.sqp.elastic import PENALTY_LIMIT
from fcfl.methods.sqp.iteration import make_provisional, stale_clients, take_round
from fcfl.methods.sqp.line_search import with_request
from fcfl.methods.sqp.sqp_options import (
    EXACT_PARAMS,
    GAP,
    GAP_OF_SLACK,
    TOLERANCE,
    Options,
    default_full_points,
    default_lookahead,
    default_patience,
    default_rounds,
)
from fcfl.methods.sqp.sqp_state import SQPState, first_state
from fcfl.problem.constraints import FEASIBILITY_TOLERANCE
from fcfl.problem.evaluation import Problem

__all__ = ["SQP", "SQPState"]

_DECADES = 6.0  # of the residual, from a typical first one of 1 to the default tolerance


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
    takes_excess_loss: ClassVar[bool] = True
    n_stages: ClassVar[int] = 2

    def __post_init__(self) -> None:
        _check_objective(self.objective)
        check_choice("curvature", self.curvature, ("auto", "exact", "lbfgs"))
        if self.tolerance is not None:
            check_positive("tolerance", self.tolerance)
        check_positive("feasibility", self.feasibility)
        check_positive("penalty", self.penalty)
        check_positive("max_penalty", self.max_penalty)
        check_non_negative("slack", self.slack)
        check_choice("protects", self.protects, ("all", "worst"))
        for length in self.lookahead or ():
            if not 0 < length < 1:
                raise ValueError(f"`lookahead` must hold lengths between 0 and 1, got {length!r}.")
        if self.rounds is not None:
            check_stage_rounds("rounds", self.rounds)
        counts = [1 if self.rounds is None else self.rounds[0]]
        for name in ("patience", "memory", "n_full_points"):
            if getattr(self, name) is not None:
                counts.append(check_count(name, getattr(self, name)))
        if min(counts) < 1:
            raise ValueError(
                "`rounds` of stage 1, `patience`, `memory` and `n_full_points` must be at least 1."
            )

    def is_exact(self, n_params: int) -> bool:
        """Whether clients send curvature."""
        return self.curvature == "exact" or (self.curvature == "auto" and n_params <= EXACT_PARAMS)

    def resolved(self, n_params: int) -> Options:
        """The options with every default resolved for a model of ``n_params`` parameters."""
        exact = self.is_exact(n_params)
        n_full = self.n_full_points
        return Options(
            temperature=_temperature(self.objective),
            exact=exact,
            rounds=default_rounds(exact) if self.rounds is None else self.rounds,
            tolerance=TOLERANCE if self.tolerance is None else self.tolerance,
            gap=self._gap(exact),
            feasibility=self.feasibility,
            lookahead=default_lookahead(exact) if self.lookahead is None else self.lookahead,
            n_full_points=default_full_points(exact) if n_full is None else n_full,
            penalty=self.penalty,
            max_penalty=self.max_penalty,
            slack=self.slack,
            protects=self.protects,
            patience=default_patience(exact) if self.patience is None else self.patience,
            memory=self.memory,
        )

    def _gap(self, exact: bool) -> float:
        """What a stage may leave to be gained: see `tolerance`."""
        one_stage = self.objective != "max" or (self.rounds is not None and self.rounds[1] == 0)
        if self.tolerance is not None or not exact or one_stage:
            return 0.0
        return min(GAP, GAP_OF_SLACK * self.slack)

    def init(self, params: Vector, problem: Problem) -> SQPState:
        """Ask for everything at ``params``, every client weighing the same."""
        params = check_params(params)
        return with_request(self.resolved(params.size), first_state(params, problem, self.penalty))

    def restart(
        self, state: SQPState, problem: Problem, reports: Reports | None = None
    ) -> SQPState:
        """Begin again where ``state`` ended, with its multipliers and what it learnt of curvature.

        The problem may have other bounds, more rows at the end, or another L2 weight. ``reports``
        are those on ``state.request``; if they are about the end, it is not requested again.
        """
        options = self.resolved(state.params.size)
        fresh = first_state(state.params, problem, self.penalty)
        added = len(problem.constraints) - state.row_weights.size
        fresh = replace(
            fresh,
            row_weights=np.append(state.row_weights, np.zeros(added))
            if added >= 0
            else fresh.row_weights,
            loss_weights=state.loss_weights / state.loss_weights.sum(),
            memory=state.memory,
            damping=state.damping,
        )
        fresh = with_request(options, fresh)
        place = _place_of_end(state) if options.exact else None
        if place is None or reports is None:
            return fresh
        known = reports_on(reports, slice(place, place + 1))
        return replace(self.step(fresh, known)[0], rounds=(0, 0))

    def step(self, state: SQPState, reports: Reports) -> tuple[SQPState, RoundInfo]:
        """Take the longest acceptable step of the request, or search on.

        With a stale report among ``reports`` the round is provisional: the next step is taken
        without a line search, and no stage ends.
        """
        after, info = take_round(self.resolved(state.params.size), state, reports)
        stale = stale_clients(reports)
        if not stale:
            return after, info
        note = f"stale: {', '.join(stale)}"
        return make_provisional(state, after), replace(info, note=note)

    def fraction_done(self, state: SQPState) -> float:
        """How far the residual has come on the way to the tolerance, in powers of ten."""
        if state.status != "running":
            return 1.0
        tolerance = TOLERANCE if self.tolerance is None else self.tolerance
        decades = np.log10(max(state.kkt, tolerance) / tolerance)
        part = 1.0 - min(decades / _DECADES, 1.0)
        stages = 2 if self.objective == "max" and len(state.problem.clients) > 1 else 1
        return float((state.stage - 1 + part) / stages)


def _place_of_end(state: SQPState) -> int | None:
    """Which point of the last request has everything about where the training ended."""
    for place, point in enumerate(state.request.points):
        if point.want == "curvature" and np.array_equal(point.params, state.params):
            return place
    return None


def _check_objective(objective: object) -> None:
    """Refuse what is neither a name nor a temperature; an infinite one is the mean."""
    is_name = isinstance(objective, str) and objective in ("max", "mean")
    if not is_name and not (is_number(objective) and objective > 0):
        raise ValueError(
            "`objective` must be 'max', 'mean' or a positive number (a temperature), "
            f"got {objective!r}."
        )


def _temperature(objective: Literal["max", "mean"] | float) -> float | None:
    """The temperature of a `Target`: none for the maximum, infinite for the mean."""
    if objective == "max":
        return None
    return np.inf if objective == "mean" else float(objective)
