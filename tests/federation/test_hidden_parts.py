"""What goes under masks under global rules: every kind of answer, whose sums are those without."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl._types import CurvatureWeights, Point, Request, curvature_sum
from fcfl.client.client import Count, Evaluate, Setup
from fcfl.data.client_data import ClientData
from fcfl.errors import ReportError
from fcfl.federation.federation import Federation
from fcfl.federation.masks.hidden import hide, is_hidden, restore, summed_rates
from fcfl.models.linear import Linear
from fcfl.rules import Difference, rates_needed

pytest.importorskip("cryptography")

LEVELS = {"sex": ("f", "m"), "race": ("black", "white")}
LOCAL = Difference("demographic_parity", "race", 0.1)
GLOBAL = Difference("equalized_odds", "sex", 0.1, scope="global")
RULES = (LOCAL, GLOBAL)
SETUP = Setup(Linear(3), rates_needed(RULES, LEVELS), RULES)
PARAMS = np.array([0.5, -1.0, 0.2, 0.1])
SEX = [i for i, rate in enumerate(SETUP.rates) if rate.attribute == "sex"]


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(0)
    rows = {}
    for name, n_rows in (("a", 40), ("b", 90), ("c", 60)):
        groups = {attribute: rng.integers(0, 2, n_rows) for attribute in LEVELS}
        X, y = rng.standard_normal((n_rows, 3)), rng.integers(0, 2, n_rows).astype(float)
        rows[name] = ClientData(X, y, groups, LEVELS)
    return Federation.from_rows(rows, rows)


def totals(answers, part):
    return np.sum([part(answer) for answer in answers.values()], axis=0)


def others(answers, part):
    """What is said of the groups of all clients but the one that has everybody's."""
    return np.array([part(answers[name])[..., SEX] for name in ("b", "c")])


def test_rates_that_a_rule_of_the_clients_compares_are_not_summed():
    assert summed_rates(SETUP).tolist() == SEX
    both = (*RULES, Difference("demographic_parity", "sex", 0.2))
    assert summed_rates(Setup(Linear(3), SETUP.rates, both)).size == 0
    assert summed_rates(Setup(Linear(3), SETUP.rates, (LOCAL,))).size == 0


def test_counts_add_up_and_are_nobodys(clients):
    hidden = clients.masked()
    for ask, part in (
        (lambda one: one.count(SETUP, PARAMS), lambda said: said.train.group_selected),
        (lambda one: one.count(SETUP, PARAMS), lambda said: said.test.group_counts),
        (lambda one: one.count(SETUP, PARAMS), lambda said: said.report.group_counts),
    ):
        plain, masked = ask(clients), ask(hidden)
        assert np.array_equal(totals(plain, part), totals(masked, part))
        assert others(plain, part).any() and not others(masked, part).any()
    counted = hidden.count(SETUP, PARAMS)
    assert all(one.attribute == "race" for said in counted.values() for one in said.train.scores)


def test_rates_gradients_and_curvature_are_those_of_all_rows(clients):
    """Without masks each client has its share of a rate's weight; with them the first has all."""
    rows = totals(clients.report(SETUP, Request((Point(PARAMS),))), counts_of)
    weight = np.linspace(-0.3, 0.3, rows.size)
    sums = []
    for one in (clients, clients.masked()):
        counts = {k: counts_of(v) for k, v in one.report(SETUP, asked()).items()}
        weights = {k: CurvatureWeights(0.3, weight * own / rows) for k, own in counts.items()}
        reports = one.report(SETUP, asked(weights))
        sums.append(
            (
                totals(reports, lambda said: said[0].group_counts * said[0].rates),
                totals(reports, lambda said: counts_of(said)[:, None] * said[0].rate_grads),
                curvature_sum(reports, 0),
            )
        )
    for plain, masked in zip(*sums, strict=True):
        assert masked == pytest.approx(plain, abs=1e-9)


def counts_of(said):
    return said[0].group_counts


def asked(weights=None):
    want = "values" if weights is None else "curvature"
    return Request((Point(PARAMS, want, weights),))


def test_what_a_carrier_says_of_everybodys_decisions_is_refused(clients):
    said = clients.count(SETUP, PARAMS)["a"]
    question = Count(SETUP, PARAMS)
    silent, _ = hide(question, said)
    assert is_hidden(question, silent)
    assert not is_hidden(question, replace(silent, decided=said.report.rates))


@pytest.mark.parametrize("wrong", [-5.0, 1e6, np.nan])
def test_sums_that_counts_cannot_have_are_refused(clients, wrong):
    question = Evaluate(SETUP, Request((Point(PARAMS),)))
    parts = {
        name: hide(question, answer)
        for name, answer in clients.bind(SETUP).evaluate(question.request).items()
    }
    answers = {name: answer for name, (answer, _) in parts.items()}
    total = np.sum([numbers for _, numbers in parts.values()], axis=0)
    restore(question, answers, total)
    for place in (0, len(SEX)):  # rows, and those of them that are selected
        tampered = total.copy()
        tampered[place] = wrong
        with pytest.raises(ReportError, match="add up to what counts cannot be"):
            restore(question, answers, tampered)
