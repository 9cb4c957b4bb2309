"""Sweeps whose points exceed their budgets, are stopped, or find other rows."""

import json
from contextlib import contextmanager

import pytest

from fcfl.cli import console
from fcfl.federation.session import Session
from fcfl.results import read_result
from fcfl.runs import Experiment, run_experiment
from fcfl.runs.many_runs import run_sweep
from hospital import COLUMNS, fcfl, only_error, result_of, stays, weights_of, written

TABLE = {"client": "hospital", "label": "died", "sensitive": ("race",), "min_group_rows": 1,
         "confidence": 0, "starts": 1}  # fmt: skip
SETTLED = ("--l2", "0.01", "--objective", "max", "--confidence", "0", "--starts", "1")


@pytest.fixture
def table(tmp_path):
    return written(stays(), tmp_path / "stays.csv")


def change_a_row(table):
    frame = stays()
    frame.loc[0, "age"] += 1
    written(frame, table)


def points_of(folder):
    return json.loads((folder / "sweep.json").read_text(encoding="utf-8"))["points"]


def stop_in_round(monkeypatch, count):
    """Ctrl-C in that round of a command, counted over all its runs."""

    @contextmanager
    def bar(title):
        seen = []

        def on_round(info, share):
            seen.append(info)
            if len(seen) == count:
                raise KeyboardInterrupt

        yield on_round

    monkeypatch.setattr(console, "progress_bar", bar)


# --- one run for each budget ----------------------------------------------------------------------


@pytest.mark.parametrize("method", [{"method": "two-stage", "rounds": (10, 10)}, {"l2": 0.01}])
def test_a_point_is_the_run_with_its_settings(method, table, tmp_path):
    experiment = Experiment(str(table), **TABLE, **method)
    run_sweep(experiment, [0.05, 0.2], Session(tmp_path / "sweep"), relative=False)
    settings = Experiment.from_toml(tmp_path / "sweep" / "budget-0.05" / "experiment.toml")
    assert not settings.open_settings.is_open and settings.budget == 0.05
    run_experiment(settings, tmp_path / "alone")
    assert weights_of(tmp_path / "sweep" / "budget-0.05") == weights_of(tmp_path / "alone")


# --- budgets that are exceeded --------------------------------------------------------------------


def test_an_exceeded_budget_is_shown_and_is_exit_code_3_also_when_read_back(table, tmp_path):
    folder = tmp_path / "sweep"
    command = ("sweep", table, *COLUMNS, "--method", "fedavg", "--budgets", "0.3,0.1")
    for more in ((), ("--resume",)):
        outcome = fcfl(*command, "--out", folder, *more)
        assert outcome.exit_code == 3, outcome.output
        assert [point["budgets_met"] for point in points_of(folder)] == [True, False]
        lines = [line.split() for line in outcome.stdout.splitlines() if line]
        shown = [(line[0], line[2]) for line in lines if line[0] in ("0.3", "0.1")]
        assert shown == [("0.3", "yes"), ("0.1", "no")]
        assert "exceeded on the training rows at budget-0.1." in outcome.stderr


# --- other rows -----------------------------------------------------------------------------------


def test_a_sweep_is_not_resumed_with_other_rows(table, tmp_path):
    folder = tmp_path / "sweep"
    command = ("sweep", table, *COLUMNS, *SETTLED, "--budgets", "0.2,0.1", "--out", folder)
    assert fcfl(*command).exit_code == 0
    change_a_row(table)
    assert f"The run in {str(folder / 'budget-0.2')!r}" in only_error(fcfl(*command, "--resume"))
    (folder / "budget-0.2" / "rows.sha256").unlink()
    assert f"run in {str(folder / 'budget-0.1')!r}" in only_error(fcfl(*command, "--resume"))


@pytest.mark.parametrize("finished", [True, False])
def test_a_comparison_is_not_resumed_with_other_rows(finished, table, tmp_path):
    folder = tmp_path / "compare"
    command = ("compare", table, *COLUMNS, "--methods", "fedavg", "--out", folder)
    assert fcfl(*command).exit_code == 0
    if not finished:
        (folder / "fedavg" / "result.json").unlink()
    change_a_row(table)
    assert f"The run in {str(folder / 'fedavg')!r}" in only_error(fcfl(*command, "--resume"))


# --- stopped and gone on with ---------------------------------------------------------------------


