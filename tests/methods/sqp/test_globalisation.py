"""The merit, the augmented Lagrangian against its definition, and which steps they accept."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fcfl.methods.sqp.subproblem import Search, least_penalty, lowered_penalties, merit_of_rows

STRICT = 1e-2
NONE = np.zeros(2), np.zeros(2)


def search(**changes):
    """Merits 2.1 and 4 under the penalties, a predicted decrease of 2.5."""
    given = {
        "lengths": (1.0, 0.5),
        "settled": False,
        "merits": ((2.0, np.array([0.0, 0.1])), (1.0, np.array([0.3, 0.0]))),
        "here": (np.array([1.0, 0.0]), np.array([0.3, 0.0])),
        "predicted": (np.array([0.5, 0.0]), np.array([0.1, 0.0])),
        "multipliers": NONE,
        "penalties": np.array([10.0, 1.0]),
        "half_curvature": 0.0,
        "uses_augmented": False,
    }
    return Search(**(given | changes))


def rows(objective, violations=(0.0, 0.0)):
    return np.array([objective, objective - 1.0]), np.asarray(violations)


# --- the merit ---


def test_point_must_fall_below_the_worst_of_the_last_merits():
    assert search().accepts(0, rows(3.9))
    assert not search().accepts(0, rows(4.0))
    assert not search().accepts(1, rows(3.5, [0.1, 0.0]))
    just = rows(4.0 - 2e-4)  # a ten-thousandth of the length times the predicted decrease
    assert search().accepts(1, just) and not search().accepts(0, just)


def test_past_merits_are_weighed_under_the_present_penalties():
    lower = search(penalties=np.array([1.0, 1.0]))
    assert not lower.accepts(0, rows(3.9))
    assert lower.accepts(0, rows(2.0))


def test_settled_search_takes_its_first_length():
    assert search(settled=True).accepts(0, rows(99.0, np.ones(2)))
    assert not search(settled=True).accepts(1, rows(0.0))


def test_penalties_move_halfway_to_twice_the_multipliers_after_a_shortened_step():
    multipliers = np.array([1.0, 0.0])
    np.testing.assert_allclose(search().next_penalties(multipliers), [10.0, 1.0])
    short = search(lengths=(0.5,))
    for _ in range(60):
        lower = short.next_penalties(multipliers)
        assert (lower <= short.penalties).all()
        short = search(penalties=lower, lengths=(0.5,))
    np.testing.assert_allclose(short.penalties, [2.0, 0.1])


@pytest.mark.parametrize("length", [1.0, 0.5])
def test_penalty_below_twice_its_multiplier_rises_at_once(length):
    raised = search(lengths=(length,)).next_penalties(np.array([50.0, 7.0]))
    np.testing.assert_allclose(raised, [100.0, 14.0])


def test_penalty_without_a_multiplier_is_at_most_that_of_others():
    known = np.full(3, 0.1)
    for largest, least in ((1.0, 0.1), (0.02, 0.04), (0.0, 0.01)):
        multipliers = np.array([largest, largest / 2, 0.0])
        assert least_penalty(multipliers) == pytest.approx(least)
        for _ in range(60):
            known = lowered_penalties(known, multipliers, least_penalty(multipliers))
        np.testing.assert_allclose(known, np.maximum(2 * multipliers, least))


# --- the augmented Lagrangian ---


def drawn(seed, n_losses=5, n_rows=7):
    rng = np.random.default_rng(seed)
    at = rng.normal(0.5, 0.01, n_losses), rng.normal(0, 0.01, n_rows)
    simplex = np.maximum(rng.dirichlet(np.ones(n_losses)) - 0.1, 0)
    weights = simplex / simplex.sum(), np.maximum(rng.normal(0, 0.1, n_rows), 0)
    return search(
        here=at, predicted=at, multipliers=weights, uses_augmented=True,
        merits=(merit_of_rows(at),), penalties=np.maximum(2 * weights[1], 0.02),
    )  # fmt: skip


def by_definition(given, at):
    """Minimise over the shared level by SciPy, with rows added one by one."""

    def psi(c, mu, sigma):
        return mu * c + sigma / 2 * c**2 if c > -mu / sigma else -(mu**2) / (2 * sigma)

    weights, prices = given.multipliers

    def at_level(level):
        terms = zip(at[0], weights, strict=True)
        return level + sum(psi(a - level, w, max(2 * w, 0.1) / STRICT) for a, w in terms)

    low, high = at[0].min() - 1, at[0].max() + 1
    found = minimize_scalar(
        at_level, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    )
    budgets = zip(at[1], prices, given.penalties, strict=True)
    return found.fun + sum(psi(b, mu, rho / STRICT) for b, mu, rho in budgets)


@pytest.mark.parametrize("seed", range(20))
def test_augmented_lagrangian_equals_its_definition(seed):
    given = drawn(seed, n_losses=1 + seed % 6, n_rows=seed % 4)
    assert given.augmented(given.here) == pytest.approx(by_definition(given, given.here), abs=1e-10)


def test_at_a_kkt_point_it_is_the_objective_and_its_gradient_the_lagrangians():
    """Equal largest losses, budgets met exactly where they have a multiplier."""
    given = drawn(3)
    losses = np.where(given.multipliers[0] > 0, 0.6, 0.55)
    budgets = np.where(given.multipliers[1] > 0, 0.0, -0.02)
    assert given.augmented((losses, budgets)) == pytest.approx(0.6, abs=1e-12)
    rng, small = np.random.default_rng(0), 1e-6
    for _ in range(5):
        a, b = rng.normal(size=losses.size), rng.normal(size=budgets.size)
        up = given.augmented((losses + small * a, budgets + small * b))
        down = given.augmented((losses - small * a, budgets - small * b))
        slope = given.multipliers[0] @ a + given.multipliers[1] @ b
        assert (up - down) / (2 * small) == pytest.approx(slope, abs=1e-7)


def test_step_as_the_quadratic_model_predicts_has_ratio_one():
    given = drawn(7)
    losses, budgets = given.here[0], np.minimum(given.here[1], -0.05)
    here = losses, budgets
    given = replace(
        given,
        here=here,
        merits=(merit_of_rows(here),),
        predicted=(losses - 0.01, budgets),
        half_curvature=0.005,
    )
    assert given.ratio(0, (losses - 0.005, budgets)) == pytest.approx(1.0)
    assert given.ratio(1, (losses - 0.00375, budgets)) == pytest.approx(1.0)
    assert given.ratio(0, (losses + 0.005, budgets)) == pytest.approx(-1.0)
    assert replace(given, half_curvature=0.0, predicted=here).ratio(0, here) == 1.0


def along_a_nonlinear_budget(excess, gain):
    """A search whose full step lowers the loss by ``gain`` and leaves the budget as it is."""
    here = np.array([1.0]), np.array([0.0])
    given = search(
        lengths=(1.0,), merits=(merit_of_rows(here),), here=here,
        predicted=(np.array([1.0 - 2 * gain]), np.array([0.0])),
        multipliers=(np.array([1.0]), np.array([0.1])), penalties=np.array([0.2]),
        half_curvature=gain, uses_augmented=True,
    )  # fmt: skip
    return given, (np.array([1.0 - gain - 0.1 * excess]), np.array([excess]))


def test_step_along_a_nonlinear_budget_is_taken():
    """The Lagrangian falls as predicted; the merit, which weighs the excess twice, rises."""
    given, there = along_a_nonlinear_budget(excess=4e-4, gain=1e-5)
    by_merit = replace(given, uses_augmented=False)
    assert given.accepts(0, there) and not by_merit.accepts(0, there)
    assert given.ratio(0, there) == pytest.approx(1.0, abs=0.3)
    assert by_merit.ratio(0, there) < -2


def test_far_from_the_budgets_the_merit_alone_decides():
    given, there = along_a_nonlinear_budget(excess=2e-2, gain=1e-5)
    assert not given.accepts(0, there)
    given, there = along_a_nonlinear_budget(excess=2e-3, gain=1e-3)
    assert given.accepts(0, there)
    assert given.ratio(0, there) == replace(given, uses_augmented=False).ratio(0, there)
    rises = np.array([1.0 + 2 * STRICT]), there[1]
    assert not replace(given, penalties=np.zeros(1)).accepts(0, rises)
