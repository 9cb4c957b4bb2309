"""Training a module under budgets, from Python to the folder its weights are kept in."""

import doctest
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fcfl.torch
from fcfl import SQP, Difference, FedAvg
from fcfl.errors import DataError
from fcfl.torch import TorchClient, TorchModule, load_module, save_module, train_module
from helpers import identical

torch.set_num_threads(1)
PARITY = [Difference("demographic_parity", "group", 0.05)]


def simulated_rows(seed, n_rows, groups=("a", "b")):
    """Rows that no linear model fits, whose label leans on the group."""
    rng = np.random.default_rng(seed)
    group = rng.choice(groups, n_rows)
    X = rng.standard_normal((n_rows, 3))
    X[:, 0] += 0.7 * (group == groups[0])
    leaning = 2.0 * X[:, 0] + 2.0 * X[:, 1] + X[:, 1] * X[:, 2]
    return X, (leaning + rng.logistic(size=n_rows) > 0.7).astype(float), group


def perceptron(width=6, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
    )


def simulated_clients(module, n_clients=3, **options):
    return {
        f"site-{k}": TorchClient(module, *simulated_rows(k, 100 + 40 * k), **options)
        for k in range(n_clients)
    }


@pytest.mark.thorough
@pytest.mark.parametrize("objective", ["max", 0.1])
def test_a_perceptron_converges_inside_its_budgets(objective):
    module = perceptron(4).double()
    kept = train_module(
        module, simulated_clients(module), PARITY, l2=1e-2, method=SQP(objective, "exact")
    )
    assert kept.status == "converged"
    plain = kept.turns[1].progress.state
    assert plain.status == "converged"
    assert kept.turns[1].history[-1].largest_violation <= 1e-6
    assert kept.budgets_met
    assert max(price.value for price in kept.prices) > 0.01  # a budget binds


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "residual"), [("float32", 1e-5), ("float64", 1e-6)])
def test_a_wide_network_converges_without_an_option_of_the_solver(kind, residual):
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
    ).to(getattr(torch, kind))
    trained = train_module(module, simulated_clients(module), PARITY, l2=1e-2)
    assert trained.params.size == 4481
    assert trained.status == "converged", trained.message
    assert trained.kkt <= residual
    assert trained.largest_violation <= 1e-6


@pytest.mark.thorough
def test_exact_curvature_needs_fewer_rounds():
    """Over several starts: where the first steps lead depends on rounding."""
    rounds = {"exact": 0, "lbfgs": 0}
    for seed in range(4):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)).double()
        clients = simulated_clients(module, 2)
        rules = [Difference("demographic_parity", "group", 0.2)]
        for curvature in rounds:
            method = SQP(objective=0.1, curvature=curvature)
            trained = train_module(module, clients, rules, method=method, l2=1e-2)
            assert trained.status == "converged"
            rounds[curvature] += trained.rounds[0]
    assert rounds["exact"] < rounds["lbfgs"]


@pytest.mark.parametrize("rounds", [8, 30])
def test_decisions_of_a_float32_network_keep_budgets_after_too_few_rounds(rounds):
    module = perceptron(24)
    method = SQP(objective=0.1, rounds=(rounds, 0))
    trained = train_module(module, simulated_clients(module), PARITY, l2=1e-4, method=method)
    assert trained.status == "stopped"
    assert all(len(fit.history) <= rounds for fit in trained.turns[:2])
    assert trained.budgets_met
    for counts in trained.counts.values():
        rates = counts.group_selected / counts.group_counts
        assert np.ptp(rates) <= 0.05 + 1e-9


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:The model selects nearly")
def test_the_same_bits_twice_and_the_module_is_left_alone():
    def train():
        module = perceptron()
        before = [leaf.clone() for leaf in module.parameters()]
        clients = simulated_clients(module, batch_rows=50)
        method = SQP(rounds=(6, 4), curvature="lbfgs")
        trained = train_module(module, clients, PARITY, method=method)
        assert all(map(torch.equal, before, module.parameters()))
        assert module.training and not trained.module.training
        return trained

    first, second = train(), train()
    alike = [replace(trained, module=None, model=None) for trained in (first, second)]
    assert identical(*alike)


@pytest.mark.filterwarnings("ignore:The model selects nearly")
def test_a_module_answers_as_its_parameters_do():
    module = perceptron().double()
    clients = simulated_clients(module)
    trained = train_module(module, clients, PARITY, method=SQP(rounds=(4, 0)))
    for name, client in clients.items():
        with torch.no_grad():
            direct = trained.module(torch.tensor(client.data.X)).squeeze(1).numpy()
        logits = client.model.logits(trained.params, client.data.X)
        np.testing.assert_allclose(logits, direct, atol=1e-12)
        loss = np.mean(np.logaddexp(0, direct) - client.data.y * direct)
        assert trained.losses[name] == pytest.approx(loss, rel=1e-12)
        counts = trained.counts[name]
        assert counts.group_selected.sum() == (direct >= 0).sum()


