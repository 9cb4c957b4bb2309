"""A client with a privacy budget: releases, their cost, and the end of the budget."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl._types import Point, RateId
from fcfl.client.client import LocalClient, Setup
from fcfl.client.private import PrivateClient, costs_of
from fcfl.errors import DataError
from fcfl.models.linear import Linear
from fcfl.models.loss import Hinge
from fcfl.policy import PrivacyBudget
from fcfl.privacy import Release, mu_of
from helpers import simulated_data

RATES = (RateId("selection", "race", "black"), RateId("selection", "race", "white"))
SETUP = Setup(Linear(4), RATES)
BUDGET = PrivacyBudget(1.0, 1e-6)


def client(**options):
    return PrivateClient("a", simulated_data(0), simulated_data(1), privacy=BUDGET, **options)


def asked(*releases, **options):
    return Point(np.zeros(5), extras=releases, **options)


def test_a_report_holds_nothing_but_its_releases():
    (said,) = client().report(SETUP, [asked(Release("counts", 0.01), Release("gradient", 0.01))])
    assert (said.n_rows, said.loss, said.group_counts.tolist()) == (1.0, 0.0, [0.0, 0.0])
    assert said.loss_grad is None and not said.rates.any()
    assert sorted(said.extras) == ["counts", "gradient"]


@pytest.mark.parametrize(
    ("point", "named"),
    [
        (Point(np.zeros(5)), "only noisy sums"),
        (Point(np.zeros(5), "gradients"), "only noisy sums"),
        (Point(np.zeros(5), "decisions"), "only noisy sums"),
        (asked(Release("counts", 0.1), want="gradients"), "only noisy sums"),
        (asked(Release("counts", 0.0)), "`mu`"),
        (asked(Release("counts", np.inf)), "`mu`"),
        (asked(Release("counts", 0.1), Release("counts", 0.1)), "requested twice"),
        *((asked(Release("scores", 0.1), sharpness=s), "`sharpness`") for s in (np.nan, 0.9, -1.0)),
        (replace(asked(Release("scores", 0.1)), params=np.full(5, np.nan)), "`params`"),
    ],
)
def test_invalid_requests_are_rejected(point, named):
    with pytest.raises(DataError, match=named):
        client().report(SETUP, [point])


@pytest.mark.parametrize(
    ("setup", "named"),
    [
        (Setup(Linear(4), (*RATES, RATES[0])), "rate"),  # its row would count twice
        (Setup(Linear(4, loss=Hinge()), RATES), "must be linear"),
    ],
)
def test_models_and_rates_of_unknown_sensitivity_are_rejected(setup, named):
    with pytest.raises(DataError, match=named):
        client().report(setup, [asked(Release("rates", 0.1))])


def test_exact_counts_are_rejected():
    with pytest.raises(DataError, match="exact counts"):
        client().count(SETUP, np.zeros(5))


def test_releases_are_charged_until_the_budget_is_spent():
    whole = mu_of(1.0, 1e-6)
    one = client()
    for _ in range(4):
        one.report(SETUP, [asked(Release("counts", whole / 2))])
    assert one.spent.epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(DataError, match="privacy budget"):
        one.report(SETUP, [asked(Release("counts", 0.01))])
    assert one.spent.epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)  # a refusal costs nothing


def test_training_and_held_out_rows_are_charged_separately():
    whole = mu_of(1.0, 1e-6)
    one = client()
    one.report(SETUP, [asked(Release("evaluation", whole), Release("held_out", whole))])
    assert one.spent.epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)
    assert costs_of([asked(Release("held_out", 0.3))]) == (0.0, pytest.approx(0.09))


def test_two_draws_differ_and_no_seed_can_repeat_them():
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        (said,) = client().report(SETUP, [asked(Release("rates", 0.1))])
        draws.append(said.extras["rates"])
    assert not np.array_equal(*draws)


def test_a_client_without_a_budget_releases_nothing():
    with pytest.raises(DataError, match="has no privacy budget"):
        LocalClient("a", simulated_data(0)).report(SETUP, [asked(Release("counts", 0.1))])


def test_an_introduction_names_declared_groups_whatever_the_rows():
    data = simulated_data(0)
    data.groups["race"][:] = 0
    said = PrivateClient("a", data, privacy=BUDGET).introduce()
    assert said.present == said.levels == {"race": ("black", "white")}
    assert said.privacy == BUDGET
