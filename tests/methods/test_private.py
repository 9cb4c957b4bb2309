"""Estimates of the private method where clients add no noise."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.privacy import NO_NOISE, NoiselessClient

from fcfl import Difference, Linear
from fcfl._types import Point
from fcfl.federation.federation import Federation
from fcfl.federation.session import Session
from fcfl.methods.private import Private
from fcfl.models.linear_rows import linear_rows
from fcfl.training.private import _problem
from fcfl.training.run import prepare
from helpers import simulated_data

RULES = (
    Difference("demographic_parity", "race", 0.05),
    Difference("equal_opportunity", "race", 0.05),
)


def short_rows(seed):
    """Return rows of which none is shortened."""
    data = simulated_data(seed, n_rows=400)
    return replace(data, X=np.clip(data.X, -1.4, 1.4))


def test_scores_yield_the_gradient_and_the_slopes_of_every_rate():
    """Two rates are behind a row; the estimates are those of plain reports."""
    method = Private(NO_NOISE.epsilon, NO_NOISE.delta)
    clients = {
        name: NoiselessClient(name, short_rows(seed), privacy=NO_NOISE)
        for seed, name in enumerate(("north", "south"))
    }
    run = prepare(Federation(clients), Linear(4), RULES, method, None, None, Session())
    problem = _problem(replace(run, l2=0.02))
    state = asked = method.init(np.zeros(5), problem)
    for _ in range(2):
        asked = state
        state, _ = method.step(state, run.clients.evaluate(state.request))
    (point,) = asked.request.points
    assert point.params.any()

    params, sharp = point.params, point.sharpness
    plain = {
        name: linear_rows(name, client._data["train"], run.setup.rates).report(
            Point(params, "gradients", sharpness=sharp)
        )
        for name, client in clients.items()
    }
    gradient = sum(400 * one.loss_grad for one in plain.values()) / 800 + 0.02 * params
    assert state.gradient == pytest.approx(gradient, abs=1e-3)
    for at, client in enumerate(problem.clients):
        assert np.abs(plain[client].rate_grads).max() > 0.1
        assert state.slopes[at] == pytest.approx(plain[client].rate_grads, abs=2e-3)
