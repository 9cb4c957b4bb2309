"""Products of rows in every form, against the same in plain arrays."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse

from fcfl._types import CurvatureWeights, Point
from fcfl.data import Category, ClientData, Number, Schema
from fcfl.data.client_data import CodedFeatures
from fcfl.models.kernels import n_threads, run_all
from fcfl.models.linear_rows import (
    RowProducts,
    compact,
    linear_rows,
    merge_rows,
)
from helpers import TWO_ATTRIBUTES, all_rates

RATES = all_rates({**TWO_ATTRIBUTES, "absent": ("nobody", "everybody")})


def table(seed, n_rows):
    """Rows of a table with numbers and categories, empty cells and levels never seen before."""
    rng = np.random.default_rng(seed)
    columns, cells = [], []
    for j in range(rng.integers(2, 6)):
        if rng.random() < 0.4:
            columns.append(Number(f"n{j}", rng.normal(), 1 + rng.random(), bool(seed % 2)))
            numbers = rng.normal(size=n_rows).round(rng.integers(0, 5))
            numbers[rng.random(n_rows) < 0.1] = np.nan
            cells.append(numbers)
        else:
            width = rng.integers(2, 30)
            columns.append(Category(f"c{j}", tuple(map(str, range(width))), bool(seed % 2)))
            cells.append(rng.integers(-1, width, n_rows).astype(np.int32))
    columns.append(Category("wide", tuple(map(str, range(25)))))
    cells.append(rng.integers(-1, 25, n_rows).astype(np.int32))
    return Schema(tuple(columns)).encode(cells, n_rows)


def client_data(seed, n_rows, X=None):
    rng = np.random.default_rng([seed, 1])
    X = table(seed, n_rows) if X is None else X
    levels = {**TWO_ATTRIBUTES, "absent": ("nobody", "everybody")}
    groups = {name: rng.integers(-1, len(names), n_rows) for name, names in levels.items()}
    groups["absent"] = np.where(groups["absent"] == 0, 1, groups["absent"])  # a group of no rows
    weights = 3 * rng.random(n_rows) if seed % 3 == 0 else None
    return ClientData(X, rng.integers(0, 2, n_rows), groups, levels, weights)


def reports_of(data, seed):
    rows = linear_rows("a", data, RATES)
    rng = np.random.default_rng([seed, 2])
    params = 0.3 * rng.standard_normal(data.n_features + 1)
    weights = CurvatureWeights(rng.random(), rng.standard_normal(len(RATES)))
    return rows.report(Point(params, "curvature", {"a": weights}))


def parts(report):
    return [report.n_rows, report.loss, report.group_counts, report.rates, report.loss_grad,
            report.rate_grads, report.curvature]  # fmt: skip


@pytest.mark.parametrize("n_rows", [1, 5, 60, 3_000, 20_000])
@pytest.mark.parametrize("seed", range(6))
def test_codes_sparse_and_dense_rows_give_the_same_report(seed, n_rows):
    X = table(seed, n_rows)
    assert isinstance(X, CodedFeatures)
    coded = reports_of(client_data(seed, n_rows, X), seed)
    dense = reports_of(client_data(seed, n_rows, X.toarray()), seed)
    thin = reports_of(client_data(seed, n_rows, X.tocsr()), seed)
    for ours, one, other in zip(parts(coded), parts(dense), parts(thin), strict=True):
        np.testing.assert_allclose(ours, one, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(ours, other, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("form", ["codes", "sparse", "dense"])
@pytest.mark.parametrize("n_rows", [1, 2_500, 70_000])
def test_products_are_those_of_the_plain_array(form, n_rows):
    X = table(3, n_rows)
    plain = np.column_stack([X.toarray(), np.ones(n_rows)])
    rows = {"codes": X, "sparse": X.tocsr(), "dense": X.toarray()}[form]
    products = RowProducts(rows)
    covered = np.concatenate([np.arange(n_rows)[block] for block in products.blocks])
    np.testing.assert_array_equal(covered, np.arange(n_rows))
    rng = np.random.default_rng(0)
    params, residuals = rng.standard_normal(plain.shape[1]), rng.standard_normal((n_rows, 3))
    diagonal = rng.standard_normal(n_rows)
    logits, gradients = products.all_logits(params), products.pull_back_all(residuals)
    np.testing.assert_allclose(logits, plain @ params, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradients, residuals.T @ plain, rtol=1e-10, atol=1e-10)
    gramian = products.gramian(diagonal)
    np.testing.assert_allclose(gramian, plain.T @ (diagonal[:, None] * plain), atol=1e-10)
    np.testing.assert_allclose(gramian, gramian.T, atol=1e-12)


@pytest.mark.parametrize("n_rows", [5_000, 100_000])
def test_a_report_has_the_same_bits_for_any_number_of_threads(n_rows, monkeypatch):
    data = client_data(4, n_rows)
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("FCFL_NUM_THREADS", threads)
        assert n_threads() == int(threads)
        found.append(reports_of(data, 4))
    for report in found[1:]:
        for one, other in zip(parts(found[0]), parts(report), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("given", "expected"), [("3", 3), ("0", 2), ("many", 2), ("", 2)])
def test_threads_follow_our_variable_and_then_the_usual_one(given, expected, monkeypatch):
    monkeypatch.setenv("FCFL_NUM_THREADS", given)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert n_threads() == expected
    monkeypatch.setenv("FCFL_NUM_THREADS", "")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert n_threads() >= 1


@pytest.mark.parametrize("threads", ["1", "4"])
def test_every_task_is_done_once_and_its_error_is_told(threads, monkeypatch):
    monkeypatch.setenv("FCFL_NUM_THREADS", threads)
    done = []
    run_all(done.append, range(100))
    assert sorted(done) == list(range(100))

    def fail(task):
        if task == 7:
            raise ValueError("task 7 fails")

    with pytest.raises(ValueError, match="task 7 fails"):
        run_all(fail, range(10))


def test_clients_asked_from_several_threads_answer_as_if_alone(monkeypatch):
    monkeypatch.setenv("FCFL_NUM_THREADS", "2")
    data = client_data(4, 9_000)
    alone = reports_of(data, 4)
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda _: reports_of(data, 4), range(6)))
    for report in together:
        np.testing.assert_array_equal(report.curvature, alone.curvature)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(monkeypatch):
    monkeypatch.setenv("FCFL_NUM_THREADS", "2")
    run_all(lambda _: None, range(4))
    child = os.fork()
    if child == 0:
        run_all(lambda _: None, range(4))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_one_hot_rows_become_codes_whatever_holds_them():
    X = table(4, 200)
    assert isinstance(compact(X.tocsr()), CodedFeatures)
    assert isinstance(compact(X.toarray()), CodedFeatures)
    plain = np.random.default_rng(0).standard_normal((30, 4))
    assert compact(plain) is plain
    words = sparse.csr_array((np.random.default_rng(0).random((60, 80)) < 0.1).astype(float))
    assert compact(words) is words


def test_rows_are_merged_only_where_many_are_alike():
    X = table(4, 400)
    facts = np.ones((400, 2))
    same, kept = merge_rows(X, facts)
    assert same is X and kept is facts  # nearly all are different
    few = X[np.random.default_rng(0).integers(0, 50, 400)]
    merged, counts = merge_rows(few, facts)
    assert merged.shape[0] <= 50 and counts.sum() == 800
    distinct = {tuple(row) for row in few.toarray()}
    assert merged.shape[0] == len(distinct) == len({tuple(row) for row in merged.toarray()})
