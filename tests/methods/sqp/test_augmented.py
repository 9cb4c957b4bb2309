"""The augmented Lagrangian as mathematics: against its definition, and at a KKT point."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fcfl.methods.sqp.augmented import Augmented

STRICT = 1e-2


def drawn(seed, n_losses=5, n_rows=7):
    rng = np.random.default_rng(seed)
    losses, rows = rng.normal(0.5, 0.01, n_losses), rng.normal(0, 0.01, n_rows)
    simplex = np.maximum(rng.dirichlet(np.ones(n_losses)) - 0.1, 0)
    weights = simplex / simplex.sum(), np.maximum(rng.normal(0, 0.1, n_rows), 0)
    penalties = np.maximum(2 * weights[1], 0.02)
    return Augmented((losses, rows), (losses, rows), weights, penalties, 0.0)


def by_definition(given, rows):
    """Minimised over the shared level by SciPy, rows added one by one."""

    def psi(c, mu, sigma):
        return mu * c + sigma / 2 * c**2 if c > -mu / sigma else -(mu**2) / (2 * sigma)

    weights, prices = given.multipliers

    def at(level):
        terms = zip(rows[0], weights, strict=True)
        return level + sum(psi(a - level, w, max(2 * w, 0.1) / STRICT) for a, w in terms)

    low, high = rows[0].min() - 1, rows[0].max() + 1
    found = minimize_scalar(at, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    budgets = zip(rows[1], prices, given.penalties, strict=True)
    return found.fun + sum(psi(b, mu, rho / STRICT) for b, mu, rho in budgets)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_its_definition_says(seed):
    given = drawn(seed, n_losses=1 + seed % 6, n_rows=seed % 4)
    assert given.value(given.here) == pytest.approx(by_definition(given, given.here), abs=1e-10)


def test_at_a_solution_it_is_the_objective_and_its_gradient_the_lagrangian_s():
    """Equal largest losses, budgets met exactly where they have a price."""
    given = drawn(3)
    losses = np.where(given.multipliers[0] > 0, 0.6, 0.55)
    rows = np.where(given.multipliers[1] > 0, 0.0, -0.02)
    assert given.value((losses, rows)) == pytest.approx(0.6, abs=1e-12)
    rng, small = np.random.default_rng(0), 1e-6
    for _ in range(5):
        a, b = rng.normal(size=losses.size), rng.normal(size=rows.size)
        up = given.value((losses + small * a, rows + small * b))
        down = given.value((losses - small * a, rows - small * b))
        slope = given.multipliers[0] @ a + given.multipliers[1] @ b
        assert (up - down) / (2 * small) == pytest.approx(slope, abs=1e-7)


def test_the_order_of_rows_does_not_matter():
    given = drawn(5)
    turned = replace(
        given,
        multipliers=(given.multipliers[0][::-1], given.multipliers[1][::-1]),
        penalties=given.penalties[::-1],
    )
    there = given.here[0][::-1], given.here[1][::-1]
    assert turned.value(there) == pytest.approx(given.value(given.here), abs=1e-13)


def test_a_step_that_does_what_the_model_says_has_the_ratio_one():
    """The objective bends by half of d B d, as the quadratic model has it."""
    given = drawn(7)
    losses, rows = given.here
    rows = np.minimum(rows, 0.005)
    given = replace(given, here=(losses, rows), predicted=(losses - 0.01, rows), bend=0.005)
    assert given.ratio(1.0, (losses - 0.005, rows)) == pytest.approx(1.0)
    assert given.ratio(0.5, (losses - 0.00375, rows)) == pytest.approx(1.0)
    assert given.ratio(1.0, (losses + 0.005, rows)) == pytest.approx(-1.0)


def test_it_says_nothing_far_from_the_budgets_or_where_the_largest_loss_rises_by_much():
    here = np.array([0.5, 0.4]), np.array([0.0])
    there = np.array([0.4, 0.4]), np.array([0.0])
    weights = np.array([1.0, 0.0]), np.array([0.1])
    given = Augmented(here, there, weights, np.array([0.2]), 0.0)
    assert given.ratio(1.0, there) == pytest.approx(1.0, abs=0.1)
    assert given.ratio(1.0, (there[0], np.array([0.011]))) == 0
    assert given.ratio(1.0, (np.array([0.1, 0.511]), there[1])) == 0
    assert replace(given, here=(here[0], np.array([0.011]))).ratio(1.0, there) == 0


def test_where_nothing_changes_a_step_counts_as_predicted():
    given = drawn(1)
    assert given.ratio(1.0, given.here) == 1.0
    assert replace(given, bend=1e-3).ratio(1.0, given.here) == 0.0
