"""Stopped runs at the command line: how they continue, and which options may change."""

from dataclasses import replace

import pytest

import fcfl.cli.train as command
from fcfl.errors import FCFLError, Interrupted
from fcfl.runs import Experiment, run_experiment
from hospital import COLUMNS, fcfl, only_error, result_of, stays, weights_of, written

GIVEN = ("--client", "hospital", "--label", "died", "--sensitive", "race", "--method", "fedavg")
PLAIN = ("--l2", 0.01, "--confidence", 0, "--starts", 1)


def stop(info, share):
    if info.note == "choosing l2 and objective":
        raise KeyboardInterrupt


def test_a_run_stopped_while_choosing_settings_states_how_to_continue(tmp_path, monkeypatch):
    table = written(stays(), tmp_path / "stays.csv")
    run = command.run_session

    def stopped(settings, session, **options):
        return run(settings, replace(session, on_round=stop), **options)

    with monkeypatch.context() as patched:
        patched.setattr(command, "run_session", stopped)
        told = only_error(fcfl("train", table, *COLUMNS, *PLAIN, "--out", tmp_path / "run"))
    assert told == f"Stopped. Continue with: fcfl train --resume --out {tmp_path / 'run'}"
    assert fcfl("train", "--resume", "--out", tmp_path / "run").exit_code == 0
    selection = result_of(tmp_path / "run")["selection"]
    assert selection["l2"] in {line["l2"] for line in selection["table"]}


def test_stopping_while_choosing_settings_is_an_interruption(tmp_path):
    table = written(stays(), tmp_path / "stays.csv")
    names = {"client": "hospital", "label": "died", "sensitive": ("race",), "min_group_rows": 1}
    with pytest.raises(Interrupted):
        run_experiment(Experiment(str(table), **names), tmp_path / "run", on_round=stop)


def test_stopping_while_a_command_is_imported_is_one_line(monkeypatch):
    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupt)
    assert only_error(fcfl("train", "t.csv")) == "Stopped."


def test_a_stopped_run_may_continue_for_more_rounds_but_not_otherwise(tmp_path):
    table = written(stays(), tmp_path / "stays.csv")
    names = {"client": "hospital", "label": "died", "sensitive": ("race",), "method": "fedavg"}

    def stop_early(one, share):
        if one.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run_experiment(
            Experiment(str(table), **names, l2=0.01, rounds=(20,)),
            tmp_path / "run",
            on_round=stop_early,
        )
    with pytest.raises(FCFLError, match="other settings"):
        run_experiment(
            Experiment(str(table), **names, l2=0.02, rounds=(20,)), tmp_path / "run", resume=True
        )
    told = only_error(fcfl("train", "--resume", "--l2", 0.1, "--out", tmp_path / "run"), 2)
    assert "`--l2`" in told
    assert fcfl("train", "--resume", "--rounds", 30, "--out", tmp_path / "run").exit_code == 0
    whole = ("train", table, *GIVEN, "--l2", 0.01, "--rounds", 30, "--out", tmp_path / "whole")
    assert fcfl(*whole).exit_code == 0
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")
    assert result_of(tmp_path / "run")["settings"]["rounds"] == [30]