def test_a_stopped_sweep_states_how_to_continue_and_ends_the_same(table, tmp_path, monkeypatch):
    command = ("sweep", table, *COLUMNS, *SETTLED, "--budgets", "0.2,0.02", "--out")
    assert fcfl(*command, tmp_path / "whole").exit_code in (0, 3)
    rounds = read_result(tmp_path / "whole" / "budget-0.2" / "result.json").n_rounds
    folder = tmp_path / "parts"
    with monkeypatch.context() as patched:
        stop_in_round(patched, rounds + 3)
        told = only_error(fcfl(*command, folder))
    assert told.startswith("Stopped")
    assert told.endswith(f"--out {folder} --resume")
    assert (folder / "budget-0.02" / "experiment.toml").exists()
    with monkeypatch.context() as patched:
        stop_in_round(patched, 1)
        assert "Stopped" in only_error(fcfl(*command, folder, "--resume"))
    assert fcfl(*command, folder, "--resume").exit_code in (0, 3)
    parts, whole = points_of(folder), points_of(tmp_path / "whole")
    asked = [[point.pop("exchanges") for point in points] for points in (parts, whole)]
    assert parts == whole
    assert asked[0][0] == asked[1][0] and asked[0][1] > asked[1][1]  # what was asked again counts
    for name in ("budget-0.2", "budget-0.02"):
        assert weights_of(folder / name) == weights_of(tmp_path / "whole" / name)


# --- points with other settings -------------------------------------------------------------------


def test_points_with_other_settings_are_rejected_or_overwritten(table, tmp_path, monkeypatch):
    folder = tmp_path / "sweep"
    command = ("sweep", table, *COLUMNS, "--budgets", "0.2,0.1", "--out", folder)
    assert fcfl(*command, *SETTLED).exit_code == 0
    other = ("--l2", "0.1", *SETTLED[2:])
    for more in ((), ("--resume",)):
        assert only_error(fcfl(*command, *other, *more)) == (
            f"The folder {str(folder / 'budget-0.2')!r} holds a run with other settings "
            "(l2 is 0.01, got 0.1). Choose another `--out`, or pass `--overwrite`."
        )
    assert {result_of(folder / p["folder"])["l2"] for p in points_of(folder)} == {0.01}
    with monkeypatch.context() as patched:
        stop_in_round(patched, 1)
        told = only_error(fcfl(*command, *other, "--overwrite"))
        assert told.endswith("--resume") and "--overwrite" not in told
    assert fcfl(*command, *other, "--resume").exit_code == 0
    assert {result_of(folder / p["folder"])["l2"] for p in points_of(folder)} == {0.1}
    again = fcfl(*command, *SETTLED, "--overwrite")
    assert again.exit_code == 0 and "Restarting" not in again.stderr


def test_a_later_point_with_other_settings_is_rejected_before_the_first_is_trained(table, tmp_path):
    folder = tmp_path / "sweep"
    command = ("sweep", table, *COLUMNS, "--method", "fedavg", "--out", folder)
    fcfl(*command, "--budgets", "0.1", "--l2", "0.5")
    outcome = fcfl(*command, "--budgets", "0.2,0.1")
    assert "holds a run with other settings" in only_error(outcome)
    assert not (folder / "budget-0.2").exists()


# --- small things ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--budgets", "0.1", "--relative", "0.2"), "Give --budgets or --relative, not both."),
        ((), "Give --budgets or --relative."),
        (("--budgets", "-1"), "`budget`"),
        (("--relative", "-1"), "`relative_budget`"),
        (("--budgets", ","), "`--budgets`"),
        (("--budgets", "0.1,0.2,0.10"), "`--budgets` must differ"),
        (("--budgets", "0.1", "--resume", "--overwrite"), "Give --resume or --overwrite, not both"),
    ],
)
def test_wrong_options_of_a_sweep_are_wrong_usage(table, options, sentence):
    assert sentence in only_error(fcfl("sweep", table, *COLUMNS, *options), code=2)


def test_the_synthetic_sweep_is_read_back(tmp_path):
    command = ("sweep", "synthetic", "--budgets", "0.6,0.4", "--out", tmp_path / "sweep")
    first = fcfl(*command)
    again = fcfl(*command, "--resume")
    assert again.exit_code == first.exit_code == 0, again.output
    assert again.stdout == first.stdout


def test_every_note_states_something(table, tmp_path):
    command = ("sweep", table, *COLUMNS, *SETTLED, "--budgets", "0.2,0.1")
    notes = fcfl(*command, "--out", tmp_path / "sweep").stderr.splitlines()
    assert "note: budget-0.2, run 1 of 2" in notes
    assert not any(line.endswith(":") for line in notes)
