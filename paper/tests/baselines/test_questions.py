"""What clients in the same process answer beyond losses and rates."""

import numpy as np
import pytest
from scipy.special import expit

from fcfl._types import Point
from fcfl.extras import LocalTraining
from fcfl.models.linear_rows import linear_rows
from fcfl.models.model import rate_members
from fcfl_paper.baselines.questions import KernelSums, LossesByLabel, WeightedTraining
from helpers import RACE, all_rates, assert_derivative, simulated_data

RATES = all_rates(RACE)


def trained(client, start, added, **options):
    training = LocalTraining(**{"epochs": 1, "step_size": 0.3, **options})
    point = Point(start, extras=(WeightedTraining(training, {"a": added}),))
    return client.report(point).extras["local_params"]


def some_weights(seed):
    """Weights of labels and groups: zero for the selection rates."""
    rng = np.random.default_rng(seed)
    kinds = ("false_positive", "true_positive")
    return np.array([[rng.uniform(-1, 2) * (r.kind == kind) for r in RATES] for kind in kinds])


def test_weighted_rows_give_the_gradient_of_the_weighted_loss():
    data, added = simulated_data(1), some_weights(0)
    weights = 1.0 + (rate_members(data, RATES) * added[data.y.astype(int)]).sum(axis=1)
    start = np.random.default_rng(1).standard_normal(5)

    def loss(params):
        logits = data.X @ params[:-1] + params[-1]
        return weights @ (np.logaddexp(0, logits) - data.y * logits) / data.n_rows

    moved = trained(linear_rows("a", data, RATES), start, added)
    assert_derivative((start - moved) / 0.3, loss, start)


def test_without_weights_it_is_local_training():
    client, start = linear_rows("a", simulated_data(1), RATES), np.full(5, 0.1)
    plain = client.report(Point(start, extras=(LocalTraining(3, 0.2, l2=0.1),)))
    ours = trained(client, start, np.zeros((2, len(RATES))), epochs=3, step_size=0.2, l2=0.1)
    np.testing.assert_allclose(ours, plain.extras["local_params"], rtol=1e-12)


@pytest.mark.parametrize("batch_rows", [0, 32])
def test_a_network_trains_as_the_linear_client_does(batch_rows):
    torch = pytest.importorskip("torch")
    from fcfl.models.torch_module import TorchModule

    data, start, added = simulated_data(1), np.full(5, 0.1), some_weights(2)
    network = TorchModule(torch.nn.Linear(4, 1).double()).rows("a", data, RATES)
    ends = [
        trained(client, start, added, epochs=4, batch_rows=batch_rows)
        for client in (network, linear_rows("a", data, RATES))
    ]
    np.testing.assert_allclose(*ends, rtol=1e-12 if batch_rows == 0 else 0.5)


def test_a_network_has_no_kernel():
    torch = pytest.importorskip("torch")
    from fcfl.models.torch_module import TorchModule

    network = TorchModule(torch.nn.Linear(4, 1)).rows("a", simulated_data(0), ())
    question = KernelSums(np.zeros((1, 4)), 1.0, (), np.zeros(0), np.ones(1))
    with pytest.raises(ValueError, match=r"Client 'a'.*kernel"):
        network.report(Point(np.zeros(5), extras=(question,)))


def test_losses_by_label_are_the_mean_losses_under_either_label():
    data = simulated_data(6)
    client = linear_rows("a", data, RATES)
    params = np.random.default_rng(0).standard_normal(5)
    report = client.report(Point(params, extras=(LossesByLabel(),)))
    logits, members = data.X @ params[:-1] + params[-1], rate_members(data, RATES)
    for label in (0, 1):
        losses = -np.log(expit(logits if label else -logits))
        expected = losses @ members / members.sum(axis=0)
        np.testing.assert_allclose(report.extras["set_losses"][label], expected, rtol=1e-10)
    assert report.nbytes == client.report(Point(params)).nbytes + 8 * 2 * len(RATES)
