"""What several tests share: simulated clients, numerical derivatives, and a bitwise comparison."""

import struct
from dataclasses import fields, is_dataclass

import numpy as np
from benchmarks.in_process import InProcess
from scipy import sparse

from fcfl._types import Point, RateId, Request
from fcfl.data.client_data import ClientData, FeatureLayout, code_cells
from fcfl.federation.loop import Progress, run
from fcfl.models.linear_rows import linear_rows
from fcfl.problem import Constraints, Row, build_problem
from fcfl.rules import Difference, rates_needed

RACE = {"race": ("black", "white")}
SYNTHETIC_RATE = RateId("selection", "objective", "l2")
TWO_ATTRIBUTES = {"race": ("black", "white", "other"), "sex": ("f", "m")}


def simulated_data(seed, n_rows=60, n_features=4, levels=None, as_sparse=False):
    """Rows with many repeats, labels that depend on features and group, and unknown groups."""
    levels = RACE if levels is None else levels
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, (n_rows, n_features)).astype(np.float64)
    X[: n_rows // 2] *= rng.standard_normal(n_features)
    groups = {}
    for name, names in levels.items():
        groups[name] = rng.integers(0, len(names), n_rows).astype(np.int32)
        groups[name][rng.random(n_rows) < 0.1] = -1
    leaning = X @ rng.standard_normal(n_features) + next(iter(groups.values()))
    y = (leaning + rng.logistic(size=n_rows) > 0.5).astype(np.float64)
    return ClientData(sparse.csr_array(X) if as_sparse else X, y, groups, levels)


def simulated_clients(seed, n_clients=3, **options):
    """Several simulated clients that differ in size and in their rows."""
    size = options.pop("n_rows", 60)
    return {
        f"client-{k}": simulated_data([seed, k], n_rows=size + 10 * k, **options)
        for k in range(n_clients)
    }


def all_rates(levels):
    """Every kind of rate of every group."""
    metrics = ("demographic_parity", "equalized_odds")
    rules = [Difference(metric, name) for name in levels for metric in metrics]
    return rates_needed(rules, levels)


def bound_rate(client, rate, bound):
    """The single row ``rate <= bound`` for a problem with one client and one rate."""
    row = Row(client, "bound", "rate", rate.attribute, rate.kind, rate.group, rate.group, bound)
    first = np.zeros(1, dtype=np.int64)
    return Constraints((row,), first, np.array([bound]), first, first, np.ones(1), 1)


def pose(datas, rules, *, l2=0.0, min_group_rows=1.0):
    """The problem the rules state over these clients, and the clients in this process."""
    levels = next(iter(datas.values())).levels
    rates = rates_needed(rules, levels)
    runtime = InProcess({name: linear_rows(name, data, rates) for name, data in datas.items()})
    zero = np.zeros(next(iter(datas.values())).n_features + 1)
    reports = runtime.evaluate(Request((Point(zero),)))
    problem, _ = build_problem(rules, rates, reports, l2=l2, min_group_rows=min_group_rows)
    return problem, runtime


def train(method, problem, runtime, params):
    """Every (progress, info) of a run, the start first with no info."""
    progress = Progress(method.init(params, problem))
    return [(progress, None), *run(method, progress, runtime)]


def zeros_for(runtime):
    """The zero parameters of a runtime's linear clients."""
    return np.zeros(next(iter(runtime.clients.values())).n_params)


def slope_along_axes(function, at, step=1e-3):
    """Five-point central differences of an array-valued function; the last axis is the parameter.

    The error is of order ``step**4``, so that float64 gives ten digits for the sharp scores too.
    """
    columns = []
    for axis in np.eye(at.size) * step:
        near = np.asarray(function(at + axis)) - np.asarray(function(at - axis))
        far = np.asarray(function(at + 2 * axis)) - np.asarray(function(at - 2 * axis))
        columns.append((8 * near - far) / (12 * step))
    return np.stack(columns, axis=-1)


def assert_derivative(claimed, function, at, relative=1e-6, step=1e-3):
    """The claimed derivative is what finite differences measure, relative to its size."""
    measured = slope_along_axes(function, at, step)
    assert claimed.shape == measured.shape
    assert np.abs(claimed - measured).max() <= relative * max(np.abs(measured).max(), 1e-3)


def identical(left, right):
    """Two values agree in every type, key order, shape and bit."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and left.tobytes() == right.tobytes()
    if is_dataclass(left):
        return all(identical(getattr(left, f.name), getattr(right, f.name)) for f in fields(left))
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(identical(left[k], right[k]) for k in left)
    if isinstance(left, float):
        both_nan = left != left and right != right  # JSON has one NaN
        return both_nan or struct.pack("d", left) == struct.pack("d", right)
    return left == right


CODED_WIDTHS = (2, 30, 1, 4, 4, 2, 3, 1, 9)


def layout_with_numbers(widths=CODED_WIDTHS):
    """A number before, between and after the coded columns."""
    firsts = np.cumsum([1, *widths[:-1]])
    firsts[3:] += 1
    n_features = int(firsts[-1] + widths[-1]) + 1
    numbers = (0, int(firsts[3]) - 1, n_features - 1)
    return FeatureLayout(n_features, tuple(int(f) for f in firsts), widths, numbers)


def coded_rows(n_rows, seed=0):
    """Rows of which a tenth have no level in each column."""
    rng = np.random.default_rng(seed)
    layout = layout_with_numbers()
    cells = [
        np.where(rng.random(n_rows) < 0.1, -1, rng.integers(0, w, n_rows)) for w in CODED_WIDTHS
    ]
    return code_cells(layout, cells, list(rng.standard_normal((3, n_rows))), n_rows)
