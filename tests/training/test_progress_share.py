"""One share over all phases."""

import numpy as np

from fcfl.federation.session import OverPhases, Session
from fcfl.methods.method import RoundInfo
from fcfl.runs import Experiment, run_experiment
from hospital import stays, written


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
    columns = {"client": "hospital", "label": "died", "sensitive": ("race",)}
    experiment = Experiment(str(table), **columns, budget=0.1, min_group_rows=1, l2=0.01)
    run_experiment(
        experiment, tmp_path / "run", on_round=lambda one, share: told.append((one, share))
    )
    shares = [share for _, share in told]
    assert {one.note for one, _ in told if one.stage == 0} == {"choosing l2 and objective"}
    assert shares == sorted(shares) and shares[-1] > 0.8


def test_parts_lie_side_by_side():
    told = []
    whole = Session(on_round=lambda _, share: told.append(share))
    for low, high in ((0.0, 0.5), (0.5, 1.0)):
        for share in (0.0, 1.0):
            whole.part(low, high).on_round(info(1), share)
    assert told == [0.0, 0.5, 0.5, 1.0]
