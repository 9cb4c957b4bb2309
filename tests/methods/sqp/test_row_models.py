"""The quadratic models of `benchmarks.row_models`: right to second order, row by row."""

import numpy as np
import pytest
from benchmarks.round_counts import DP, Posed, evaluated, on_simulated
from benchmarks.row_models import Asked, ModelClient, TrustTarget, ask, count

from fcfl._types import CurvatureWeights, Point, Vector
from fcfl.methods.sqp.lagrangian import Multipliers
from fcfl.methods.sqp.subproblem import Target
from fcfl.problem.evaluation import Evaluation


@pytest.fixture(scope="module")
def posed() -> Posed:
    return on_simulated(2000, 40, 3, 3, 5, DP, 0.05, 1e-3, 20)


@pytest.fixture(scope="module")
def at(posed: Posed) -> Evaluation:
    n_params = next(iter(posed[1].clients.values())).n_params  # type: ignore[attr-defined]
    return evaluated(posed, 0.3 * np.random.default_rng(0).standard_normal(n_params))


def all_active(posed: Posed) -> Multipliers:
    return Multipliers(np.ones(len(posed[0].clients)), np.ones(len(posed[0].constraints)))


def test_a_model_errs_by_the_cube_of_the_step(posed: Posed, at: Evaluation) -> None:
    """Losses and rows with a multiplier: a tenth of the step, a thousandth of the error."""
    multipliers = all_active(posed)
    model = Asked(posed).model(at, multipliers, at.violations, True)
    step = np.random.default_rng(1).standard_normal(at.params.size)

    def errors(length: float) -> tuple[float, float]:
        params = at.params + length * step
        real, modelled = evaluated(posed, params), ask(model, posed[0], params, multipliers)
        return (
            float(np.abs(real.losses - modelled.losses).max()),
            float(np.abs(real.violations - modelled.violations).max()),
        )

    for long, short in zip(errors(1e-2), errors(1e-3), strict=True):
        assert short < 3e-3 * long


def test_a_row_without_a_matrix_is_known_from_those_it_depends_on(
    posed: Posed, at: Evaluation
) -> None:
    """Three groups' six differences need two matrices a client."""
    asked = Asked(posed)
    model = asked.model(at, all_active(posed), at.violations, False)
    assert all(len(client.rows) == 2 for client in model.clients.values())  # type: ignore[attr-defined]
    name = posed[0].clients[0]
    client = model.clients[name]
    assert isinstance(client, ModelClient)
    for _, pattern in asked.patterns[0]:
        weights = CurvatureWeights(0.0, pattern)
        point = Point(at.params, "curvature", {name: weights})
        expected = posed[1].clients[name].report(point).curvature
        np.testing.assert_allclose(client.report(point).curvature, expected, atol=1e-12)  # type: ignore[arg-type]


def test_the_trust_region_is_one_more_row(posed: Posed, at: Evaluation) -> None:
    """Its value is that of ``(d·Md / R - R) / 2`` and its slope that by differences."""
    rng = np.random.default_rng(2)
    root = rng.standard_normal((at.params.size, at.params.size))
    metric, d, along = root @ root.T, rng.standard_normal(at.params.size), 1e-6 * root[0]

    def excess(where: Vector) -> float:
        target = TrustTarget(Target(None, np.zeros(0)), where, metric, 2.0)
        return float(target.constraints(at.losses, at.violations)[-1])

    target = TrustTarget(Target(None, np.zeros(0)), d, metric, 2.0)
    assert excess(d) == pytest.approx((d @ metric @ d / 2.0 - 2.0) / 2)
    change = target.linearised(at, along)[1][-1] - excess(d)
    assert change == pytest.approx((excess(d + along) - excess(d - along)) / 2, rel=1e-6)
    rows = np.array([len(posed[0].constraints)])
    np.testing.assert_allclose(target.gradients(at, np.array([0]), rows)[1][0] @ along, change)


def test_it_ends_within_the_budgets(posed: Posed) -> None:
    rounds, end, asked, is_converged = count(posed)
    assert is_converged
    assert end.largest_violation <= 1e-6
    assert sum(rounds) <= asked.n_points <= 2 * sum(rounds)
