"""Estimates from noisy sums: shares of releases, curvature, shrinkage, margins, steps."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fcfl._types import RateId
from fcfl.methods.private import (
    DEVIATIONS,
    DISTRUST,
    MAX_MARGIN,
    MAX_RESPONSE,
    MAX_STEP,
    NEW_ROWS,
    NoisyRates,
    Private,
    Response,
    cells_behind,
    curvature_estimate,
    deviations,
    margins,
    noise_of_rows,
    private_step,
    shrunk,
    usable_rows,
)
from fcfl.privacy import cells_of, mu_of
from fcfl.problem import build_constraints
from fcfl.rules import Difference, Ratio

RATES = tuple(
    RateId(kind, "sex", group) for kind in ("selection", "true_positive") for group in ("f", "m")
)


@pytest.mark.parametrize("rounds", [2, 4, 5, 7, 12])
def test_all_releases_together_cost_exactly_the_budget(rounds):
    method = Private(epsilon=2.0, rounds=rounds)
    asked = [one for taken in range(rounds + 1) for one in method.releases(taken)]
    for part in ("train", "test"):
        squares = sum(one.mu**2 for one in asked if one.part == part)
        assert squares == pytest.approx(mu_of(2.0, 1e-6) ** 2, rel=1e-12)


def test_seven_rounds_request_twelve_sums_and_two_counts_of_decisions():
    method = Private()
    kinds = [[one.kind for one in method.releases(taken)] for taken in range(8)]
    assert kinds[0] == ["counts", "moments", "gradient"]
    assert kinds[1:4] == [["scores", "rates"]] * 3
    assert kinds[4:7] == [["rates"]] * 3
    assert kinds[7] == ["evaluation", "held_out"]


def test_cells_add_up_to_groups():
    cells = np.arange(1.0, 1 + len(cells_of(RATES, "evaluation")))
    known = cells_of(RATES, "evaluation")
    women = [c.group == "f" for c in known]
    positive = [c.group == "f" and c.label == 1 for c in known]
    behind = cells_behind(RATES, "evaluation") @ cells
    assert (behind[0], behind[2]) == (cells[women].sum(), cells[positive].sum())
    chosen = [c.group == "f" and c.label == 1 and bool(c.selected) for c in known]
    selected = cells_behind(RATES, "evaluation", selected=True) @ cells
    assert selected[2] == cells[chosen].sum()


def test_curvature_without_noise_is_a_quarter_of_the_moments_and_with_noise_no_less():
    X = np.random.default_rng(0).standard_normal((500, 4))
    moments = (X.T @ X)[np.triu_indices(4)]
    exact = curvature_estimate(moments, 500.0, 0.0, 0.01)
    assert exact == pytest.approx(X.T @ X / 2000 + 0.01 * np.eye(4))
    noisy = curvature_estimate(moments - 600.0, 500.0, 300.0, 0.01)
    assert np.linalg.eigvalsh(noisy).min() >= 2 * 300.0 * 2 / 500 / 4


def test_slopes_are_shrunk_in_proportion_to_their_noise():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((1, 2, 50))
    noisy = truth + 0.5 * rng.standard_normal((4, 2, 50))
    counts, noise = np.full((4, 2), 100.0), np.full((4, 2), 0.25)
    found = shrunk(noisy, counts, noise)
    assert np.square(found - truth).mean() < 0.5 * np.square(noisy - truth).mean()
    assert shrunk(noisy, counts, 0 * noise) == pytest.approx(noisy)
    assert np.array_equal(shrunk(noisy[:1], counts[:1], noise[:1]), noisy[:1])


def test_response_is_estimated_as_far_as_the_noise_permits():
    """Without noise a few steps determine the factor; with much noise it stays one."""
    p = np.array([0.2, -0.2, 0.1])
    assert Response().factor == 1.0
    one = Response().updated(p, 2 * p, np.full(3, 0.01))
    weights = p**2 / (0.01 + DISTRUST**2 * p**2)
    assert one.factor == pytest.approx(
        (1 / DISTRUST**2 + 2 * weights.sum()) / (1 / DISTRUST**2 + weights.sum())
    )
    exact, noisy = Response(), Response()
    for _ in range(20):
        exact, noisy = (
            exact.updated(p, 2 * p, np.zeros(3)),
            noisy.updated(p, 2 * p, np.full(3, 1e6)),
        )
    assert exact.factor == pytest.approx(2.0, abs=0.02) and noisy.factor == pytest.approx(1.0)
    nothing_before = Response().updated(p, 2 * p, np.full(3, np.inf))
    assert nothing_before == Response()
    wild = Response().updated(p, 100 * p, np.zeros(3)), Response().updated(p, -100 * p, np.zeros(3))
    assert [one.factor for one in wild] == [MAX_RESPONSE, 1 / MAX_RESPONSE]


def constraints(rule):
    return build_constraints([rule], ["a", "b"], RATES[:2], np.full((2, 2), 1e9))[0]


def test_margins_are_for_99_of_100_new_tables_but_never_the_whole_budget():
    rows = constraints(Difference("demographic_parity", "sex", 0.05))
    known = NoisyRates(np.full(4, 0.2), np.full(4, 1e-3), np.full(4, 2e4), np.zeros(4))
    spread = noise_of_rows(rows, known.noise)
    assert spread == pytest.approx(np.full(4, np.sqrt(2) * 1e-3))
    expected = stats.norm.ppf(0.99) * np.sqrt(2 * 1e-6 + 4 * 2 * 0.16 / 2e4)
    assert margins(rows, known, spread) == pytest.approx(np.full(4, expected), rel=1e-3)
    wanted, most = DEVIATIONS * np.sqrt(200 * 1e-6 + 4 * 2 * 0.16 / 2e4), MAX_MARGIN * 0.05
    assert wanted > most  # what no margin makes sure is kept the less free, the more it would take
    assert margins(rows, known, 10 * spread) == pytest.approx(np.full(4, most**2 / wanted))
    tight = constraints(Difference("demographic_parity", "sex", 0.0))
    assert margins(tight, known, spread) == pytest.approx(np.zeros(4))


def test_deviations_cover_noise_and_sampling_of_new_rows():
    """Simulate noisy rates of a table, and rates of a third as many new rows."""
    rng, n, rate, sd = np.random.default_rng(0), 1200, 0.2, 6.0
    told = (rng.binomial(n, rate, (100_000, 2)) + sd * rng.standard_normal((100_000, 2))) / n
    new = rng.binomial(round(n * NEW_ROWS), rate, (100_000, 2)) / (n * NEW_ROWS)
    off = (new - told) @ np.array([1.0, -1.0])
    rows = constraints(Difference("demographic_parity", "sex", 0.2))
    known = NoisyRates(np.full(4, rate), np.full(4, sd / n), np.full(4, float(n)), np.zeros(4))
    said = deviations(rows, known, noise_of_rows(rows, known.noise))
    assert said == pytest.approx(np.full(4, off.std()), rel=0.02)
    kept = off <= margins(rows, known, noise_of_rows(rows, known.noise))[0]
    assert kept.mean() == pytest.approx(0.99, abs=0.002)


def test_small_groups_and_noisy_clients_have_no_usable_rows():
    rows = constraints(Ratio("demographic_parity", "sex", 0.8))
    known = NoisyRates(
        np.full(4, 0.2), np.array([1e-3, 1e-3, 0.3, 0.3]), np.full(4, 1e4), np.zeros(4)
    )
    assert usable_rows(rows, known, 100.0).tolist() == [True, True, False, False]
    few = NoisyRates(known.rates, np.full(4, 1e-3), np.array([1e4, 50, 1e4, 1e4]), np.zeros(4))
    assert usable_rows(rows, few, 100.0).tolist() == [False, False, True, True]


def test_noise_of_counts_widens_margins_and_makes_clients_too_noisy():
    """Simulate a rate, a noisy sum over a noisy count."""
    rng, n, rate, sd, count_sd = np.random.default_rng(0), 1000.0, 0.1, 5.0, 30.0
    sums = (rate - 0.5) * n + sd * rng.standard_normal(100_000)
    found = sums / (n + count_sd * rng.standard_normal(100_000)) + 0.5
    known = NoisyRates(np.full(4, rate), np.full(4, sd / n), np.full(4, n), np.full(4, count_sd))
    both = np.hypot(known.noise, known.by_counts)
    assert found.std() == pytest.approx(both[0], rel=0.02)
    rows = constraints(Difference("demographic_parity", "sex", 0.1))
    spread = noise_of_rows(rows, known.noise)
    chance = 4 * noise_of_rows(rows, np.sqrt(known.rates * (1 - known.rates) / n)) ** 2
    noise = deviations(rows, known, spread) ** 2 - chance
    assert noise == pytest.approx(noise_of_rows(rows, both) ** 2)
    tight = constraints(Difference("demographic_parity", "sex", 0.015))
    assert not usable_rows(tight, known, 100.0).any()
    assert usable_rows(tight, replace(known, count_noise=np.zeros(4)), 100.0).all()


def test_noise_of_a_group_count_is_that_of_its_cells():
    assert cells_behind(RATES[:2]).sum(axis=1).tolist() == [1, 1]
    assert cells_behind(RATES).sum(axis=1).tolist() == [
        2,
        2,
        1,
        1,
    ]  # by label, where a rate needs it


def test_a_step_minimises_within_the_rows_and_is_never_too_long():
    B, g = np.diag([1.0, 2.0]), np.array([-1.0, -2.0])
    none = np.zeros((0, 2))
    assert private_step(B, g, none, np.zeros(0)) == pytest.approx([1.0, 1.0])
    bounded = private_step(B, g, np.array([[1.0, 0.0]]), np.array([-0.25]))
    assert bounded == pytest.approx([0.25, 1.0], abs=1e-6)
    far = private_step(1e-6 * B, g, none, np.zeros(0))
    assert 0 < np.linalg.norm(far) <= MAX_STEP


@pytest.mark.parametrize(
    ("options", "name"), [({"epsilon": 0.0}, "epsilon"), ({"delta": 1.0}, "delta"),
                          ({"rounds": 1}, "rounds")]
)  # fmt: skip
def test_invalid_options_are_rejected(options, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        Private(**options)
