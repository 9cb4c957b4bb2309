"""Several starts: the best is kept, all are told, and one exchange a round serves all of them."""

from dataclasses import replace

import numpy as np
import pytest
from binding import PARITY, trained_on

from fcfl import SQP, Difference
from fcfl._types import Point, Request
from fcfl.client.client import Setup
from fcfl.data.client_data import ClientData
from fcfl.federation.federation import Federation
from fcfl.federation.loop import Progress, run
from fcfl.federation.session import Session
from fcfl.models.linear import Linear
from fcfl.problem import build_problem
from fcfl.results.result import DataSource, Start
from fcfl.rules import rates_needed
from fcfl.training.choose import (
    BETTER,
    TOLERANCE,
    Lane,
    Screened,
    best_of,
    run_together,
)
from fcfl.training.run import Run
from helpers import RACE, identical

NAMES = ["unconstrained optimum", "first", "intercept +1", "intercept -1"]
TIGHT = replace(PARITY, budget=0.02)


def four_unequal():
    """Clients that want different models: from zero, training ends in a worse optimum."""
    rng, found = np.random.default_rng(0), {}
    for k, n in enumerate((400, 150, 80, 60)):
        group = (rng.random(n) < 0.4).astype(np.int32)
        X = rng.standard_normal((n, 3))
        X[:, 0] += 2 * group
        weights = np.array([1.5, 0, 0]) + rng.standard_normal(3)
        y = (X @ weights + rng.normal(0, 1.5) + rng.logistic(size=n) > 0) * 1.0
        found[f"client-{k}"] = ClientData(X, y, {"race": group}, RACE)
    return Federation.from_rows(found)


def plain_fit(**options):
    """A run with the plain budgets; what starts are compared for is its second fit."""
    given = {"objective": "mean", "l2": 1e-3, "min_group_rows": 1, **options}
    return trained_on(four_unequal(), TIGHT, **given)


def objective(trained):
    """What the plain fit ended at."""
    params = trained.turns[1].params
    return trained.turns[1].history[-1].mean_loss + 0.5e-3 * params @ params


def test_the_lowest_of_several_starts_within_the_budgets_is_continued():
    one, four = (plain_fit(starts=count) for count in (1, 4))
    assert one.turns[1].progress.state.status == four.turns[1].progress.state.status == "converged"
    assert one.starts == () and [entry.start for entry in four.starts] == NAMES
    means = [entry.mean_loss for entry in four.starts]
    assert objective(four) <= objective(one) + 1e-3
    assert min(means) == pytest.approx(four.turns[1].history[-1].mean_loss, abs=2e-3)
    assert max(means) > min(means) + 0.01  # so that it matters
    assert all(entry.worst_loss >= entry.mean_loss for entry in four.starts)


def test_given_settings_compare_their_own_start_and_the_model_without_budgets():
    assert [entry.start for entry in plain_fit(starts=None).starts] == NAMES[:2]
    assert plain_fit(starts=1).starts == ()
    six = plain_fit(starts=6).starts
    assert [entry.start for entry in six] == [*NAMES, "random 1", "random 2"]
    assert [e.start for e in plain_fit(starts=2).starts] == NAMES[:2]


def test_a_result_tells_of_all_starts():
    trained = plain_fit(starts=4)
    said = trained.result(seed=0, start="zero", settings={}, data=DataSource("t.csv", "0"))
    assert said.starts == trained.starts


def test_a_run_killed_while_starts_are_compared_ends_the_same(tmp_path):
    class Killed(Exception):
        """As a kill: nothing in the package catches it."""

    whole, calls = plain_fit(starts=4), []

    def on_round(info, share):
        calls.append(info.note)
        if len(calls) == 12:
            raise Killed

    with pytest.raises(Killed):
        plain_fit(starts=4, session=Session(tmp_path, on_round=on_round))
    assert calls[-1] == "comparing starts"
    resumed = plain_fit(starts=4, session=Session(tmp_path, resume=True))
    assert identical(resumed.params, whole.params) and resumed.starts == whole.starts


# --- which one ---


def ended(name, objective, violation=0.0):
    return Screened(Start(name, objective, objective), None, objective, violation)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([ended("a", 0.6), ended("b", 0.5)], "b"),
        ([ended("a", 0.5 * (1 + 0.9 * BETTER)), ended("b", 0.5)], "a"),  # about the same
        ([ended("a", 0.5 * (1 + 1.1 * BETTER)), ended("b", 0.5)], "b"),
        ([ended("a", 0.6), ended("b", 0.5, 2 * TOLERANCE)], "a"),  # b is outside
        ([ended("a", 0.5, 0.3), ended("b", 0.6, 0.2)], "b"),  # none inside: the nearest
        ([ended("a", -0.6), ended("b", -0.5)], "a"),  # losses beyond one's own best
    ],
)
def test_the_lowest_within_the_budgets_is_kept_an_earlier_one_of_equals(ends, expected):
    assert best_of(ends).entry.start == expected


# --- together ---


def asked():
    """A problem of all clients, and who answers for them."""
    rule = Difference("demographic_parity", "race", 0.05)
    setup = Setup(Linear(3), rates_needed([rule], RACE), (rule,))
    clients = four_unequal().bind(setup)
    counted = clients.evaluate(Request((Point(np.zeros(4)),)))
    problem, _ = build_problem([rule], setup.rates, counted, l2=0.01)
    return problem, clients


def test_several_trainings_in_lock_step_are_those_one_after_the_other():
    problem, clients = asked()
    method = SQP(objective=1.0)
    firsts = {name: np.full(4, value) for name, value in (("a", 0.0), ("b", 0.5), ("c", -0.3))}
    exchanges, told = [], []
    session = Session(on_round=lambda info, share: told.append((info, share)))
    clients.federation.report = lambda setup, request: (
        exchanges.append(request) or Federation.report(clients.federation, setup, request)
    )
    one = Run(clients.federation, clients.setup, method, session, {})
    lanes = {name: Lane(method, method.init(first, problem)) for name, first in firsts.items()}
    together = run_together(lanes, one, "x")
    assert len(exchanges) == len(told)
    del clients.federation.report
    alone = {}
    for name, first in firsts.items():
        *_, (last, _) = run(method, Progress(method.init(first, problem)), clients)
        alone[name] = last.state
        assert identical(together[name].state.params, last.state.params)
        assert together[name].state.status == last.state.status
    most = max(sum(state.rounds) for state in alone.values())
    assert len(told) == most  # not the sum
    assert [info.round for info, _ in told] == list(range(1, most + 1))
    shares = [share for _, share in told]
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert {info.note for info, _ in told} == {"x"}
