r"""A prototype: steps from a quadratic model of every loss and of every active budget row.

`python -m benchmarks.row_models` counts its rounds on the problems of `benchmarks.round_counts`,
with ``--only``, ``--drawn`` and ``--quick`` as there. No part of the package: docs/rounds.md says
what it gains and what is missing.

Today's step knows one matrix, the Lagrangian's Hessian, and holds the budgets to first order. Here
each client sends the Hessian of its loss, if that has a weight, and one for each of its rows with a
multiplier (without any: of the row nearest to its bound). The server then solves

.. math:: \min_d \max_k m_k(d) \quad\text{s.t.}\quad m_j(d) \le 0,\; d^T M d \le R^2

over these quadratic models m by an SQP of its own, which costs no exchange, for two radii. Both
ends are asked about in one exchange; the one with the lower merit is taken, and the next radius
follows from how wrong the model was: its error is of third order.
"""

import argparse
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.in_process import InProcess
from benchmarks.round_counts import MOST, Posed, drawn, evaluated, settings
from fcfl import SQP
from fcfl._types import ClientId, CurvatureWeights, Matrix, Point, Report, Request, Vector
from fcfl.methods.sqp.damping import Damping, first_damping
from fcfl.methods.sqp.elastic import find_step, step_within_slack
from fcfl.methods.sqp.lagrangian import (
    Multipliers,
    active_grads,
    curvature_weights,
    lagrangian_hessian,
    loss_weights,
)
from fcfl.methods.sqp.merit import Merit, least_penalty, lowered_penalties, merit_of_rows, weigh
from fcfl.methods.sqp.model_gap import model_gap
from fcfl.methods.sqp.subproblem import Target
from fcfl.problem.evaluation import Evaluation, Problem, evaluate_point

PARTS = (1.0, 0.3)  # radii that are asked about in one exchange
FIRST_RADIUS = 2.0  # in the losses' metric at the start: half a typical change of a logit
WRONG = 0.8  # share of the predicted decrease that the next radius may be wrong by
SMALL = 1e-3  # predicted decrease from which on all loss matrices are asked for
MOST_ROUNDS, MOST_INNER = 200, 30
WEIGHT = 1e-8  # a smaller multiplier is rounding
PENALTY = 10.0  # of the elastic programmes; it grows within a step where that is needed


@dataclass
class ModelClient:
    """A client's report as a quadratic function of the parameters, known to the server.

    ``rows[j]`` is the Hessian of the rates weighed by ``patterns[j]``. Other combinations of rates
    are as curved as their projection on these.
    """

    name: ClientId
    centre: Report
    params: Vector
    loss: Matrix
    patterns: Matrix
    rows: list[Matrix]

    def report(self, point: Point) -> Report:
        """What the client would say if it were quadratic."""
        d, at = point.params - self.params, self.centre
        assert at.loss_grad is not None
        assert at.rate_grads is not None
        spread = np.linalg.pinv(self.patterns)
        bent = np.array([row @ d for row in self.rows]).reshape(-1, d.size)
        loss_bent = self.loss @ d
        report = replace(
            at,
            loss=float(at.loss + at.loss_grad @ d + 0.5 * d @ loss_bent),
            rates=at.rates + at.rate_grads @ d + 0.5 * spread @ (bent @ d),
            loss_grad=at.loss_grad + loss_bent,
            rate_grads=at.rate_grads + spread @ bent,
        )
        if point.want != "curvature":
            return report
        assert point.curvature_weights is not None
        weights = point.curvature_weights[self.name]
        total = weights.loss * self.loss
        for weight, row in zip(weights.rates @ spread, self.rows, strict=True):
            if abs(weight) > 1e-12:
                total = total + weight * row
        return replace(report, curvature=total)


