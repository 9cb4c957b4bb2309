"""MMPF (Martinez et al., 2020), its algorithm APStar: min-max by re-weighing whole fits.

It finds the smallest worst loss, with a certificate; it knows no groups within a client and does
not enforce budgets. The risks are those of the training rows: reports say nothing of held-out ones.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fcfl._checks import check_count, check_fraction, check_params, check_positive
from fcfl._types import Point, Reports, Request, Vector
from fcfl.methods.baselines import Iterate, check_steps
from fcfl.methods.method import RoundInfo, describe_round
from fcfl.methods.sqp.curvature import LimitedMemory, no_memory
from fcfl.problem import Evaluation, Problem, evaluate_point

_ARMIJO = 1e-4  # share of the predicted decrease that a step must achieve
_SHORTEST = 1e-8  # share of a quasi-Newton step below which a fit counts as done


@dataclass(frozen=True)
class MMPFState(Iterate):
    """``params`` is the best fit so far; ``base`` the point the fit in progress stands at.

    ``slope`` is the derivative of the weighted loss along the step being tried, zero when the
    request is about ``base`` itself. ``highest`` is the largest weighted loss of a finished fit:
    no model has a smaller worst loss than that.
    """

    weights: Vector
    lowest_worst: float
    highest: float
    damping: int
    misses: int
    base: Vector
    value: float
    gradient: Vector
    slope: float
    share: float
    fit_steps: int
    memory: LimitedMemory


@dataclass(frozen=True)
class MMPF:
    r"""Alternate a fit :math:`h = \arg\min \sum_k \mu_k F_k` with a step of :math:`\mu`.

    :math:`\mu \leftarrow` the normalised :math:`(1-\alpha)\mu + (\alpha/K)\,u` with u uniform on
    the clients whose loss is at least the best worst loss so far. K grows by one with every fit
    that brings no better worst loss, and falls back to ``least_damping`` with one that does. Fits
    are by L-BFGS over reports. Stops when the best worst loss is within ``tolerance`` of what any
    model can reach, or after ``patience`` fits without a better one.
    """

    step_size: float = 0.5
    rounds: int = 3000
    tolerance: float = 1e-4
    least_damping: int = 20
    patience: int = 200
    fit_tolerance: float = 1e-4
    fit_steps: int = 50
    memory: int = 20
    name: str = "mmpf"
    state_class: ClassVar[type[MMPFState]] = MMPFState
    help: ClassVar[str] = (
        "the worst client's loss, by reweighting whole fits; does not enforce budgets"
    )
    enforces_budgets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_steps(self)
        check_fraction("step_size", self.step_size)
        check_positive("fit_tolerance", self.fit_tolerance)
        for name in ("least_damping", "patience", "fit_steps", "memory"):
            check_positive(name, getattr(self, name))
            check_count(name, getattr(self, name))

    def fraction_done(self, state: MMPFState) -> float:
        """Return share of the rounds taken, or of the patience used up."""
        return max(state.rounds[0] / self.rounds, min(state.misses / self.patience, 1.0))

    def init(self, params: Vector, problem: Problem) -> MMPFState:
        """Weigh every client alike; ask for the gradients at ``params``."""
        params = check_params(params)
        n = len(problem.clients)
        return MMPFState(
            problem, params, Request((Point(params, "gradients"),)), "running", "", (0,),
            weights=np.full(n, 1.0 / n), lowest_worst=np.inf, highest=-np.inf, damping=1, misses=0,
            base=params, value=np.inf, gradient=np.zeros(params.size), slope=0.0, share=1.0,
            fit_steps=0, memory=no_memory(params.size),
        )  # fmt: skip

    def step(self, state: MMPFState, reports: Reports) -> tuple[MMPFState, RoundInfo]:
        """Continue with the fit; when it is done, re-weigh the clients and begin the next."""
        at = evaluate_point(state.problem, state.request.points[0].params, reports)
        taken = state.rounds[0] + 1
        state = replace(state, rounds=(taken,))
        value, gradient = float(state.weights @ at.losses), state.weights @ at.loss_grads
        is_base = state.slope == 0.0
        if not is_base and value > state.value + _ARMIJO * state.share * state.slope:
            state, note = self._shorter(state), "refused"
        else:
            if not is_base:
                Bs = -state.share * state.gradient
                memory = state.memory.updated(
                    at.params - state.base, gradient - state.gradient, Bs, self.memory
                )
                state = replace(state, memory=memory, fit_steps=state.fit_steps + 1)
            steep = float(np.abs(gradient).max())
            fitted = steep <= self.fit_tolerance
            if fitted or state.fit_steps >= self.fit_steps or (is_base and state.share == 0.0):
                state, note = self._reweigh(state, at, fitted=fitted), "fitted"
            else:
                state, note = self._onward(state, at.params, value, gradient), "accepted"
        if state.status == "running" and taken >= self.rounds:
            if not np.isfinite(state.lowest_worst):  # not one fit was done
                state = replace(state, params=state.base)
            state = replace(state, status="stopped", message=f"All {taken} rounds taken.")
        return state, describe_round(at, round=taken, stage=1, step=state.share, note=note)

    def _onward(self, state: MMPFState, base: Vector, value: float, gradient: Vector) -> MMPFState:
        """Try a whole quasi-Newton step from ``base``."""
        if state.memory.n_pairs == 0:  # the identity knows no scale
            scale = 1.0 / max(1.0, float(np.linalg.norm(gradient)))
            state = replace(state, memory=no_memory(base.size, scale))
        direction = -state.memory.solve(gradient)
        slope = float(gradient @ direction)
        return replace(
            state, base=base, value=value, gradient=gradient, slope=slope, share=1.0,
            request=Request((Point(base + direction, "gradients"),)),
        )  # fmt: skip

    def _shorter(self, state: MMPFState) -> MMPFState:
        """Halve the step; when it is next to nothing, go back and count the fit as done."""
        share = state.share / 2
        trial = state.request.points[0].params
        if share >= _SHORTEST:
            halfway = Request((Point(0.5 * (state.base + trial), "gradients"),))
            return replace(state, share=share, request=halfway)
        back = Request((Point(state.base, "gradients"),))
        fresh = no_memory(state.base.size)
        return replace(state, slope=0.0, share=0.0, request=back, memory=fresh)

    def _reweigh(self, state: MMPFState, at: Evaluation, *, fitted: bool) -> MMPFState:
        """Judge the finished fit, move the weights, and begin the next fit from it."""
        worst = float(at.losses.max())
        highest = state.highest
        if fitted:
            highest = max(highest, float(state.weights @ at.losses))
        best = min(worst, state.lowest_worst)
        weights = next_weights(
            state.weights, at.losses, best, self.step_size, damping=state.damping
        )
        if worst < state.lowest_worst:
            state = replace(
                state, params=at.params, lowest_worst=worst, misses=0,
                damping=min(state.damping, self.least_damping),
            )  # fmt: skip
        else:
            state = replace(state, misses=state.misses + 1, damping=state.damping + 1)
        state = replace(state, highest=highest, weights=weights, fit_steps=0)
        if state.lowest_worst - highest <= self.tolerance:
            message = (
                f"No model has a worst loss lower by more than {self.tolerance:g}, "
                f"found in {state.rounds[0]} rounds."
            )
            return replace(state, status="converged", message=message)
        if state.misses >= self.patience:
            message = f"{self.patience} fits in a row brought no lower worst loss."
            return replace(state, status="stopped", message=message)
        return self._onward(state, at.params, float(weights @ at.losses), weights @ at.loss_grads)


def next_weights(
    weights: Vector, risks: Vector, best: float, step_size: float, *, damping: int
) -> Vector:
    r"""Return :math:`(1-\alpha)\mu + (\alpha/K) u`, normalised, u uniform on risks from ``best``.

    The worst client is among them whatever ``best`` is, so the result is on the simplex.
    """
    behind = (risks >= best) | (risks >= risks.max())
    mixed = (1.0 - step_size) * weights + step_size / damping * behind / behind.sum()
    shares: Vector = mixed / mixed.sum()
    return shares
