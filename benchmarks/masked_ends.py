"""Where training on adult-5 ends with masked sums and without; used by `benchmarks.masks`.

With the largest loss as objective the exact curvature is mostly that of one client, which masks
must not give: sites refuse it, and the server raises the other weights (`level_weights`). So the
way differs, and under budgets the end may. `compare_largest` shows each part of that: how much of
the exact sum is one client's; that masks change nothing beside the weights, as clients in the open
that are asked under the same weights lead to the same end; and that both ends are local optima,
certified by the open clients' gradients and curvature alone.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import nnls

from fcfl import Difference, Federation, Linear, train
from fcfl._types import Matrix, Point, Reports, Request, Vector, curvature_sum
from fcfl.client.client import Setup
from fcfl.data import load_builtin
from fcfl.federation.masks.sums import level_weights
from fcfl.methods.sqp import SQP
from fcfl.methods.sqp.subproblem import Multipliers, curvature_weights
from fcfl.problem.evaluation import evaluate_point

ACTIVE = 1e-8  # a loss this near its cap, or a disparity this near its budget, is held by it


@dataclass
class Asked:
    """The questions for curvature of a run."""

    setup: Setup | None = None
    points: list[Point] = field(default_factory=list)


class OpenClients(Federation):
    """Clients without masks, asked under the weights of a masked sum if these are ``levelled``."""

    def __init__(self, clients: Federation, asked: Asked, *, levelled: bool = False) -> None:
        super().__init__(clients._clients)
        self._asked, self._levelled = asked, levelled

    def report(self, setup: Setup, request: Request) -> Reports:
        """As without; what is asked is remembered."""
        points = tuple(self._of(point) for point in request.points)
        self._asked.setup = setup
        self._asked.points += [point for point in points if point.want == "curvature"]
        return super().report(setup, Request(points))

    def _of(self, point: Point) -> Point:
        if point.want != "curvature" or not self._levelled:
            return point
        return replace(point, curvature_weights=level_weights(point.curvature_weights or {})[0])


def compare_ends(seed: int, objective: str | float, scope: Literal["client", "global"]) -> float:
    """Train with masks and without; how far apart the parameters are at the end."""
    clients, n_features = adult(seed)
    plain, masked = (
        trained(one, n_features, objective, scope) for one in (clients, clients.masked())
    )
    print(
        f"adult-5, seed {seed}, objective {objective!s:4}, scope {scope}   {beside(plain, masked)}"
    )
    return apart(plain, masked)


def compare_largest(seed: int) -> float:
    """The same for the largest loss, with what makes the ends differ; how far masks alone do."""
    clients, n_features = adult(seed)
    asked = Asked()
    plain = trained(OpenClients(clients, asked), n_features, "max", "client")
    masked = trained(clients.masked(), n_features, "max", "client")
    print(f"adult-5, seed {seed}, objective max    {beside(plain, masked)}")
    refused, alone = isolation(clients, asked)
    print(
        f"    without masks: {refused} of {len(asked.points)} sums would be refused; of the matrix "
        f"of one client {', '.join(f'{share:.1%}' for share in np.quantile(alone, [0, 0.5]))} are "
        "others' (least, median round)"
    )
    levelled = trained(OpenClients(clients, Asked(), levelled=True), n_features, "max", "client")
    print(f"    in the open, weights as under masks:   {beside(levelled, masked)}")
    for label, end in (("without", plain), ("with", masked)):
        print(f"    the end {label} masks: {certificate(clients, asked, end)}", flush=True)
    both = clients, clients.masked()
    free = [trained(one, n_features, "max", None, tolerance=1e-11) for one in both]
    print(f"    without budgets, tolerance 1e-11:   {beside(*free)}", flush=True)
    return max(apart(levelled, masked), apart(*free))


def isolation(clients: Federation, asked: Asked) -> tuple[int, list[float]]:
    """Sums whose weights masks refuse; and how little of each is not one client's own matrix."""
    assert asked.setup is not None
    refused, shares = 0, []
    for point in asked.points:
        weights = point.curvature_weights or {}
        raised = level_weights(weights)[0]
        refused += any(raised[name].loss != one.loss for name, one in weights.items())
        parts = [curvature_at(clients.only(name), asked.setup, point) for name in clients.names]
        sizes = [float(np.linalg.norm(part)) for part in parts]
        first = int(np.argmax(sizes))
        others = np.sum([part for i, part in enumerate(parts) if i != first], axis=0)
        shares.append(float(np.linalg.norm(others)) / sizes[first])
    return refused, shares