class TrustTarget(Target):
    """A stage's target with one more constraint row, the trust region's, linearised at ``d``."""

    def __init__(self, base: Target, d: Vector, metric: Matrix, radius: float) -> None:
        super().__init__(base.temperature, base.caps)
        slope = metric @ d / radius
        object.__setattr__(self, "excess", float(d @ slope - radius) / 2)
        object.__setattr__(self, "slope", slope)

    def constraints(self, losses: Vector, violations: Vector) -> Vector:
        """Caps, budgets, and half of ``d·Md / R - R``."""
        return np.append(super().constraints(losses, violations), self.excess)  # type: ignore[attr-defined]

    def linearised(self, at: Evaluation, direction: Vector) -> tuple[Vector, Vector]:
        """Both kinds of rows after a step ``direction``, to first order."""
        a, b = Target(self.temperature, self.caps).linearised(at, direction)
        return a, np.append(b, self.excess + self.slope @ direction)  # type: ignore[attr-defined]

    def gradients(self, at: Evaluation, objective: Any, constraint: Any) -> tuple[Matrix, Matrix]:
        """Gradients of the chosen rows of both kinds."""
        last = self.caps.size + len(at.problem.constraints)
        a, b = super().gradients(at, objective, constraint[constraint < last])
        return a, np.vstack([b, self.slope]) if (constraint == last).any() else b  # type: ignore[attr-defined]


def ask(model: InProcess, problem: Problem, params: Vector, multipliers: Multipliers) -> Evaluation:
    """The model's own report, with the Lagrangian's Hessian."""
    point = Point(params, "curvature", curvature_weights(problem, multipliers))
    return evaluate_point(problem, params, model.evaluate(Request((point,))))


def patterns_of(problem: Problem) -> list[list[tuple[int, Vector]]]:
    """For each client its rows, and how each weighs the client's rates."""
    own: list[list[tuple[int, Vector]]] = [[] for _ in problem.clients]
    for j in range(len(problem.constraints)):
        one = np.eye(1, len(problem.constraints), j)[0]
        weighed = problem.constraints.weigh_rates(one).reshape(len(own), -1)
        for k in np.flatnonzero(np.abs(weighed).sum(axis=1)):
            own[k].append((j, weighed[k]))
    return own


class Asked:
    """Reports with matrices; counts them, and keeps each client's last loss matrix."""

    def __init__(self, posed: Posed) -> None:
        self.problem, self.runtime = posed
        self.patterns = patterns_of(self.problem)
        self.losses: dict[ClientId, Matrix] = {}
        self.n_matrices = self.n_points = 0

    def model(
        self, at: Evaluation, multipliers: Multipliers, expected: Vector, every: bool
    ) -> InProcess:
        """The quadratic model around ``at``; which rows are bent was decided before it was seen.

        With ``every`` loss: stage 2 gives a weight to each, and may begin here.
        """
        clients = {}
        for k, name in enumerate(self.problem.clients):
            if every or multipliers.losses[k] > WEIGHT:
                none = np.zeros(self.problem.n_rates)
                self.losses[name] = self._matrix(name, at.params, CurvatureWeights(1.0, none))
            chosen = [(j, p) for j, p in self.patterns[k] if multipliers.rows[j] > WEIGHT]
            if not chosen and self.patterns[k]:
                chosen = [max(self.patterns[k], key=lambda row: expected[row[0]])]
            kept = np.zeros((0, self.problem.n_rates))
            for _, pattern in chosen:  # a row that depends on others is known with them
                more = np.vstack([kept, pattern])
                kept = more if np.linalg.matrix_rank(more) == len(more) else kept
            rows = [self._matrix(name, at.params, CurvatureWeights(0.0, p)) for p in kept]
            clients[name] = ModelClient(
                name, at.reports[k], at.params, self.losses[name], kept, rows
            )
        return InProcess(clients)

    def _matrix(self, name: ClientId, params: Vector, weights: CurvatureWeights) -> Matrix:
        self.n_matrices += 1
        report = self.runtime.clients[name].report(Point(params, "curvature", {name: weights}))
        assert report.curvature is not None
        return report.curvature


@dataclass
class Candidate:
    """An end of the model's problem, and what was really found there."""

    d: Vector
    length: float
    radius: float
    multipliers: Multipliers
    penalties: Vector
    expected: Vector
    at: Evaluation
    decrease: float
    predicted: float
    ratio: float


