"""The method of FCFL (Cui et al., 2021): constrained min-max, then Pareto, by gradient steps.

Stage 1 lowers the smooth maximum of the losses while the smooth maximum of the violations is at
most zero. Otherwise it lowers the violations without raising the losses. Stage 2 lowers the mean
loss without raising any client's loss or the violation. Steps are ``params - step * d`` with ``d``
in the convex hull of the gradients. An objective with gradient ``g`` is protected by
``d · g >= 0``. The paper uses the opposite sign of ``d``.

A fixed step has no guarantee: a direction orthogonal to a loss raises the loss at second order, and
a step that lowers the losses may exceed a budget. With ``max_trials > 0`` a step is accepted only
if Lemma 1 (stage 1) or Lemma 2 (stage 2) of the paper's appendix holds and a feasible iterate
remains feasible. From an infeasible iterate, a step of stage 1 must not raise the smooth maximum of
the violations. A step of stage 2 must not raise any violation or exceed another budget. A rejected
step is halved and tilted within the hull, towards a direction that lowers all protected objectives.
A step that would exceed a budget to first order is turned parallel to the budget's boundary.

The weights of the gradients solve a linear programme that maximises the decrease of one objective
and protects the others. The programme depends only on inner products of gradients, so its size is
independent of the number of parameters.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

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
from fcfl._types import Matrix, Point, Reports, Request, Vector, brief_repr
from fcfl.errors import SolverError
from fcfl.methods.method import RoundInfo, Status, describe_round
from fcfl.problem import FEASIBILITY_TOLERANCE, Evaluation, Problem, evaluate_point, smooth_max

FeasibleBy = Literal["smooth", "hard"]
ParetoRows = Literal["all", "one"]
OwnBudgets = Literal["kept", "ignored"]
Protects = Literal["all", "worst"]

SLOPE_TOLERANCE = 1e-7  # on unit-scaled rows; equals the feasibility tolerance of HiGHS
_LAZY_BATCH = 32  # number of protected objectives added to the programme at a time


@dataclass(frozen=True, slots=True)
class Direction:
    """The direction of a trial, and the ``other`` one for tilting it; see `TwoStageState`.

    ``loss_grad`` and ``violation_grad`` are the gradients of the smooth maxima, in stage 1 only.
    """

    direction: Vector
    other: Vector | None
    violation: float | None = None
    loss_grad: Vector | None = None
    violation_grad: Vector | None = None


def stage_1_direction(
    at: Evaluation, temperatures: tuple[float, float], feasible_by: FeasibleBy
) -> Direction:
    """Return the direction of stage 1 by the closed form of eq. 12 and 13.

    If the budgets are met, the direction lowers the smooth maximum of the losses. If a budget is
    exceeded, it lowers the smooth maximum of the violations without raising that of the losses.
    ``feasible_by`` selects the maximum that decides whether budgets are met. If the budgets are
    met, the other direction is the gradient of the violations. Otherwise it is the bisector, which
    lowers losses and violations.
    """
    delta_l, delta_g = temperatures
    loss_grad = smooth_max(at.losses, delta_l)[1] @ at.loss_grads
    if at.block_violations.size == 0:
        return Direction(loss_grad, loss_grad, None, loss_grad, loss_grad)
    smooth_violation, shares = smooth_max(at.block_violations, delta_g)
    violation_grad = shares @ at.violation_grads(at.worst_rows)
    violation = smooth_violation if feasible_by == "smooth" else at.largest_violation
    pair = np.array([loss_grad, violation_grad])
    weights = two_gradient_weights(loss_grad, violation_grad, exceeded=violation > 0)
    direction = weights @ pair
    if violation > 0:
        other = bisector_weights(loss_grad, violation_grad) @ pair
        return Direction(direction, other, None, loss_grad, violation_grad)
    return Direction(direction, violation_grad, violation, loss_grad, violation_grad)


def stage_2_direction(
    at: Evaluation,
    temperatures: tuple[float, float],
    pareto_rows: ParetoRows,
    own_budgets: OwnBudgets,
    protects: Protects = "all",
    *,
    is_cautious: bool,
) -> Direction:
    r"""Solve eq. 15: lower the mean loss; protect every loss and the smooth maximum violation.

    .. math:: \max_w\; w^T J \bar g \quad\text{s.t.}\quad w^T J g_k \ge 0 \;\forall k,\;
              w^T J h \ge 0,\; w \text{ on the simplex}

    where :math:`g_k` are the gradients of the losses, :math:`\bar g` is their mean, h the gradient
    of the smooth maximum of the violations, and J contains all of them as rows. If only the worst
    client is protected (below eq. 15), the gradient of the smooth maximum of the losses replaces
    the :math:`g_k`. If ``is_cautious``, also compute the direction that lowers the mean and all
    protected objectives and maximises the smallest decrease.
    """
    n = at.losses.size
    extra, shares = _violation_rows(at, temperatures[1], pareto_rows, own_budgets)
    jacobian = np.vstack([at.loss_grads, extra])
    m = jacobian.shape[0]
    improve = np.concatenate([np.full(n, 1.0 / n), np.zeros(m - n)])
    kept = np.eye(n) if protects == "all" else smooth_max(at.losses, temperatures[0])[1][None, :]
    protect = np.zeros((len(kept) + (m > n), m))
    protect[: len(kept), :n] = kept
    protect[len(kept) :, n:] = shares
    gramian = jacobian @ jacobian.T
    direction = descent_weights(gramian, improve, protect) @ jacobian
    if not is_cautious:
        return Direction(direction, None)
    lowered = protect if protects == "all" else np.vstack([protect, improve])
    return Direction(direction, safest_weights(gramian, lowered) @ jacobian)


def _violation_rows(
    at: Evaluation, temperature: float, pareto_rows: ParetoRows, own_budgets: OwnBudgets
) -> tuple[Matrix, Vector]:
    """Return disparity gradients (blocks, params) and their weights in the smooth maximum."""
    violations = at.block_violations
    if violations.size == 0:
        return np.zeros((0, at.params.size)), np.zeros(0)
    bounds = at.problem.constraints.bounds[at.worst_rows]
    if own_budgets == "ignored" and np.ptp(bounds) > 0:
        violations = violations + bounds
    shares = smooth_max(violations, temperature)[1]
    grads = at.violation_grads(at.worst_rows)
    if pareto_rows == "all":
        return grads, shares
    row = shares @ grads if violations.max() >= 0 else np.zeros(at.params.size)
    return row[None, :], np.ones(1)


# --- the linear programme and its closed forms ---------------------------------------------------


def unit_scale(rows: Matrix) -> Matrix:
    """Scale each row to maximum magnitude 1, without a change of optimum or feasibility.

    Solver tolerances are absolute and gradients shrink during training, so without scaling every
    solution would be within the tolerances near convergence.
    """
    largest = np.abs(rows).max(axis=-1, keepdims=True, initial=0.0)
    tiny = largest < np.finfo(np.float64).tiny
    return np.where(tiny, 0.0, rows / np.where(tiny, 1.0, largest))


def descent_weights(gramian: Matrix, improve: Vector, protect: Matrix) -> Vector:
    r"""Return simplex weights that lower one objective most and raise no protected objective.

    .. math:: \max_w\; w^T G a \quad\text{s.t.}\quad P G w \ge 0,\; \sum_i w_i = 1,\; w \ge 0

    Parameters
    ----------
    gramian
        ``J @ J.T`` of the m gradients.
    improve
        ``a``: the objective to lower, as a combination of the m gradients.
    protect
        ``P``: one row per protected objective, each a combination of the m gradients.

    Notes
    -----
    The programme is feasible if the protected objectives are convex combinations of the gradients,
    because the minimum-norm point of the hull has a non-negative product with each gradient.
    Constraints are added only when violated, because few of them are active at the optimum.
    """
    slopes = unit_scale(protect @ gramian)
    gain = unit_scale((gramian @ improve)[None, :])[0]
    weights = np.zeros(gain.size)
    weights[int(np.argmax(gain))] = 1.0
    active: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    while True:
        slope_now = slopes @ weights
        broken = np.flatnonzero(slope_now < -SLOPE_TOLERANCE)
        broken = np.setdiff1d(broken, active, assume_unique=True)
        if broken.size == 0:
            return weights
        worst_first = broken[np.argsort(slope_now[broken], kind="stable")]
        active = np.concatenate([active, worst_first[:_LAZY_BATCH]])
        weights = _solve(gain, slopes[active])


def safest_weights(gramian: Matrix, protect: Matrix) -> Vector:
    r"""Return weights that maximise the smallest decrease of the protected objectives.

    .. math:: \max_{w, t}\; t \quad\text{s.t.}\quad P G w \ge t s,\; \sum_i w_i = 1,\; w \ge 0

    where ``s`` is the row scale of ``P G``. The optimum is positive unless the hull contains 0.
    """
    slopes = unit_scale(protect @ gramian)
    slopes = slopes[slopes.any(axis=1)]  # an objective with gradient 0 would force t = 0
    n = gramian.shape[0]
    gain = np.zeros(n + 1)
    gain[n] = 1.0
    with_margin = np.hstack([slopes, -np.ones((slopes.shape[0], 1))])
    return _solve(gain, with_margin, free_last=True)[:n]


def _solve(gain: Vector, slopes: Matrix, *, free_last: bool = False) -> Vector:
    """Maximise ``gain @ w`` subject to ``slopes @ w >= 0`` over the simplex, by HiGHS.

    With ``free_last`` the last variable is not a weight. Weights are clipped and normalised.
    """
    n = gain.size - free_last
    total = np.ones((1, gain.size))
    total[0, n:] = 0.0
    bounds = [(0.0, None)] * n + [(-1.0, 1.0)] * free_last
    for method in ("highs-ds", "highs-ipm"):
        solved = linprog(
            -gain,
            A_ub=-slopes,
            b_ub=np.zeros(slopes.shape[0]),
            A_eq=total,
            b_eq=[1.0],
            bounds=bounds,
            method=method,
        )
        if solved.status == 0:
            weights = np.maximum(solved.x[:n], 0.0)
            return np.concatenate([weights / weights.sum(), solved.x[n:]])
    raise SolverError(
        f"HiGHS failed on a direction problem with {n} gradients and {slopes.shape[0]} "
        f"protected objectives, which always has a solution: {solved.message}"
    )


def two_gradient_weights(loss: Vector, violation: Vector, *, exceeded: bool) -> Vector:
    """Return the closed-form weights of stage 1 for the loss gradient and the violation gradient.

    If budgets are met, the direction lowers the loss. If a budget is ``exceeded``, it lowers the
    violation and protects the loss: it is orthogonal to the loss gradient if both conflict.
    """
    a, b, c = loss @ loss, loss @ violation, violation @ violation
    if not exceeded:
        return np.array([1.0, 0.0]) if a >= b else np.array([0.0, 1.0])
    if b >= 0:
        return np.array([0.0, 1.0]) if c >= b else np.array([1.0, 0.0])
    return np.array([-b, a]) / (a - b)


def bisector_weights(loss: Vector, violation: Vector) -> Vector:
    """Return the weights of the angular bisector, which lowers both unless they are opposite."""
    norms = np.array([np.linalg.norm(violation), np.linalg.norm(loss)])
    return norms / norms.sum() if norms.any() else np.array([1.0, 0.0])


# Number of rejections after which a trial uses only the other direction. Each rejection doubles the
# weight of that direction, from 1/16 to 1.
_LARGEST_TILT = 5


@dataclass(frozen=True)
class TwoStageState:
    """The iterate, the trial step, and the losses and violations that bound the trial.

    A trial moves along ``found.direction``, tilted ``tilt`` times towards ``found.other``. If
    ``found.violation`` is given, the other direction is the gradient of the violation. The trial is
    then turned towards that gradient until the violation after the step is zero to first order, and
    tilted towards the bisector of both directions. Stage 2 requires another linear programme for
    the other direction. It is computed only if ``is_cautious``, which the first rejected step sets.

    ``rounds`` is the number of exchanges and ``steps`` that of accepted steps, in each stage.
    ``losses`` (one per client) and ``violations`` (one per block) are those of the iterate.
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
    is_cautious: bool
    found: Direction | None
    losses: Vector
    violations: Vector

    __repr__ = brief_repr


