"""A client with a privacy budget: it says noisy sums, counts them, and ends."""

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


def test_a_report_says_nothing_but_its_releases():
    (said,) = client().report(SETUP, [asked(Release("counts", 0.01), Release("gradient", 0.01))])
    assert (said.n_rows, said.loss, said.group_counts.tolist()) == (1.0, 0.0, [0.0, 0.0])
    assert said.loss_grad is None and not said.rates.any()
    assert sorted(said.extras) == ["counts", "gradient"]


@pytest.mark.parametrize(
    "point",
    [Point(np.zeros(5)), Point(np.zeros(5), "gradients"), Point(np.zeros(5), "decisions"),
     asked(Release("counts", 0.1), want="gradients")],
)  # fmt: skip
def test_anything_else_is_refused(point):
    with pytest.raises(DataError, match=r"does not report .*, only noisy sums"):
        client().report(SETUP, [point])


def test_exact_counts_are_refused():
    with pytest.raises(DataError, match="exact counts"):
        client().count(SETUP, np.zeros(5))


def test_it_counts_what_it_says_and_stops_at_the_budget():
    whole = mu_of(1.0, 1e-6)
    one = client()
    for _ in range(4):
        one.report(SETUP, [asked(Release("counts", whole / 2))])
    assert one.spent.epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(DataError, match="privacy budget"):
        one.report(SETUP, [asked(Release("counts", 0.01))])
    assert one.spent.epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)  # a refusal costs nothing


def test_held_out_rows_are_other_rows():
    whole = mu_of(1.0, 1e-6)
    one = client()
    one.report(SETUP, [asked(Release("evaluation", whole), Release("held_out", whole))])
    assert one.spent.epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)
    assert costs_of([asked(Release("held_out", 0.3))]) == {"test": pytest.approx(0.09)}


def test_two_draws_differ_and_no_seed_can_repeat_them():
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        (said,) = client().report(SETUP, [asked(Release("rates", 0.1))])
        draws.append(said.extras["rates"])
    assert not np.array_equal(*draws)


@pytest.mark.parametrize("release", [Release("counts", 0.0), Release("counts", np.inf),
                                     Release("counts", 0.1, norm=1e6)])  # fmt: skip
def test_releases_that_make_no_sense_are_refused(release):
    with pytest.raises(DataError, match="must have a `mu`"):
        client().report(SETUP, [asked(release)])


def test_the_same_sum_twice_at_one_point_is_refused():
    with pytest.raises(DataError, match="release must be"):
        client().report(SETUP, [asked(Release("counts", 0.1), Release("counts", 0.1))])


def test_a_rate_that_is_named_twice_is_refused():
    """A row behind it would count twice, and its sensitivity once."""
    with pytest.raises(DataError, match="A rate"):
        client().report(Setup(Linear(4), (*RATES, RATES[0])), [asked(Release("rates", 0.1))])


@pytest.mark.parametrize("sharpness", [np.nan, np.inf, 0.0, -1.0])
def test_a_slope_that_is_no_slope_is_refused(sharpness):
    point = replace(asked(Release("scores", 0.1)), sharpness=sharpness)
    with pytest.raises(DataError, match="`sharpness` must be a positive number"):
        client().report(SETUP, [point])


def test_a_model_that_is_no_number_is_refused():
    point = replace(asked(Release("scores", 0.1)), params=np.full(5, np.nan))
    with pytest.raises(DataError, match="`params` must be finite"):
        client().report(SETUP, [point])


def test_models_of_unknown_sensitivity_are_refused():
    with pytest.raises(DataError, match="linear models with cross-entropy"):
        client().report(Setup(Linear(4, loss=Hinge()), RATES), [asked(Release("counts", 0.1))])


def test_a_client_without_a_budget_releases_nothing():
    with pytest.raises(DataError, match="has no privacy budget"):
        LocalClient("a", simulated_data(0)).report(SETUP, [asked(Release("counts", 0.1))])


def test_an_introduction_names_what_is_declared_not_what_is_there():
    data = simulated_data(0)
    data.groups["race"][:] = 0
    said = PrivateClient("a", data, privacy=BUDGET).introduce()
    assert said.present == said.levels == {"race": ("black", "white")}
    assert said.privacy == BUDGET