def solve_model(
    model: InProcess,
    problem: Problem,
    target: Target,
    start: Vector,
    multipliers: Multipliers,
    damping: Damping,
    radius: float,
    penalties: Vector,
) -> tuple[Vector, Multipliers, Vector, Evaluation]:
    """The step to a local solution of the model's problem, multipliers, and the model there."""
    d, trust, level = np.zeros(start.size), 0.0, 0.0
    metric, n_caps = damping.metric, target.caps.size
    merits: list[Merit] = []
    for inner in range(MOST_INNER):
        at = ask(model, problem, start + d, multipliers)
        within = TrustTarget(target, d, metric, radius)
        hessian = lagrangian_hessian(multipliers, target, at) + trust / radius * metric
        held = active_grads(multipliers, target, at)
        if trust > 0:
            held = np.vstack([held, within.slope])  # type: ignore[attr-defined]
        weight = float(multipliers.losses.sum())
        damped = replace(damping, level=level)
        curvature, _ = damped.curvature(hessian, held, weight, is_near=True)
        step, _, _ = find_step(at, within, curvature, PENALTY, multipliers.losses)
        prices, trust = step.constraint_weights[:-1], float(step.constraint_weights[-1])
        multipliers = Multipliers(loss_weights(target, at, step), prices[n_caps:])
        rho = np.maximum(penalties, 1.5 * prices)
        merits.append(merit_of_rows(target.rows(at)))
        predicted = step.objective_decrease + rho @ step.violation_decreases[:-1]
        achieved = weigh(merits[0], rho) - weigh(merits[-1], rho)
        if inner and predicted <= max(0.02 * achieved, 1e-8):
            break
        worst, length = max(weigh(one, rho) for one in merits[-3:]), 1.0
        while length > 1e-3:
            longer = d + length * step.direction
            longer *= min(1.0, radius / max(np.sqrt(longer @ metric @ longer), 1e-300))
            there = model.evaluate(Request((Point(start + longer),)))
            merit = merit_of_rows(target.rows(evaluate_point(problem, start + longer, there)))
            if weigh(merit, rho) <= worst - 1e-2 * length * max(predicted, 0.0) + 1e-11:
                d, level = longer, 0.1 * level if level > 0.01 else 0.0
                break
            length *= 0.4
        else:
            level = max(10 * level, 0.1)
            if level > 50:
                break
    return d, multipliers, prices, ask(model, problem, start + d, multipliers)


def count(posed: Posed) -> tuple[list[int], Evaluation, Asked, bool]:
    """Rounds of both stages, where they ended, what was asked for, whether it converged."""
    options, asked, problem = SQP().resolved(2), Asked(posed), posed[0]
    n_clients, n_rows = len(problem.clients), len(problem.constraints)
    n_params = next(iter(posed[1].clients.values())).n_params  # type: ignore[attr-defined]
    multipliers = Multipliers(np.full(n_clients, 1.0 / n_clients), np.zeros(n_rows))
    target, rounds, stage = Target(None, np.zeros(0)), [1, 0], 1
    at = evaluated(posed, np.zeros(n_params))
    model, asked.n_points = asked.model(at, multipliers, at.violations, True), 1
    first = ask(model, problem, at.params, multipliers)
    damping = first_damping(lagrangian_hessian(multipliers, target, first))
    radius, penalties = FIRST_RADIUS, np.ones(n_rows)
    while sum(rounds) < MOST_ROUNDS:
        here = ask(model, problem, at.params, multipliers)
        hessian = lagrangian_hessian(multipliers, target, here)
        held = active_grads(multipliers, target, here)
        weight = float(multipliers.losses.sum())
        undamped = damping.undamped(hessian, held, weight)
        limit = max(options.feasibility, 0.2 * options.slack if stage == 1 else 0.0)
        exceeded = target.constraints(at.losses, at.violations).max(initial=0.0)
        if undamped is not None and exceeded <= limit:
            newton, _, _ = find_step(here, target, undamped, PENALTY, multipliers.losses)
            if model_gap(here, target, newton) <= options.gap:
                if stage == 2:
                    return rounds, at, asked, True
                stage, target = 2, Target(np.inf, at.losses + options.slack)
                near, _ = damping.curvature(hessian, held, weight, is_near=True)
                step, _, factor = step_within_slack(here, target, near, PENALTY, options.slack)
                multipliers = Multipliers(
                    loss_weights(target, here, step) + factor * multipliers.losses,
                    step.constraint_weights[n_clients:] + factor * multipliers.rows,
                )
                penalties = np.append(np.ones(n_clients), penalties)
                radius = max(radius, 0.3)
        taken = None
        while taken is None and sum(rounds) < MOST_ROUNDS:
            rounds[stage - 1] += 1
            tried: list[Candidate] = []
            for part in PARTS:
                if tried and tried[0].length <= 1.05 * part * radius:
                    continue  # the first end is inside: the smaller region has the same
                tried.append(
                    _try(posed, model, target, at, multipliers, damping, part * radius, penalties)
                )
            asked.n_points += len(tried)
            best = max(tried, key=lambda one: one.decrease)
            if best.decrease <= 0 and best.ratio <= 0:
                best = tried[-1]
            else:
                taken = best
            wrong = max(1.0 - best.ratio, 1e-3)
            factor = float(np.clip((WRONG / wrong) ** (1 / 3), 0.25, 3.0))
            if factor < 1:
                radius = factor * best.length
            elif best.length > 0.8 * best.radius:
                least = radius if best is tried[0] else best.radius
                radius = max(least, factor * best.length)
            else:
                radius = max(best.radius, best.length)
        if taken is not None:
            at, multipliers, penalties = taken.at, taken.multipliers, taken.penalties
            model = asked.model(at, multipliers, taken.expected, taken.predicted < SMALL)
    return rounds, at, asked, False


