"""Losses of rows left out of a fit: beside fitting again without each of them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from fcfl._types import Point
from fcfl.data.client_data import ClientData
from fcfl.models import influence
from fcfl.models.influence import LeaveOneOut
from fcfl.models.linear_rows import linear_rows
from fcfl.models.loss import CrossEntropy, Squared
from helpers import RACE, all_rates, simulated_data

RATES, L2 = all_rates(RACE), 0.02


def two_clients(n_rows=60, merged=False):
    found = {}
    for k, name in enumerate("ab"):
        data = simulated_data([5, k], n_rows=n_rows + 20 * k)
        X = data.X if merged else data.X + 0.3 * np.random.default_rng(k).standard_normal(
            data.X.shape
        )  # fmt: skip
        found[name] = replace(data, X=X)
    return found


WEIGHTS = {"a": 0.7, "b": 0.3}


def fitted(datas, loss, left_out=None):
    """The fit of Σ λ_k mean loss + L2 / 2 |params|², one row perhaps left out of its sum."""
    parts = []
    for name, data in datas.items():
        X = np.column_stack([data.X, np.ones(data.n_rows)])
        weight = np.full(data.n_rows, WEIGHTS[name] / data.n_rows)
        if left_out is not None and left_out[0] == name:
            weight[left_out[1]] = 0.0
        parts.append((X, data.y, weight))
    X, y, weight = (np.concatenate(one) for one in zip(*parts, strict=True))

    def value(p):
        return weight @ loss.each(X @ p, y) + 0.5 * L2 * p @ p

    def slope(p):
        return X.T @ (weight * loss.slope_each(X @ p, y)) + L2 * p

    def bend(p):
        return (X.T * (weight * loss.bends(X @ p, np.ones(y.size), y))) @ X + L2 * np.eye(p.size)

    found = minimize(value, np.zeros(X.shape[1]), jac=slope, hess=bend, method="trust-exact",
                     options={"gtol": 1e-10})  # fmt: skip
    return found.x, bend(found.x)


def told(data, name, params, hessian, loss, weight=None):
    factor = np.linalg.inv(np.linalg.cholesky(hessian)).T
    params, factors = [params, 0.5 * params], [factor, factor]
    weights = {name: np.array([WEIGHTS[name]] * 2 if weight is None else weight)}
    question = LeaveOneOut(tuple(params), tuple(factors), weights)
    rows = linear_rows(name, data, RATES, loss)
    return rows.report(Point(params[0], extras=(question,))).extras


@pytest.mark.parametrize(("loss", "tolerance"), [(Squared(), 1e-7), (CrossEntropy(), 2e-3)])
def test_losses_are_those_of_fitting_again_without_each_row(loss, tolerance):
    """Exactly for squared losses, whose Newton step is exact; to second order for others."""
    datas = two_clients()
    params, hessian = fitted(datas, loss)
    for name, data in datas.items():
        X = np.column_stack([data.X, np.ones(data.n_rows)])
        again = np.empty(data.n_rows)
        for i in range(data.n_rows):
            without, _ = fitted(datas, loss, (name, i))
            again[i] = loss.each(X[[i]] @ without, data.y[[i]])[0]
        here = loss.each(X @ params, data.y)
        found = told(data, name, params, hessian, loss)
        n, total, _ = found["loo_losses"]
        assert n == data.n_rows
        optimism = again.sum() - here.sum()
        assert optimism > 0.05
        assert abs(total - again.sum()) <= max(tolerance * again.sum(), 1e-7)
        assert abs(total - again.sum()) < 0.1 * optimism
        assert found["loo_products"][0, 0] == pytest.approx((again**2).sum(), rel=2 * tolerance)


def by_definition(data, name, params, hessian, loss, scale):
    X = np.column_stack([data.X, np.ones(data.n_rows)])
    h = WEIGHTS[name] / data.n_rows * np.einsum("ij,ij->i", X @ np.linalg.inv(hessian), X)
    z = X @ (scale * params)
    slope, bend = loss.slope_each(z, data.y), loss.bends(z, np.ones(data.n_rows), data.y)
    return loss.each(z + slope * h / (1 - bend * h), data.y)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_rows_that_are_alike_count_each_and_products_are_of_both_models(as_sparse):
    """Half of these rows are repeats, some with the other label."""
    datas, loss = two_clients(merged=True), CrossEntropy()
    params, hessian = fitted(datas, loss)
    for name, data in datas.items():
        one, two = (by_definition(data, name, params, hessian, loss, scale) for scale in (1, 0.5))
        asked = replace(data, X=sparse.csr_array(data.X)) if as_sparse else data
        found = told(asked, name, params, hessian, loss)
        assert found["loo_losses"] == pytest.approx([data.n_rows, one.sum(), two.sum()])
        expected = [[one @ one, one @ two], [two @ one, two @ two]]
        assert found["loo_products"] == pytest.approx(np.array(expected))
        assert linear_rows(name, data, RATES).row_counts.size < data.n_rows


def test_a_client_that_weighs_nothing_loses_what_it_loses():
    datas, loss = two_clients(), CrossEntropy()
    params, hessian = fitted(datas, loss)
    data = datas["a"]
    X = np.column_stack([data.X, np.ones(data.n_rows)])
    found = told(data, "a", params, hessian, loss, weight=[0.0, 0.0])["loo_losses"]
    assert found[1] == pytest.approx(loss.each(X @ params, data.y).sum())


def test_of_very_many_rows_an_even_sample_stands_for_all(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4))
    y = (X[:, 0] + rng.logistic(size=3000) > 0) * 1.0
    data = ClientData(X, y, {"race": rng.integers(0, 2, 3000).astype(np.int32)}, RACE)
    params, hessian = np.array([1.0, 0, 0, 0, 0]), np.eye(5)
    whole = told(data, "a", params, hessian, CrossEntropy())["loo_losses"]
    monkeypatch.setattr(influence, "MOST_ROWS", 1000)
    some = told(data, "a", params, hessian, CrossEntropy())["loo_losses"]
    assert whole[0] == 3000 and some[0] == 1000
    assert some[1] / some[0] == pytest.approx(whole[1] / whole[0], rel=0.05)
