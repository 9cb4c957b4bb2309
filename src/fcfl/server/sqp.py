"""Our fast method: sequential quadratic programming for the min-max problem under budgets.

Each round linearises all losses and violations at the iterate, takes the curvature of the
Lagrangian (exact, a sum over clients, or learnt from gradients), and solves one small quadratic
programme for the step and the multipliers. Stage 1 minimises the largest loss; stage 2 the mean
loss with no client above its loss of stage 1 (plus a small slack, without which the feasible set
has no interior). With a fixed temperature instead of the maximum, one stage is enough: its
optimum is Pareto-optimal.

A request carries the full step with everything the next round needs, and shorter steps with values
only: when the full step is refused, the line search is already answered.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fcfl._checks import (
    check_choice,
    check_count,
    check_non_negative,
    check_params,
    check_positive,
    check_stage_rounds,
)
from fcfl._types import Matrix, Point, Reports, Request, Vector
from fcfl.server.conflict import conflict_sentence
from fcfl.server.lagrangian import (
    Multipliers,
    active_grads,
    curvature_weights,
    lagrangian_grad,
    loss_weights,
)
from fcfl.server.method import FEASIBILITY_TOLERANCE, RoundInfo, Status, describe_round
from fcfl.server.problem import Evaluation, Problem, evaluate_point
from fcfl.server.quasi_newton import Curvature, Exact, LimitedMemory, no_memory
from fcfl.server.subproblem import Merit, Step, Target, kkt_residual, solve_step, weigh

EXACT_PARAMS = 2000  # up to here a client sends its n × n part of the curvature
_ARMIJO = 1e-4  # share of the promised decrease that a step must deliver
_SHORTEST = 1e-12  # step length at which the search gives up
_NEAR = 3e-3  # KKT residual below which the rows with weight are taken for the active ones
_FIRMER = 10.0  # factor by which a penalty is raised
_SHORT_STEPS = 4  # full steps refused in a row, after which the penalty may be lowered
_LEAST_PENALTY = 1.0  # down to here it may be lowered; losses are of order one
_PENALTY_LIMIT = 1e6
_LANDING_ROUNDS = 5  # of a stage that will be cut short
_NEARLY = 100.0  # times the tolerance: from here a stage may converge in its last rounds
_RESCALINGS = 8  # of the curvature, until it agrees with the step


@dataclass(frozen=True)
class SQPState:
    """The iterate, the step being tried, the multipliers, and what has been learnt of curvature.

    ``lengths[i]`` is the step length of the request's point ``i``. ``settled`` says that the first
    point is the next iterate, its values being known to do.
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
    least_penalty: float
    direction: Vector
    lengths: tuple[float, ...]
    settled: bool
    merits: tuple[Merit, ...]
    promise: Merit
    largest_weight: float
    short_steps: int
    loss_weights: Vector
    row_weights: Vector
    lagrangian_grad: Vector
    memory: LimitedMemory
    kkt: float
    prices: Vector
    worst_weights: Vector
    cut_short: bool

    @property
    def multipliers(self) -> Multipliers:
        """The weights under which the Lagrangian's curvature is asked for or learnt."""
        return Multipliers(self.loss_weights, self.row_weights)


