"""Options of a stopped run that may change."""

import pytest

from fcfl.errors import FCFLError, Interrupted
from fcfl.runs import Experiment, run_experiment
from hospital import fcfl, only_error, result_of, stays, weights_of, written

GIVEN = ("--client", "hospital", "--label", "died", "--sensitive", "race", "--method", "fedavg")


def test_a_stopped_run_may_continue_for_more_rounds_but_not_otherwise(tmp_path):
    table = written(stays(), tmp_path / "stays.csv")
    names = {"client": "hospital", "label": "died", "sensitive": ("race",), "method": "fedavg"}

    def stop(one, share):
        if one.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run_experiment(
            Experiment(str(table), **names, l2=0.01, rounds=(20,)), tmp_path / "run", on_round=stop
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
