"""A loss chosen in the estimator: what is minimised, what scores mean, what the file keeps."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fcfl import FCFLClassifier
from fcfl.models.loss import CrossEntropy, Hinge, Squared

LOSSES = (CrossEntropy(), Hinge(), Squared())


def rows(seed=0, n_rows=300):
    rng = np.random.default_rng(seed)
    group, site = rng.choice(["a", "b"], n_rows), rng.choice(["north", "south"], n_rows)
    X = rng.standard_normal((n_rows, 3))
    X[:, 1] += group == "b"
    y = (X[:, 0] + X[:, 1] + rng.logistic(size=n_rows) > 0.5).astype(int)
    return X, y, site, pd.Series(group, name="group")


def fit(loss, **options):
    X, y, site, group = rows()
    model = FCFLClassifier(loss=loss, l2=0.01, objective="mean", **options)
    return model.fit(X, y, clients=site, sensitive_features=group)


def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def mean_loss(loss, logits):
    """Every client's mean loss, averaged over clients."""
    _, y, site, _ = rows()
    return np.mean([loss.each(logits, y)[site == s].mean() for s in np.unique(site)])


@pytest.mark.thorough
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_network_lowers_its_loss(loss):
    X, network = rows()[0], module()
    fitted = fit(loss.name, model=network)
    with torch.no_grad():
        before = network(torch.tensor(X)).numpy().ravel()
    assert mean_loss(loss, fitted.decision_function(X)) < mean_loss(loss, before)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_each_loss_is_lowest_where_it_was_minimised(loss):
    X = rows()[0]
    cost = []
    for other in LOSSES:
        fitted = fit(other.name)
        params = np.append(fitted.coef_, fitted.intercept_)
        cost.append(mean_loss(loss, fitted.decision_function(X)) + 0.005 * params @ params)
    assert int(np.argmin(cost)) == LOSSES.index(loss)


def test_hinge_has_no_probabilities():
    fitted = fit("hinge")
    X = rows()[0]
    assert not hasattr(fitted, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        fitted.predict_proba(X)
    np.testing.assert_array_equal(fitted.predict(X), (fitted.decision_function(X) >= 0).astype(int))


def test_squared_loss_predicts_half_of_one_plus_the_logit():
    fitted, X = fit("squared"), rows()[0]
    expected = np.clip((1 + fitted.decision_function(X)) / 2, 0, 1)
    np.testing.assert_allclose(fitted.predict_proba(X)[:, 1], expected)
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1)
    assert (fitted.predict(X) == (expected >= 0.5)).all()


@pytest.mark.parametrize("loss", ["hinge", "squared", Hinge(width=0.5)], ids=str)
def test_the_file_keeps_the_loss(tmp_path, loss):
    fitted, X = fit(loss), rows()[0]
    fitted.save(tmp_path)
    read = FCFLClassifier.load(tmp_path)
    assert read.loss == loss
    assert hasattr(read, "predict_proba") == hasattr(fitted, "predict_proba")
    assert read.decision_function(X).tobytes() == fitted.decision_function(X).tobytes()


@pytest.mark.thorough
def test_a_networks_file_keeps_the_loss(tmp_path):
    fit("hinge", model=module()).save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())["about"]
    assert about == {"loss": {"name": "hinge", "width": 0.1}, "threshold": 0.5}


def test_the_width_of_a_hinge_matters():
    wide, usual = fit(Hinge(width=2.0)), fit("hinge")
    assert np.abs(wide.coef_ - usual.coef_).max() > 0.01
    np.testing.assert_array_equal(fit(Hinge()).coef_, usual.coef_)


def test_an_own_loss_can_be_fitted_and_not_saved(tmp_path):
    class Mine(CrossEntropy):
        name = "mine"

    fitted = fit(Mine())
    np.testing.assert_allclose(fitted.coef_, fit("cross-entropy").coef_)
    with pytest.raises(ValueError, match="`loss` must be one of fcfl's own to be saved"):
        fitted.save(tmp_path)


@pytest.mark.parametrize("loss", ["log", "", None, 1])
def test_an_unknown_loss_is_rejected(loss):
    with pytest.raises(ValueError, match="`loss` must be one of"):
        fit(loss)
