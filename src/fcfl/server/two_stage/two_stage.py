"""The method of FCFL (Cui et al., 2021): constrained min-max, then Pareto, by gradient steps.

Stage 1 lowers the smooth maximum of the losses while the smooth maximum of the violations is at
most zero, and lowers the latter without raising the former otherwise. Stage 2 lowers the mean
loss without raising any client's loss or the violation. We write ``params - step * d`` with ``d``
in the hull of the gradients and protect with ``d · g >= 0``; the paper's ``d`` is ours negated.

A fixed step proves nothing: a direction orthogonal to a loss raises it at second order, and a
step that lowers the losses may break a budget. With ``max_trials > 0`` a step is accepted only if
Lemma 1 (stage 1) or Lemma 2 (stage 2) of the paper's appendix holds for it and a feasible iterate
stays feasible. From an infeasible one, no step of stage 1 raises the smooth maximum of the
violations, and no step of stage 2 raises any of them or exceeds another budget. A refused step is
halved and tilted, within the hull, towards a direction that lowers everything protected; a step
that would break a budget to first order is turned along it.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fcfl._checks import (
    check_choice,
    check_count,
    check_fraction,
    check_non_negative,
    check_pair,
    check_params,
    check_positive,
    check_stage_rounds,
)
from fcfl._types import Matrix, Point, Reports, Request, Vector
from fcfl.server.method import FEASIBILITY_TOLERANCE, RoundInfo, Status, describe_round
from fcfl.server.problem import Evaluation, Problem, evaluate_point
from fcfl.server.smooth_max import smooth_max
from fcfl.server.two_stage.direction import (
    bisector_weights,
    descent_weights,
    safest_weights,
    two_gradient_weights,
)

_NOTCHES = 5  # refusals until a trial goes wholly in the other direction; each doubles the tilt
_Aim = tuple[Vector, Vector | None, float | None, tuple[float, float]]


@dataclass(frozen=True)
class TwoStageState:
    """The iterate, the step being tried from it, and what the trial must not make worse.

    A trial goes along ``direction``, tilted towards ``other`` by ``tilt`` notches. When ``landing``
    is given, ``other`` is the violation's gradient: the trial is turned towards it just so far that
    the violation, now ``landing``, is zero after the step to first order, then tilted towards their
    bisector. Stage 2 computes the other direction only once it is ``cautious``: after its first
    refused step.
    """

    problem: Problem
    params: Vector
    request: Request
    status: Status
    message: str
    stage: int
    rounds: tuple[int, int]
    steps: tuple[int, int]
    temperatures: tuple[float, float]
    step_size: float
    tilt: int
    trials: int
    cautious: bool
    direction: Vector | None
    other: Vector | None
    landing: float | None
    losses: Vector
    violations: Vector


@dataclass(frozen=True)
class TwoStage:
    r"""Options of the two-stage method; `TwoStage.published` sets those of the authors' code.

    Parameters
    ----------
    step_size
        :math:`\eta`, the longest step.
    rounds
        Accepted steps in stage 1 and stage 2.
    temperatures
        First :math:`\delta_l` and :math:`\delta_g` of the smooth maxima.
    decay, decay_below
        :math:`\beta` and :math:`\epsilon_d`: both temperatures are multiplied by ``decay`` when
        :math:`|d|^2 \le` ``decay_below``, down to ``coldest``.
    max_trials
        Trials per step before the iterate counts as stationary; 0 takes every step as it is.
    feasible_by
        ``"smooth"``: budgets count as met when the smooth maximum of the violations is at most
        zero, as written; ``"hard"``: when their maximum is.
    decay_rule
        ``"together"`` as written; ``"separately"``: each temperature by the norm of its own
        gradient.
    pareto_rows
        Stage 2 searches the hull of the losses' and of ``"all"`` clients' disparity gradients, as
        written, or of ``"one"`` smooth-maximum row, zero while budgets are met.
    own_budgets_in_stage_2
        ``"kept"``, or ``"ignored"`` when budgets differ between clients.
    weight_decay
        Added to the step after the programme; use the problem's ``l2`` instead unless you
        reproduce.
    """

    step_size: float = 0.1
    rounds: tuple[int, int] = (800, 1500)
    temperatures: tuple[float, float] = (0.1, 0.002)
    decay: float = 0.5
    decay_below: float = 1e-4
    coldest: float = 1e-4
    max_trials: int = 30
    feasible_by: Literal["smooth", "hard"] = "smooth"
    decay_rule: Literal["together", "separately"] = "together"
    pareto_rows: Literal["all", "one"] = "all"
    own_budgets_in_stage_2: Literal["kept", "ignored"] = "kept"
    weight_decay: float = 0.0
    name: str = "two-stage"

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_stage_rounds("rounds", self.rounds)
        check_pair("temperatures", self.temperatures)
        for temperature in self.temperatures:
            check_positive("temperatures", temperature)
        check_positive("coldest", self.coldest)
        check_count("max_trials", self.max_trials)
        check_fraction("decay", self.decay)
        check_non_negative("decay_below", self.decay_below)
        check_non_negative("weight_decay", self.weight_decay)
        check_choice("feasible_by", self.feasible_by, ("smooth", "hard"))
        check_choice("decay_rule", self.decay_rule, ("together", "separately"))
        check_choice("pareto_rows", self.pareto_rows, ("all", "one"))
        check_choice("own_budgets_in_stage_2", self.own_budgets_in_stage_2, ("kept", "ignored"))

    @classmethod
    def published(cls, step_size: float, rounds: tuple[int, int] = (800, 1500)) -> "TwoStage":
        """Return the behaviour of the authors' public code, where it differs from the paper."""
        return cls(
            step_size=step_size,
            rounds=rounds,
            temperatures=(0.5, 0.5),
            decay=0.01,
            max_trials=0,
            feasible_by="hard",
            decay_rule="separately",
            pareto_rows="one",
            own_budgets_in_stage_2="ignored",
            weight_decay=1e-4,
        )

    def fraction_done(self, state: TwoStageState) -> float:
        """Share of the accepted steps taken."""
        return sum(state.steps) / max(sum(self.rounds), 1)

    def init(self, params: Vector, problem: Problem) -> TwoStageState:
        """Ask for the gradients at ``params``."""
        params = check_params(params)
        return TwoStageState(
            problem=problem,
            params=params,
            request=_ask(params),
            status="running",
            message="",
            stage=1,
            rounds=(0, 0),
            steps=(0, 0),
            temperatures=(float(self.temperatures[0]), float(self.temperatures[1])),
            step_size=float(self.step_size),
            tilt=0,
            trials=0,
            cautious=False,
            direction=None,
            other=None,
            landing=None,
            losses=np.zeros(0),
            violations=np.zeros(0),
        )

    def step(self, state: TwoStageState, reports: Reports) -> tuple[TwoStageState, RoundInfo]:
        """Accept or refuse the trial the reports are about, and ask for the next one."""
        trial = state.request.points[0].params
        evaluation = evaluate_point(state.problem, trial, reports)
        state = replace(state, rounds=_add(state.rounds, state.stage))
        stage = state.stage
        if state.direction is None or self._accepts(state, evaluation):
            note = "" if state.direction is None else "accepted"
            state = self._move(state, evaluation)
        else:
            note = "refused"
            state = self._try_shorter(state)
        info = describe_round(
            evaluation, round=sum(state.rounds), stage=stage, step=state.step_size, note=note
        )
        return state, info

    # --- accepting a step -------------------------------------------------------------------------

    def _accepts(self, state: TwoStageState, trial: Evaluation) -> bool:
        """Whether Lemma 1 (stage 1) or Lemma 2 (stage 2) holds and the budgets allow it."""
        if self.max_trials == 0:
            return True
        delta_l, delta_g = state.temperatures
        before = smooth_max(state.violations, delta_g)[0]
        after = smooth_max(trial.block_violations, delta_g)[0]
        if after > max(before, 0.0) or not _keeps_budgets(state, trial.block_violations):
            return False
        if state.stage == 2:
            none_rises = bool((trial.losses <= state.losses).all())
            return none_rises and bool(trial.losses.mean() < state.losses.mean())
        loss = smooth_max(state.losses, delta_l)[0]
        trial_loss = smooth_max(trial.losses, delta_l)[0]
        return trial_loss <= loss and (trial_loss < loss or after < before)

    def _move(self, state: TwoStageState, at: Evaluation) -> TwoStageState:
        """Make the trial the iterate and choose the direction from there."""
        if state.direction is not None:
            state = replace(
                state,
                steps=_add(state.steps, state.stage),
                step_size=min(2.0 * state.step_size, self.step_size),
                tilt=max(state.tilt - 1, 0),
            )
        state = replace(
            state, params=at.params, trials=0, losses=at.losses, violations=at.block_violations
        )
        if state.steps[state.stage - 1] >= self.rounds[state.stage - 1]:
            return self._finish_stage(state, at, "stopped")
        return self._aim(state, at)

    def _try_shorter(self, state: TwoStageState) -> TwoStageState:
        """Halve the step and tilt it; give up after ``max_trials``."""
        if state.other is None:
            return replace(state, cautious=True, direction=None, request=_ask(state.params))
        state = replace(
            state,
            step_size=state.step_size / 2,
            tilt=min(state.tilt + 1, _NOTCHES),
            trials=state.trials + 1,
        )
        if state.trials <= self.max_trials:
            return replace(state, request=_ask(self._trial_point(state)))
        cooler = self._cooler(state.temperatures)
        if state.stage == 1 and cooler != state.temperatures:
            state = replace(state, temperatures=cooler)
            return replace(_restart(state, self.step_size), request=_ask(state.params))
        return self._finish_stage(state, None, "converged")

    def _trial_point(self, state: TwoStageState) -> Vector:
        direction, other = state.direction, state.other
        assert direction is not None
        if other is not None and self.max_trials > 0:
            if state.landing is not None:
                share = _share_to_land(direction, other, state.landing / state.step_size)
                mixed = (1 - share) * direction + share * other
                other = bisector_weights(direction, other) @ np.array([direction, other])
                direction = mixed
            tilt = 2.0 ** (state.tilt - _NOTCHES) if state.tilt else 0.0
            direction = (1 - tilt) * direction + tilt * other
        return state.params - state.step_size * (direction + self.weight_decay * state.params)

    # --- choosing a direction ---------------------------------------------------------------------

    def _aim(self, state: TwoStageState, at: Evaluation) -> TwoStageState:
        """Direction from the iterate, temperatures after it, and the first trial."""
        aim = self._stage_1 if state.stage == 1 else self._stage_2
        direction, other, landing, temperatures = aim(state, at)
        if not direction.any() and temperatures == state.temperatures:
            return self._finish_stage(state, at, "converged")
        state = replace(
            state, direction=direction, other=other, landing=landing, temperatures=temperatures
        )
        return replace(state, request=_ask(self._trial_point(state)))

    def _stage_1(self, state: TwoStageState, at: Evaluation) -> _Aim:
        """Eq. 12 and 13 in closed form, then the decay of eq. 14."""
        delta_l, delta_g = state.temperatures
        loss_grad = smooth_max(at.losses, delta_l)[1] @ at.loss_grads
        if at.block_violations.size == 0:
            cooled = self._decayed(state, loss_grad, loss_grad, loss_grad)
            return loss_grad, loss_grad, None, cooled
        smooth_violation, shares = smooth_max(at.block_violations, delta_g)
        violation_grad = shares @ at.violation_grads(at.worst_rows)
        violation = smooth_violation if self.feasible_by == "smooth" else at.largest_violation
        pair = np.array([loss_grad, violation_grad])
        weights = two_gradient_weights(loss_grad, violation_grad, exceeded=violation > 0)
        direction = weights @ pair
        cooled = self._decayed(state, direction, loss_grad, violation_grad)
        if violation > 0:
            return direction, bisector_weights(loss_grad, violation_grad) @ pair, None, cooled
        return direction, violation_grad, violation, cooled

    def _stage_2(self, state: TwoStageState, at: Evaluation) -> _Aim:
        """Eq. 15: improve the mean loss, protect every loss and the smooth-maximum violation."""
        n = at.losses.size
        extra, shares = self._violation_rows(state, at)
        jacobian = np.vstack([at.loss_grads, extra])
        m = jacobian.shape[0]
        improve = np.concatenate([np.full(n, 1.0 / n), np.zeros(m - n)])
        protect = np.zeros((n + (m > n), m))
        protect[:n, :n] = np.eye(n)
        protect[n:, n:] = shares
        gramian = jacobian @ jacobian.T
        direction = descent_weights(gramian, improve, protect) @ jacobian
        safe = safest_weights(gramian, protect) @ jacobian if state.cautious else None
        return direction, safe, None, state.temperatures

    def _violation_rows(self, state: TwoStageState, at: Evaluation) -> tuple[Matrix, Vector]:
        """Disparity gradients of stage 2 and their shares in the smooth maximum."""
        violations = at.block_violations
        if violations.size == 0:
            return np.zeros((0, at.params.size)), np.zeros(0)
        bounds = state.problem.constraints.bounds[at.worst_rows]
        if self.own_budgets_in_stage_2 == "ignored" and np.ptp(bounds) > 0:
            violations = violations + bounds
        shares = smooth_max(violations, state.temperatures[1])[1]
        grads = at.violation_grads(at.worst_rows)
        if self.pareto_rows == "all":
            return grads, shares
        row = shares @ grads if violations.max() >= 0 else np.zeros(at.params.size)
        return row[None, :], np.ones(1)

    # --- temperatures and the end -----------------------------------------------------------------

    def _decayed(
        self, state: TwoStageState, direction: Vector, loss: Vector, violation: Vector
    ) -> tuple[float, float]:
        """Temperatures of the next round (eq. 14)."""
        delta_l, delta_g = state.temperatures
        if self.decay_rule == "together":
            small = direction @ direction <= self.decay_below
            return self._cooler((delta_l, delta_g)) if small else (delta_l, delta_g)
        if 0.1 * np.linalg.norm(loss) <= delta_l and delta_l > self.coldest:
            delta_l *= self.decay
        if 0.1 * np.linalg.norm(violation) <= delta_g and delta_g > self.coldest:
            delta_g *= self.decay
        return delta_l, delta_g

    def _cooler(self, temperatures: tuple[float, float]) -> tuple[float, float]:
        delta_l, delta_g = (max(self.decay * t, min(t, self.coldest)) for t in temperatures)
        return delta_l, delta_g

    def _finish_stage(
        self, state: TwoStageState, at: Evaluation | None, why: Status
    ) -> TwoStageState:
        """Go on to stage 2, or end."""
        if state.stage == 1 and self.rounds[1] > 0:
            state = _restart(replace(state, stage=2), self.step_size)
            return self._aim(state, at) if at else replace(state, request=_ask(state.params))
        violation = float(state.violations.max()) if state.violations.size else -np.inf
        if violation > FEASIBILITY_TOLERANCE:
            used_up = state.steps[0] >= self.rounds[0]
            return replace(state, status="infeasible", message=_exceeded(state, violation, used_up))
        return replace(state, status=why, message=_sentence(why, state))


