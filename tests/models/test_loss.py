"""Every loss: its derivatives, its sums over merged rows, and what its scores mean."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks.in_process import InProcess
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from by_slsqp import solve_by_slsqp
from fcfl._types import CurvatureWeights, Point, Request
from fcfl.methods.sqp import SQP
from fcfl.models.linear import Linear
from fcfl.models.linear_rows import linear_rows
from fcfl.models.loss import (
    HINGE_WIDTH,
    CrossEntropy,
    Hinge,
    Squared,
    as_loss,
    loss_from_json,
    loss_to_json,
)
from fcfl.models.torch_module import TorchModule
from fcfl.problem import build_problem, evaluate_point
from fcfl.rules import Difference, rates_needed
from helpers import (
    RACE,
    TWO_ATTRIBUTES,
    all_rates,
    assert_derivative,
    simulated_clients,
    simulated_data,
    train,
)

LOSSES = (CrossEntropy(), Hinge(), Squared())
RATES = all_rates(TWO_ATTRIBUTES)
by_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def some_rows(seed=0, n=40):
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=1.5, size=n)
    counts = rng.integers(1, 6, n).astype(float)
    return logits, counts, np.floor(counts * rng.random(n))


@by_loss
def test_derivatives_are_those_of_the_values(loss):
    logits, counts, positives = some_rows()
    labels = (positives > 1).astype(float)
    assert_derivative(
        np.diag(loss.slope_each(logits, labels)), lambda z: loss.each(z, labels), logits
    )
    assert_derivative(
        loss.slopes(logits, counts, positives), lambda z: loss.total(z, counts, positives), logits
    )
    assert_derivative(
        np.diag(loss.bends(logits, counts, positives)),
        lambda z: loss.slopes(z, counts, positives),
        logits,
    )


@by_loss
def test_an_item_is_the_sum_of_its_rows(loss):
    logits, counts, positives = some_rows()
    as_0, as_1 = loss.by_label(logits)
    np.testing.assert_allclose(as_0, loss.each(logits, np.zeros(logits.size)), rtol=1e-13)
    np.testing.assert_allclose(as_1, loss.each(logits, np.ones(logits.size)), rtol=1e-13)
    items = loss.items(logits, counts, positives)
    np.testing.assert_allclose(items, (counts - positives) * as_0 + positives * as_1, rtol=1e-12)
    assert loss.total(logits, counts, positives) == pytest.approx(items.sum(), rel=1e-13)


@by_loss
def test_losses_are_convex_and_finite_far_out(loss):
    logits, counts, positives = some_rows()
    assert (loss.bends(logits, counts, positives) >= 0).all()
    far = np.array([-1e6, -800.0, 800.0, 1e6])
    with np.errstate(all="raise", under="ignore"):
        values = (loss.each(far, np.ones(4)), loss.slope_each(far, np.ones(4)))
        bends = loss.bends(far, np.ones(4), np.ones(4))
    assert all(np.isfinite(found).all() for found in (*values, bends))


@by_loss
def test_zero_logits_favour_neither_label(loss):
    as_0, as_1 = loss.by_label(np.zeros(1))
    assert as_0 == as_1
    assert loss.scores(np.zeros(1)) == (0.5 if loss.has_probabilities else 0.0)


@pytest.mark.parametrize("share", [0.1, 0.35, 0.8])
@pytest.mark.parametrize("loss", [CrossEntropy(), Squared()], ids=lambda loss: loss.name)
def test_the_best_score_of_alike_rows_is_their_share(loss, share):
    """What makes scores probabilities: a constant model ends at the share of label 1."""
    logit = np.zeros(1)
    for _ in range(50):  # Newton
        at = logit, np.ones(1), np.array([share])
        logit = logit - loss.slopes(*at) / loss.bends(*at)
    assert loss.scores(logit) == pytest.approx(share, abs=1e-12)


def test_scores_of_squared_loss_stay_probabilities():
    assert Squared().scores(np.array([-3.0, 3.0])).tolist() == [0.0, 1.0]


@given(width=st.floats(1e-3, 1.0), logit=st.floats(-5, 5), label=st.sampled_from([0.0, 1.0]))
def test_the_rounded_hinge_is_above_the_hinge_by_its_width_at_most(width, logit, label):
    z, y = np.array([logit]), np.array([label])
    hinge = max(0.0, 1.0 - (2 * label - 1) * logit)
    gap = Hinge(width).each(z, y)[0] - hinge
    assert -1e-12 <= gap <= width * np.log(2) + 1e-12


def test_the_width_is_the_one_that_help_and_docstring_say():
    assert Hinge().width == HINGE_WIDTH == 0.1
    assert "0.1" in Hinge.__doc__


@by_loss
@pytest.mark.parametrize("as_sparse", [False, True])
def test_reports_of_a_linear_model_have_the_losses_derivatives(loss, as_sparse):
    data = simulated_data(3, levels=TWO_ATTRIBUTES, as_sparse=as_sparse)
    client = linear_rows("a", data, RATES, loss)
    rng = np.random.default_rng(5)
    params = rng.standard_normal(data.n_features + 1) / 3
    weights = CurvatureWeights(rng.random(), rng.standard_normal(len(RATES)))

    def ask(p, want="gradients"):
        return client.report(Point(p, want, {"a": weights}))

    logits = data.X @ params[:-1] + params[-1]
    assert ask(params).loss == pytest.approx(loss.each(logits, data.y).mean(), rel=1e-12)
    assert_derivative(ask(params).loss_grad, lambda p: ask(p, "values").loss, params)

    def lagrangian_grad(p):
        at = ask(p)
        return weights.loss * at.loss_grad + weights.rates @ at.rate_grads

    assert_derivative(ask(params, "curvature").curvature, lagrangian_grad, params)


@settings(max_examples=6)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from(LOSSES))
def test_a_linear_layer_reports_what_the_closed_form_does(seed, loss):
    data = simulated_data(seed, levels=TWO_ATTRIBUTES)
    params = np.random.default_rng(seed).standard_normal(data.n_features + 1)
    module = nn.Linear(data.n_features, 1, dtype=torch.float64)
    weights = CurvatureWeights(0.7, np.linspace(-1, 1, len(RATES)))
    point = Point(params, "curvature", {"a": weights})
    network = TorchModule(module, loss=loss).rows("a", data, RATES).report(point)
    closed = Linear(data.n_features, loss=loss).rows("a", data, RATES).report(point)
    for part in ("loss", "loss_grad", "rates", "rate_grads", "curvature"):
        ours, theirs = getattr(network, part), getattr(closed, part)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11 * (1 + np.abs(theirs).max()))


@by_loss
def test_the_curvature_of_a_network_is_the_derivative_of_its_gradients(loss):
    data = simulated_data(1, levels=TWO_ATTRIBUTES)
    torch.manual_seed(0)
    layers = nn.Linear(data.n_features, 3), nn.Tanh(), nn.Linear(3, 1)
    model = TorchModule(nn.Sequential(*layers).double(), loss=loss)
    rows, params = model.rows("a", data, RATES), model.start()
    weights = CurvatureWeights(1.0, np.zeros(len(RATES)))

    def ask(p, want):
        return rows.report(Point(p, want, {"a": weights}))

    assert_derivative(ask(params, "gradients").loss_grad, lambda p: ask(p, "values").loss, params)
    assert_derivative(
        ask(params, "curvature").curvature, lambda p: ask(p, "gradients").loss_grad, params
    )


@by_loss
@pytest.mark.parametrize("seed", range(3))
def test_budgets_are_kept_at_the_optimum_that_slsqp_finds(loss, seed):
    """The smallest worst loss under budgets, to 1e-4, by an independent solver."""
    datas = simulated_clients(seed, n_rows=150)
    rules = [Difference("demographic_parity", "race", 0.05)]
    rates = rates_needed(rules, RACE)
    clients = {name: linear_rows(name, data, rates, loss) for name, data in datas.items()}
    runtime = InProcess(clients)
    zero = np.zeros(next(iter(clients.values())).n_params)
    problem, _ = build_problem(rules, rates, runtime.evaluate(Request((Point(zero),))), l2=1e-3)
    method = SQP(rounds=(400, 0))
    end = train(method, problem, runtime, zero)[-1][0].state

    def rows(params):
        request = Request((Point(params, "gradients"),))
        at = evaluate_point(problem, params, runtime.evaluate(request))
        every = np.arange(at.violations.size)
        return at.losses, at.loss_grads, at.violations, at.violation_grads(every)

    losses, _, violations, _ = rows(end.params)
    assert end.status == "converged" and violations.max() <= 1e-6
    reference = solve_by_slsqp(rows, zero)
    polished = solve_by_slsqp(rows, end.params)
    assert reference.success or polished.success
    assert losses.max() <= reference.value + 1e-4
    assert losses.max() == pytest.approx(polished.value, abs=1e-4)


@by_loss
def test_a_model_file_says_which_loss_and_how_wide(loss):
    described = loss_to_json(loss)
    assert described["name"] == loss.name
    assert loss_from_json(described) == loss
    assert loss_from_json(loss_to_json(Hinge(0.5))) == Hinge(0.5)
    assert ("width" in described) == (loss == Hinge())


def test_losses_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="`loss` must be one of cross-entropy, hinge, squared"):
        as_loss("loss", "log")
    with pytest.raises(ValueError, match=r"`loss` must be one of 'cross-entropy'.* got 3"):
        as_loss("loss", 3)
    for width in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="`width` must be"):
            Hinge(width)
    with pytest.raises(ValueError, match="Unknown key `widht`"):
        loss_from_json({"name": "hinge", "widht": 0.1})
    assert as_loss("loss", replace(Hinge(), width=0.2)) == Hinge(0.2)
