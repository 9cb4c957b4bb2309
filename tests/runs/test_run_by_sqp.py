"""The fast method from a table to a folder: choice of settings, prices, the trade-off curve."""

import json

import numpy as np
import pytest

from fcfl._files import read_json
from fcfl.errors import Interrupted
from fcfl.federation.session import Session
from fcfl.results import read_run
from fcfl.results.many_runs import Sweep
from fcfl.runs import Experiment, run_experiment
from fcfl.runs.many_runs import run_sweep
from fcfl.training.choose import L2_GRID
from fcfl.training.solve import _Solving
from hospital import stays, written

TABLE = {"client": "hospital", "label": "died", "sensitive": ("race",), "min_group_rows": 1,
         "confidence": 0, "starts": 1}  # fmt: skip


def largest_difference(folder):
    """The largest difference of decisions on a client's training rows."""
    clients = read_run(folder).result.clients.values()
    return max(client.train.disparities[0].value for client in clients)


@pytest.fixture
def table(tmp_path):
    return str(written(stays(), tmp_path / "stays.csv"))


def test_open_settings_are_chosen_and_reported(table, tmp_path):
    told = []
    finished = run_experiment(
        Experiment(table, **TABLE, budget=0.05), tmp_path / "run", on_message=told.append
    )
    selection = finished.result.selection
    assert finished.result.l2 == selection.l2
    assert finished.result.objective == selection.objective
    assert {line.l2 for line in selection.table} == set(L2_GRID)
    assert {line.objective for line in selection.table} == {"mean", 0.1}
    assert selection.sentence in told
    assert finished.budgets_met
    assert finished.result.status == "converged"
    assert finished.result.kkt_residual <= 1e-6


@pytest.mark.filterwarnings("error")
def test_a_budget_of_zero_is_trained_and_its_folder_can_be_read(table, tmp_path):
    told = []
    settings = {**TABLE, "confidence": 0.9, "l2": 0.01, "objective": "mean"}
    experiment = Experiment(table, **settings, budget=0.0)
    finished = run_experiment(experiment, tmp_path / "run", on_message=told.append)
    rows_short = read_run(tmp_path / "run").result.margins.rows_short
    assert rows_short == finished.result.margins.rows_short
    assert rows_short and set(rows_short.values()) == {None}
    assert not any("inf times" in sentence for sentence in told)
    assert any("No number of rows" in sentence for sentence in told)


def test_given_settings_are_not_chosen(table, tmp_path):
    experiment = Experiment(table, **TABLE, budget=0.05, l2=0.01, objective="max")
    result = run_experiment(experiment, tmp_path / "run").result
    assert result.selection is None
    assert (result.l2, result.objective) == (0.01, "max")
    assert result.rounds["stage2"] > 0


def test_prices_stand_at_their_budgets_and_sum_over_rows(table, tmp_path):
    experiment = Experiment(table, **TABLE, budget=0.01, l2=0.01, objective="max")
    result = run_experiment(experiment, tmp_path / "run").result
    by_client = {price.client: price.value for price in result.prices}
    assert max(by_client.values()) > 0
    for client, section in result.clients.items():
        assert section.train.disparities[0].price == by_client[client]
    assert result.overall.train.disparities[0].price is None
    assert sum(result.worst_clients.values()) == pytest.approx(1, abs=1e-2)


def test_a_price_is_the_slope_of_the_worst_loss(table, tmp_path, monkeypatch):
    """Relaxing the most expensive budget a little lowers the worst loss by its price times that.

    Of the plain fit: the projection of decisions, which answer in jumps, is left out.
    """
    monkeypatch.setattr(_Solving, "_project", lambda self, model, bounds: model)
    budget = dict.fromkeys(["north", "south", "west"], 0.02)
    common = {**TABLE, "l2": 0.01, "objective": "max", "rounds": (200, 0)}

    def worst_objective(budgets, name):
        run = run_experiment(Experiment(table, **common, budget=budgets), tmp_path / name)
        losses = [client.train.loss for client in run.result.clients.values()]
        return max(losses) + 0.005 * run.params @ run.params, run.result

    value, result = worst_objective(budget, "at")
    most_expensive = result.prices[0]
    step = 1e-4
    relaxed, _ = worst_objective(budget | {most_expensive.client: 0.02 + step}, "relaxed")
    assert (value - relaxed) / step == pytest.approx(most_expensive.value, rel=0.05)


