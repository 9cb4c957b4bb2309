import numpy as np
import pytest

from fcfl._types import Point
from fcfl.client.counts import count_rows, pool_counts
from fcfl.data.client_data import ClientData
from fcfl.models.linear import linear_logits
from fcfl.models.linear_rows import linear_rows
from helpers import TWO_ATTRIBUTES, all_rates, simulated_data

RATES = all_rates(TWO_ATTRIBUTES)


def counted(seed, n_rows=60):
    data = simulated_data(seed, n_rows=n_rows, levels=TWO_ATTRIBUTES)
    params = np.random.default_rng(seed).standard_normal(data.n_features + 1)
    logits = linear_logits(data.X, params)
    return data, params, logits, count_rows(logits, data, RATES, 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_a_count_by_hand(seed):
    data, _, logits, counts = counted(seed)
    decided = [1 if z >= 0 else 0 for z in logits]
    pairs = list(zip(data.y.astype(int), decided, strict=True))
    assert counts.true_negative == pairs.count((0, 0))
    assert counts.false_positive == pairs.count((0, 1))
    assert counts.false_negative == pairs.count((1, 0))
    assert counts.true_positive == pairs.count((1, 1))
    assert counts.n_rows == data.n_rows
    for column, rate in enumerate(RATES):
        code = data.levels[rate.attribute].index(rate.group)
        labels = {"selection": (0, 1), "true_positive": (1,), "false_positive": (0,)}[rate.kind]
        inside = [
            d
            for (y, d), g in zip(pairs, data.groups[rate.attribute], strict=True)
            if g == code and y in labels
        ]
        assert counts.group_counts[column] == len(inside)
        assert counts.group_selected[column] == sum(inside)


@pytest.mark.parametrize("seed", range(3))
def test_the_summed_loss_is_that_of_the_training_report(seed):
    data, params, _, counts = counted(seed)
    report = linear_rows("a", data, RATES).report(Point(params))
    assert counts.loss_sum / counts.n_rows == pytest.approx(report.loss, rel=1e-13)
    np.testing.assert_array_equal(counts.group_counts, report.group_counts)


def test_the_kinds_of_a_group_add_up():
    *_, counts = counted(1)
    for attribute, groups in TWO_ATTRIBUTES.items():
        for group in groups:
            places = {
                r.kind: q
                for q, r in enumerate(RATES)
                if (r.attribute, r.group) == (attribute, group)
            }
            for part in (counts.group_counts, counts.group_selected):
                whole = part[places["selection"]]
                assert whole == part[places["true_positive"]] + part[places["false_positive"]]


def test_pooled_counts_are_the_counts_of_the_pooled_rows():
    parts = [counted(seed, n_rows=40 + seed) for seed in range(3)]
    pooled = pool_counts(part[3] for part in parts)
    datas = [part[0] for part in parts]
    together = ClientData(
        np.concatenate([d.X for d in datas]),
        np.concatenate([d.y for d in datas]),
        {k: np.concatenate([d.groups[k] for d in datas]) for k in TWO_ATTRIBUTES},
        TWO_ATTRIBUTES,
    )
    whole = count_rows(np.concatenate([part[2] for part in parts]), together, RATES, 0.0)
    for part in ("true_negative", "false_positive", "false_negative", "true_positive", "n_rows"):
        assert getattr(pooled, part) == getattr(whole, part)
    assert pooled.loss_sum == pytest.approx(whole.loss_sum, rel=1e-13)
    np.testing.assert_array_equal(pooled.group_counts, whole.group_counts)
    np.testing.assert_array_equal(pooled.group_selected, whole.group_selected)
