"""The accountant against itself and against dp-accounting's privacy loss distributions."""

import math

import numpy as np
import pytest

from fcfl.privacy import check_privacy, delta_of, epsilon_of, mu_of

pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")

GRID = [(mu, delta) for mu in (0.05, 0.3, 1.0, 2.0) for delta in (1e-8, 1e-6, 1e-5)]


@pytest.mark.parametrize(("mu", "delta"), GRID)
def test_epsilon_agrees_with_dp_accounting(mu, delta):
    loss = pld.from_gaussian_mechanism(1.0 / mu, value_discretization_interval=1e-4)
    theirs = loss.get_epsilon_for_delta(delta)
    assert epsilon_of(mu, delta) == pytest.approx(theirs, rel=1e-3, abs=2e-4)


def test_fifteen_releases_compose_as_in_dp_accounting():
    shares = np.array([0.06, 0.15, 0.05, *[0.072, 0.036, 0.072] * 3, *[0.2 / 3] * 3])
    mus = mu_of(1.0, 1e-6) * np.sqrt(shares / shares.sum())
    together = pld.from_gaussian_mechanism(1.0 / mus[0], value_discretization_interval=1e-4)
    for mu in mus[1:]:
        one = pld.from_gaussian_mechanism(1.0 / mu, value_discretization_interval=1e-4)
        together = together.compose(one)
    assert together.get_epsilon_for_delta(1e-6) == pytest.approx(1.0, rel=2e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_mu_and_epsilon_are_inverses(epsilon):
    mu = mu_of(epsilon, 1e-6)
    assert epsilon_of(mu, 1e-6) == pytest.approx(epsilon, rel=1e-9)
    assert delta_of(epsilon, mu) == pytest.approx(1e-6, rel=1e-6)


def test_no_release_costs_nothing_and_a_large_mu_has_no_epsilon():
    assert epsilon_of(0.0, 1e-6) == 0.0
    assert delta_of(1.0, 0.0) == 0.0
    assert math.isinf(epsilon_of(60.0, 1e-6))


def test_the_bound_is_tighter_than_concentrated_privacy():
    for mu in (0.05, 0.2, 1.0, 2.0):
        rho = mu**2 / 2
        concentrated = rho + 2 * math.sqrt(rho * math.log(1e6))
        assert 0.5 * concentrated < epsilon_of(mu, 1e-6) < concentrated / 1.1


@pytest.mark.parametrize(
    ("epsilon", "delta", "name"),
    [(0, 1e-6, "epsilon"), (30, 1e-6, "epsilon"), (1, 0, "delta"), (1, 0.5, "delta"),
     ("1", 1e-6, "epsilon"), (20, 1e-9, "delta"), (True, 1e-6, "epsilon")],
)  # fmt: skip
def test_an_invalid_privacy_loss_is_rejected_by_name(epsilon, delta, name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        check_privacy(epsilon, delta)