def curvature_at(clients: Federation, setup: Setup, point: Point) -> Matrix:
    """The sum of the clients' matrices."""
    found = curvature_sum(clients.report(setup, Request((point,))), 0)
    assert found is not None
    return found


def certificate(clients: Federation, asked: Asked, end: Any) -> str:
    """KKT conditions of the last stage, and its curvature along what budgets and caps leave free.

    The mean loss under caps on the losses and under budgets: weights that are not negative, of
    those that are met exactly only, by non-negative least squares.
    """
    assert asked.setup is not None
    state, params = end.state, end.params
    bare = Point(params, "gradients")
    at = evaluate_point(state.problem, params, clients.report(asked.setup, Request((bare,))))
    capped = np.flatnonzero(at.losses >= state.caps - ACTIVE)
    held = np.flatnonzero(at.violations >= -ACTIVE)
    active = np.vstack([at.loss_grads[capped], at.violation_grads(held)])
    weights, residual = nnls(active.T, -at.loss_grads.mean(axis=0), maxiter=10_000)
    losses = np.full(len(at.losses), 1.0 / len(at.losses))
    losses[capped] += weights[: capped.size]
    rows = np.zeros(at.violations.size)
    rows[held] = weights[capped.size :]
    by_client = curvature_weights(state.problem, Multipliers(losses, rows))
    hessian = curvature_at(clients, asked.setup, Point(params, "curvature", by_client))
    hessian = hessian + state.problem.l2 * losses.sum() * np.eye(params.size)
    free = null_space(active[weights > ACTIVE]) if active.size else np.eye(params.size)
    least = np.linalg.eigvalsh(free.T @ hessian @ free).min()
    over = max(float((at.losses - state.caps).max()), at.largest_violation, 0.0)
    return (
        f"KKT residual {residual / losses.sum():.1e}, exceeds caps or budgets by {over:.1e}, "
        f"{capped.size} losses and {held.size} disparities held, least curvature {least:+.1e}"
    )


def adult(seed: int) -> tuple[Federation, int]:
    """Five clients, and how many features they have."""
    table = load_builtin("adult-5", sensitive=("sex",), seed=seed)
    return Federation.from_rows(table.train, table.test), table.schema.n_features


def trained(
    clients: Federation,
    n_features: int,
    objective: Any,
    scope: Literal["client", "global"] | None,
    *,
    tolerance: float = 1e-10,
) -> Any:
    """To a small KKT residual, without margins; without a ``scope`` without budgets."""
    rules = (Difference("demographic_parity", "sex", 0.05, scope=scope),) if scope else ()
    return train(
        clients,
        Linear(n_features),
        rules,
        method=SQP(tolerance=tolerance),
        l2=0.001,
        objective=objective,
        confidence=0.0,
        starts=1,
    )


def apart(one: Any, other: Any) -> float:
    """How far the parameters are from each other."""
    found: Vector = np.abs(one.params - other.params)
    return float(found.max())


def beside(one: Any, other: Any) -> str:
    """Rounds of both, and what differs at the end."""
    higher = float(other.at.losses.max()) - float(one.at.losses.max())
    return (
        f"rounds {one.state.rounds} and {other.state.rounds}   parameters apart "
        f"{apart(one, other):.1e}   largest loss higher by {higher:+.1e}"
    )
