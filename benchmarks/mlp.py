"""A network of 93,441 parameters under budgets, beside the linear model: full-feature Adult.

`python -m benchmarks mlp`: five clients that differ in sex, demographic parity, budget .05, at most
300 rounds, all other options at their defaults. Two hidden layers of 256 units, float32; the server
computes in float64. Losses are cross-entropies without the L2 term. *smooth* is the largest
violation of a budget by the smooth rates that are trained, *hard* the largest disparity of
decisions. The last line is the smooth network in float64 on every fifth row, run until it
converges. Exits 1 unless every run keeps its budgets to 1e-6, the networks with the
linear model's l2 have a lower worst training loss than it, and the last run converges.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fcfl import SQP, Difference
from fcfl._types import Point, Request, Vector
from fcfl.client.evaluate import Counts, count_rows
from fcfl.client.linear import linear_client, linear_logits
from fcfl.client.torch_model import BATCH_ROWS, torch_client
from fcfl.client.torch_params import as_network
from fcfl.data import ClientData, Federation, load_builtin
from fcfl.rules import rates_needed
from fcfl.runtime.in_process import InProcess
from fcfl.runtime.loop import Progress, run
from fcfl.server.problem import state_problem
from fcfl.torch import suited

RULES = [Difference("demographic_parity", "sex", 0.05)]
WIDTH = 256


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    model: str
    consistency: Any
    l2: float
    thinned: bool = False

    @property
    def name(self) -> str:
        """What the line says."""
        rows = ", 1/5" if self.thinned else ""
        return f"{self.model}, {self.consistency}, l2 {self.l2:g}{rows}"


CASES = [
    Case("linear", "max", 1e-5),
    Case("linear", "max", 1e-3),
    Case("linear", 0.1, 1e-3),
    Case("ReLU", 0.1, 1e-3),
    Case("ReLU", "max", 1e-3),
    Case("SiLU", "max", 1e-2),
    Case("SiLU", "max", 1e-2, thinned=True),
]


def network(n_features: int, activation: type[nn.Module]) -> nn.Module:
    """Two hidden layers, started as torch starts them, seed 0."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(n_features, WIDTH), activation(),
        nn.Linear(WIDTH, WIDTH), activation(),
        nn.Linear(WIDTH, 1),
    )  # fmt: skip


def solve(case: Case, federation: Federation) -> dict[str, Any]:
    """Train, and measure on training and on test rows."""
    rates = rates_needed(RULES, federation.levels)
    n_features = federation.schema.n_features
    if case.model == "linear":
        clients: dict[str, Any] = {
            c: linear_client(c, data, rates) for c, data in federation.train.items()
        }
        start, logits = np.zeros(n_features + 1), linear_logits
        method = SQP(consistency=case.consistency)
    else:
        module = network(n_features, nn.ReLU if case.model == "ReLU" else nn.SiLU)
        module = module.double() if case.thinned else module
        net = as_network(module)
        clients = {
            c: torch_client(
                c, d.take(np.arange(0, d.n_rows, 5 if case.thinned else 1)), rates, module
            )
            for c, d in federation.train.items()
        }
        start = net.first_params()
        stages = (200, 100) if case.consistency == "max" else (300, 0)
        stages = (300, 300) if case.thinned else stages
        method = suited(SQP(consistency=case.consistency, rounds=stages), start.size)

        def logits(X: Any, params: Vector) -> Vector:
            return net.logits(params, X, BATCH_ROWS)

    runtime = InProcess(clients)
    counted = runtime.evaluate(Request((Point(start),)))
    problem, _ = state_problem(RULES, rates, counted, l2=case.l2)
    began = time.perf_counter()
    state = method.init(start, problem)
    for progress, info in run(method, Progress(state), runtime):
        state = progress.state
        if info.round % 25 == 0:
            print(f"\r  {case.name}: round {info.round}, loss {info.worst_loss:.4f} ",
                  end="", file=sys.stderr, flush=True)  # fmt: skip
    found = {"status": state.status, "rounds": state.rounds, "kkt": state.kkt,
             "smooth": info.largest_violation, "n_params": start.size,
             "seconds": time.perf_counter() - began}  # fmt: skip
    for part, datas in (("train", federation.train), ("test", federation.test)):
        counts = [count_rows(logits(d.X, state.params), d, rates) for d in datas.values()]
        found[part] = (list(losses(counts)), max(disparities(counts)))
    return found


def losses(counts: list[Counts]) -> Iterator[float]:
    return (c.loss_sum / c.n_rows for c in counts)


def disparities(counts: list[Counts]) -> Iterator[float]:
    return (float(np.ptp(c.group_selected / c.group_rows)) for c in counts)


def main() -> int:
    torch.set_num_threads(1)
    federation = load_builtin("adult-5")
    rows: list[ClientData] = list(federation.train.values())
    print(f"{len(rows)} clients, {sum(d.n_rows for d in rows):,} training rows, "
          f"{federation.schema.n_features} features")  # fmt: skip
    print(f"{'model, consistency, l2':26}{'parameters':>11}{'rounds':>11}{'status':>11}{'KKT':>9}"
          f"{'smooth':>9}{'train worst':>13}{'mean':>7}{'hard':>7}{'test worst':>12}{'mean':>7}"
          f"{'hard':>7}{'seconds':>9}")  # fmt: skip
    done = {}
    for case in CASES:
        found = done[case] = solve(case, federation)
        (train, train_hard), (test, test_hard) = found["train"], found["test"]
        print(f"\r{case.name:26}{found['n_params']:11,}{' + '.join(map(str, found['rounds'])):>11}"
              f"{found['status']:>11}{found['kkt']:9.0e}{found['smooth']:9.0e}"
              f"{max(train):13.4f}{np.mean(train):7.3f}{train_hard:7.3f}"
              f"{max(test):12.4f}{np.mean(test):7.3f}{test_hard:7.3f}{found['seconds']:9.0f}",
              flush=True)  # fmt: skip
    return int(not claim(done))


def claim(done: dict[Case, dict[str, Any]]) -> bool:
    linear = min(max(found["train"][0]) for case, found in done.items() if case.model == "linear")
    large = {c: found for c, found in done.items() if c.model != "linear" and not c.thinned}
    claims = {
        "budgets kept to 1e-6 by every run": all(f["smooth"] <= 1e-6 for f in done.values()),
        "networks at l2 1e-3 have a lower worst training loss than every linear model": all(
            max(found["train"][0]) < linear for case, found in large.items() if case.l2 == 1e-3
        ),
        "no network on all rows took more than 300 rounds": all(
            sum(found["rounds"]) <= 300 for found in large.values()
        ),
        "the smooth network on every fifth row converged": all(
            found["status"] == "converged" for case, found in done.items() if case.thinned
        ),
    }
    for sentence, holds in claims.items():
        print(f"claim ({sentence}): {'holds' if holds else 'DOES NOT HOLD'}")
    return all(claims.values())


if __name__ == "__main__":
    sys.exit(main())
