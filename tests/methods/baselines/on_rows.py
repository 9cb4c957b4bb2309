"""Problems for baselines: simulated clients, with the rates and reference rows a method needs."""

import numpy as np
from benchmarks.in_process import InProcess
from scipy.optimize import minimize

from fcfl._types import Point, Request
from fcfl.data.client_data import ClientData
from fcfl.methods.method import traits_of
from fcfl.methods.registry import METHODS
from fcfl.models.linear_rows import linear_rows
from fcfl.problem import build_problem
from fcfl.rules import Difference, rates_needed
from fcfl.training.run import with_references
from helpers import RACE, simulated_clients, simulated_data, train, zeros_for

BASELINES = {n: one.method for n, one in METHODS.items() if not one.traits.enforces_budgets}
RULES = [Difference("demographic_parity", "race", 0.05)]
SHORT = {
    "mmpf": {"rounds": 60, "tolerance": 1e-12},
    "agnostic-fair": {"rounds": 12, "n_references": 8},
}


def short(name, **options):
    """A baseline that takes a dozen rounds."""
    return BASELINES[name](**{"rounds": 12, **SHORT.get(name, {}), **options})


def pose_for(method, datas, rules=RULES, *, l2=1e-2):
    """The problem as the experiment layer states it for this method, and its clients."""
    levels = next(iter(datas.values())).levels
    rates = rates_needed(rules, levels, traits_of(method).rate_kinds)
    runtime = InProcess({name: linear_rows(name, data, rates) for name, data in datas.items()})
    reports = runtime.evaluate(Request((Point(zeros_for(runtime)),)))
    problem, _ = build_problem(rules, rates, reports, l2=l2)
    n_references = traits_of(method).n_references
    if n_references:
        zero = zeros_for(runtime)
        problem = with_references(
            problem, zero, n_references, 0, lambda points: runtime.evaluate(Request(tuple(points)))
        )
    return problem, runtime


def finish(method, datas, rules=RULES, *, l2=1e-2, start=None):
    """The last state of a run, and the runtime."""
    problem, runtime = pose_for(method, datas, rules, l2=l2)
    start = zeros_for(runtime) if start is None else start
    return train(method, problem, runtime, start)[-1][0].state, runtime


def different_clients(seed, n_clients=3, **options):
    """Clients whose best models differ: each has its own direction and share of label 1."""
    datas = {}
    for k, (name, data) in enumerate(simulated_clients(seed, n_clients, **options).items()):
        rng = np.random.default_rng([seed, k, 1])
        leaning = data.X @ rng.standard_normal(data.n_features) + 2.0 * (k - 1)
        y = (leaning + rng.logistic(size=data.n_rows) > 0).astype(np.float64)
        datas[name] = ClientData(data.X, y, data.groups, data.levels)
    return datas


def losses_at(runtime, params, l2):
    """Loss of each client, L2 term included."""
    reports = runtime.evaluate(Request((Point(params),)))
    return np.array([r[0].loss for r in reports.values()]) + l2 / 2 * params @ params


def grads_at(runtime, params, l2):
    """Gradient of each of these losses."""
    reports = runtime.evaluate(Request((Point(params, "gradients"),)))
    return np.array([r[0].loss_grad for r in reports.values()]) + l2 * params


def lowest_maximum(runtime, l2):
    """The smallest worst loss of any parameters, by SLSQP in the epigraph form."""
    zero = zeros_for(runtime)
    found = minimize(
        lambda x: x[-1],
        np.append(zero, losses_at(runtime, zero, l2).max()),
        jac=lambda x: np.append(np.zeros(zero.size), 1.0),
        constraints={
            "type": "ineq",
            "fun": lambda x: x[-1] - losses_at(runtime, x[:-1], l2),
            "jac": lambda x: np.column_stack(
                [-grads_at(runtime, x[:-1], l2), np.ones(len(runtime.clients))]
            ),
        },
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.success, found.message
    return found.fun


def lowest_sum(runtime, l2, weights):
    """Minimiser of a weighted sum of the losses, by BFGS."""

    def value(x):
        return weights @ losses_at(runtime, x, l2), weights @ grads_at(runtime, x, l2)

    start = zeros_for(runtime)
    return minimize(value, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x


def odd_clients(what):
    """Clients at the edge: one of them has one label only, one group only, one row, or no group."""
    datas = simulated_clients(7, levels=RACE)
    data = simulated_data(8, n_rows=30)
    if what == "one client":
        return {"only": data}
    rows = {"one label": data.y == 1, "one group": data.groups["race"] == 0}
    if what in rows:
        return {**datas, "odd": data.take(np.flatnonzero(rows[what]))}
    if what == "one row":
        return {**datas, "odd": data.take([0])}
    nobody = {"race": np.full(data.n_rows, -1)}
    return {**datas, "odd": ClientData(data.X, data.y, nobody, data.levels)}
