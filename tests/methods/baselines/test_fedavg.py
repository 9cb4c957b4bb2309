import copy

import numpy as np
import pytest
from on_rows import different_clients
from scipy.optimize import minimize

from fcfl._types import Point, Request
from fcfl.data.client_data import ClientData
from fcfl.methods.baselines import FedAvg
from fcfl.models.linear_rows import linear_rows
from fcfl.rules import Difference
from helpers import RACE, identical, pose, simulated_clients, train, zeros_for

BUDGETS = [Difference("demographic_parity", "race", 0.0)]


def pooled_optimum(datas, l2):
    """Minimiser of the mean loss over all clients' rows together, by BFGS."""
    together = linear_rows(
        "all",
        ClientData(
            np.concatenate([d.X for d in datas.values()]),
            np.concatenate([d.y for d in datas.values()]),
            {"race": np.concatenate([d.groups["race"] for d in datas.values()])},
            RACE,
        ),
        (),
    )

    def loss(params):
        report = together.report(Point(params, "gradients"))
        return report.loss + l2 / 2 * params @ params, report.loss_grad + l2 * params

    return minimize(loss, np.zeros(5), jac=True, method="BFGS", options={"gtol": 1e-9}).x


@pytest.mark.parametrize("rules", [[], BUDGETS], ids=["free", "budgets it knows nothing of"])
@pytest.mark.parametrize("seed", range(3))
def test_it_converges_to_the_optimum_of_the_pooled_rows(seed, rules):
    datas = simulated_clients(seed, levels=RACE)
    problem, runtime = pose(datas, rules, l2=1e-2)
    method = FedAvg(step_size=1.0, rounds=5000, tolerance=1e-9)
    state = train(method, problem, runtime, zeros_for(runtime))[-1][0].state
    assert state.status == "converged"
    assert state.message.startswith("The mean loss is stationary after")
    np.testing.assert_allclose(state.params, pooled_optimum(datas, 1e-2), atol=1e-6)


def test_one_step_is_the_weighted_mean_of_the_gradients():
    datas = simulated_clients(0, levels=RACE)
    problem, runtime = pose(datas, [], l2=0.0)
    start = np.random.default_rng(0).standard_normal(5)
    reports = runtime.evaluate(Request((Point(start, "gradients"),)))
    rows = np.array([data.n_rows for data in datas.values()])
    mean = sum(
        n / rows.sum() * reports[name][0].loss_grad for n, name in zip(rows, datas, strict=True)
    )
    method = FedAvg(step_size=0.3, rounds=2)
    state = train(method, problem, runtime, start)[-1][0].state
    np.testing.assert_allclose(state.params, start - 0.3 * mean, rtol=1e-13)


def test_it_stops_after_its_rounds_at_the_point_it_last_saw():
    problem, runtime = pose(simulated_clients(0, levels=RACE), [])
    method = FedAvg(rounds=4, tolerance=0.0)
    rounds = train(method, problem, runtime, zeros_for(runtime))
    states = [progress.state for progress, _ in rounds]
    assert states[-1].status == "stopped" and states[-1].message == "All 4 rounds taken."
    assert [method.fraction_done(state) for state in states] == [0.0, 0.25, 0.5, 0.75, 1.0]
    infos = [info for _, info in rounds[1:]]
    assert [info.round for info in infos] == [1, 2, 3, 4]
    assert [info.mean_loss for info in infos] == sorted(
        (info.mean_loss for info in infos), reverse=True
    )


def test_step_is_pure():
    problem, runtime = pose(simulated_clients(0, levels=RACE), BUDGETS)
    method = FedAvg(rounds=5)
    state = method.init(zeros_for(runtime), problem)
    while state.status == "running":
        reports = runtime.evaluate(state.request)
        kept = copy.deepcopy((state, reports))
        first, second = method.step(state, reports), method.step(state, reports)
        assert identical(first, second)
        assert identical((state, reports), kept)
        state = first[0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"step_size": 0}, r"`step_size` must be a positive number, got 0\."),
        ({"step_size": True}, r"`step_size` must be a positive number, got True\."),
        ({"rounds": 0}, r"`rounds` must be a positive number, got 0\."),
        ({"rounds": 2.5}, r"`rounds` must be a whole number, 0 or more, got 2\.5\."),
        ({"rounds": "3"}, r"`rounds` must be a positive number, got '3'\."),
        ({"tolerance": -1}, r"`tolerance` must be zero or a positive number, got -1\."),
    ],
)
def test_a_bad_option_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        FedAvg(**options)


def test_it_starts_from_a_list_too():
    problem, runtime = pose(simulated_clients(0, levels=RACE), [])
    method = FedAvg(rounds=3)
    ends = [
        train(method, problem, runtime, start)[-1][0].state
        for start in ([0, 0, 0, 0, 0], zeros_for(runtime))
    ]
    assert identical(*ends)


@pytest.mark.parametrize("params", [[[0.0]], "zero", None, [0.0, np.inf]], ids=repr)
def test_parameters_that_are_no_finite_vector_are_refused(params):
    problem, _ = pose(simulated_clients(0, levels=RACE), [])
    with pytest.raises(ValueError, match=r"^`params` must be (a vector of numbers|finite), got"):
        FedAvg().init(params, problem)


# --- local epochs ---


def test_one_local_full_batch_epoch_is_one_gradient_step():
    datas = simulated_clients(1, levels=RACE)
    problem, runtime = pose(datas, [], l2=1e-2)
    ends = [
        train(
            FedAvg(step_size=0.3, rounds=20, local_epochs=n), problem, runtime, zeros_for(runtime)
        )
        for n in (0, 1)
    ]
    by_gradients, by_models = (rounds[-1][0].state.params for rounds in ends)
    np.testing.assert_allclose(by_models, by_gradients, rtol=1e-12, atol=1e-15)


def test_local_epochs_on_clients_that_are_alike_find_the_pooled_optimum():
    data = simulated_clients(2, n_clients=1, levels=RACE)["client-0"]
    datas = {"a": data, "b": data, "c": data}
    problem, runtime = pose(datas, [], l2=1e-2)
    method = FedAvg(step_size=0.5, rounds=2000, tolerance=1e-9, local_epochs=5)
    state = train(method, problem, runtime, zeros_for(runtime))[-1][0].state
    assert state.status == "converged"
    np.testing.assert_allclose(state.params, pooled_optimum(datas, 1e-2), atol=1e-6)


def test_local_epochs_on_clients_that_differ_end_beside_the_pooled_optimum():
    """The known bias of local steps: of first order in the step size, and gone without them."""
    datas = different_clients(3)
    problem, runtime = pose(datas, [], l2=1e-2)
    optimum = pooled_optimum(datas, 1e-2)

    def distance(step_size, epochs):
        method = FedAvg(step_size=step_size, rounds=40000, tolerance=1e-8, local_epochs=epochs)
        state = train(method, problem, runtime, zeros_for(runtime))[-1][0].state
        assert state.status == "converged" and state.message.startswith("The average is constant")
        return np.linalg.norm(state.params - optimum)

    assert distance(0.4, 1) < 1e-5
    biases = [distance(step, 10) for step in (0.1, 0.05, 0.025)]
    assert biases[0] > 1e-3
    assert 1.7 < biases[0] / biases[1] < 2.3 and 1.8 < biases[1] / biases[2] < 2.2
