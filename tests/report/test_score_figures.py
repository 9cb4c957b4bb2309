"""ROC and calibration by group: from counts in bins, and equal to scikit-learn's of the bins."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.metrics import roc_curve as by_sklearn

from fcfl.client.counts import N_BINS, count_scores, pool_scores
from fcfl.report.figures import area, calibration_points, roc_curve, score_line, score_plots
from fcfl.report.page import write_page
from fcfl.results import GroupScores, read_run
from hospital import fcfl, stays, written
from simulated import client, judged, parsed, result, write

RNG = np.random.default_rng(0)
SCORES = RNG.beta(2, 3, 40_000)
Y = (RNG.random(40_000) < SCORES).astype(float)
SEX = RNG.integers(-1, 2, 40_000)  # -1: not known
LEVELS = {"sex": ("f", "m")}


def counted(rows=slice(None)):
    return count_scores(SCORES[rows], Y[rows], {"sex": SEX[rows]}, LEVELS)


def as_written(one):
    return GroupScores(
        one.attribute, one.group, *(tuple(map(int, n)) for n in (one.negatives, one.positives))
    )


def test_counts_of_parts_add_up_to_those_of_the_whole():
    whole, parts = counted(), pool_scores([counted(slice(0, 15_000)), counted(slice(15_000, None))])
    for one, other in zip(whole, parts, strict=True):
        assert (one.attribute, one.group) == (other.attribute, other.group)
        assert one.negatives.tolist() == other.negatives.tolist()
        assert one.positives.tolist() == other.positives.tolist()
    assert sum(one.n_rows for one in whole) == (SEX >= 0).sum()
    assert pool_scores([counted(), ()]) == ()  # somebody does not tell


@pytest.mark.parametrize("code", [0, 1])
def test_the_curve_is_that_of_scikit_learn_on_binned_scores(code):
    one = as_written(counted()[code])
    rows = code == SEX
    binned = np.minimum((SCORES[rows] * N_BINS).astype(int), N_BINS - 1)
    curve = roc_curve(one)
    false, true, _ = by_sklearn(Y[rows], binned, drop_intermediate=False)
    assert {(round(x, 12), round(y, 12)) for x, y in zip(false, true, strict=True)} <= {
        (round(x, 12), round(y, 12)) for x, y in curve
    }
    assert area(curve) == pytest.approx(roc_auc_score(Y[rows], binned), abs=1e-12)
    assert area(curve) == pytest.approx(roc_auc_score(Y[rows], SCORES[rows]), abs=0.01)


def test_calibrated_scores_lie_on_the_diagonal():
    points = calibration_points(as_written(counted()[0]))
    assert len(points) > 10
    apart = [abs(x - y) for x, y in points if 0.1 < x < 0.8]
    assert np.mean(apart) < 0.05


def test_groups_with_few_people_of_a_label_have_no_curve(tmp_path):
    scores = [
        {"attribute": "race", "group": "a", "negatives": [30] * 20, "positives": [30] * 20},
        {"attribute": "race", "group": "b", "negatives": [30] * 20, "positives": [1] * 20},
    ]
    content = result({"north": client(judged(0.1, 0.0, 0.2, 0.05, "met"))})
    content["global"]["test"]["scores"] = scores
    a, b = parsed(content).overall.test.scores
    assert score_line(a).auc == pytest.approx(0.5) and score_line(b).auc is None
    assert score_line(b).share == pytest.approx(20 / 620)
    roc, _ = score_plots((a, b), "0")
    assert "a: area" in roc.about and "b: area" not in roc.about
    assert score_plots((b,), "0") == ()
    page = write_page(write(tmp_path, content)).read_text(encoding="utf-8")
    assert "people of one label: b." in page


def test_a_run_and_an_audit_of_its_scores_count_the_same(tmp_path):
    table = written(stays(900).fillna({"age": 60}), tmp_path / "t.csv")
    names = ("--client", "hospital", "--label", "died", "--sensitive", "race")
    trained = fcfl(
        "train", table, *names, "--method", "fedavg", "--rounds", 200, "--l2", 0.01,
        "--test-size", 0, "--out", tmp_path / "run",
    )  # fmt: skip
    assert trained.exit_code == 0, trained.output
    fcfl("predict", tmp_path / "run", table, "--out", tmp_path / "p.csv")
    audited = fcfl(
        "audit", tmp_path / "p.csv", *names, "--prediction", "score", "--threshold", 0.5,
        "--out", tmp_path / "audit",
    )  # fmt: skip
    assert audited.exit_code == 0, audited.output
    run, audit = (read_run(tmp_path / name).result for name in ("run", "audit"))
    assert run.overall.train.scores == audit.overall.test.scores != ()
    page = (tmp_path / "audit" / "report.html").read_text()
    assert "Scores by group" in page and "Area under ROC" in page
    rows = pd.read_csv(tmp_path / "p.csv")
    black = rows[rows["race"] == "black"]
    auc = roc_auc_score(black["died"] == "yes", np.floor(black["score"] * N_BINS))
    assert f'<td class="n">{auc:.3f}</td>' in page
