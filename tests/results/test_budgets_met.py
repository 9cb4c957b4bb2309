"""The exit code, a finished run and a trained model agree on whether budgets are met."""

import numpy as np
import pytest

from fcfl.results import read_result
from fcfl.results.findings import exceeded_budgets, findings_of
from fcfl.runs.run import Finished
from fcfl.training.train import train
from hospital import fcfl, stays, written

NAMES = ("--client", "hospital", "--label", "died", "--sensitive", "race")
SMALL = tuple(f"h{i}" for i in range(12))


def table(hospitals, rows):
    return stays(rows * len(hospitals), seed=1, hospitals=hospitals)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.thorough)


@pytest.mark.parametrize(
    ("hospitals", "rows", "options", "is_met"),
    [
        slow(SMALL, 120, ("--budget", "0.1"), True),
        slow(SMALL, 120, ("--budget", "0.001", "--max-rate-shift", "0"), False),  # few rows
        slow(SMALL, 120, ("--budget", "0.05", "--pooling", "none"), None),
        (("a", "b"), 600, ("--budget", "0.1", "--scope", "global"), True),
        (("a", "b"), 600, ("--budget", "0.1", "--thresholds", "group"), None),
        (("a", "b"), 600, ("--budget", "0.01", "--method", "fedavg", "--rounds", "3"), False),
    ],
)  # fmt: skip
def test_they_agree(tmp_path, monkeypatch, hospitals, rows, options, is_met):
    models = []

    def kept(*arguments, **given):
        models.append(train(*arguments, **given))
        return models[-1]

    monkeypatch.setattr("fcfl.runs.run.train", kept)
    path = written(table(hospitals, rows), tmp_path / "stays.csv")
    outcome = fcfl("train", path, *NAMES, *options, "--out", tmp_path / "run")
    (trained,), result = models, read_result(tmp_path / "run" / "result.json")
    finished = Finished(tmp_path / "run", result, np.zeros(0))
    assert finished.budgets_met is trained.budgets_met is (not result.exceeded)
    assert bool(exceeded_budgets(result)) is bool(trained.exceeded)
    assert outcome.exit_code == (3 if findings_of(result) else 0), outcome.output
    assert is_met in (None, trained.budgets_met)
    if not trained.budgets_met:
        assert outcome.exit_code == 3


@pytest.mark.parametrize("threshold", [0.5, 0.3])
def test_what_is_lost_weighs_wrong_decisions_by_the_threshold(tmp_path, threshold):
    path = written(table(("a", "b"), 600), tmp_path / "stays.csv")
    options = ("--budget", "0.05", "--threshold", threshold, "--out", tmp_path / "run")
    fcfl("train", path, *NAMES, *options)
    price = read_result(tmp_path / "run" / "result.json").price
    first, last = price.without_budgets, price.with_margins
    by_selection = (2 * threshold - 1) * (last.selected - first.selected)
    assert first.selected != last.selected
    assert price.lost == pytest.approx(first.accuracy - last.accuracy + by_selection, abs=1e-12)
