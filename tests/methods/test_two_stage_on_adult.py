"""The paper's method on the paper's data: the authors' figures again, and budgets they break."""

import numpy as np
import pytest
from benchmarks.in_process import InProcess
from benchmarks.published import FIGURES, is_near, reproduce

from fcfl._types import Point, Request
from fcfl.data import adult
from fcfl.errors import DataError
from fcfl.federation.loop import Progress, run
from fcfl.methods.two_stage import TwoStage
from fcfl.models.linear_rows import linear_rows
from fcfl.problem import build_problem, evaluate_point
from fcfl.rules import Difference, rates_needed


@pytest.fixture(autouse=True)
def _adult_is_here():
    try:
        adult()
    except DataError as error:
        pytest.skip(str(error))


@pytest.mark.thorough
@pytest.mark.parametrize("name", FIGURES)
def test_the_authors_figures_are_met_with_their_options(name):
    """From one of two starts: after a thousand steps of .1 even rounding moves where a run ends.

    `python -m benchmarks.published` shows the spread over starts.
    """
    found = [reproduce(name, seed) for seed in (11, 13)]
    assert any(is_near(name, *one) for one in found), found


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.8, 0.5, 0.2])
def test_own_budgets_are_kept_where_the_authors_code_breaks_them(share):
    """Budgets are the authors' own: shares of the disparities they measured without budgets."""
    federation = adult(("race",))
    budgets = {"phd": share * 0.15663486, "non-phd": share * 0.07555133}
    rules = [Difference("demographic_parity", "race", budgets)]
    rates = rates_needed(rules, federation.levels)
    runtime = InProcess({c: linear_rows(c, d, rates) for c, d in federation.train.items()})
    start = np.zeros(federation.schema.n_features + 1)
    problem, _ = build_problem(rules, rates, runtime.evaluate(Request((Point(start),))))
    method = TwoStage(rounds=(300, 300))
    for progress, _ in run(method, Progress(method.init(start, problem)), runtime):
        params = progress.state.params
    end = evaluate_point(problem, params, runtime.evaluate(Request((Point(params),))))
    assert end.largest_violation <= 1e-6
    assert progress.state.status != "infeasible"
    assert end.losses.max() < 0.55


@pytest.mark.thorough
def test_both_temperatures_decay_and_the_worst_loss_comes_nearer_to_its_optimum():
    """Eq. 14 with our defaults: ten decays, and .472 where it was .503 after stage 1.

    SLSQP's optimum is .442; `fcfl train adult --method two-stage` goes on with stage 2.
    """
    federation = adult(("race",))
    rules = [Difference("demographic_parity", "race", 0.05)]
    rates = rates_needed(rules, federation.levels)
    runtime = InProcess({c: linear_rows(c, d, rates) for c, d in federation.train.items()})
    start = np.zeros(federation.schema.n_features + 1)
    problem, _ = build_problem(rules, rates, runtime.evaluate(Request((Point(start),))))
    method = TwoStage(rounds=(TwoStage().rounds[0], 0))
    pairs, infos = [method.temperatures], []
    for progress, info in run(method, Progress(method.init(start, problem)), runtime):
        state = progress.state
        if state.temperatures != pairs[-1]:
            pairs.append(state.temperatures)
        infos.append(info)
    for which in (0, 1):
        assert len({pair[which] for pair in pairs}) >= 4  # three decays of each
    assert state.losses.max() < 0.475
    assert state.violations.max() <= 0
    assert infos[0].loss_gap == pytest.approx(0.1 * np.log(2))  # two equal losses at the start
    assert infos[0].violation_gap == pytest.approx(0.002 * np.log(2))
    assert infos[-1].loss_gap < 1e-3 and infos[-1].violation_gap <= 1e-4 * np.log(2)