@pytest.mark.filterwarnings("ignore:The model selects nearly")
def test_clients_may_have_different_groups():
    module = nn.Linear(3, 1).double()
    clients = {
        "north": TorchClient(module, *simulated_rows(0, 80, ("a", "b"))),
        "south": TorchClient(module, *simulated_rows(1, 80, ("c", "a"))),
    }
    seen = []
    trained = train_module(
        module, clients, PARITY, l2=1e-2, min_group_rows=5, on_round=lambda info: seen.append(info)
    )
    assert [rate.group for rate in trained.rates] == ["a", "b", "c"]
    assert {name: (c.group_counts > 0).tolist() for name, c in trained.counts.items()} == {
        "north": [True, True, False],
        "south": [True, False, True],
    }
    assert trained.status == "converged" and tuple(seen) == trained.history
    assert "'south' has 0 rows of group = 'b'" in trained.notes[1]


def test_other_methods_train_modules_too():
    module = perceptron()
    method = FedAvg(step_size=0.5, rounds=5)
    trained = train_module(module, simulated_clients(module), PARITY, method=method)
    assert trained.prices == () and len(trained.history) == 5
    assert trained.history[-1].mean_loss < trained.history[0].mean_loss


def test_curvature_follows_the_cost_of_a_network():
    model = TorchModule(nn.Linear(3, 1))
    affordable = SQP(curvature="lbfgs", n_full_points=1, tolerance=1e-5)
    assert model.adapt_method(SQP()) == affordable
    given = SQP(curvature="exact", n_full_points=2, tolerance=1e-7)
    assert model.adapt_method(given) == given
    assert model.adapt_method(FedAvg(step_size=1.0)) == FedAvg(step_size=1.0)


def test_float64_is_held_to_the_finer_tolerance():
    model = TorchModule(nn.Linear(3, 1).double())
    assert model.adapt_method(SQP()).tolerance is None


def test_clients_of_another_module_are_refused_by_name():
    module = perceptron()
    clients = simulated_clients(module) | {"south": simulated_clients(perceptron())["site-0"]}
    with pytest.raises(ValueError, match="client 'south'"):
        train_module(module, clients, PARITY)
    with pytest.raises(ValueError, match="`clients`"):
        train_module(module, {}, PARITY)
    wrong = [Difference("demographic_parity", "group", {"site-9": 0.1})]
    with pytest.raises(ValueError, match="'site-9'"):
        train_module(module, simulated_clients(module), wrong)


# --- weights in a folder ---


def with_buffers(seed):
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    module[1].running_mean += seed
    return module


def test_weights_and_buffers_survive_a_folder(tmp_path):
    module = with_buffers(3)
    save_module(module, tmp_path / "model", {"budget": 0.05})
    loaded = load_module(with_buffers(4), tmp_path / "model")
    assert not loaded.training
    for key, value in module.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[key])
    content = json.loads((tmp_path / "model" / "model.json").read_text())
    assert content["about"] == {"budget": 0.05} and content["kind"] == "fcfl-torch-1"
    assert content["tensors"]["0.weight"] == ["float32", [2, 3]]


def test_weights_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(DataError, match="There is no model"):
        load_module(perceptron(), tmp_path)
    save_module(with_buffers(0), tmp_path)
    longer = nn.Sequential(*with_buffers(0), nn.Linear(1, 1))
    with pytest.raises(DataError, match=r"'3.weight' is not in"):
        load_module(longer, tmp_path)
    with pytest.raises(DataError, match=r"'2.(weight|bias)' is not in `module`"):
        load_module(with_buffers(0)[:2], tmp_path)
    narrow = nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1), nn.Linear(1, 1))
    with pytest.raises(DataError, match=r"'0.weight' has shape"):
        load_module(narrow, tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match=r"do not match the checksum"):
        load_module(with_buffers(0), tmp_path)
    (tmp_path / "model.json").write_text('{"kind": "other"}')
    with pytest.raises(DataError, match=r"holds a model of unknown kind 'other'\."):
        load_module(with_buffers(0), tmp_path)
    (tmp_path / "model.json").write_text('{"kind": "fcfl-')
    with pytest.raises(DataError, match=r"is not a whole model written by fcfl"):
        load_module(with_buffers(0), tmp_path)


def test_the_example_in_the_docstring_runs():
    failed, tried = doctest.testmod(fcfl.torch)
    assert tried > 5 and failed == 0
