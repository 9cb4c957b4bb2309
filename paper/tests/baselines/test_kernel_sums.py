import numpy as np
import pytest

from fcfl._types import Point
from fcfl.models.linear_rows import linear_rows
from fcfl.models.model import rate_members
from fcfl_paper.baselines.questions import KernelSums, gaussian_kernel
from helpers import RACE, all_rates, assert_derivative, simulated_data

RATES = all_rates(RACE)
SETS = (0, 1)


def ask(seed=0, n_points=4, bandwidth=1.5):
    rng = np.random.default_rng(seed)
    return KernelSums(
        references=rng.standard_normal((n_points, 4)),
        bandwidth=bandwidth,
        sets=SETS,
        centres=np.array([0.3, 0.6]),
        weights=rng.random(n_points),
    )


@pytest.mark.parametrize("as_sparse", [False, True])
def test_the_kernel_is_gaussian(as_sparse):
    data = simulated_data(0, as_sparse=as_sparse)
    references = np.random.default_rng(0).standard_normal((3, 4))
    X = data.X.toarray() if as_sparse else data.X
    distances = np.linalg.norm(X[:, None, :] - references, axis=2)
    expected = np.exp(-(distances**2) / (2 * 0.7**2))
    np.testing.assert_allclose(gaussian_kernel(data.X, references, 0.7), expected, rtol=1e-9)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_sums_over_merged_rows_are_those_over_all_rows(as_sparse):
    data = simulated_data(1, as_sparse=as_sparse)
    client = linear_rows("a", data, RATES)
    params, question = np.random.default_rng(1).standard_normal(5), ask()
    sums = client.report(Point(params, extras=(question,))).extras["kernel_sums"]
    X = data.X.toarray() if as_sparse else data.X
    logits = X @ params[:-1] + params[-1]
    kernel = gaussian_kernel(X, question.references, question.bandwidth)
    losses = np.logaddexp(0, logits) - data.y * logits
    members = rate_members(data, RATES)[:, list(SETS)]
    expected = [losses @ kernel, kernel.sum(axis=0)]
    expected += [((members[:, s] - question.centres[s]) * logits) @ kernel for s in range(2)]
    np.testing.assert_allclose(sums, expected, rtol=1e-9)


def test_the_gradients_are_those_of_the_weighted_sums():
    client = linear_rows("a", simulated_data(2), RATES)
    question = ask(2)
    at = np.random.default_rng(2).standard_normal(5)

    def weighted(params):
        sums = client.report(Point(params, extras=(question,))).extras["kernel_sums"]
        return sums[[0, 2, 3]] @ question.weights

    report = client.report(Point(at, "gradients", extras=(question,)))
    assert_derivative(report.extras["kernel_grads"], weighted, at)


def test_gradients_are_sent_only_when_wanted():
    client = linear_rows("a", simulated_data(3), RATES)
    question = ask(3)
    values = client.report(Point(np.zeros(5), extras=(question,)))
    assert list(values.extras) == ["kernel_sums"]
    plain = client.report(Point(np.zeros(5)))
    assert values.nbytes == plain.nbytes + 8 * 4 * 4


def test_references_of_another_width_are_refused():
    with pytest.raises(
        ValueError, match=r"`references` must have 4 columns, as the rows have, got 3"
    ):
        gaussian_kernel(np.zeros((2, 4)), np.zeros((5, 3)), 1.0)
