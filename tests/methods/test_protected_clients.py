"""Stage 2 that protects all clients, or only the worst: where each ends, on problems with answers.

Three clients, two parameters. The worst one's loss depends on x alone, and its minimum is the
smallest worst loss; the other two pull y to 0 and to 1. Which y is best is left to stage 2.
"""

import numpy as np
import pytest

from by_slsqp import solve_by_slsqp
from fcfl._types import Point, Report, Request
from fcfl.methods.two_stage import TwoStage
from fcfl.problem import Constraints, Problem, evaluate_point
from fcfl.rules import Difference
from helpers import pose, simulated_clients, train, zeros_for

CLIENTS = ("worst", "at 0", "at 1")


def reports_at(params):
    """Losses 1 + x²/2, y²/2 and (1 − y)²/2."""
    x, y = params
    losses = {
        "worst": (1 + x**2 / 2, np.array([x, 0.0])),
        "at 0": (y**2 / 2, np.array([0.0, y])),
        "at 1": ((1 - y) ** 2 / 2, np.array([0.0, y - 1])),
    }
    none, no_slope = np.zeros(0), np.zeros((0, 2))
    return {
        name: (Report(1.0, loss, none, none, gradient, no_slope),)
        for name, (loss, gradient) in losses.items()
    }


class Constructed:
    def evaluate(self, request):
        return reports_at(request.points[0].params)


def constructed():
    none = np.zeros(0, dtype=np.int64)
    constraints = Constraints((), none, np.zeros(0), none, none, np.zeros(0), 0)
    return Problem(CLIENTS, np.ones(3), 0, constraints)


def end_of(protects):
    method = TwoStage(rounds=(300, 300), temperatures=(0.02, 0.002), protects=protects)
    state = method.init(np.array([0.8, 0.0]), constructed())
    while state.status == "running":
        state, _ = method.step(state, Constructed().evaluate(state.request))
    return state.params


@pytest.mark.parametrize(
    ("protects", "y_end"),
    [
        ("all", 0.0),  # whoever is served best keeps it: y cannot leave 0
        ("worst", 0.5),  # the mean of the losses is smallest half way
    ],
)
def test_the_two_variants_end_at_different_pareto_points(protects, y_end):
    x, y = end_of(protects)
    assert x == pytest.approx(0.0, abs=1e-3)  # both keep the smallest worst loss
    assert y == pytest.approx(y_end, abs=2e-3)


@pytest.mark.parametrize("protects", ["all", "worst"])
def test_no_point_has_a_lower_mean_among_those_the_variant_allows(protects):
    """SLSQP minimises the mean under caps: each loss after stage 1, or the largest of them."""
    problem, start = constructed(), np.array([1e-4, 1e-4])

    def rows(params):
        at = evaluate_point(problem, params, reports_at(params))
        every = np.arange(at.violations.size)
        return at.losses, at.loss_grads, at.violations, at.violation_grads(every)

    ours = rows(end_of(protects))[0].mean()
    caps = rows(start)[0] if protects == "all" else np.full(3, rows(start)[0].max())
    reference = solve_by_slsqp(rows, start, caps=caps + 1e-9)
    assert ours == pytest.approx(reference.value, abs=1e-3)


def test_no_step_raises_the_largest_loss_or_the_mean_or_exceeds_a_budget():
    """Lemma 2, for all clients and for the worst."""
    rules = [Difference("demographic_parity", "race", 0.05)]
    problem, runtime = pose(simulated_clients(0), rules, l2=1e-2)
    ends = {}
    for protects in ("all", "worst"):
        method = TwoStage(rounds=(40, 60), protects=protects)
        seen = train(method, problem, runtime, zeros_for(runtime))
        stage_2 = [p.state for p, _ in seen if p.state.stage == 2 and p.state.losses.size]
        largest = np.array([state.losses.max() for state in stage_2])
        mean = np.array([state.losses.mean() for state in stage_2])
        assert (np.diff(largest) <= 0).all() and (np.diff(mean) <= 0).all()
        assert stage_2[-1].violations.max() <= 1e-9
        ends[protects] = stage_2[0].losses, stage_2[-1].losses
    assert (ends["all"][1] <= ends["all"][0]).all()
    assert ends["worst"][1].mean() < ends["worst"][0].mean()


def test_who_is_protected_is_one_of_two():
    with pytest.raises(ValueError, match="`protects` must be one of all, worst, got 'none'"):
        TwoStage(protects="none")


def test_a_point_of_the_constructed_problem_is_reported_with_its_gradients():
    """The problem above is what its docstring says: finite differences."""
    at = np.array([0.3, 0.4])
    for name in CLIENTS:
        (report,) = Constructed().evaluate(Request((Point(at, "gradients"),)))[name]
        for axis, step in enumerate(np.eye(2) * 1e-6):
            rise = reports_at(at + step)[name][0].loss - reports_at(at - step)[name][0].loss
            assert report.loss_grad[axis] == pytest.approx(rise / 2e-6, abs=1e-8)