@dataclass(frozen=True)
class TwoStage:
    r"""Options of the two-stage method; `TwoStage.published` returns those of the authors' code.

    Parameters
    ----------
    step_size
        :math:`\eta`, the largest step size. With trials it may be large: failed steps are halved.
    rounds
        Number of accepted steps in stage 1 and stage 2.
    temperatures
        Initial :math:`\delta_l` and :math:`\delta_g` of the smooth maxima.
    decay, decay_below
        :math:`\beta` and :math:`\epsilon_d`: both temperatures are multiplied by ``decay`` if
        :math:`|d|^2 \le` ``decay_below`` (eq. 14), down to ``coldest``. With trials, d is the
        direction after turning, because the gradient of the losses does not vanish at an optimum on
        the boundary of a budget.
    max_trials
        Trials per step before the iterate counts as stationary; 0 accepts every step.
    feasible_by
        Budgets are met if the ``"smooth"`` maximum of the violations is at most zero, as in the
        paper, or if their ``"hard"`` maximum is.
    decay_rule
        Temperatures decay ``"together"`` as in the paper, or ``"separately"`` by the norm of each
        gradient.
    pareto_rows
        Stage 2 searches the hull of the losses' gradients and further gradients. These are
        ``"all"`` disparity gradients, as in the paper, or ``"one"``, the gradient of the smooth
        maximum of the disparities, which is replaced by zero while budgets are met.
    protects
        Stage 2 must not raise the loss of ``"all"`` clients (eq. 15) or of the ``"worst"`` client.
        In the second case the losses of other clients may rise to lower the mean.
    own_budgets_in_stage_2
        Whether stage 2 uses clients' different budgets (``"kept"``) or not (``"ignored"``).
    weight_decay
        Multiple of the parameters added to the direction. Except for reproduction, prefer the
        problem's ``l2``.
    """

    step_size: float = 1.0
    rounds: tuple[int, int] = (800, 1500)
    temperatures: tuple[float, float] = (0.1, 0.002)
    decay: float = 0.5
    decay_below: float = 1e-4
    coldest: float = 1e-4
    max_trials: int = 30
    feasible_by: FeasibleBy = "smooth"
    decay_rule: Literal["together", "separately"] = "together"
    pareto_rows: ParetoRows = "all"
    own_budgets_in_stage_2: OwnBudgets = "kept"
    protects: Protects = "all"
    weight_decay: float = 0.0
    name: str = "two-stage"
    state_class: ClassVar[type[TwoStageState]] = TwoStageState
    objectives: ClassVar[tuple[str, ...]] = ("max",)
    n_stages: ClassVar[int] = 2

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
        check_choice("protects", self.protects, ("all", "worst"))
        check_choice("own_budgets_in_stage_2", self.own_budgets_in_stage_2, ("kept", "ignored"))

    @classmethod
    def published(cls, step_size: float, rounds: tuple[int, int] = (800, 1500)) -> "TwoStage":
        """Return the options of the authors' public code, which differs from the paper."""
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
        """Return the number of accepted steps as a share of ``rounds``."""
        return sum(state.steps) / max(sum(self.rounds), 1)

    def init(self, params: Vector, problem: Problem) -> TwoStageState:
        """Request the gradients at ``params``."""
        params = check_params(params)
        return TwoStageState(
            problem=problem,
            params=params,
            request=_request_gradients(params),
            status="running",
            message="",
            stage=1,
            rounds=(0, 0),
            steps=(0, 0),
            temperatures=(float(self.temperatures[0]), float(self.temperatures[1])),
            step_size=float(self.step_size),
            tilt=0,
            trials=0,
            is_cautious=False,
            found=None,
            losses=np.zeros(0),
            violations=np.zeros(0),
        )

    def step(self, state: TwoStageState, reports: Reports) -> tuple[TwoStageState, RoundInfo]:
        """Accept or reject the trial by its reports, and request the next one."""
        trial = state.request.points[0].params
        at = evaluate_point(state.problem, trial, reports)
        stage = state.stage
        state = replace(state, rounds=_add_one(state.rounds, stage))
        is_trial = state.found is not None
        if not is_trial or self.max_trials == 0 or is_accepted(state, at, self.protects):
            note = "accepted" if is_trial else ""
            state = self._move(state, at)
        else:
            note = "refused"
            state = self._try_shorter(state)
        info = describe_round(
            at, round=sum(state.rounds), stage=stage, step=state.step_size, note=note
        )
        delta_l, delta_g = state.temperatures
        loss_gap = _gap(at.losses, delta_l)
        violation_gap = _gap(at.block_violations, delta_g)
        return state, replace(info, loss_gap=loss_gap, violation_gap=violation_gap)

    def _move(self, state: TwoStageState, at: Evaluation) -> TwoStageState:
        """Make the trial the iterate and choose the next direction."""
        if state.found is not None:
            state = replace(
                state,
                steps=_add_one(state.steps, state.stage),
                step_size=min(2.0 * state.step_size, self.step_size),
                tilt=max(state.tilt - 1, 0),
            )
        state = replace(
            state, params=at.params, trials=0, losses=at.losses, violations=at.block_violations
        )
        if state.steps[state.stage - 1] >= self.rounds[state.stage - 1]:
            return self._finish_stage(state, at, "stopped")
        return self._next_step(state, at)

    def _try_shorter(self, state: TwoStageState) -> TwoStageState:
        """Halve and tilt the step; after ``max_trials`` lower the temperatures or end the stage."""
        assert state.found is not None
        if state.found.other is None:
            # Computing the other direction requires the gradients at the iterate again.
            request = _request_gradients(state.params)
            return replace(state, is_cautious=True, found=None, request=request)
        state = replace(
            state,
            step_size=state.step_size / 2,
            tilt=min(state.tilt + 1, _LARGEST_TILT),
            trials=state.trials + 1,
        )
        if state.trials <= self.max_trials:
            return self._request_trial(state)
        cooler = self._cooler(state.temperatures)
        if state.stage == 1 and cooler != state.temperatures:
            # The smooth maximum at a lower temperature is closer to the maximum and may decrease
            # although the present one does not.
            return self._search_again(replace(state, temperatures=cooler))
        return self._finish_stage(state, None, "converged")

    def _search_again(self, state: TwoStageState) -> TwoStageState:
        """Discard the direction, and restart with a full step."""
        request = _request_gradients(state.params)
        return replace(
            state, found=None, step_size=self.step_size, tilt=0, trials=0, request=request
        )

    def _request_trial(self, state: TwoStageState) -> TwoStageState:
        """Request the gradients at the trial."""
        found = state.found
        assert found is not None
        direction = found.direction
        if self.max_trials and found.other is not None:
            direction = _tilted(found, found.other, state.step_size, state.tilt)
        step = direction + self.weight_decay * state.params
        return replace(state, request=_request_gradients(state.params - state.step_size * step))

    def _next_step(self, state: TwoStageState, at: Evaluation) -> TwoStageState:
        """Choose the next direction and temperatures, and request the first trial."""
        temperatures = state.temperatures
        if state.stage == 1:
            found = stage_1_direction(at, temperatures, self.feasible_by)
            temperatures = self._decayed(temperatures, found, state.step_size)
        else:
            found = stage_2_direction(
                at,
                temperatures,
                self.pareto_rows,
                self.own_budgets_in_stage_2,
                self.protects,
                is_cautious=state.is_cautious,
            )
        if not found.direction.any() and temperatures == state.temperatures:
            return self._finish_stage(state, at, "converged")
        return self._request_trial(replace(state, found=found, temperatures=temperatures))

    def _decayed(
        self, temperatures: tuple[float, float], found: Direction, step_size: float
    ) -> tuple[float, float]:
        """Return the temperatures of the next round (eq. 14)."""
        if self.decay_rule == "together":
            taken = found.direction
            if self.max_trials and found.violation is not None:
                assert found.other is not None
                taken = _turned(taken, found.other, found.violation, step_size)
            return self._cooler(temperatures) if taken @ taken <= self.decay_below else temperatures
        assert found.loss_grad is not None and found.violation_grad is not None
        delta_l, delta_g = temperatures
        if 0.1 * np.linalg.norm(found.loss_grad) <= delta_l and delta_l > self.coldest:
            delta_l *= self.decay
        if 0.1 * np.linalg.norm(found.violation_grad) <= delta_g and delta_g > self.coldest:
            delta_g *= self.decay
        return delta_l, delta_g

    def _cooler(self, temperatures: tuple[float, float]) -> tuple[float, float]:
        """Return both temperatures times ``decay``, but not below ``coldest``."""
        delta_l, delta_g = (max(self.decay * t, min(t, self.coldest)) for t in temperatures)
        return delta_l, delta_g

    def _finish_stage(
        self, state: TwoStageState, at: Evaluation | None, why: Status
    ) -> TwoStageState:
        """Begin stage 2, or end the run; ``at`` is the iterate if its gradients are known."""
        if state.stage == 1 and self.rounds[1] > 0:
            state = self._search_again(replace(state, stage=2))
            return state if at is None else self._next_step(state, at)
        steps = f"after {state.steps[0]} + {state.steps[1]} steps"
        violation = float(state.violations.max(initial=-np.inf))
        if violation <= FEASIBILITY_TOLERANCE:
            done = "No step lowers a loss without raising another or exceeding a budget"
            message = f"{done if why == 'converged' else 'All rounds taken'} ({steps})."
            return replace(state, status=why, message=message)
        where = f"with a budget exceeded by {violation:.2g} on the training rows"
        if state.steps[0] >= self.rounds[0]:
            message = (
                f"Stage 1 reached its limit on rounds ({steps}) {where}. "
                "More rounds, a smaller step or a larger budget may help."
            )
        else:
            message = (
                f"No step lowers the violation without raising the worst loss ({steps}), {where}. "
                "Use `start='zero'`, where a linear model has equal rates in all groups and "
                "every budget is met."
            )
        return replace(state, status="infeasible", message=message)


