"""How much gradients vary from row to row: by hand, and the same for a network that is linear."""

import numpy as np
import pytest

from fcfl._types import Point
from fcfl.models.influence import GradientSpread
from fcfl.models.linear_rows import linear_rows
from helpers import RACE, all_rates, simulated_data

RATES = all_rates(RACE)


def by_hand(data, params, factor, sharpness):
    """``tr(F' C F)`` of every rate from the definition: a covariance of single rows' gradients."""
    X = np.column_stack([data.X, np.ones(data.n_rows)])
    score = 1 / (1 + np.exp(-sharpness * (X @ params)))
    gradients = (sharpness * score * (1 - score))[:, None] * X
    found = []
    for rate in RATES:
        rows = data.groups["race"] == RACE["race"].index(rate.group)
        if rate.kind != "selection":
            rows &= data.y == (1.0 if rate.kind == "true_positive" else 0.0)
        covariance = np.cov(gradients[rows].T, bias=True) / rows.sum()
        found.append(np.trace(factor.T @ covariance @ factor))
    return found


def told(rows, point, factor):
    return rows.report(Point(point.params, extras=(GradientSpread(factor),), sharpness=20.0))


def test_it_is_the_covariance_of_gradients_under_the_inverse_hessian():
    data, rng = simulated_data(3, n_rows=120), np.random.default_rng(0)
    params = 0.3 * rng.standard_normal(data.n_features + 1)
    factor = np.tril(rng.standard_normal((params.size, params.size)))
    report = told(linear_rows("a", data, RATES), Point(params), factor)
    expected = by_hand(data, params, factor, 20.0)
    assert min(expected) > 0
    assert report.extras["gradient_spread"] == pytest.approx(expected)


def test_a_network_of_one_layer_answers_as_the_linear_model_does():
    torch = pytest.importorskip("torch")
    from fcfl.models.torch_module import TorchModule

    data, rng = simulated_data(3, n_rows=120), np.random.default_rng(1)
    params = 0.3 * rng.standard_normal(data.n_features + 1)
    factor = rng.standard_normal((params.size, params.size))
    layer = torch.nn.Linear(data.n_features, 1, dtype=torch.float64)
    network = TorchModule(torch.nn.Sequential(layer, torch.nn.Flatten(0)), batch_rows=50)
    ours, theirs = (
        told(rows, Point(params), factor).extras["gradient_spread"]
        for rows in (linear_rows("a", data, RATES), network.rows("a", data, RATES))
    )
    assert theirs == pytest.approx(ours)


def test_a_group_that_is_too_small_to_be_told_of_has_none():
    data = simulated_data(3, n_rows=120)
    rows = linear_rows("a", data, RATES)
    least = float(np.sort(rows.group_counts)[1])
    report = told(rows.with_groups_of(least), Point(np.zeros(rows.n_params)), np.eye(rows.n_params))
    told_of = rows.group_counts >= least
    assert np.all((report.extras["gradient_spread"] > 0) == told_of) and not told_of.all()
