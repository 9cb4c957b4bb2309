import numpy as np
import pytest

from fcfl._types import Point, Request
from fcfl.problem import evaluate_point
from fcfl.rules import Difference
from helpers import RACE, TWO_ATTRIBUTES, assert_derivative, pose, simulated_clients

RULES = [Difference("demographic_parity", "race", 0.1)]


def evaluation(problem, runtime, params, want="gradients"):
    return evaluate_point(problem, params, runtime.evaluate(Request((Point(params, want),))))


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_every_loss_carries_the_l2_term_and_its_gradient(l2):
    datas = simulated_clients(0, levels=RACE)
    problem, runtime = pose(datas, RULES, l2=l2)
    bare, _ = pose(datas, RULES)
    params = np.random.default_rng(0).standard_normal(5)
    at = evaluation(problem, runtime, params)
    without = evaluation(bare, runtime, params)
    np.testing.assert_allclose(at.losses, without.losses + l2 / 2 * params @ params)
    assert_derivative(at.loss_grads, lambda p: evaluation(problem, runtime, p).losses, params)
    line = np.random.default_rng(1).standard_normal(5)
    np.testing.assert_allclose(at.slopes(line)[0], at.loss_grads @ line, atol=1e-14)
    np.testing.assert_array_equal(at.violations, without.violations)


def test_the_problem_keeps_clients_and_counts_in_the_order_of_the_reports():
    datas = simulated_clients(0, levels=TWO_ATTRIBUTES)
    problem, _ = pose(datas, RULES)
    assert problem.clients == tuple(datas)
    assert problem.n_rows.tolist() == [data.n_rows for data in datas.values()]
    assert problem.n_rates == 3


def test_reports_are_read_by_name_not_by_position():
    datas = simulated_clients(0, levels=RACE)
    problem, runtime = pose(datas, RULES)
    params = np.random.default_rng(0).standard_normal(5)
    reports = runtime.evaluate(Request((Point(params),)))
    backwards = dict(reversed(reports.items()))
    left, right = (evaluate_point(problem, params, r) for r in (reports, backwards))
    np.testing.assert_array_equal(left.losses, right.losses)
    np.testing.assert_array_equal(left.violations, right.violations)


def test_each_point_of_a_request_has_its_own_evaluation():
    datas = simulated_clients(0, levels=RACE)
    problem, runtime = pose(datas, RULES)
    points = [np.full(5, x) for x in (0.0, 0.5)]
    reports = runtime.evaluate(Request(tuple(Point(p) for p in points)))
    for index, params in enumerate(points):
        alone = evaluation(problem, runtime, params, "values")
        np.testing.assert_array_equal(
            evaluate_point(problem, params, reports, index).losses, alone.losses
        )


def test_a_point_asked_for_values_only_has_no_gradients():
    problem, runtime = pose(simulated_clients(0, levels=RACE), RULES)
    at = evaluation(problem, runtime, np.zeros(5), "values")
    with pytest.raises(ValueError, match="Gradients were not requested"):
        _ = at.loss_grads
    with pytest.raises(ValueError, match="Gradients were not requested"):
        at.violation_grads(at.worst_rows)


def test_the_largest_violation_is_that_of_the_worst_block():
    datas = simulated_clients(0, levels=RACE)
    problem, runtime = pose(datas, RULES)
    at = evaluation(problem, runtime, np.random.default_rng(1).standard_normal(5))
    assert at.block_violations.shape == (len(datas),)
    assert at.largest_violation == at.block_violations.max() == at.violations.max()
    free, runtime = pose(datas, [])
    at = evaluation(free, runtime, np.zeros(5))
    assert at.largest_violation == -np.inf and at.block_violations.shape == (0,)