@dataclass(frozen=True)
class SQP:
    r"""Options of the fast method.

    Parameters
    ----------
    consistency
        ``"max"`` minimises the largest loss (the paper); a temperature :math:`\delta` the smooth
        maximum: small is near the maximum, infinite is the mean of the clients' losses.
    curvature
        ``"exact"``: each client sends its part of the Lagrangian's Hessian; ``"lbfgs"``: learnt
        from gradients, for any number of parameters; ``"auto"``: exact up to 2,000 parameters.
    rounds
        At most so many exchanges in each stage.
    tolerance
        KKT residual at which a stage ends.
    lookahead
        Shorter step lengths that are asked for together with the full step.
    rich
        So many of the lengths, the full one first, are asked for with everything the next iterate
        needs; the others with values only. Taking one of those costs a second round. By default 3
        with exact curvature, 2 otherwise.
    penalty
        First weight of a violation in the merit; raised when a budget needs more.
    slack
        How much a client's loss may rise in stage 2.
    patience
        A step is compared with the worst merit of so many last iterates, so that the curvature of
        the constraints does not block full steps (the Maratos effect).
    """

    consistency: Literal["max"] | float = "max"
    curvature: Literal["auto", "exact", "lbfgs"] = "auto"
    rounds: tuple[int, int] = (200, 200)
    tolerance: float = 1e-6
    lookahead: tuple[float, ...] = (0.5, 0.2, 0.05, 0.01)
    rich: int | None = None
    penalty: float = 10.0
    slack: float = 5e-5
    patience: int = 10
    memory: int = 30
    name: str = "sqp"

    def __post_init__(self) -> None:
        if isinstance(self.consistency, str):
            check_choice("consistency", self.consistency, ("max",))
        elif not self.consistency > 0:
            raise ValueError(
                f"`consistency` must be 'max' or a positive number, got {self.consistency!r}."
            )
        check_choice("curvature", self.curvature, ("auto", "exact", "lbfgs"))
        check_positive("tolerance", self.tolerance)
        check_positive("penalty", self.penalty)
        check_non_negative("slack", self.slack)
        for length in self.lookahead:
            if not 0 < length < 1:
                raise ValueError(f"`lookahead` must hold lengths between 0 and 1, got {length!r}.")
        check_stage_rounds("rounds", self.rounds)
        for name in ("patience", "memory"):
            check_count(name, getattr(self, name))
        if min(self.rounds[0], self.patience, self.memory) < 1:
            raise ValueError("`rounds` of stage 1, `patience` and `memory` must be at least 1.")

    def fraction_done(self, state: SQPState) -> float:
        """How far the residual has come on the way to the tolerance, in powers of ten."""
        if state.status != "running":
            return 1.0
        decades = np.log10(max(state.kkt, self.tolerance) / self.tolerance)
        part = 1.0 - min(decades / 6.0, 1.0)
        stages = 2 if self.consistency == "max" and len(state.problem.clients) > 1 else 1
        return float((state.stage - 1 + part) / stages)

    def is_exact(self, n_params: int) -> bool:
        """Whether clients send curvature."""
        return self.curvature == "exact" or (self.curvature == "auto" and n_params <= EXACT_PARAMS)

    def init(self, params: Vector, problem: Problem) -> SQPState:
        """Ask for everything at ``params``, every client weighing the same."""
        params = check_params(params)
        n_clients, n_rows = len(problem.clients), len(problem.constraints)
        state = SQPState(
            problem=problem,
            params=params,
            request=Request(()),
            status="running",
            message="",
            stage=1,
            rounds=(0, 0),
            caps=np.zeros(0),
            penalty=self.penalty,
            least_penalty=min(_LEAST_PENALTY, self.penalty),
            direction=np.zeros(params.size),
            lengths=(1.0,),
            settled=True,
            merits=(),
            promise=(0.0, 0.0),
            largest_weight=0.0,
            short_steps=0,
            loss_weights=np.full(n_clients, 1.0 / n_clients),
            row_weights=np.zeros(n_rows),
            lagrangian_grad=np.zeros(0),
            memory=no_memory(params.size),
            kkt=np.inf,
            prices=np.zeros(n_rows),
            worst_weights=np.zeros(n_clients),
            cut_short=False,
        )
        return replace(state, request=self._request(state))

    def step(self, state: SQPState, reports: Reports) -> tuple[SQPState, RoundInfo]:
        """Take the longest acceptable step of the request, or search on."""
        points = [
            evaluate_point(state.problem, point.params, reports, index)
            for index, point in enumerate(state.request.points)
        ]
        stage = state.stage
        first, second = state.rounds
        state = replace(state, rounds=(first + (stage == 1), second + (stage == 2)))
        state = self._relent(state, points[0]) if state.lengths[0] == 1.0 else state
        accepted = next((i for i, at in enumerate(points) if self._accepts(state, i, at)), None)
        if accepted is None:
            shown, length = points[-1], 0.0
            state = self._shorten(state, min(state.lengths) / 4, settled=False)
        else:
            shown, length = points[accepted], state.lengths[accepted]
            if state.request.points[accepted].want == "values":
                state = self._shorten(state, length, settled=True)
            else:
                state = self._arrive(replace(state, lengths=(length,)), shown)
        return state, describe_round(shown, round=sum(state.rounds), stage=stage, step=length)

    # --- the line search --------------------------------------------------------------------------

    def _accepts(self, state: SQPState, index: int, at: Evaluation) -> bool:
        if state.settled:
            return index == 0
        merit = weigh(self._target(state).merit(at), state.penalty)
        worst = max(weigh(before, state.penalty) for before in state.merits)
        promised = weigh(state.promise, state.penalty)
        return merit <= worst - _ARMIJO * state.lengths[index] * promised

    def _relent(self, state: SQPState, full: Evaluation) -> SQPState:
        """Count full steps refused in a row; after several, see whether the penalty is to blame.

        A penalty far above the multipliers forbids every step on which a budget bends. If twice
        the largest of them would let the full step pass, that is enough; one that was needed before
        stays. Learnt curvature needs this; with the exact one it gained nothing (measured).
        """
        if state.settled or self._accepts(state, 0, full) or self.is_exact(full.params.size):
            return replace(state, short_steps=0)
        state = replace(state, short_steps=state.short_steps + 1)
        enough = max(2.0 * state.largest_weight, state.least_penalty)
        if state.short_steps < _SHORT_STEPS or enough >= state.penalty:
            return state
        relented = replace(state, penalty=enough)
        return relented if self._accepts(relented, 0, full) else state

    def _shorten(self, state: SQPState, length: float, *, settled: bool) -> SQPState:
        """Ask for a shorter step: a known good one, or another look further in."""
        if length < _SHORTEST:
            return self._finish_stage(replace(state, cut_short=True), None)
        lengths = (length,) if settled else (length, *(length * part for part in self.lookahead))
        state = replace(state, lengths=lengths, settled=settled)
        if self._out_of_rounds(state):
            return self._finish_stage(replace(state, cut_short=True), None)
        return replace(state, request=self._request(state))

    def _request(self, state: SQPState) -> Request:
        """The longest steps with all the next iterate needs, the others with values."""
        exact = self.is_exact(state.params.size)
        weights = curvature_weights(state.problem, state.multipliers) if exact else None
        rich = (3 if exact else 2) if self.rich is None else max(self.rich, 1)
        points = []
        for position, length in enumerate(state.lengths):
            params = state.params + length * state.direction
            if position >= rich:
                points.append(Point(params, "values"))
            else:
                points.append(Point(params, "curvature" if exact else "gradients", weights))
        return Request(tuple(points))

    # --- a new iterate ----------------------------------------------------------------------------

    def _arrive(self, state: SQPState, at: Evaluation) -> SQPState:
        """Make ``at`` the iterate, solve for the next step, and see whether the stage is over."""
        curvature: Curvature
        if self.is_exact(at.params.size):
            target, near = self._target(state), state.kkt <= _NEAR
            active = active_grads(state.multipliers, target, at) if near else None
            curvature = Exact.from_hessian(self._hessian(state, at), active)
        else:
            state = replace(state, memory=self._learn(state, at))
            curvature = state.memory
        return self._aim(replace(state, params=at.params), at, curvature)

    def _aim(self, state: SQPState, at: Evaluation, curvature: Curvature) -> SQPState:
        target = self._target(state)
        left, last = self._rounds_left(state), self._landing_rounds(state)
        landing = 1 <= left <= last
        stiff = curvature.scaled(10.0 ** (2 + last - left)) if landing else curvature
        step, penalty, used = self._find_step(state, at, stiff)
        if isinstance(used, LimitedMemory) and not landing:
            state, curvature = replace(state, memory=used), used
        kkt = kkt_residual(at, target, step)
        n_caps = state.caps.size
        state = replace(
            state,
            penalty=penalty,
            least_penalty=penalty if penalty > state.penalty else state.least_penalty,
            merits=_recent(state, target.merit(at), penalty, self.patience),
            direction=step.direction,
            lengths=(1.0, *self.lookahead),
            settled=False,
            promise=(step.gain, step.relief),
            largest_weight=float(step.constraint_weights.max(initial=0.0)),
            loss_weights=loss_weights(target, at, step),
            row_weights=step.constraint_weights[n_caps:],
            lagrangian_grad=step.lagrangian_grad,
            kkt=kkt,
        )
        if kkt <= self.tolerance:
            return self._finish_stage(state, (at, curvature))
        if self._is_stuck(at, target, step, penalty):
            if penalty >= _PENALTY_LIMIT:
                return self._give_up(state, at)
            return self._aim(replace(state, penalty=_FIRMER * penalty, merits=()), at, curvature)
        if self._out_of_rounds(state):
            return self._finish_stage(replace(state, cut_short=True), (at, curvature))
        return replace(state, request=self._request(state))

    def _find_step(
        self, state: SQPState, at: Evaluation, curvature: Curvature
    ) -> tuple[Step, float, Curvature]:
        """The step, its penalty, and the curvature it was found with.

        The caps' multipliers may be many times larger after a step than before, and the curvature
        with them: it is scaled until the weights it stands for and those of the step agree. Where
        rounding decides the step, what was learnt of curvature longest ago is forgotten.
        """
        target = self._target(state)
        step, penalty = self._solve(at, target, curvature, state.penalty)
        assumed = float(state.loss_weights.sum())
        for _ in range(_RESCALINGS if target.caps.size else 0):
            ratio = float(loss_weights(target, at, step).sum()) / assumed
            if 0.5 <= ratio <= 2.0:
                break
            assumed *= ratio**0.5  # not all the way: a stiffer model wants smaller multipliers
            curvature = curvature.scaled(ratio**0.5)
            step, penalty = self._solve(at, target, curvature, state.penalty)
        while isinstance(curvature, LimitedMemory) and curvature.n_pairs:
            if step.is_sound(penalty):
                break
            curvature = curvature.newer_half()
            step, penalty = self._solve(at, target, curvature, state.penalty)
        return step, penalty, curvature

    def _is_stuck(self, at: Evaluation, target: Target, step: Step, penalty: float) -> bool:
        """Whether a constraint is exceeded at a stationary point of the merit: it must weigh more.

        Under the largest penalty that is a stationary point of the sum of the violations.
        """
        exceeded = target.constraints(at.losses, at.violations).max(initial=0.0)
        no_relief = step.relief <= 0.1 * step.shortfall
        steepest = float(np.abs(step.lagrangian_grad).max())
        still = max(steepest, step.decrease(penalty)) <= self.tolerance
        return bool(exceeded > FEASIBILITY_TOLERANCE and no_relief and still)

    def _solve(
        self, at: Evaluation, target: Target, curvature: Curvature, penalty: float
    ) -> tuple[Step, float]:
        """The step, under a firmer penalty if that is what meets the linearised budgets."""
        step = solve_step(at, target, curvature, penalty)
        if step.shortfall <= FEASIBILITY_TOLERANCE or penalty >= _PENALTY_LIMIT:
            return step, penalty
        firmer = solve_step(at, target, curvature, _FIRMER * penalty)
        if firmer.shortfall > FEASIBILITY_TOLERANCE:
            return step, penalty
        needed = 2.0 * float(firmer.constraint_weights.max(initial=0.0))
        return firmer, min(max(penalty, needed), _FIRMER * penalty)

    def _hessian(self, state: SQPState, at: Evaluation) -> Matrix:
        """Hessian of the Lagrangian: the clients' parts, the L2 term, and the tilt's own term."""
        hessian = at.problem.l2 * state.loss_weights.sum() * np.eye(at.params.size)
        for report in at.reports:
            assert report.curvature is not None
            hessian += report.curvature
        temperature = self._target(state).temperature
        if temperature is not None and np.isfinite(temperature):
            weights = self._target(state).loss_weights(at.losses)
            centred = at.loss_grads - weights @ at.loss_grads
            hessian += (centred.T * (weights / temperature)) @ centred
        return np.asarray(hessian)

    def _learn(self, state: SQPState, at: Evaluation) -> LimitedMemory:
        """One more pair: the step taken, and how the Lagrangian's gradient changed along it."""
        landed = self._rounds_left(state) < self._landing_rounds(state)
        if state.lagrangian_grad.size == 0 or landed:
            return state.memory
        taken = at.params - state.params
        length = state.lengths[0]
        here = lagrangian_grad(state.multipliers, self._target(state), at)
        change = here - state.lagrangian_grad
        return state.memory.updated(taken, change, -length * state.lagrangian_grad, self.memory)

    # --- stages -----------------------------------------------------------------------------------

    def _target(self, state: SQPState) -> Target:
        if state.stage == 2:
            return Target(np.inf, state.caps)
        return Target(None if self.consistency == "max" else float(self.consistency), state.caps)

    def _rounds_left(self, state: SQPState) -> int:
        return self.rounds[state.stage - 1] - state.rounds[state.stage - 1]

    def _out_of_rounds(self, state: SQPState) -> bool:
        return self._rounds_left(state) <= 0

    def _landing_rounds(self, state: SQPState) -> int:
        """How many of the stage's last rounds go to keeping the budgets, when it will be cut short.

        Far from an optimum steps are long, and budgets that bend are exceeded after each of them.
        Under an ever stiffer curvature a step does ever less but meet the linearised budgets.
        """
        near = state.kkt <= _NEARLY * self.tolerance
        return 0 if near else min(_LANDING_ROUNDS, self.rounds[state.stage - 1] // 4)

    def _finish_stage(self, state: SQPState, here: tuple[Evaluation, Curvature] | None) -> SQPState:
        """Go on to stage 2, or end. ``here`` is the iterate, when it was just evaluated."""
        if state.stage == 1:
            state = replace(state, prices=state.row_weights, worst_weights=state.loss_weights)
            if here is not None and self._wants_pareto(state, here[0]):
                at, curvature = here
                caps = at.losses + self.slack
                return self._aim(replace(state, stage=2, caps=caps, merits=()), at, curvature)
        counts = f"{state.rounds[0]} + {state.rounds[1]} rounds"
        if state.cut_short:
            message = f"Stopped at a KKT residual of {state.kkt:.1e} after {counts}."
            return replace(state, status="stopped", message=message)
        message = f"KKT residual {state.kkt:.1e} after {counts}."
        return replace(state, status="converged", message=message)

    def _wants_pareto(self, state: SQPState, at: Evaluation) -> bool:
        """Whether there is a stage 2, and a point that keeps the budgets for it to start from."""
        met = at.largest_violation <= max(FEASIBILITY_TOLERANCE, self.tolerance)
        several = self.consistency == "max" and len(state.problem.clients) > 1
        return several and met and self.rounds[1] > 0

    def _give_up(self, state: SQPState, at: Evaluation) -> SQPState:
        """End at a stationary point of the violation; prices there would say nothing."""
        if state.stage == 2:
            return self._finish_stage(replace(state, cut_short=True), None)
        message = conflict_sentence(at, state.row_weights)
        weights = state.loss_weights
        return replace(state, status="infeasible", message=message, worst_weights=weights)


def _recent(state: SQPState, merit: Merit, penalty: float, patience: int) -> tuple[Merit, ...]:
    """The last merits; a firmer penalty begins anew."""
    before = state.merits if penalty <= state.penalty else ()
    return (*before, merit)[-patience:]
