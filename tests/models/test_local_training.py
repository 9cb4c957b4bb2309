from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl._types import Point
from fcfl.data.client_data import ClientData
from fcfl.extras import (
    MIN_BATCH_ROWS,
    LocalTraining,
    split_batches,
    train_locally,
)
from fcfl.models.linear_rows import linear_rows
from helpers import RACE, all_rates, simulated_data

RATES = all_rates(RACE)


def local_params(client, start, **options):
    options = {"epochs": 1, "step_size": 0.3, **options}
    return client.report(Point(start, extras=(LocalTraining(**options),))).extras["local_params"]


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("epochs", [1, 4])
def test_full_batch_epochs_are_gradient_steps(as_sparse, epochs):
    data = simulated_data(0, as_sparse=as_sparse)
    client = linear_rows("a", data, RATES)
    params = start = np.random.default_rng(0).standard_normal(5)
    for _ in range(epochs):
        gradient = client.report(Point(params, "gradients")).loss_grad + 0.1 * params
        params = params - 0.3 * gradient
    np.testing.assert_allclose(
        local_params(client, start, epochs=epochs, l2=0.1), params, rtol=1e-12
    )


@pytest.mark.parametrize("as_sparse", [False, True])
def test_batches_of_merged_rows_visit_every_row_once_an_epoch(as_sparse):
    """With tiny steps an epoch of batches moves as far as one full step for every batch."""
    data = simulated_data(2, n_rows=600, as_sparse=as_sparse)
    client = linear_rows("a", data, RATES)
    start = np.random.default_rng(2).standard_normal(5)
    size = 1e-7
    items = np.count_nonzero(client.positive_counts)
    items += np.count_nonzero(client.row_counts - client.positive_counts)
    assert items >= 4 * MIN_BATCH_ROWS
    moved = local_params(client, start, step_size=size, batch_rows=items // 4)
    gradient = client.report(Point(start, "gradients")).loss_grad
    # each batch is normalised by its own rows, so that four batches are four steps or so
    cosine = (start - moved) @ gradient / np.linalg.norm(start - moved) / np.linalg.norm(gradient)
    assert cosine > 0.9
    np.testing.assert_allclose(
        np.linalg.norm(start - moved) / size / np.linalg.norm(gradient), 4, rtol=0.3
    )


def test_an_epoch_of_batches_sums_to_the_whole_gradient():
    counts = np.arange(1.0, 101.0)
    seen = []

    def summed_gradient(params, items):
        seen.append(items)
        return counts[items].sum() * np.ones(1)

    training = LocalTraining(epochs=3, step_size=0.1, batch_rows=33)
    end = train_locally(np.zeros(1), training, lambda: 5, counts, summed_gradient)
    assert [len(items) for items in seen] == [34, 33, 33] * 3
    for epoch in range(3):
        assert sorted(np.concatenate(seen[3 * epoch : 3 * epoch + 3])) == list(range(100))
    np.testing.assert_allclose(end, [-0.9])  # nine steps of one tenth


@given(n_items=st.integers(1, 3000), batch_rows=st.integers(32, 4000), seed=st.integers(0, 2**256))
def test_no_batch_has_fewer_rows_than_asked_for_or_than_the_minimum(n_items, batch_rows, seed):
    batches = split_batches(n_items, batch_rows, lambda: seed)
    if len(batches) == 1:
        assert batches[0] is None and n_items < 2 * batch_rows
        return
    sizes = [batch.size for batch in batches]
    assert min(sizes) >= batch_rows >= MIN_BATCH_ROWS and np.ptp(sizes) <= 1
    assert n_items < (len(batches) + 1) * batch_rows  # as many batches as fit
    assert sorted(np.concatenate(batches)) == list(range(n_items))


def test_few_rows_are_taken_all_at_once_and_other_sizes_are_rejected():
    assert split_batches(63, 32, lambda: 0) == split_batches(500, 0, lambda: 0) == (None,)
    assert len(split_batches(64, 32, lambda: 0)) == 2
    for size in (-32, -1, 1, 31):
        with pytest.raises(ValueError, match="`batch_rows`"):
            LocalTraining(1, 0.1, batch_rows=size)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_the_split_follows_from_the_rows_and_the_number_of_batches(as_sparse):
    """Neither the server nor the client's name has a part in it."""
    data, start = simulated_data(3, n_rows=200, as_sparse=as_sparse), np.zeros(5)

    def end(name, batch_rows):
        client = linear_rows(name, data, RATES)
        return local_params(client, start, batch_rows=batch_rows, epochs=2)

    np.testing.assert_array_equal(end("a", 40), end("b", 40))
    np.testing.assert_array_equal(end("a", 40), end("a", 35))  # five batches each
    assert np.abs(end("a", 40) - end("a", 50)).max() > 1e-6
    one_label_else = replace(data, y=np.where(np.arange(200) == 7, 1 - data.y, data.y))
    seed, other = (linear_rows("a", one, RATES)._own_seed for one in (data, one_label_else))
    assert seed != other
    first, of_others, of_two = (
        split_batches(200, size, lambda own=own: own)[0]
        for size, own in ((40, seed), (40, other), (100, seed))
    )
    assert np.isin(first, of_others).mean() < 0.5 and np.isin(first, of_two).mean() < 0.9


def test_the_report_describes_the_start():
    client = linear_rows("a", simulated_data(4), RATES)
    start = np.random.default_rng(0).standard_normal(5)
    plain = client.report(Point(start, "gradients"))
    local = client.report(Point(start, "gradients", extras=(LocalTraining(2, 0.5),)))
    assert plain.loss == local.loss and np.array_equal(plain.loss_grad, local.loss_grad)
    assert not plain.extras and local.nbytes == plain.nbytes + 8 * 5


def test_no_epochs_leave_the_start_as_it_is():
    client = linear_rows("a", simulated_data(4), RATES)
    start = np.random.default_rng(0).standard_normal(5)
    np.testing.assert_array_equal(local_params(client, start, epochs=0), start)


def test_rows_with_weights_of_their_own_count_by_them():
    data = simulated_data(5)
    twice = data.take(np.concatenate([np.arange(data.n_rows), np.arange(20)]))
    weights = np.ones(data.n_rows)
    weights[:20] = 2.0
    weighted = ClientData(data.X, data.y, data.groups, data.levels, weights)
    ends = [
        local_params(linear_rows("a", d, RATES), np.zeros(5), epochs=3) for d in (twice, weighted)
    ]
    np.testing.assert_allclose(*ends, rtol=1e-12)
