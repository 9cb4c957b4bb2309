"""`benchmarks.promise` measures what it says: exact truth, exchanges, recorded disparities."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.promise_laws import LAWS
from benchmarks.promise_runs import CountingFederation, _parity_chance, fit, measure
from benchmarks.promise_tasks import simulated

from fcfl import Difference, Point, Ratio, Request, Setup
from fcfl._types import RateId
from fcfl.client.counts import count_rows
from fcfl.models.linear import Linear, linear_logits

KINDS = ("selection", "true_positive", "false_positive")


@pytest.mark.parametrize(
    "name", ["unequal", "odds", pytest.param("odd-80", marks=pytest.mark.thorough), "giveaway"]
)
def test_true_rates_are_those_of_many_sampled_rows(name):
    drawn = LAWS[name].draw(3)
    population = replace(drawn, sizes=np.full(len(drawn.sizes), 100_000), _known={})
    rates = [RateId(kind, "group", group) for kind in KINDS for group in population.levels]
    params = np.random.default_rng(0).normal(0.0, 0.7, population.n_features + 1)
    params[-1] = -0.6
    true, mass = population.rates(params, rates)
    right, selected = population.performance(params)
    rows = population.rows("many")
    for k in (0, len(population.names) - 1):
        data = rows[population.names[k]]
        counts = count_rows(linear_logits(data.X, params), data, rates, 0.0)
        error = 5.0 * np.sqrt(0.25 / np.minimum(counts.group_counts, 100_000))
        assert (np.abs(counts.group_selected / counts.group_counts - true[k]) < error).all()
        assert np.abs(counts.group_counts / 100_000 - mass[k]).max() < 0.01
        correct = counts.true_positive + counts.true_negative
        assert correct / 100_000 == pytest.approx(right[k], abs=0.008)
        chosen = counts.true_positive + counts.false_positive
        assert chosen / 100_000 == pytest.approx(selected[k], abs=0.008)


def test_a_seed_draws_the_same_federation_and_parts_differ():
    one, other = simulated("many", 4), simulated("many", 4)
    assert np.array_equal(one.train["c03"].X, other.train["c03"].X)
    assert not np.array_equal(one.train["c03"].X, one.fresh["c03"].X)
    assert one.train["c03"].n_rows == one.fresh["c03"].n_rows
    assert simulated("many", 5).train["c03"].n_rows != one.train["c03"].n_rows


def test_every_request_is_counted_once():
    task = simulated("unequal", 1)
    federation = CountingFederation.from_rows(task.train).counting()
    federation.introduce()
    model = Linear(task.n_features)
    setup = Setup(model, ())
    federation.bind(setup).evaluate(Request((Point(model.start()), Point(model.start()))))
    federation.count(setup, model.start())
    assert federation.asked == {"introduce": 1, "report": 1, "count": 1}


def test_recorded_figures_are_those_of_the_model_on_the_rows():
    task = simulated("unequal", 2)
    record = measure(task, 2, 0.0, "none")
    federation = CountingFederation.from_rows(task.train).counting()
    params = fit(task, federation, 2, 0.0, "none").params
    for part, data in (("hard", task.train), ("fresh", task.fresh)):
        for k, own in enumerate(data.values()):
            selected, second = own.X @ params[:-1] + params[-1] >= 0, own.groups["group"] == 1
            apart = abs(selected[second].mean() - selected[~second].mean())
            assert record[part][k] == pytest.approx(apart * 1e4, abs=1.0)
    assert record["exchanges"] == sum(federation.asked.values())
    assert record["rows"] == [own.n_rows for own in task.train.values()]


def test_chances_of_a_parity_model_are_those_of_simulation():
    rng, n, p = np.random.default_rng(1), np.array([400, 150]), 0.3
    r = rng.binomial(n, p, (200_000, 2)) / n
    for rule in (Difference("demographic_parity", "g", 0.1), Ratio("demographic_parity", "g", 0.8)):
        inside = np.ptp(r, axis=1) <= 0.1
        if isinstance(rule, Ratio):
            inside = r.min(axis=1) >= 0.8 * r.max(axis=1)
        assert _parity_chance(rule, p, n) == pytest.approx(inside.mean(), abs=0.02)
