"""How many rounds the fast method takes, on five problems and on fifty-one others.

`python -m benchmarks.round_counts`: for each problem the rounds of both stages, the points that
each client evaluated (values, gradients, curvatures), the KKT residual, the largest violation, the
worst and the mean loss at the end. ``--only TEXT`` takes the problems whose name has the text,
``--quick`` a tenth of the large table (with nine groups that is another, harder problem, one of the
others), ``--drawn SEED`` thirty others drawn by that seed and nothing else; ``--json FILE`` keeps
the numbers, and ``--against FILE`` shows the losses' differences to numbers kept before;
``--referee`` how much SciPy's SLSQP, begun at the end, lowers the worst loss (up to 150 parameters,
seconds each). ``--warm`` continues each run under bounds a tenth tighter. ``--options`` are those
of the method, as Python writes them.

Exits 1 unless all converge, the five within 25 rounds and the thirty drawn ones within 40. Of the
twenty-one others, chosen because they are hard, it tells how many take more.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from benchmarks.in_process import InProcess
from fcfl import SQP, Difference
from fcfl._types import Point, Request, Vector
from fcfl.data import adult, adult_5
from fcfl.data.client_data import ClientData
from fcfl.federation.loop import Progress, run
from fcfl.models.linear_rows import linear_rows
from fcfl.problem import Evaluation, Problem, build_problem, evaluate_point
from fcfl.rules import Rule, rates_needed

DP, EO, ODDS = "demographic_parity", "equal_opportunity", "equalized_odds"
MOST, MOST_OTHERS = 25, 40
SLSQP_PARAMS = 150
DRAWN = 2026  # the seed of the thirty other settings

Posed = tuple[Problem, InProcess]


@dataclass(frozen=True)
class Setting:
    """A problem by name, how it is made, and the most rounds it may take.

    Those that were chosen because they are hard are counted, but nothing is claimed of them.
    """

    name: str
    make: Callable[[], Posed]
    most: int
    is_claimed: bool = True


def pose(datas: dict[str, ClientData], rules: list[Rule], l2: float, min_rows: float) -> Posed:
    """The problem over these rows, and the clients that hold them."""
    levels = next(iter(datas.values())).levels
    rates = rates_needed(rules, levels)
    runtime = InProcess({c: linear_rows(c, d, rates) for c, d in datas.items()})
    zero = np.zeros(next(iter(datas.values())).n_features + 1)
    counted = runtime.evaluate(Request((Point(zero),)))
    problem, _ = build_problem(rules, rates, counted, l2=l2, min_group_rows=min_rows)
    return problem, runtime


def simulated_table(
    n_rows: int, n_levels: int, n_clients: int, n_groups: int, seed: int = 0
) -> dict[str, ClientData]:
    """Ten coded columns, unequal clients and groups; labels lean on all of them."""
    rng = np.random.default_rng(seed)
    shares = np.array([0.0025, 0.005, 0.01, 0.02, 0.0375, 0.0625, 0.1, 0.15, 0.2, 0.4125])
    sizes = np.maximum(np.round(shares * n_levels).astype(int), 2)
    client = rng.choice(n_clients, n_rows, p=rng.dirichlet(np.full(n_clients, 2.0)))
    group = _codes(rng, n_groups, n_rows, 0.7)
    logit = 0.6 * rng.standard_normal(n_clients)[client] - 0.8
    logit += 0.5 * rng.standard_normal(n_groups)[group]
    blocks = []
    for size in sizes:
        codes = _codes(rng, size, n_rows, 1.0)
        # A third of the rows have a level that goes with their group: columns tell of it.
        tied = rng.random(n_rows) < 1 / 3
        codes[tied] = (group[tied] * 7 + codes[tied]) % size
        logit += 0.5 * rng.standard_normal(size)[codes]
        one_hot = (np.ones(n_rows), (np.arange(n_rows), codes))
        blocks.append(sparse.csr_array(one_hot, shape=(n_rows, size)))
    X = sparse.csr_array(sparse.hstack(blocks, format="csr"))
    y = (logit + rng.logistic(size=n_rows) > 0).astype(np.float64)
    levels = {"group": tuple(f"g{i}" for i in range(n_groups))}
    rows = [np.flatnonzero(client == k) for k in range(n_clients)]
    return {
        f"client-{k:02d}": ClientData(X[r], y[r], {"group": group[r].astype(np.int32)}, levels)
        for k, r in enumerate(rows)
        if np.unique(y[r]).size == 2
    }


def _codes(rng: np.random.Generator, size: int, n_rows: int, power: float) -> Any:
    """Codes whose frequencies fall by a power law."""
    weights = 1.0 / np.arange(1, size + 1) ** power
    return rng.choice(size, n_rows, p=weights / weights.sum())


def drawn(seed: int) -> Iterator[Setting]:
    """Thirty settings drawn by a seed."""
    rng = np.random.default_rng(seed)
    for number in range(30):
        yield _drawn(number, rng)


def settings(quick: bool) -> Iterator[Setting]:
    """The five, the thirty drawn by seed, twenty with tight bounds, and nine small groups.

    The large table has 35 clients, with two groups and with nine. A tenth of its rows has groups of
    fifty, whose smooth rates bend far more: it is not one of the five.
    """
    large = 100_000 if quick else 1_000_000
    five: dict[str, Callable[[], Posed]] = {
        "adult race .05": lambda: on_adult("race", "phd", DP, 0.05, 1e-3),
        "adult-5 sex .05": lambda: on_adult_5("sex", 5, 0, DP, 0.05, 1e-3),
        "occupations sex .05": lambda: on_adult("sex", "occupation", DP, 0.05, 1e-3),
        f"{large} rows .05": lambda: on_simulated(large, 800, 35, 2, 0, DP, 0.05, 1e-3, 1),
    }
    if not quick:
        five["nine groups .05"] = lambda: on_simulated(large, 800, 35, 9, 0, DP, 0.05, 1e-3, 50)
    for name, make in five.items():
        yield Setting(name, make, MOST)
    rng = np.random.default_rng(DRAWN)
    for number in range(30):
        yield _drawn(number, rng)
    bounds = np.geomspace(0.005, 0.02, 20).round(4)
    for seed, bound in enumerate(rng.permutation(bounds)):
        yield Setting(
            f"tight {seed}: adult-5 sex {bound:g}",
            lambda seed=seed, bound=bound: on_adult_5(  # type: ignore[misc]
                "sex", 5, seed, DP, float(bound), 1e-3
            ),
            MOST_OTHERS,
            is_claimed=False,
        )
    yield Setting(
        "nine groups of 100000 rows .05",
        lambda: on_simulated(100_000, 260, 35, 9, 0, DP, 0.05, 1e-3, 50),
        MOST_OTHERS,
        is_claimed=False,
    )


def _drawn(number: int, rng: np.random.Generator) -> Setting:
    """One of the thirty: where the rows are from, metric, budget, l2, sizes and seed."""
    kind = str(rng.choice(["adult", "occupations", "adult-5", "adult-5", "simulated", "simulated"]))
    attribute = str(rng.choice(["race", "sex"]))
    metric = str(rng.choice([DP, DP, EO, ODDS]))
    budget = float(rng.choice([0.01, 0.02, 0.05, 0.1]))
    l2 = float(rng.choice([1e-4, 1e-3, 1e-2]))
    n_clients, seed = int(rng.integers(2, 21)), int(rng.integers(1, 1000))
    n_rows, n_levels = int(rng.choice([5_000, 20_000, 60_000])), int(rng.choice([40, 100, 200]))
    n_groups = int(rng.choice([2, 3, 5]))
    if kind == "adult":
        what, make = attribute, lambda: on_adult(attribute, "phd", metric, budget, l2)
    elif kind == "occupations":
        what, make = attribute, lambda: on_adult(attribute, "occupation", metric, budget, l2)
    elif kind == "adult-5":
        n_clients = 3 + n_clients % 8
        what = f"{attribute}, {n_clients} clients, seed {seed}"
        make = lambda: on_adult_5(attribute, n_clients, seed, metric, budget, l2)  # noqa: E731
    else:
        what = f"{n_rows} rows, {n_levels} levels, {n_clients} clients, {n_groups} groups"
        make = lambda: on_simulated(  # noqa: E731
            n_rows, n_levels, n_clients, n_groups, seed, metric, budget, l2, 50
        )
    short = {DP: "DP", EO: "EO", ODDS: "odds"}[metric]
    return Setting(f"{number}: {kind} {what}, {short} {budget:g}, l2 {l2:g}", make, MOST_OTHERS)


def on_adult(attribute: str, clients: str, metric: Any, budget: float, l2: float) -> Posed:
    table = adult((attribute,), clients)
    return pose(dict(table.train), [Difference(metric, attribute, budget)], l2, 1)


def on_adult_5(
    attribute: str, n_clients: int, seed: int, metric: Any, budget: float, l2: float
) -> Posed:
    table = adult_5((attribute,), n_clients, seed=seed)
    return pose(dict(table.train), [Difference(metric, attribute, budget)], l2, 20)


def on_simulated(
    n_rows: int,
    n_levels: int,
    n_clients: int,
    n_groups: int,
    seed: int,
    metric: Any,
    budget: float,
    l2: float,
    min_rows: float,
) -> Posed:
    datas = simulated_table(n_rows, n_levels, n_clients, n_groups, seed)
    return pose(datas, [Difference(metric, "group", budget)], l2, min_rows)


@dataclass(frozen=True)
class Counted:
    """What one run took and where it ended."""

    name: str
    most: int
    status: str
    rounds: tuple[int, int]
    evaluations: tuple[int, int, int]
    kkt: float
    violation: float
    worst: float
    mean: float
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether it converged within the rounds it may take."""
        return self.status == "converged" and sum(self.rounds) <= self.most


