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

`stage_directions` has the directions, `direction` their linear programmes, `trials` says where a
trial goes and whether it is accepted, `endings` how a run ends.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

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
from fcfl._types import Reports, Vector
from fcfl.methods.method import RoundInfo, Status, describe_round
from fcfl.methods.smooth_max import smooth_max
from fcfl.methods.two_stage.endings import end_run
from fcfl.methods.two_stage.stage_directions import (
    Direction,
    FeasibleBy,
    OwnBudgets,
    ParetoRows,
    Protects,
    stage_1_direction,
    stage_2_direction,
)
from fcfl.methods.two_stage.trials import LARGEST_TILT, is_accepted, trial_point, turned
from fcfl.methods.two_stage.two_stage_state import (
    TwoStageState,
    add_one,
    ask_for_gradients,
    first_state,
    reset_search,
)
from fcfl.problem.evaluation import Evaluation, Problem, evaluate_point

__all__ = ["TwoStage", "TwoStageState"]


@dataclass(frozen=True)
class TwoStage:
    r"""Options of the two-stage method; `TwoStage.published` sets those of the authors' code.

    Parameters
    ----------
    step_size
        :math:`\eta`, the longest step. With trials it may be long: what fails is halved.
    rounds
        Accepted steps in stage 1 and stage 2.
    temperatures
        First :math:`\delta_l` and :math:`\delta_g` of the smooth maxima.
    decay, decay_below
        :math:`\beta` and :math:`\epsilon_d`: both temperatures are multiplied by ``decay`` when
        :math:`|d|^2 \le` ``decay_below`` (eq. 14), down to ``coldest``. With trials d is the
        direction taken, turned along the budgets: at an optimum on the edge of a budget the
        gradient of the losses itself never becomes short.
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
    protects
        In stage 2 ``"all"`` clients' losses may not rise (eq. 15), or only the ``"worst"`` may not:
        then a client that is served better may lose for the sake of the mean.
    own_budgets_in_stage_2
        ``"kept"``, or ``"ignored"`` when budgets differ between clients.
    weight_decay
        Added to the step after the programme; use the problem's ``l2`` instead unless you
        reproduce.
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
        temperatures = (float(self.temperatures[0]), float(self.temperatures[1]))
        return first_state(check_params(params), problem, temperatures, float(self.step_size))

    def step(self, state: TwoStageState, reports: Reports) -> tuple[TwoStageState, RoundInfo]:
        """Accept or refuse the trial the reports are about, and ask for the next one."""
        trial = state.request.points[0].params
        evaluation = evaluate_point(state.problem, trial, reports)
        state = replace(state, rounds=add_one(state.rounds, state.stage))
        stage = state.stage
        takes_all = state.direction is None or self.max_trials == 0
        if takes_all or is_accepted(state, evaluation, self.protects):
            note = "" if state.direction is None else "accepted"
            state = self._move(state, evaluation)
        else:
            note = "refused"
            state = self._try_shorter(state)
        info = describe_round(
            evaluation, round=sum(state.rounds), stage=stage, step=state.step_size, note=note
        )
        delta_l, delta_g = state.temperatures
        loss_gap = _gap(evaluation.losses, delta_l)
        violation_gap = _gap(evaluation.block_violations, delta_g)
        return state, replace(info, loss_gap=loss_gap, violation_gap=violation_gap)

    def _move(self, state: TwoStageState, at: Evaluation) -> TwoStageState:
        """Make the trial the iterate and choose the direction from there."""
        if state.direction is not None:
            state = replace(
                state,
                steps=add_one(state.steps, state.stage),
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
        """Halve the step and tilt it; after ``max_trials`` lower the temperatures, or end."""
        if state.other is None:
            # The other direction was not computed yet: it needs the iterate's gradients again.
            request = ask_for_gradients(state.params)
            return replace(state, cautious=True, direction=None, request=request)
        state = replace(
            state,
            step_size=state.step_size / 2,
            tilt=min(state.tilt + 1, LARGEST_TILT),
            trials=state.trials + 1,
        )
        if state.trials <= self.max_trials:
            return self._ask_for_trial(state)
        cooler = self._cooler(state.temperatures)
        if state.stage == 1 and cooler != state.temperatures:
            # A smaller temperature is nearer to the maximum: what no step lowers under this one
            # may be lowered under that.
            state = reset_search(replace(state, temperatures=cooler), self.step_size)
            return replace(state, request=ask_for_gradients(state.params))
        return self._finish_stage(state, None, "converged")

    def _ask_for_trial(self, state: TwoStageState) -> TwoStageState:
        trial = trial_point(state, self.weight_decay, is_tilted=self.max_trials > 0)
        return replace(state, request=ask_for_gradients(trial))

    def _next_step(self, state: TwoStageState, at: Evaluation) -> TwoStageState:
        """Direction from the iterate, temperatures after it, and the first trial."""
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
                is_cautious=state.cautious,
            )
        if not found.direction.any() and temperatures == state.temperatures:
            return self._finish_stage(state, at, "converged")
        return self._ask_for_trial(
            replace(
                state,
                direction=found.direction,
                other=found.other,
                violation_at_start=found.violation_at_start,
                temperatures=temperatures,
            )
        )

    def _decayed(
        self, temperatures: tuple[float, float], found: Direction, step_size: float
    ) -> tuple[float, float]:
        """Temperatures of the next round (eq. 14)."""
        delta_l, delta_g = temperatures
        if self.decay_rule == "together":
            taken = found.direction
            if self.max_trials and found.violation_at_start is not None:
                assert found.other is not None
                taken = turned(taken, found.other, found.violation_at_start, step_size)
            small = taken @ taken <= self.decay_below
            return self._cooler((delta_l, delta_g)) if small else (delta_l, delta_g)
        assert found.loss_grad is not None and found.violation_grad is not None
        if 0.1 * np.linalg.norm(found.loss_grad) <= delta_l and delta_l > self.coldest:
            delta_l *= self.decay
        if 0.1 * np.linalg.norm(found.violation_grad) <= delta_g and delta_g > self.coldest:
            delta_g *= self.decay
        return delta_l, delta_g

    def _cooler(self, temperatures: tuple[float, float]) -> tuple[float, float]:
        """Both temperatures times ``decay``, but none below ``coldest`` because of it."""
        delta_l, delta_g = (max(self.decay * t, min(t, self.coldest)) for t in temperatures)
        return delta_l, delta_g

    def _finish_stage(
        self, state: TwoStageState, at: Evaluation | None, why: Status
    ) -> TwoStageState:
        """Go on to stage 2, or end. ``at`` is the iterate, when it was just evaluated."""
        if state.stage == 1 and self.rounds[1] > 0:
            state = reset_search(replace(state, stage=2), self.step_size)
            if at is not None:
                return self._next_step(state, at)
            return replace(state, request=ask_for_gradients(state.params))
        return end_run(state, why, is_used_up=state.steps[0] >= self.rounds[0])


def _gap(values: Vector, temperature: float) -> float | None:
    """How far the smooth maximum lies above the maximum, which eq. 14 narrows."""
    return smooth_max(values, temperature)[0] - float(values.max()) if values.size else None
