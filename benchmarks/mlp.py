"""Networks of about 10⁵ parameters under budgets, by `train_module`, beside linear models.

`python -m benchmarks mlp`: Adult with all features, five clients, demographic parity by sex, budget
.05. Two hidden layers of 256 units, float32 unless said otherwise, started as torch starts them,
seed 0. Lines without "rounds" set no option of the solver, the first network line not even l2.
Losses are cross-entropies without the L2 term. *smooth* is the largest violation of a budget by the
smooth rates that are trained, *hard* the largest disparity of decisions. `python -m benchmarks.mlp
tanh GELU` runs the lines that begin with these words.

Exits 1 unless every run keeps its budgets to 1e-6, every network with a smooth activation and no
option of the solver converges, and the network at l2 1e-3 has a lower worst training loss than the
linear models.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.in_process import InProcess
from fcfl import SQP, Difference
from fcfl._types import Point, Request, Vector
from fcfl.client.counts import Counts, count_rows
from fcfl.data import ClientData, FederatedTable, load_builtin
from fcfl.federation.loop import Progress, run
from fcfl.methods.method import RoundInfo
from fcfl.models.linear import linear_logits
from fcfl.models.linear_rows import linear_rows
from fcfl.models.torch_module import BATCH_ROWS
from fcfl.models.torch_rows import as_network
from fcfl.problem import build_problem
from fcfl.rules import rates_needed
from fcfl.torch import TorchClient, train_module

WIDTH = 256
ACTIVATIONS = {"SiLU": nn.SiLU, "GELU": nn.GELU, "tanh": nn.Tanh, "ReLU": nn.ReLU}


@dataclass(frozen=True)
class Case:
    """One line of the table; None is the default of `train_module`."""

    model: str
    words: str = ""
    data: str = "adult-5"
    l2: float | None = None
    method: SQP | None = None
    seed: int = 0
    double: bool = False

    @property
    def name(self) -> str:
        """What the line says."""
        return f"{self.model}{', ' if self.words else ''}{self.words}"

    @property
    def is_promised(self) -> bool:
        """Whether it must converge: a smooth network, no option of the solver given."""
        return self.model not in ("linear", "ReLU") and self.method is None


TILT = SQP(objective=0.1, rounds=(300, 0))
CASES = [
    Case("linear", "l2 1e-5", l2=1e-5),
    Case("linear", "l2 1e-3", l2=1e-3),
    Case("linear", "l2 1e-2", l2=1e-2),
    Case("SiLU"),
    Case("SiLU", "l2 1e-2", l2=1e-2),
    Case("SiLU", "l2 1e-2, seed 1", l2=1e-2, seed=1),
    Case("GELU", "l2 1e-2", l2=1e-2),
    Case("tanh", "l2 1e-2", l2=1e-2),
    Case("SiLU", "l2 1e-2, float64", l2=1e-2, double=True),
    Case("SiLU", "l2 1e-2, phd, race", data="adult", l2=1e-2),
    Case("ReLU", "l2 1e-2, 300 rounds", l2=1e-2, method=SQP(rounds=(200, 100))),
    Case("SiLU", "l2 1e-3, .1, 300 rounds", l2=1e-3, method=TILT),
]


def network(case: Case, n_features: int) -> nn.Module:
    """The module of a line, started as torch starts it."""
    torch.manual_seed(case.seed)
    bend = ACTIVATIONS[case.model]
    module = nn.Sequential(
        nn.Linear(n_features, WIDTH), bend(),
        nn.Linear(WIDTH, WIDTH), bend(),
        nn.Linear(WIDTH, 1),
    )  # fmt: skip
    return module.double() if case.double else module


Found = tuple[str, tuple[int, ...], float, float, Vector]
"""Status, rounds, KKT residual, largest violation, parameters."""


def solve_network(
    case: Case, module: nn.Module, federation: FederatedTable, rules: list[Difference]
) -> Found:
    attribute = rules[0].attribute
    clients = {
        name: TorchClient(module, data.X, data.y, names_of(data, attribute))
        for name, data in federation.train.items()
    }

    def show(info: RoundInfo) -> None:
        if info.round % 10 == 0:
            print(f"\r  {case.name}: round {info.round}, worst loss {info.worst_loss:.4f} ",
                  end="", file=sys.stderr, flush=True)  # fmt: skip

    given = {} if case.l2 is None else {"l2": case.l2}
    end = train_module(module, clients, rules, method=case.method, on_round=show, **given)
    assert end.kkt is not None
    return end.status, end.rounds, end.kkt, end.largest_violation, end.params


def solve_linear(case: Case, federation: FederatedTable, rules: list[Difference]) -> Found:
    rates = rates_needed(rules, federation.levels)
    datas = federation.train
    runtime = InProcess({name: linear_rows(name, data, rates) for name, data in datas.items()})
    start = np.zeros(federation.schema.n_features + 1)
    counted = runtime.evaluate(Request((Point(start),)))
    problem, _ = build_problem(rules, rates, counted, l2=case.l2 or 0.0)
    method = SQP()
    state = method.init(start, problem)
    violation = np.inf
    for progress, info in run(method, Progress(state), runtime):
        state, violation = progress.state, info.largest_violation
    return state.status, state.rounds, state.kkt, violation, state.params


def solve(case: Case, federation: FederatedTable) -> dict[str, Any]:
    """Train, and measure on training and on test rows."""
    rules = [Difference("demographic_parity", "race" if case.data == "adult" else "sex", 0.05)]
    began = time.perf_counter()
    if case.model == "linear":
        end, logits = solve_linear(case, federation, rules), linear_logits
    else:
        module = network(case, federation.schema.n_features)
        end = solve_network(case, module, federation, rules)
        net = as_network(module)

        def logits(X: Any, params: Vector) -> Vector:
            return net.logits(params, X, BATCH_ROWS)

    found: dict[str, Any] = dict(
        zip(("status", "rounds", "kkt", "smooth", "params"), end, strict=True)
    )
    found["seconds"] = time.perf_counter() - began
    rates = rates_needed(rules, federation.levels)
    for part, datas in (("train", federation.train), ("test", federation.test)):
        counts = [count_rows(logits(d.X, found["params"]), d, rates, 0.0) for d in datas.values()]
        found[part] = (list(losses(counts)), max(disparities(counts)))
    return found


def names_of(data: ClientData, attribute: str) -> dict[str, Any]:
    return {attribute: np.array([*data.levels[attribute], None])[data.groups[attribute]]}


def losses(counts: list[Counts]) -> Iterator[float]:
    return (c.loss_sum / c.n_rows for c in counts)


def disparities(counts: list[Counts]) -> Iterator[float]:
    return (float(np.ptp(c.group_selected / c.group_counts)) for c in counts)


def main(wanted: list[str] | None = None) -> int:
    torch.set_num_threads(1)
    print(f"{'model':32}{'parameters':>11}{'rounds':>11}{'status':>11}{'KKT':>9}"
          f"{'smooth':>9}{'train worst':>13}{'mean':>7}{'hard':>7}{'test worst':>12}{'mean':>7}"
          f"{'hard':>7}{'seconds':>9}")  # fmt: skip
    done = {}
    for case in CASES:
        if wanted and not any(case.name.startswith(word) for word in wanted):
            continue
        found = done[case] = solve(case, load_builtin(case.data))
        (train, train_hard), (test, test_hard) = found["train"], found["test"]
        rounds = " + ".join(map(str, found["rounds"]))
        print(f"\r{case.name:32}{found['params'].size:11,}{rounds:>11}{found['status']:>11}"
              f"{found['kkt']:9.0e}{found['smooth']:9.0e}"
              f"{max(train):13.4f}{np.mean(train):7.3f}{train_hard:7.3f}"
              f"{max(test):12.4f}{np.mean(test):7.3f}{test_hard:7.3f}{found['seconds']:9.0f}",
              flush=True)  # fmt: skip
    return int(not claim(done))


def claim(done: dict[Case, dict[str, Any]]) -> bool:
    linear = min((max(found["train"][0]) for case, found in done.items() if case.model == "linear"),
                 default=np.inf)  # fmt: skip
    claims = {
        "budgets kept to 1e-6 by every run": all(
            found["smooth"] <= 1e-6 for found in done.values()
        ),
        "smooth networks converge without an option of the solver": all(
            found["status"] == "converged" for case, found in done.items() if case.is_promised
        ),
        "networks at l2 1e-3 have a lower worst training loss than every linear model": all(
            max(found["train"][0]) < linear
            for case, found in done.items()
            if case.model != "linear" and case.l2 == 1e-3
        ),
    }
    for sentence, holds in claims.items():
        print(f"claim ({sentence}): {'holds' if holds else 'DOES NOT HOLD'}")
    return all(claims.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