def test_a_stopped_run_keeps_its_choice_and_ends_the_same(table, tmp_path):
    experiment = Experiment(table, **TABLE, budget=0.02, l2="auto", objective="max")
    whole = run_experiment(experiment, tmp_path / "whole")

    def stop(info, share):
        if info.stage > 0 and info.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run_experiment(experiment, tmp_path / "parts", on_round=stop)
    resumed = run_experiment(experiment, tmp_path / "parts", resume=True)
    assert np.array_equal(resumed.params, whole.params)
    assert resumed.result.selection == whole.result.selection


def test_clients_of_a_handful_of_rows_are_compared_by_all_of_them(tmp_path):
    table = str(written(stays(n_rows=18), tmp_path / "few.csv"))
    result = run_experiment(Experiment(table, **TABLE), tmp_path / "run").result
    assert {line.l2 for line in result.selection.table} == set(L2_GRID)
    assert result.selection.chosen.mean_loss > 0


def test_a_sweep_tightens_and_keeps_every_budget(table, tmp_path):
    session = Session(tmp_path / "sweep")
    experiment = Experiment(table, **TABLE, l2=0.01, objective="max")
    points = run_sweep(experiment, [0.01, 0.2, 0.05], session, relative=False).points
    assert [point.budget for point in points] == [0.2, 0.05, 0.01]
    losses = [point.worst_client_train_loss for point in points]
    # Decisions about some 25 people a group are projected: that costs up to .01 at each budget.
    assert losses[0] <= losses[1] + 0.01 and losses[1] <= losses[2] + 0.01
    for point in points:
        largest = largest_difference(tmp_path / "sweep" / point.folder)
        assert point.budgets_met == (largest <= point.budget + 1e-9)
    stored = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert read_json(tmp_path / "sweep" / "sweep.json", Sweep).points == points
    whole = json.loads((tmp_path / "sweep" / "result.json").read_text())
    assert whole["sweep"] == stored["points"]
    assert [point["budget"] for point in stored["points"]] == [0.2, 0.05, 0.01]


@pytest.mark.thorough
def test_a_resumed_sweep_trains_only_what_is_missing(table, tmp_path):
    experiment = Experiment(table, **TABLE, l2=0.01, objective="max")
    first = run_sweep(experiment, [0.2, 0.05], Session(tmp_path / "sweep"), relative=False)
    written = [tmp_path / "sweep" / point.folder / "result.json" for point in first.points]
    times = [path.stat().st_mtime_ns for path in written]
    session = Session(tmp_path / "sweep", resume=True)
    again = run_sweep(experiment, [0.2, 0.05, 0.02], session, relative=False)
    assert again.points[:2] == first.points and len(again.points) == 3
    assert [path.stat().st_mtime_ns for path in written] == times  # not trained again


@pytest.mark.thorough
def test_a_relative_sweep_shrinks_disparities(table, tmp_path):
    experiment = Experiment(table, **TABLE, l2=0.01, objective="max")
    session = Session(tmp_path / "sweep")
    points = run_sweep(experiment, [1.0, 0.2], session, relative=True).points
    assert [point.relative for point in points] == [1.0, 0.2]
    # Decisions about some 25 people a group come in steps of .04.
    loose, tight = (largest_difference(tmp_path / "sweep" / point.folder) for point in points)
    assert tight <= 0.2 * loose + 0.04


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"budget": 0.1}, "`budget` and `ratio`"), ({}, "at least one number")],
)
def test_a_sweep_that_cannot_be_is_rejected(table, tmp_path, options, sentence):
    experiment = Experiment(table, **TABLE, **options)
    with pytest.raises(ValueError, match=sentence):
        run_sweep(experiment, [0.1] if options else [], Session(tmp_path), relative=False)


def test_what_is_done_never_falls_back(table, tmp_path, monkeypatch):
    """Though the KKT residual, which it is read from, rises at times."""
    monkeypatch.setattr(_Solving, "_project", lambda self, model, bounds: model)
    experiment = Experiment(
        table, **TABLE, budget=0.01, l2=1e-4, objective=0.1, curvature="lbfgs", rounds=(60, 0)
    )
    shares = []
    run_experiment(experiment, tmp_path / "run", on_round=lambda info, share: shares.append(share))
    assert len(shares) > 10
    assert shares == sorted(shares)
    assert 0.5 < shares[-1] <= 1.0