def count(
    setting: Setting, method: SQP, posed: Posed, start: Vector | None = None
) -> tuple[Counted, Any]:
    """One run from ``start``, by default zero, and its last state."""
    problem, runtime = posed
    n_params = next(iter(runtime.clients.values())).n_params  # type: ignore[attr-defined]
    began = time.perf_counter()
    first = Progress(method.init(np.zeros(n_params) if start is None else start, problem))
    *_, (progress, _) = run(method, first, runtime)
    seconds, state, tally = time.perf_counter() - began, progress.state, progress.tally
    at = evaluated(posed, state.params)
    counted = Counted(
        setting.name,
        setting.most,
        state.status,
        state.rounds,
        (tally.values, tally.gradients, tally.curvatures),
        state.kkt,
        at.largest_violation,
        float(at.losses.max()),
        float(at.losses.mean()),
        seconds,
    )
    return counted, state


def evaluated(posed: Posed, params: Vector) -> Evaluation:
    """All losses, violations and gradients at ``params``."""
    reports = posed[1].evaluate(Request((Point(params, "gradients"),)))
    return evaluate_point(posed[0], params, reports)


def lowered_by_slsqp(posed: Posed, start: Vector) -> float:
    """By how much SLSQP, begun at ``start``, lowers the worst loss within the budgets."""
    known: dict[bytes, Evaluation] = {}
    every, n = np.arange(len(posed[0].constraints)), start.size

    def at(x: Vector) -> Evaluation:
        key = x[:n].tobytes()
        if key not in known:
            known.clear()
            known[key] = evaluated(posed, x[:n])
        return known[key]

    def slack_grad(x: Vector) -> Vector:
        losses, rows = at(x).loss_grads, at(x).violation_grads(every)
        level = np.append(np.ones(len(losses)), np.zeros(len(rows)))
        return np.hstack([-np.vstack([losses, rows]), level[:, None]])

    first = float(at(start).losses.max())
    found = minimize(
        lambda x: x[n],
        np.append(start, first),
        jac=lambda _: np.eye(n + 1)[n],
        constraints={
            "type": "ineq",
            "fun": lambda x: np.append(x[n] - at(x).losses, -at(x).violations),
            "jac": slack_grad,
        },
        method="SLSQP",
        options={"maxiter": 50, "ftol": 1e-9},
    )
    end = at(found.x)
    is_inside = end.largest_violation <= 1e-6
    return first - float(end.losses.max()) if is_inside else float("nan")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.round_counts", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--drawn", type=int, metavar="SEED")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--referee", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--against", type=Path, metavar="FILE")
    parser.add_argument("--options", default="", metavar="NAME=VALUE,…")
    chosen = parser.parse_args()
    method = eval(f"SQP({chosen.options})", {"SQP": SQP})
    before = json.loads(chosen.against.read_text()) if chosen.against else {}
    print(f"{'problem':62}{'rounds':>9}{'val':>5}{'grad':>5}{'curv':>5}{'KKT':>9}{'viol.':>9}"
          f"{'worst':>9}{'mean':>9}{'s':>7}")  # fmt: skip
    kept: dict[str, Any] = {}
    all_hold, n_hard, n_above = True, 0, 0
    chosen_settings = settings(chosen.quick) if chosen.drawn is None else drawn(chosen.drawn)
    for setting in chosen_settings:
        if chosen.only not in setting.name:
            continue
        posed = setting.make()
        counted, state = count(setting, method, posed)
        all_hold &= counted.holds if setting.is_claimed else counted.status == "converged"
        n_hard += not setting.is_claimed
        n_above += not (setting.is_claimed or counted.holds)
        kept[setting.name] = counted.__dict__
        print(_line(counted) + _difference(counted, before.get(setting.name)), flush=True)
        if chosen.referee and state.params.size <= SLSQP_PARAMS:
            print(f"    SLSQP lowers the worst loss by {lowered_by_slsqp(posed, state.params):.1e}")
        if chosen.warm:
            problem = posed[0]
            bounds = 0.9 * problem.constraints.bounds
            tighter = replace(problem, constraints=replace(problem.constraints, bounds=bounds))
            again, _ = count(setting, method, (tighter, posed[1]), state.params)
            print(_line(replace(again, name="    bounds a tenth tighter, from there")), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if n_hard:
        print(f"of the {n_hard} hard ones, {n_above} take more than {MOST_OTHERS} rounds")
    print(f"claim (all converge, the {'four' if chosen.quick else 'five'} within 25 rounds, "
          "the drawn ones within 40): "
          f"{'holds' if all_hold else 'DOES NOT HOLD'}")  # fmt: skip
    return int(not all_hold)


def _line(counted: Counted) -> str:
    rounds = " + ".join(map(str, counted.rounds))
    values, gradients, curvatures = counted.evaluations
    mark = "" if counted.holds else "  " + counted.status + " *"
    return (
        f"{counted.name[:61]:62}{rounds:>9}{values:5}{gradients:5}{curvatures:5}"
        f"{counted.kkt:9.0e}{counted.violation:9.0e}{counted.worst:9.5f}{counted.mean:9.5f}"
        f"{counted.seconds:7.2f}{mark}"
    )


def _difference(counted: Counted, before: Any) -> str:
    if before is None:
        return ""
    rounds = " + ".join(map(str, before["rounds"]))
    worst, mean = counted.worst - before["worst"], counted.mean - before["mean"]
    return f"  before {rounds}, {before['status']}; worst {worst:+.1e}, mean {mean:+.1e}"


if __name__ == "__main__":
    sys.exit(main())
