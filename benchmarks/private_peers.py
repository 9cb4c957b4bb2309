"""Other methods by noisy sums: what FairReg and two-stage get of the same epsilon.

Every client releases counts once (.06 of the whole), and in each round the same kinds of sums as
for our method; all rounds share alike, because none of the two says beforehand where it stops.
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from scipy.special import expit

from fcfl import Difference
from fcfl._types import Point, RateId, Report, Vector
from fcfl.client.private import PrivateRows, private_rows
from fcfl.data.client_data import ClientData
from fcfl.methods.private import (
    SLOPE,  # that of 10 would have many times the noise
    group_estimates,
    row_estimate,
)
from fcfl.methods.two_stage import TwoStage
from fcfl.privacy import NORM, Release, mu_of
from fcfl.problem import build_problem

COUNTS = 0.06  # of all that is released
LONGEST_LOSS = 4.0  # of a row: sums of losses need a bound
FAIR_REG = {"gradient": 0.4, "rates": 0.2, "jacobian": 0.4}
TWO_STAGE = {"loss": 0.1, "gradient": 0.4, "rates": 0.15, "jacobian": 0.35}


class PrivateTable(Protocol):
    """Training rows of every client, and one rule."""

    train: Mapping[str, ClientData]
    rule: Difference


class _Clients:
    """Rows that answer noisy sums, with what a run costs split over its rounds."""

    def __init__(self, table: Any, epsilon: float, delta: float, rounds: int) -> None:
        levels = next(iter(table.train.values())).levels[table.rule.attribute]
        self.rates = tuple(
            RateId(kind, table.rule.attribute, group)
            for kind in table.rule.kinds
            for group in levels
        )
        self.rows = {
            name: private_rows(data, self.rates, NORM) for name, data in table.train.items()
        }
        self.mu, self.rounds = mu_of(epsilon, delta), rounds
        self.n_params = next(iter(self.rows.values())).features.shape[1]
        start, cost = Point(np.zeros(self.n_params)), self.mu * math.sqrt(COUNTS)
        cells = {
            name: own.release(Release("counts", cost), start) for name, own in self.rows.items()
        }
        self.n_rows = {name: row_estimate(self.rates, line) for name, line in cells.items()}
        self.groups = {
            name: np.maximum(group_estimates(self.rates, line), 1.0) for name, line in cells.items()
        }

    def each(self, share: float) -> float:
        """What one release of a round may cost."""
        return self.mu * math.sqrt((1 - COUNTS) * share / self.rounds)

    def sums(self, name: str, point: Point, shares: Mapping[str, float]) -> dict[str, Any]:
        own = self.rows[name]
        said = {
            kind: own.release(Release(kind, self.each(share)), point)  # type: ignore[arg-type]
            for kind, share in shares.items()
            if kind != "loss"
        }
        if "loss" in shares:
            said["loss"] = _loss_sum(own, point.params, self.each(shares["loss"]))
        return said


def _loss_sum(rows: PrivateRows, params: Vector, mu: float) -> float:
    """Losses of all rows, each bounded, with noise (a float will do for a benchmark)."""
    logits = rows.features @ params / 2.0**10
    right = np.where(rows.labels == 1.0, logits, -logits)
    losses = np.minimum(-np.log(np.maximum(expit(right), 1e-300)), LONGEST_LOSS)
    noise: float = np.random.default_rng().normal(0.0, LONGEST_LOSS / mu)
    return float(losses.sum() + noise)


def gradient_noise(
    table: Any, epsilon: float, delta: float, rounds: int, n_rows: int = 7000
) -> float:
    """The length of the noise in one client's mean gradient in one round, about."""
    n = next(iter(table.train.values())).n_features + 1
    each = mu_of(epsilon, delta) * math.sqrt((1 - COUNTS) * FAIR_REG["gradient"] / rounds)
    return NORM / each * math.sqrt(n) / n_rows


def private_fair_reg(
    table: Any, epsilon: float, delta: float, *, rounds: int, step: float = 2.0, weight: float = 1.0
) -> Vector:
    """Gradient steps on losses and disparities."""
    clients = _Clients(table, epsilon, delta, rounds)
    params, total = np.zeros(clients.n_params), sum(clients.n_rows.values())
    for _ in range(rounds):
        point, pull = Point(params, sharpness=SLOPE), np.zeros(clients.n_params)
        for name, in_groups in clients.groups.items():
            said = clients.sums(name, point, FAIR_REG)
            pull += said["gradient"] / total
            value = said["rates"] / in_groups
            slopes = said["jacobian"] / in_groups[:, None]
            pull += (
                weight * np.sign(value[0] - value[1]) * (slopes[0] - slopes[1]) / len(clients.rows)
            )
        params = params - step * pull
    return params


def private_two_stage(
    table: Any, epsilon: float, delta: float, *, rounds: int, step: float = 1.0
) -> Vector:
    """The two-stage method as it is, a third of its rounds in stage 1, no step tried twice.

    Its reports have noise in losses, gradients, rates of decisions and their slopes.
    """
    clients = _Clients(table, epsilon, delta, rounds)
    first = rounds * 800 // 2300
    method = TwoStage(step_size=step, rounds=(first, rounds - first), max_trials=0)

    def report(name: str, point: Point) -> Report:
        said = clients.sums(name, point, TWO_STAGE)
        n_rows, groups = clients.n_rows[name], clients.groups[name]
        return Report(
            n_rows,
            said["loss"] / n_rows,
            groups,
            np.clip(said["rates"] / groups + 0.5, 0.0, 1.0),
            said["gradient"] / n_rows,
            said["jacobian"] / groups[:, None],
        )

    nobody = {
        name: (Report(clients.n_rows[name], 0.0, groups, np.zeros(groups.size)),)
        for name, groups in clients.groups.items()
    }
    problem, _ = build_problem([table.rule], clients.rates, nobody, l2=1e-3, min_group_rows=100.0)
    state = method.init(np.zeros(clients.n_params), problem)
    for _ in range(rounds):
        if state.status != "running":
            break
        points = [Point(one.params, one.want, sharpness=SLOPE) for one in state.request.points]
        reports = {name: tuple(report(name, point) for point in points) for name in clients.rows}
        state, _ = method.step(state, reports)
    return np.asarray(state.params)
