"""One share over all phases, and options of a stopped run that may change."""

import numpy as np
import pytest

from fcfl.errors import FCFLError, Interrupted
from fcfl.runs import Experiment, run_experiment
from fcfl.server.method import RoundInfo
from fcfl.training.progress_share import OverPhases, part_of
from hospital import fcfl, only_error, result_of, stays, weights_of, written


def info(stage, note=""):
    return RoundInfo(1, stage, "", np.nan, np.nan, np.nan, 0.0, note)


def test_shares_of_phases_rise_over_the_whole():
    told = []
    tell = OverPhases(lambda _, share: told.append(share))
    phases = [(0, "choosing"), (0, "starts"), (1, ""), (2, ""), (1, "")]
    for stage, note in phases:
        for share in (0.0, 0.5, 0.3, 1.0):
            tell(info(stage, note), share)
    assert told == sorted(told) and 0 <= told[0] < told[-1] < 1
    assert told[-1] > 0.9


def test_a_run_tells_one_rising_share(tmp_path):
    told = []
    table = written(stays(), tmp_path / "stays.csv")
    experiment = Experiment(
        str(table), "hospital", "died", ("race",), budget=0.1, min_group_rows=1, l2=0.01
    )
    run_experiment(
        experiment, tmp_path / "run", on_round=lambda one, share: told.append((one, share))
    )
    shares = [share for _, share in told]
    assert len({one.note for one, _ in told if one.stage == 0}) == 2  # choosing, comparing starts
    assert shares == sorted(shares) and shares[-1] > 0.8


def test_parts_lie_side_by_side():
    told = []
    for low, high in ((0.0, 0.5), (0.5, 1.0)):
        tell = part_of(lambda _, share: told.append(share), low, high)
        for share in (0.0, 1.0):
            tell(info(1), share)
    assert told == [0.0, 0.5, 0.5, 1.0]


GIVEN = ("--client", "hospital", "--label", "died", "--sensitive", "race", "--method", "fedavg")


def test_a_stopped_run_may_go_on_for_more_rounds_but_not_otherwise(tmp_path):
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
    assert "leave --l2 out" in told
    assert fcfl("train", "--resume", "--rounds", 30, "--out", tmp_path / "run").exit_code == 0
    whole = ("train", table, *GIVEN, "--l2", 0.01, "--rounds", 30, "--out", tmp_path / "whole")
    assert fcfl(*whole).exit_code == 0
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")
    assert result_of(tmp_path / "run")["settings"]["rounds"] == [30]
