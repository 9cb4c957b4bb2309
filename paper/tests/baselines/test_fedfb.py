from dataclasses import replace

import numpy as np
import pytest
from on_rows import finish, lowest_sum, pose_for

from fcfl._types import Point, Request
from fcfl.data.client_data import ClientData
from fcfl.problem import evaluate_point
from fcfl_paper.baselines.fedfb import FedFB, cell_sums, lean
from fcfl_paper.baselines.questions import LossesByLabel
from helpers import RACE, simulated_clients, train, zeros_for


class Stubborn:
    """A client whose local model is always the same, whatever it is asked."""

    def __init__(self, client, model):
        self.client, self.model = client, model
        self.n_params = client.n_params

    def report(self, point):
        report = self.client.report(point)
        return replace(report, extras={**report.extras, "local_params": self.model})


def test_the_average_of_identical_models_is_that_model():
    """A public version takes the first model whole, whatever its rows."""
    method = FedFB(rounds=3)
    problem, runtime = pose_for(method, simulated_clients(0, levels=RACE))
    model = np.array([1.0, -2.0, 3.0, 0.5, 7.0])
    clients = {name: Stubborn(client, model) for name, client in runtime.clients.items()}
    state = train(method, problem, type(runtime)(clients), zeros_for(runtime))[-1][0].state
    np.testing.assert_allclose(state.params, model, rtol=1e-14)


def test_with_weights_that_hardly_move_it_is_fedavg():
    datas = simulated_clients(1, levels=RACE)
    method = FedFB(weight_step=1e-12, local_epochs=1, step_size=1.0, rounds=5000, tolerance=1e-8)
    state, runtime = finish(method, datas)
    shares = state.problem.n_rows / state.problem.n_rows.sum()
    assert state.status == "converged"
    np.testing.assert_allclose(state.params, lowest_sum(runtime, 1e-2, shares), atol=1e-6)


def test_weights_stay_within_their_bounds_and_even_out_selection():
    datas = {}
    for k, (name, data) in enumerate(simulated_clients(2, levels=RACE, n_rows=200).items()):
        X = data.X.copy()
        X[:, 0] = data.groups["race"]  # the model sees the group, and the label depends on it
        rng = np.random.default_rng(k)
        y = (X[:, 0] + rng.logistic(size=data.n_rows) > 0.5).astype(np.float64)
        datas[name] = ClientData(X, y, data.groups, data.levels)

    def gap(weight_step):
        method = FedFB(weight_step=weight_step, rounds=150)
        problem, runtime = pose_for(method, datas)
        states = [p.state for p, _ in train(method, problem, runtime, zeros_for(runtime))]
        assert all((s.negatives >= 0).all() and (s.negatives <= 2).all() for s in states)
        reports = runtime.evaluate(Request((Point(states[-1].params),)))
        rows = sum(r[0].group_counts for r in reports.values())
        rates = sum(r[0].group_counts * r[0].rates for r in reports.values()) / rows
        return abs(rates[0] - rates[1])

    assert gap(0.3) < 0.6 * gap(1e-12)


def test_a_group_that_is_selected_more_has_its_negatives_weighed_more():
    counts = np.array([[10.0, 10.0], [10.0, 10.0]])
    losses = np.array(
        [[2.0, 9.0], [9.0, 2.0]]
    )  # group 1's negatives and group 0's positives suffer
    leans = lean(counts, losses)
    assert leans[1] > 0 > leans[0] and leans.sum() == 0
    np.testing.assert_allclose(leans[1], (9 + 10 - 2) / 20 - (2 + 10 - 9) / 20)


def test_every_group_is_bounded_by_its_own_size():
    """A public version bounds all groups by the size of the first."""
    datas = simulated_clients(3, levels=RACE)
    method = FedFB(weight_step=1e6, rounds=2)
    problem, runtime = pose_for(method, datas)
    start = np.array([3.0, 0.0, 0.0, 0.0, 0.0])
    state = train(method, problem, runtime, start)[-1][0].state
    assert sorted(state.negatives) == [0.0, 2.0]


def test_the_lean_does_not_depend_on_how_rows_are_dealt_to_clients():
    """A public version adds the groups' base rates once for every client."""
    datas = simulated_clients(4, levels=RACE)
    split = {}
    for name, data in datas.items():
        split[f"{name}-a"] = data.take(np.arange(0, data.n_rows, 2))
        split[f"{name}-b"] = data.take(np.arange(1, data.n_rows, 2))
    params = np.random.default_rng(0).standard_normal(5)
    leans = []
    for clients in (datas, split):
        problem, runtime = pose_for(FedFB(), clients)
        reports = runtime.evaluate(Request((Point(params, extras=(LossesByLabel(),)),)))
        counts, losses = cell_sums(evaluate_point(problem, params, reports))
        leans.append(lean(counts, losses))
    np.testing.assert_allclose(*leans, rtol=1e-10)


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_group_without_rows_does_not_lean(empty):
    counts = np.array([[4.0, 5.0, 6.0], [3.0, 2.0, 1.0]])
    losses = np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
    counts[:, empty], losses[:, empty] = 0.0, 0.0
    leans = lean(counts, losses)
    assert leans[empty] == 0 and np.isfinite(leans).all() and abs(leans.sum()) < 1e-12