def _try(
    posed: Posed,
    model: InProcess,
    target: Target,
    at: Evaluation,
    multipliers: Multipliers,
    damping: Damping,
    radius: float,
    penalties: Vector,
) -> Candidate:
    """Solve within ``radius``, and ask what is there."""
    d, found, prices, there = solve_model(
        model, posed[0], target, at.params, multipliers, damping, radius, penalties
    )
    real = evaluated(posed, at.params + d)
    rho = lowered_penalties(penalties, prices, least_penalty(prices))
    before = weigh(merit_of_rows(target.rows(at)), rho)
    predicted = before - weigh(merit_of_rows(target.rows(there)), rho)
    decrease = before - weigh(merit_of_rows(target.rows(real)), rho)
    ratio = decrease / predicted if predicted > 1e-11 else float(abs(decrease) < 1e-10)
    length = float(np.sqrt(d @ damping.metric @ d))
    return Candidate(
        d, length, radius, found, rho, there.violations, real, decrease, predicted, ratio
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.row_models", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--drawn", type=int, metavar="SEED")
    chosen = parser.parse_args()
    all_of_them = settings(chosen.quick) if chosen.drawn is None else drawn(chosen.drawn)
    print(f"{'problem':62}{'rounds':>9}{'points':>7}{'matrices':>9}{'viol.':>9}"
          f"{'worst':>9}{'mean':>9}{'s':>7}")  # fmt: skip
    total, above, stopped = 0, 0, 0
    for setting in all_of_them:
        if chosen.only not in setting.name:
            continue
        posed = setting.make()
        began = time.perf_counter()
        rounds, at, asked, is_done = count(posed)
        seconds = time.perf_counter() - began
        total, stopped = total + sum(rounds), stopped + (not is_done)
        above += sum(rounds) > setting.most
        mark = " *" if sum(rounds) > setting.most or not is_done else ""
        print(f"{setting.name[:61]:62}{' + '.join(map(str, rounds)):>9}{asked.n_points:7}"
              f"{asked.n_matrices / len(posed[0].clients):9.1f}{at.largest_violation:9.0e}"
              f"{at.losses.max():9.5f}{at.losses.mean():9.5f}{seconds:7.2f}{mark}",
              flush=True)  # fmt: skip
    print(f"{total} rounds, {above} problems above {MOST} (five) or 40, {stopped} not converged")
    return int(above + stopped > 0)


if __name__ == "__main__":
    sys.exit(main())