def _request_gradients(params: Vector) -> Request:
    """Return the request for gradients at one point."""
    return Request((Point(params, "gradients"),))


def _add_one(counts: tuple[int, int], stage: int) -> tuple[int, int]:
    """Return the counts with that of ``stage`` increased by one."""
    return counts[0] + (stage == 1), counts[1] + (stage == 2)


def is_accepted(state: TwoStageState, trial: Evaluation, protects: Protects = "all") -> bool:
    """Return whether Lemma 1 (stage 1) or 2 (stage 2) holds for the trial and budgets allow it.

    1. Lemma 1: the smooth maximum of the losses does not rise, and it or the smooth maximum of the
       violations decreases.
    2. Lemma 2: no client's loss rises (with "worst": the largest loss does not), and their mean
       decreases.
    3. In both stages the smooth maximum of the violations does not rise, except up to zero. No
       positive violation grows and no other becomes positive. Stage 1 ignores single violations
       while a budget is exceeded, because the method would otherwise get stuck.
    """
    delta_l, delta_g = state.temperatures
    before = smooth_max(state.violations, delta_g)[0]
    after = smooth_max(trial.block_violations, delta_g)[0]
    if after > max(before, 0.0):
        return False
    is_restoring = state.stage == 1 and (state.violations > 0).any()
    if not is_restoring and (trial.block_violations > np.maximum(state.violations, 0.0)).any():
        return False
    if state.stage == 2:
        bounds = state.losses if protects == "all" else state.losses.max()
        none_rises = bool((trial.losses <= bounds).all())
        return none_rises and bool(trial.losses.mean() < state.losses.mean())
    loss, trial_loss = (smooth_max(losses, delta_l)[0] for losses in (state.losses, trial.losses))
    return trial_loss <= loss and (trial_loss < loss or after < before)


