"""The fast method against independent solvers, on Adult and on made-up problems."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from tests.helpers import made_up_clients, pose, train, zeros_for

from fcfl._types import Point, Report, Request
from fcfl.client.linear import linear_client
from fcfl.data import adult
from fcfl.data.synthetic import CLIENT, RATE, SyntheticClient, constrained_optimum
from fcfl.errors import DataError
from fcfl.rules import Difference, Ratio, rates_needed
from fcfl.runtime.in_process import InProcess
from fcfl.server import subproblem
from fcfl.server.constraints import Constraints, Row, bound_rate
from fcfl.server.prices import budget_prices
from fcfl.server.problem import Problem, evaluate_point, state_problem
from fcfl.server.quasi_newton import no_memory
from fcfl.server.sqp import SQP
from fcfl.server.subproblem import Target, solve_step

DP, EO, ODDS = "demographic_parity", "equal_opportunity", "equalized_odds"


def end_of(method, problem, runtime, start=None):
    """The last state of a run, and the evaluation there."""
    start = zeros_for(runtime) if start is None else start
    state = train(method, problem, runtime, start)[-1][0].state
    reports = runtime.evaluate(Request((Point(state.params),)))
    return state, evaluate_point(problem, state.params, reports)


# --- Adult ----------------------------------------------------------------------------------------


def adult_problem(attribute, metric, budget, l2, clients="phd"):
    try:
        federation = adult((attribute,), clients)
    except DataError as error:
        pytest.skip(str(error))
    rules = [Difference(metric, attribute, budget)]
    rates = rates_needed(rules, federation.levels)
    runtime = InProcess({c: linear_client(c, d, rates) for c, d in federation.train.items()})
    reports = runtime.evaluate(Request((Point(zeros_for(runtime)),)))
    problem, _ = state_problem(rules, rates, reports, l2=l2)
    return federation, problem, runtime


def slsqp_worst_loss(federation, budget, l2, start):
    """The constrained min-max optimum by SciPy, from plain formulas on all rows."""
    parts = []
    for data in federation.train.values():
        facts = np.column_stack([data.X.toarray(), data.y, data.groups["race"]])
        rows, counts = np.unique(facts, axis=0, return_counts=True)
        X = np.hstack([rows[:, :-2], np.ones((len(rows), 1))])
        shares = [counts * (rows[:, -1] == g) for g in (0, 1)]
        signed = shares[0] / shares[0].sum() - shares[1] / shares[1].sum()
        parts.append((X, rows[:, -2], counts / counts.sum(), signed))

    def loss(k, theta):
        X, y, weights, _ = parts[k]
        z = X @ theta
        gradient = X.T @ (weights * (expit(z) - y)) + l2 * theta
        return weights @ (np.logaddexp(0, z) - y * z) + l2 / 2 * theta @ theta, gradient

    def gap(k, theta):
        X, _, _, signed = parts[k]
        s = expit(10 * X @ theta)
        return signed @ s, 10 * X.T @ (signed * s * (1 - s))

    constraints = []
    for k in range(len(parts)):
        constraints.append(
            {
                "type": "ineq",
                "fun": lambda x, k=k: x[-1] - loss(k, x[:-1])[0],
                "jac": lambda x, k=k: np.append(-loss(k, x[:-1])[1], 1.0),
            }
        )
        for sign in (1, -1):
            constraints.append(
                {
                    "type": "ineq",
                    "fun": lambda x, k=k, s=sign: budget - s * gap(k, x[:-1])[0],
                    "jac": lambda x, k=k, s=sign: np.append(-s * gap(k, x[:-1])[1], 0.0),
                }
            )
    unit = np.append(np.zeros(start.size), 1.0)
    answer = minimize(
        lambda x: x[-1],
        np.append(start, 0.7),
        jac=lambda x: unit,
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 200, "ftol": 1e-9},
    )
    return answer.fun


def test_the_optimum_on_adult_is_that_of_an_independent_solver():
    federation, problem, runtime = adult_problem("race", DP, 0.05, 1e-3)
    state, end = end_of(SQP(rounds=(60, 0)), problem, runtime)
    reference = slsqp_worst_loss(federation, 0.05, 1e-3, zeros_for(runtime))
    assert end.losses.max() <= reference + 1e-4
    assert end.losses.max() >= reference - 1e-4
    assert end.largest_violation <= 1e-6
    assert state.status == "converged"


@pytest.mark.parametrize(
    ("curvature", "limits"), [("exact", (15, 20, 40)), ("lbfgs", (60, 90, 150))]
)
def test_it_converges_within_the_promised_rounds(curvature, limits):
    first, others, in_total = limits
    for position, (attribute, metric, budget, l2) in enumerate(
        [
            ("race", DP, 0.05, 1e-3),
            ("race", DP, 0.01, 1e-2),
            ("sex", DP, 0.05, 1e-3),
            ("sex", EO, 0.05, 1e-3),
            ("race", ODDS, 0.05, 1e-3),
        ]
    ):
        _, problem, runtime = adult_problem(attribute, metric, budget, l2)
        state, end = end_of(SQP(curvature=curvature), problem, runtime)
        assert state.status == "converged", (attribute, metric, state.message)
        assert max(state.rounds) <= (others if position else first), (attribute, metric)
        assert end.largest_violation <= 1e-6
    _, problem, runtime = adult_problem("sex", DP, 0.05, 1e-3, clients="occupation")
    state, end = end_of(SQP(curvature=curvature), problem, runtime)
    assert state.status == "converged"
    assert sum(state.rounds) <= in_total
    assert end.largest_violation <= 1e-6


# --- made-up problems -----------------------------------------------------------------------------

RULES = {
    "difference": [Difference(DP, "race", 0.02)],
    "odds": [Difference(ODDS, "race", 0.05)],
    "ratio": [Ratio(DP, "race", 0.9)],
    "global": [Difference(DP, "race", 0.02, "global"), Difference(EO, "race", 0.1)],
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("curvature", ["exact", "lbfgs"])
def test_made_up_problems_end_at_a_point_that_satisfies_kkt(seed, rules, curvature):
    problem, runtime = pose(made_up_clients(seed), rules, l2=1e-2)
    state, end = end_of(SQP(curvature=curvature), problem, runtime)
    assert state.status == "converged", state.message
    assert state.kkt <= 1e-6
    assert end.largest_violation <= 1e-6


def test_stage_2_lowers_the_mean_and_raises_no_client_above_its_slack():
    problem, runtime = pose(made_up_clients(1), RULES["difference"], l2=1e-2)
    _, first = end_of(SQP(rounds=(200, 0)), problem, runtime)
    _, second = end_of(SQP(), problem, runtime)
    assert (second.losses <= first.losses + 1e-4 + 1e-6).all()
    assert second.losses.mean() <= first.losses.mean() + 1e-9


@pytest.mark.parametrize(("kind", "budget"), [(Difference, 0.02), (Ratio, 0.95)])
@pytest.mark.parametrize("seed", [0, 3])
def test_prices_are_slopes_of_the_optimum_in_each_budget(kind, budget, seed):
    datas = made_up_clients(seed, n_rows=150)
    method = SQP(rounds=(300, 0), tolerance=1e-9)

    def solve(budgets, start=None):
        problem, runtime = pose(datas, [kind(DP, "race", budgets)], l2=1e-2)
        return end_of(method, problem, runtime, start)

    base = dict.fromkeys(datas, budget)
    state, end = solve(base)
    prices = {price.client: price.value for price in budget_prices(end, state.prices)}
    assert max(prices.values()) > 0
    step = 1e-5 if kind is Difference else -1e-5  # towards a looser budget
    for client in datas:
        looser = solve(base | {client: budget + step}, state.params)[1].losses.max()
        tighter = solve(base | {client: budget - step}, state.params)[1].losses.max()
        slope = (tighter - looser) / (2 * abs(step))
        assert prices[client] == pytest.approx(slope, rel=0.02, abs=2e-4)


def test_a_small_temperature_is_near_the_maximum_and_a_large_one_near_the_mean():
    """Without budgets the problem is convex, so that the optima are ordered exactly."""
    problem, runtime = pose(made_up_clients(2), [Difference(DP, "race")], l2=1e-2)
    largest = end_of(SQP(rounds=(300, 0)), problem, runtime)[1].losses.max()
    worst = [
        end_of(SQP(delta), problem, runtime)[1].losses.max() for delta in (10, 1, 0.1, 0.03, 0.01)
    ]
    assert all(a >= b - 1e-7 for a, b in pairwise(worst))
    assert -1e-7 <= worst[-1] - largest <= 0.01 * np.log(3)
    mean = end_of(SQP(np.inf), problem, runtime)[1].losses.mean()
    means = [end_of(SQP(delta), problem, runtime)[1].losses.mean() for delta in (0.1, 1, 10)]
    assert all(a >= b - 1e-9 for a, b in pairwise(means))
    assert -1e-9 <= means[-1] - mean <= 1e-4


def test_the_order_of_clients_does_not_matter():
    datas = made_up_clients(5)
    turned = dict(reversed(datas.items()))
    ends = [end_of(SQP(), *pose(some, RULES["difference"], l2=1e-2))[1] for some in (datas, turned)]
    assert ends[0].losses == pytest.approx(ends[1].losses[::-1], abs=1e-5)


def test_duplicate_clients_one_client_and_no_budgets_are_solved():
    one = made_up_clients(0, n_clients=1)
    twins = {"a": one["client-0"], "b": one["client-0"]}
    for datas, rules in (
        (one, RULES["difference"]),
        (twins, RULES["difference"]),
        (twins, [Difference(DP, "race")]),
    ):
        problem, runtime = pose(datas, rules, l2=1e-2)
        state, end = end_of(SQP(), problem, runtime)
        assert state.status == "converged"
        assert np.ptp(end.losses) <= 1e-12


@pytest.mark.parametrize("curvature", ["exact", "lbfgs"])
def test_the_synthetic_problem_is_solved_from_any_start(curvature):
    method = SQP(curvature=curvature)
    runtime = InProcess({CLIENT: SyntheticClient()})
    for budget in (0.2, 0.4, 0.6, 0.8):
        row = bound_rate(CLIENT, RATE, budget)
        problem = Problem((CLIENT,), np.ones(1), 1, row)
        for seed in range(20):
            start = np.random.default_rng(seed).uniform(-0.5, 0.5, 20) * (1 + seed / 10)
            state, end = end_of(method, problem, runtime, start)
            assert state.status == "converged", (budget, seed, state.message)
            assert end.largest_violation <= 1e-6
            assert end.losses[0] == pytest.approx(constrained_optimum(budget), abs=1e-5)


class Opposed:
    """A client whose one rate is σ(z) for one parameter, wanted low by one and high by another."""

    def report(self, point):
        z = float(point.params[0])
        s = float(expit(z))
        report = Report(10.0, 0.5 * z**2 + 0.1, np.array([10.0]), np.array([s]))
        if point.want == "values":
            return report
        slope = np.array([[s * (1 - s)]])
        bend = np.ones((1, 1))
        curvature = bend if point.want == "curvature" else None
        return replace(report, loss_grad=np.array([z]), rate_grads=slope, curvature=curvature)


def test_contradictory_budgets_are_infeasible_and_the_right_clients_are_named():
    low = Row("a", "bound", "rate", "g", "selection", "all", "all", 0.2)
    high = replace(low, client="b")
    other = replace(low, client="c")
    constraints = Constraints(
        rows=(low, high, other),
        blocks=np.array([0, 1, 2]),
        bounds=np.array([0.2, -0.7, 0.99]),  # a: r <= .2;  b: -r <= -.7;  c: r <= .99
        entry_row=np.array([0, 1, 2]),
        entry_column=np.array([0, 1, 2]),
        entry_value=np.array([1.0, -1.0, 1.0]),
        n_columns=3,
    )
    problem = Problem(("a", "b", "c"), np.full(3, 10.0), 1, constraints)
    runtime = InProcess({name: Opposed() for name in "abc"})
    state = train(SQP(), problem, runtime, np.zeros(1))[-1][0].state
    assert state.status == "infeasible", state.message
    assert "'a'" in state.message or "'b'" in state.message
    assert "'c'" not in state.message
    assert "by 0.5" in state.message or ("'a'" in state.message and "'b'" in state.message)


def many_client_reports(seed, n_clients=60, n_params=12):
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(n_params)
    rules = [Difference(DP, "race", 0.05)]
    rates = rates_needed(rules, {"race": ("black", "white")})
    reports = {
        f"c{i:03d}": (
            Report(
                100.0,
                float(rng.normal(0.5, 0.05)),
                np.array([50.0, 50.0]),
                np.clip(0.5 + rng.normal(0, 0.03, 2), 0, 1),
                shared + rng.standard_normal(n_params),
                rng.standard_normal((2, n_params)),
            ),
        )
        for i in range(n_clients)
    }
    problem, _ = state_problem(rules, rates, reports)
    return evaluate_point(problem, np.zeros(n_params), reports)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("caps", [False, True])
def test_screening_rows_never_changes_the_step(monkeypatch, seed, caps):
    at = many_client_reports(seed)
    losses = at.losses + 1e-4
    target = Target(np.inf, losses) if caps else Target(None, np.zeros(0))
    steps = {}
    for first_rows in (4, 10_000):
        monkeypatch.setattr(subproblem, "_FIRST_ROWS", first_rows)
        steps[first_rows] = solve_step(at, target, no_memory(at.params.size), 10.0)
    few, everything = steps[4], steps[10_000]
    size = np.abs(everything.direction).max()
    assert few.direction == pytest.approx(everything.direction, abs=1e-7 * size)
    assert few.decrease(10.0) == pytest.approx(everything.decrease(10.0), abs=1e-8)


def test_a_start_that_is_no_vector_of_numbers_is_refused():
    problem, runtime = pose(made_up_clients(0), RULES["difference"])
    start = zeros_for(runtime)
    start[0] = np.nan
    with pytest.raises(ValueError, match="`params` must be finite, got nan"):
        SQP().init(start, problem)


def test_a_step_is_pure():
    problem, runtime = pose(made_up_clients(0), RULES["difference"], l2=1e-2)
    method = SQP()
    state = method.init(zeros_for(runtime), problem)
    reports = runtime.evaluate(state.request)
    first, _ = method.step(state, reports)
    second, _ = method.step(state, reports)
    assert np.array_equal(first.direction, second.direction)
    assert not state.direction.any()


def test_a_refused_full_step_costs_no_second_round_when_a_rich_shorter_one_does():
    """Every round of a run whose requests are all rich moves the iterate or looks further in."""
    problem, runtime = pose(made_up_clients(3), RULES["difference"], l2=1e-3)
    rich = SQP(rich=5)
    steps = [info.step for _, info in train(rich, problem, runtime, zeros_for(runtime))[1:]]
    assert all(step > 0 for step in steps)
    poor = SQP(rich=1)
    assert len(train(poor, problem, runtime, zeros_for(runtime))) >= len(steps)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"consistency": -1.0}, "`consistency` must be 'max' or a positive number, got -1.0"),
        ({"curvature": "x"}, "`curvature` must be one of auto, exact, lbfgs, got 'x'"),
        ({"lookahead": (2.0,)}, "`lookahead` must hold lengths between 0 and 1, got 2.0"),
        ({"tolerance": 0.0}, "`tolerance` must be a positive number"),
        ({"rounds": (5,)}, "`rounds` must be two counts, one a stage"),
        ({"rounds": (0, 5)}, "`rounds` of stage 1, `patience` and `memory` must be at least 1"),
        ({"memory": 1.5}, "`memory` must be a whole number"),
    ],
)
def test_bad_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        SQP(**options)
