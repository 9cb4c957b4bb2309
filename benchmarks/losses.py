"""The three losses on Adult, race, budget .05: where SQP ends, where SLSQP ends, and at sites.

`python -m benchmarks.losses` prints a row per loss with test accuracy and hard disparity of both
clients. Exits 1 unless the worst training loss is SLSQP's to 1e-4 and a run over sites (messages in
one process) has the parameters of `train` on the same encoded rows to 1e-9.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from benchmarks.in_process import InProcess
from benchmarks.many_sites import adult as adult_frame
from benchmarks.open_site import open_site
from fcfl._types import Point, Request, Vector
from fcfl.data import adult
from fcfl.federation.federation import Federation
from fcfl.federation.loop import Progress, run
from fcfl.methods.sqp import SQP
from fcfl.models.linear import Linear, load_model
from fcfl.models.loss import LOSSES
from fcfl.problem import Evaluation, Problem, build_problem, evaluate_point
from fcfl.results.evaluations import row_sections
from fcfl.rules import Difference, rates_needed
from fcfl.runs import Experiment, run_experiment
from fcfl.runs.site_run import run_sites
from fcfl.sites.transport import InProcessTransport
from fcfl.training.train import train

L2 = 1e-3
PLAIN = SQP(rounds=(400, 0))  # stage 1 alone, which is what SLSQP solves
RULES = [Difference("demographic_parity", "race", 0.05)]


def slsqp_from(params: Vector, problem: Problem, clients: InProcess) -> float:
    """The smallest worst loss that SLSQP finds near ``params``, within every budget."""

    def at(x: Vector) -> Evaluation:
        reports = clients.evaluate(Request((Point(x[:-1], "gradients"),)))
        return evaluate_point(problem, x[:-1], reports)

    def slack(x: Vector) -> Vector:
        here = at(x)
        return np.concatenate([x[-1] - here.losses, -here.violations])

    def slack_grad(x: Vector) -> Vector:
        here = at(x)
        every = np.arange(here.violations.size)
        rows = -np.vstack([here.loss_grads, here.violation_grads(every)])
        level = (np.arange(len(rows)) < here.losses.size).astype(float)
        return np.hstack([rows, level[:, None]])

    start = np.append(params, at(np.append(params, 0.0)).losses.max())
    answer = minimize(
        lambda x: x[-1],
        start,
        jac=lambda x: np.eye(x.size)[-1],
        constraints={"type": "ineq", "fun": slack, "jac": slack_grad},
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-10},
    )
    return float(answer.fun)


def over_sites(name: str, folder: Path) -> float:
    """The largest difference between the parameters of sites and of one process."""
    frame = adult_frame().iloc[::4]
    configs = {}
    for number, (site, rows) in enumerate(frame.groupby("site")):
        path = folder / f"{name}-{site}.csv"
        rows.drop(columns="site").to_csv(path, index=False)
        configs[number] = open_site(str(site), path, folder / f"{name}{number}")
    frame.to_csv(folder / f"{name}.csv", index=False)
    given = {"label": "label", "sensitive": "group", "budget": "0.05", "l2": L2, "loss": name}
    apart = {"sites": "phd,non-phd", "out": str(folder / f"{name}-apart"), **given}
    run_sites(InProcessTransport(configs), apart, on_message=lambda _: None)
    settings = given | {"sensitive": ("group",), "budget": 0.05, "objective": 10.0}
    joined = Experiment(table=str(folder / f"{name}.csv"), client="site", **settings)
    run_experiment(joined, folder / f"{name}-joined")
    both = [load_model(folder / f"{name}-{where}").params for where in ("apart", "joined")]
    return float(np.abs(both[0] - both[1]).max())


def main() -> int:
    table = adult(("race",))
    rates = rates_needed(RULES, table.levels)
    wrong = 0
    print(
        "loss           worst train loss   SLSQP's  accuracy phd, non-phd        disparity   sites"
    )
    for name, kind in LOSSES.items():
        model = Linear(table.schema.n_features, loss=kind())
        trained = train(
            Federation.from_rows(table.train, table.test), model, RULES,
            l2=L2, objective="max", confidence=0, starts=1, min_group_rows=1,
        )  # fmt: skip
        clients = InProcess({c: model.rows(c, d, rates) for c, d in table.train.items()})
        counts = clients.evaluate(Request((Point(model.start()),)))
        problem, _ = build_problem(RULES, rates, counts, l2=L2)
        for progress, _ in run(PLAIN, Progress(PLAIN.init(model.start(), problem)), clients):
            params = progress.state.params
        end = evaluate_point(problem, params, clients.evaluate(Request((Point(params),))))
        ours, theirs = float(end.losses.max()), slsqp_from(params, problem, clients)
        with tempfile.TemporaryDirectory() as folder:
            apart = over_sites(name, Path(folder))
        test = [row_sections(trained.evaluations).clients[c].test for c in ("phd", "non-phd")]
        accuracy = ", ".join(f"{one.accuracy:.4f}" for one in test)
        disparity = ", ".join(f"{one.disparities[0].value:.4f}" for one in test)
        print(f"{name:13} {ours:17.5f} {theirs:9.5f}   {accuracy:>21} {disparity:>16} {apart:7.0e}")
        wrong += abs(ours - theirs) > 1e-4 or apart > 1e-9
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
