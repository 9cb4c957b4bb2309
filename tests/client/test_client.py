"""What a client with rows in memory answers, each against a plain computation."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl._types import CurvatureWeights, Point
from fcfl.client.client import LocalClient, Setup
from fcfl.client.counts import count_rows, count_scores
from fcfl.errors import DataError
from fcfl.models.linear import Linear, linear_logits
from fcfl.models.linear_rows import linear_rows
from fcfl.rules import Difference
from helpers import RACE, TWO_ATTRIBUTES, all_rates, identical, simulated_data

RATES = all_rates(TWO_ATTRIBUTES)
SETUP = Setup(Linear(4), RATES)
OWN = (Difference("demographic_parity", "sex", 0.05),)


def rows(seed=0, n_rows=60, **options):
    return simulated_data(seed, n_rows=n_rows, levels=TWO_ATTRIBUTES, **options)


def params_of(seed, count=1):
    return np.random.default_rng(seed).standard_normal((count, 5))


# --- introductions --------------------------------------------------------------------------------


def test_an_introduction_names_groups_and_those_that_are_here():
    data = rows()
    data.groups["race"][data.groups["race"] == 1] = -1
    said = LocalClient("a", data, rules=OWN, min_group_rows=3).introduce()
    assert said.name == "a"
    assert said.levels == TWO_ATTRIBUTES
    assert said.present == {"race": ("black", "other"), "sex": ("f", "m")}
    assert (said.rules, said.min_group_rows) == (OWN, 3)
    assert said.statistics is None and said.labels == ()


# --- reports --------------------------------------------------------------------------------------


def test_reports_are_those_of_the_rows():
    data = rows()
    weights = {"a": CurvatureWeights(0.7, np.linspace(-1, 1, len(RATES)))}
    points = [
        Point(params, want, weights if want == "curvature" else None)
        for params, want in zip(params_of(1, 3), ("values", "gradients", "curvature"), strict=True)
    ]
    expected = tuple(linear_rows("a", data, RATES).report(point) for point in points)
    assert identical(LocalClient("a", data).report(SETUP, points), expected)


def test_another_setup_gives_other_reports():
    client = LocalClient("a", rows())
    point = (Point(np.ones(5)),)
    before = client.report(SETUP, point)
    (fewer,) = client.report(Setup(Linear(4), RATES[:2]), point)
    np.testing.assert_allclose(fewer.rates, before[0].rates[:2], rtol=1e-14)
    assert identical(client.report(SETUP, point), before)


def test_a_model_of_the_clients_own_stands_in():
    class Halved(Linear):
        def logits(self, params, X):
            return super().logits(params / 2, X)

        def rows(self, client, data, rates):
            return super().rows(client, replace(data, X=data.X / 2), rates)

    data = rows()
    own, plain = LocalClient("a", data, model=Halved(4)), LocalClient("a", data)
    params = np.append(np.ones(4), 0.0)
    assert identical(own.report(SETUP, (Point(params),)), plain.report(SETUP, (Point(params / 2),)))
    assert own.count(SETUP, params).train.loss_sum == plain.count(SETUP, params / 2).train.loss_sum


# --- counts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_all_rows(seed):
    train, test = rows([seed, 0]), rows([seed, 1], 35)
    params = params_of(seed)[0]
    said = LocalClient("a", train, test).count(SETUP, params)
    for counts, data in ((said.train, train), (said.test, test)):
        logits = linear_logits(data.X, params)
        scores = count_scores(1 / (1 + np.exp(-logits)), data.y, data.groups, data.levels)
        expected = count_rows(logits, data, RATES, 0.0)
        assert identical(counts, replace(expected, scores=scores))
    closed = LocalClient("a", train, test, sends_scores=False).count(SETUP, params)
    assert closed.train.scores == closed.test.scores == ()
    assert said.train.n_rows == 60 and said.test.n_rows == 35
    assert identical(said.report, linear_rows("a", train, RATES).report(Point(params)))


def test_groups_below_the_minimum_are_not_reported():
    train, test = rows(1), rows(2, 35)
    open_said = LocalClient("a", train, test).count(SETUP, np.ones(5))
    counts = open_said.train.group_counts
    least = int(np.median(counts)) + 1
    client = LocalClient("a", train, test, min_group_rows=least)
    said = client.count(SETUP, np.ones(5))
    hidden = counts < least
    assert hidden.any() and not hidden.all()
    assert not said.report.group_counts[hidden].any() and not said.report.rates[hidden].any()
    np.testing.assert_array_equal(said.report.rates[~hidden], open_said.report.rates[~hidden])
    for part, whole in ((said.train, open_said.train), (said.test, open_said.test)):
        few = whole.group_counts < least
        assert not part.group_counts[few].any() and not part.group_selected[few].any()
        np.testing.assert_array_equal(part.group_selected[~few], whole.group_selected[~few])
        assert part.n_rows == whole.n_rows and part.loss_sum == whole.loss_sum


# --- its own rules --------------------------------------------------------------------------------


def test_looser_rules_than_the_clients_own_are_rejected():
    client = LocalClient("a", rows(), rules=OWN)
    questions = (
        lambda setup: client.report(setup, (Point(np.zeros(5)),)),
        lambda setup: client.count(setup, np.zeros(5)),
    )
    looser = (
        (),
        (replace(OWN[0], budget=None),),
        (replace(OWN[0], budget=0.06),),
        (replace(OWN[0], budget={"b": 0.01}),),
        (replace(OWN[0], attribute="race"),),
    )
    for ask in questions:
        for rules in looser:
            with pytest.raises(DataError, match="as strict as this client's policy"):
                ask(replace(SETUP, rules=rules))
        for rules in (OWN, (replace(OWN[0], budget={"a": 0.01, "b": 1.0}),)):
            assert ask(replace(SETUP, rules=rules)) is not None


def test_an_unknown_attribute_is_rejected():
    with pytest.raises(ValueError, match="Client 'a' has no attribute 'sex'; it has 'race'"):
        LocalClient("a", simulated_data(0, levels=RACE)).report(SETUP, (Point(np.zeros(5)),))
