"""SciPy's SLSQP on the problems that the fast method solves: an independent reference."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize


@dataclass(frozen=True)
class Reference:
    """Where SLSQP ends: the parameters, the objective there, and whether it says it converged."""

    params: np.ndarray
    value: float
    success: bool


def solve_by_slsqp(rows, start, caps=None, ftol=1e-12):
    """The smallest worst loss under budgets or, with ``caps`` on the losses, the smallest mean.

    ``rows(params)`` gives all losses, their gradients, all violations (feasible when ``<= 0``) and
    their gradients. The worst loss is a variable t of its own: ``min t`` with every loss ``<= t``.
    """
    n, known = start.size, {}

    def at(x):
        key = x[:n].tobytes()
        if key not in known:
            known.clear()
            known[key] = rows(x[:n])
        return known[key]

    def slack(x):
        losses, _, violations, _ = at(x)
        return np.concatenate([(x[n] if caps is None else caps) - losses, -violations])

    def slack_grad(x):
        _, grads, _, violation_grads = at(x)
        stacked = -np.vstack([grads, violation_grads])
        level = (np.arange(len(stacked)) < len(grads)) * (1.0 if caps is None else 0.0)
        return np.hstack([stacked, level[:, None]])

    def cost(x):
        return x[n] if caps is None else at(x)[0].mean()

    def cost_grad(x):
        return np.eye(n + 1)[n] if caps is None else np.append(at(x)[1].mean(axis=0), 0.0)

    answer = minimize(
        cost,
        np.append(start, rows(start)[0].max() if caps is None else 1.0),
        jac=cost_grad,
        constraints={"type": "ineq", "fun": slack, "jac": slack_grad},
        method="SLSQP",
        options={"maxiter": 500, "ftol": ftol},
    )
    return Reference(answer.x[:n], float(answer.fun), bool(answer.success))
