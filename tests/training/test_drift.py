"""What a fit flatters its own rows by: as theory says, on many samples, and held against."""

from dataclasses import replace

import numpy as np
import pytest
from binding import PARITY, trained_on
from hypothesis import given
from hypothesis import strategies as st
from test_margins import bounds, margins

from fcfl._types import Point
from fcfl.data.client_data import ClientData
from fcfl.federation.federation import Federation
from fcfl.models.linear import Linear
from fcfl.server.sqp import SQP
from fcfl.training import margins as marginal
from fcfl.training.drift import Drift
from fcfl.training.margins import LEFT
from helpers import RACE

N_FEATURES = 24
ROWS = np.arange(2)


def sample(rng, n_rows, lean):
    """Rows whose first features tell the group, many others nothing."""
    group = (rng.random(n_rows) < 0.3).astype(np.int32)
    X = rng.standard_normal((n_rows, N_FEATURES))
    X[:, :2] += lean * group[:, None]
    y = (X[:, :4].sum(axis=1) + rng.logistic(size=n_rows) > 0.5) * 1.0
    return ClientData(X, y, {"race": group}, RACE)


def with_a_small_client(seed, lean=0.7):
    rng = np.random.default_rng(seed)
    return Federation.from_rows({"large": sample(rng, 1500, 0.2), "small": sample(rng, 150, lean)})


def fitted(clients, **options):
    return trained_on(clients, replace(PARITY, budget=0.05), model=Linear(N_FEATURES), **options)


@pytest.fixture(scope="module")
def drifts():
    """Of many samples of a small client what was foretold of its disparity, and what happened."""
    new, found = sample(np.random.default_rng(99), 40_000, 0.7), []
    for seed in range(10):
        trained = fitted(with_a_small_client(seed))
        clients, rates = trained.at.problem.clients, trained.rates
        before = trained.evaluations.reports["small"].rates
        after = Linear(N_FEATURES).rows("new", new, rates).report(Point(trained.params)).rates
        told = trained.evaluations.drifts["small"]
        assert clients == ("large", "small")
        found.append([np.diff(told)[0], np.diff(after)[0] - np.diff(before)[0]])
    return np.array(found)


def test_the_disparity_of_a_small_client_drifts_on_new_rows_as_foretold(drifts):
    told, seen = drifts.T
    error = seen.std() / np.sqrt(len(seen))
    assert seen.mean() > 0.05 + 3 * error  # more than the budget: it is worth foretelling
    assert told.mean() == pytest.approx(seen.mean(), rel=0.3)  # to first order


def test_training_is_held_to_the_other_side_of_an_even_model(monkeypatch):
    """So that new rows are near it."""
    clients = with_a_small_client(2, lean=0.4)
    held = fitted(clients, confidence=0.9)
    assert held.turns[2].folder == "turn-2-drift"
    monkeypatch.setattr(marginal, "MOST_DRIFT", 1e-9)
    not_held = fitted(clients, confidence=0.9)
    after, before = (
        float(np.diff(trained.evaluations.reports["small"].rates)[0])
        for trained in (held, not_held)
    )
    assert before > 0 > after and held.budgets_met


def test_without_curvature_nothing_is_known_and_the_constant_stands_in():
    clients = with_a_small_client(0)
    trained = fitted(clients, confidence=0.9, method=SQP(curvature="lbfgs"))
    assert trained.evaluations.drifts is None
    assert not [turn for turn in trained.turns if turn.folder.endswith("drift")]


def test_multipliers_rise_as_bounds_are_lowered_by_the_quadratic_model():
    gramian = 4.0 * np.array([[1.0, -1.0], [-1.0, 1.0]])  # one disparity, both signs
    drift = Drift(np.ones(2), np.array([0.1, 0.0]), np.array([0.05, -0.05]), ((ROWS, gramian),))
    found = drift.multipliers_under(np.array([0.05, 0.05]))
    assert found == pytest.approx([0.1, 0.0], abs=1e-6)
    found = drift.multipliers_under(np.array([0.01, 0.05]))
    assert found == pytest.approx([0.1 + 0.04 / 4.0, 0.0], abs=1e-6)
    slack = replace(drift, multipliers=np.zeros(2), values=np.array([0.02, -0.02]))
    assert slack.multipliers_under(np.array([0.03, 0.03])) == pytest.approx([0, 0], abs=1e-12)
    assert slack.multipliers_under(np.array([0.01, 0.01])) == pytest.approx([0.0025, 0], abs=1e-6)


# --- bounds against the drift ---------------------------------------------------------------------


def drifting(clients, budget, multipliers, spread, stiffness):
    """Margins of a client whose first row holds it, on a line: one number moves both groups."""
    found = margins(clients, [replace(PARITY, budget=budget)])
    constraints, gramian = found.problem.constraints, stiffness * np.array([[1.0, -1], [-1, 1]])
    values = constraints.apply(np.concatenate([rates for _, rates in clients.values()]))
    drift = Drift(
        np.full(constraints.n_columns, spread),
        np.array([multipliers, 0.0]),
        values,
        ((ROWS, gramian),),
    )
    return replace(found, drift=drift)


one_client = st.tuples(
    st.lists(st.integers(20, 5000), min_size=2, max_size=2),
    st.floats(0.2, 0.69),  # and the other group's is up to .3 higher
)
strengths = (st.floats(0.0, 0.3), st.floats(0.0, 3.0), st.floats(0.01, 10.0))


def held_to(of, confidence):
    tightened = of.tightened(of.deviations_for(confidence), against_drift=True).constraints
    return tightened.bounds[: len(of.problem.constraints)]


@given(one_client, st.floats(0.02, 0.3), *strengths)
def test_the_side_that_drifts_is_held_lower_the_more_confidence(
    client, budget, weight, spread, give
):
    """And the other one no higher than the budget; in between there is room for a model."""
    rows, rate = client
    found = drifting({"a": (rows, [rate + budget, rate])}, budget, weight, spread, give)
    confidences = (0.5, 0.6, 0.75, 0.9, 0.95, 0.99)
    held = np.array([held_to(found, c) for c in confidences])
    plain = np.array([bounds(found, c) for c in confidences])
    assert np.all(held[:, 0] <= plain[:, 0] + 1e-12) and np.all(held[:, 1] >= plain[:, 1] - 1e-12)
    assert np.all(np.diff(held[:, 0]) <= 1e-9)
    assert np.all(held <= budget + 1e-12)
    assert np.all(held.sum(axis=1) >= 2 * LEFT * budget - 1e-9)


def test_the_bound_is_lowered_by_the_multiplier_times_the_spread():
    rows, rates = [40_000, 30_000], [0.35, 0.3]
    found = drifting({"a": (rows, rates)}, 0.05, 0.02, 0.1, 1e9)  # so stiff that nothing rises
    without, by = bounds(found, 0.9), 0.004
    assert held_to(found, 0.9) == pytest.approx([without[0] - by, without[1] + by])
