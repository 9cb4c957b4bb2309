"""Reports, decisions and files at a decision threshold other than one half."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fcfl._types import CurvatureWeights, Point
from fcfl.models.influence import GradientSpread
from fcfl.models.linear import Linear
from fcfl.models.loss import CrossEntropy, Hinge, Squared
from fcfl.models.model import Opaque, at_threshold
from fcfl.models.torch_module import TorchModule
from helpers import TWO_ATTRIBUTES, all_rates, assert_derivative, simulated_data

RATES = all_rates(TWO_ATTRIBUTES)
DATA = simulated_data(3, n_rows=200, levels=TWO_ATTRIBUTES)


def network(threshold, loss):
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)
    return TorchModule(torch.nn.Sequential(*layers).double(), loss=loss, threshold=threshold)


def linear(threshold, loss):
    return Linear(4, loss=loss, threshold=threshold)


def some_params(model):
    drawn = np.random.default_rng(0).standard_normal(model.n_params) / 3
    drawn[-1] += model.cut  # near the cut, where smooth rates have their slope
    return drawn


def ask(rows, params, want="gradients", weights=None):
    return rows.report(Point(params, want, None if weights is None else {"a": weights}))


@pytest.mark.parametrize("loss", [CrossEntropy(), Squared()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("make", [linear, network])
@pytest.mark.parametrize("threshold", [0.02, 0.1, 0.9])
def test_gradients_and_curvature_are_those_of_the_values(threshold, make, loss):
    model = make(threshold, loss)
    rows, params = model.rows("a", DATA, RATES), some_params(model)
    rng = np.random.default_rng(1)
    weights = CurvatureWeights(rng.random(), rng.standard_normal(len(RATES)))

    def lagrangian_grad(p):
        at = ask(rows, p)
        return weights.loss * at.loss_grad + weights.rates @ at.rate_grads

    report = ask(rows, params, "curvature", weights)
    assert np.abs(report.rate_grads).max() > 0.1  # there is a slope to compare
    assert_derivative(report.loss_grad, lambda p: ask(rows, p, "values").loss, params)
    assert_derivative(report.rate_grads, lambda p: ask(rows, p, "values").rates, params)
    assert_derivative(report.curvature, lagrangian_grad, params)


@pytest.mark.parametrize("want", ["gradients", "decisions"])
@pytest.mark.parametrize("make", [linear, network])
@pytest.mark.parametrize("threshold", [0.1, 0.9])
def test_rates_are_those_of_a_lower_intercept_at_one_half(threshold, make, want):
    model = make(threshold, CrossEntropy())
    params = some_params(model)
    lower = params.copy()
    lower[-1] -= np.log(threshold / (1 - threshold))
    moved = ask(model.rows("a", DATA, RATES), params, want)
    plain = ask(make(0.5, CrossEntropy()).rows("a", DATA, RATES), lower, want)
    np.testing.assert_allclose(moved.rates, plain.rates, rtol=1e-9)
    assert moved.loss != pytest.approx(plain.loss, abs=1e-3)
    if want == "gradients":
        np.testing.assert_allclose(moved.rate_grads, plain.rate_grads, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("make", [linear, network])
def test_the_spread_of_gradients_is_taken_at_the_cut(make):
    model = make(0.1, CrossEntropy())
    params = some_params(model)
    lower = params.copy()
    lower[-1] -= model.cut
    spread = GradientSpread(np.eye(params.size))
    found = [
        one.rows("a", DATA, RATES).report(Point(at, extras=(spread,))).extras["gradient_spread"]
        for one, at in ((model, params), (make(0.5, CrossEntropy()), lower))
    ]
    assert found[0].max() > 0
    np.testing.assert_allclose(*found, rtol=1e-9)


@pytest.mark.parametrize("loss", [CrossEntropy(), Squared()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("threshold", [0.02, 0.5, 0.7])
def test_the_cut_is_the_logit_whose_score_is_the_threshold(threshold, loss):
    cut = Linear(4, loss=loss, threshold=threshold).cut
    assert loss.scores(np.array([cut]))[0] == pytest.approx(threshold, rel=1e-12)
    assert Linear(4, loss=loss).cut == 0.0


def test_training_starts_where_half_of_each_group_is_selected():
    model = Linear(4, threshold=0.1)
    rates = ask(model.rows("a", DATA, RATES), model.start()).rates
    np.testing.assert_allclose(rates, 0.5)
    assert model.other_starts(1, 0)["intercept +1"][-1] == model.cut + 1


@pytest.mark.parametrize("model", [Linear, lambda n, **more: Opaque(np.zeros(n), **more)])
def test_a_hinge_has_no_threshold_but_one_half(model):
    assert model(4, loss=Hinge(), threshold=0.5).cut == 0.0
    with pytest.raises(ValueError, match=r"`threshold`.*hinge"):
        model(4, loss=Hinge(), threshold=0.1)


@pytest.mark.parametrize("wrong", [0, 1, -0.1, 1.5, np.nan, "0.5", True, None])
def test_what_is_no_probability_is_no_threshold(wrong):
    with pytest.raises(ValueError, match="`threshold` must lie strictly between 0 and 1"):
        Linear(4, threshold=wrong)


def test_only_a_model_that_has_a_threshold_takes_another():
    model = Linear(4, threshold=0.3)
    assert at_threshold(model, None) is model and at_threshold(model, 0.3) is model
    assert at_threshold(model, 0.2) == replace(model, threshold=0.2)
    with pytest.raises(ValueError, match="`threshold` must be left out"):
        at_threshold(object(), 0.2)