def _restart(state: TwoStageState, step_size: float) -> TwoStageState:
    """Forget the direction and start with a full step."""
    return replace(state, direction=None, other=None, step_size=step_size, tilt=0, trials=0)


def _keeps_budgets(state: TwoStageState, violations: Vector) -> bool:
    """Whether no budget that is met gets exceeded and no violation grows.

    On the way to feasibility, in stage 1 with a budget exceeded, it is the smooth maximum that must
    not grow: one budget may give way to another. Holding every one of them fast jams the method.
    """
    before = state.violations
    if state.stage == 1 and (before > 0).any():
        return True
    return bool((violations <= np.maximum(before, 0.0)).all())


def _share_to_land(direction: Vector, other: Vector, slope_needed: float) -> float:
    """Smallest share of ``other`` in the mix whose product with ``other`` is ``slope_needed``."""
    slope, steepest = direction @ other, other @ other
    if slope >= slope_needed or steepest <= slope:
        return 0.0
    return min(float((slope_needed - slope) / (steepest - slope)), 1.0)


def _ask(params: Vector) -> Request:
    return Request((Point(params, "gradients"),))


def _add(counts: tuple[int, int], stage: int) -> tuple[int, int]:
    first, second = counts
    return (first + 1, second) if stage == 1 else (first, second + 1)


def _exceeded(state: TwoStageState, violation: float, used_up: bool) -> str:
    """Why a run ends with a budget exceeded, by how stage 1 ended, and what may help."""
    steps = f"after {state.steps[0]} + {state.steps[1]} steps"
    where = f"with a budget exceeded by {violation:.2g} on the training rows"
    if used_up:
        return (
            f"The rounds of stage 1 are used up ({steps}) {where}. "
            "More of them, a smaller step or a larger budget may help."
        )
    return (
        f"No step lowers the violation without raising the worst loss ({steps}), {where}. "
        "Begin with `start='zero'`, where a linear model selects all groups alike and every budget "
        "is met."
    )


def _sentence(why: Status, state: TwoStageState) -> str:
    steps = f"after {state.steps[0]} + {state.steps[1]} steps"
    if why == "converged":
        return f"No step lowers a loss without raising another or breaking a budget ({steps})."
    return f"All rounds taken ({steps})."