def _tilted(found: Direction, other: Vector, step_size: float, tilt: int) -> Vector:
    """Return the direction after turning it along the budgets and tilting it."""
    direction = found.direction
    if found.violation is not None:
        turned = _turned(direction, other, found.violation, step_size)
        other = bisector_weights(direction, other) @ np.array([direction, other])
        direction = turned
    share = 2.0 ** (tilt - _LARGEST_TILT) if tilt else 0.0
    return (1 - share) * direction + share * other


def _turned(direction: Vector, other: Vector, violation: float, step_size: float) -> Vector:
    r"""Return the smallest rotation towards ``other`` whose step does not exceed the budget.

    .. math:: d_s = (1 - s)\, d + s\, h, \quad s \text{ smallest with } v - \eta\, h^T d_s \le 0

    where v is the violation and h its gradient, ``other``. If d is the gradient of the losses,
    :math:`d_s` is zero at a constrained optimum, although d is not.
    """
    needed, slope, steepest = violation / step_size, direction @ other, other @ other
    if slope >= needed or steepest <= slope:
        return direction
    share = min(float((needed - slope) / (steepest - slope)), 1.0)
    return (1 - share) * direction + share * other


def _gap(values: Vector, temperature: float) -> float | None:
    """Return the difference between smooth maximum and maximum, which eq. 14 reduces."""
    return smooth_max(values, temperature)[0] - float(values.max()) if values.size else None
