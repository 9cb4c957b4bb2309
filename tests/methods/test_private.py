"""What the server makes of releases, where clients add no noise."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.privacy import NO_NOISE, NoiselessClient

from fcfl import Difference, Linear
from fcfl.federation.federation import Federation
from fcfl.federation.session import Session
from fcfl.methods.private import Private
from fcfl.privacy import NORM, Release
from fcfl.training.private import _problem
from fcfl.training.run import prepare
from helpers import simulated_data

RULES = (
    Difference("demographic_parity", "race", 0.05),
    Difference("equal_opportunity", "race", 0.05),
)


def test_scores_tell_the_gradient_and_the_slopes_of_every_rate():
    """Two rates behind a row: the sums are those of the releases that they stand in for."""
    method = Private(NO_NOISE.epsilon, NO_NOISE.delta)
    clients = {
        name: NoiselessClient(name, simulated_data(seed, n_rows=400), privacy=NO_NOISE)
        for seed, name in enumerate(("north", "south"))
    }
    run = prepare(Federation(clients), Linear(4), RULES, method, None, None, Session())
    problem = _problem(replace(run, l2=0.02))
    state = asked = method.init(np.zeros(5), problem)
    for _ in range(2):
        asked = state
        state, _ = method.step(state, run.clients.evaluate(state.request))
    (point,) = asked.request.points
    (scores,) = [release for release in point.extras if release.kind == "scores"]
    assert point.params.any()

    def exact(kind, client):
        release = Release(kind, 1.0, NORM)
        total, unit = clients[client]._part(run.setup, release).exact_sum(release, point)
        return total * unit

    gradient = sum(exact("gradient", client) for client in clients) / 800 + 0.02 * point.params
    assert state.gradient == pytest.approx(gradient, abs=1e-4)
    for at, client in enumerate(problem.clients):
        slopes = exact("jacobian", client) / state.group_counts[at][:, None]
        assert np.abs(slopes).max() > 0.1
        assert state.slopes[at] == pytest.approx(slopes, abs=1e-3)
    # And their noise is that of slopes asked for by themselves.
    alone = Release("jacobian", scores.mu, scores.norm).noise_sd(problem.rates, point)
    assert state.slope_sd == pytest.approx(alone)
