"""Models that select nearly nobody or everybody: which ones they are, and the advised threshold."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from fcfl import Difference, FCFLClassifier, train
from fcfl.client.counts import Counts
from fcfl.federation.federation import Federation
from fcfl.models.linear import Linear
from fcfl.results import read_result
from fcfl.results.evaluations import MAX_COUNTS, find_degenerate, threshold_selecting
from fcfl.results.result import Degenerate, DegenerateRows, degenerate_side
from hospital import fcfl

CLIENTS = ("north", "south")


def rare(rate=0.02, n_rows=4000, seed=0, names=CLIENTS):
    """Clients from one law, ``rate`` of whose rows are positive."""
    rng = np.random.default_rng(seed)
    parts = []
    for name in names:
        race = rng.choice(["a", "b"], n_rows, p=[0.6, 0.4])
        X = rng.normal(size=(n_rows, 3)) + np.outer(race == "b", [0.0, 0.0, 0.5])
        leaning = X[:, 0] + 0.7 * X[:, 1] + 0.4 * (race == "b")
        shifts = np.linspace(-12.0, 12.0, 2401)
        rates = np.array([expit(leaning + shift).mean() for shift in shifts])
        died = rng.random(n_rows) < expit(leaning + np.interp(rate, rates, shifts))
        frame = pd.DataFrame(X, columns=["x0", "x1", "x2"])
        parts.append(frame.assign(site=name, race=race, died=np.where(died, "yes", "no")))
    return pd.concat(parts, ignore_index=True)


def counts(selected, positives, n_rows):
    """Counts with these sums; which rows are selected does not matter."""
    true_positive = min(selected, positives)
    false_positive = selected - true_positive
    false_negative = positives - true_positive
    rest = n_rows - selected - false_negative
    return Counts(
        rest, false_positive, false_negative, true_positive, 0.0, np.zeros(0), np.zeros(0)
    )


@pytest.mark.parametrize(
    ("selected", "positives", "n_rows", "side"),
    [
        (0, 19, 1000, None),  # too few labelled rows to tell
        (0, 20, 1000, "nobody"),
        (5, 20, 1000, "nobody"),
        (6, 20, 1000, None),
        (5, 50, 1000, "nobody"),
        (20, 200, 1000, "nobody"),
        (21, 200, 1000, None),
        (1000, 981, 1000, None),
        (1000, 980, 1000, "everybody"),
        (995, 980, 1000, "everybody"),
        (994, 980, 1000, None),
        (980, 800, 1000, "everybody"),
        (979, 800, 1000, None),
        (500, 500, 1000, None),
        (0, 0, 0, None),
    ],
)
def test_a_model_is_degenerate_by_counts_of_labelled_rows(selected, positives, n_rows, side):
    assert degenerate_side(selected, positives, n_rows) == side
    mirrored = {"nobody": "everybody", "everybody": "nobody", None: None}[side]
    assert degenerate_side(n_rows - selected, n_rows - positives, n_rows) == mirrored
    found = find_degenerate(Linear(1), {"a": counts(selected, positives, n_rows)})
    assert (found is None) == (side is None)
    if found is not None:
        assert found.rows == (DegenerateRows("a", side, n_rows, positives, selected),)


def test_counts_with_noise_must_be_beyond_the_limits_by_as_much():
    assert degenerate_side(10, 200, 1000, noise=10) is None
    assert degenerate_side(9, 200, 1000, noise=10) == "nobody"
    assert degenerate_side(991, 800, 1000, noise=10) == "everybody"
    assert degenerate_side(0, 29, 1000, noise=10) is None


def test_clients_that_are_too_small_are_judged_together():
    small = counts(0, 15, 100)
    assert find_degenerate(Linear(1), {"a": small}) is None
    found = find_degenerate(Linear(1), {"a": small, "b": small})
    assert found.rows == (DegenerateRows(None, "nobody", 200, 30, 0),)


def test_pooled_rows_are_named_where_one_client_is_just_beyond_the_limit():
    """Advice from one client's rows alone would select too many at the others."""
    rare, nearly = counts(4, 66, 2800), counts(7, 52, 2800)
    found = find_degenerate(Linear(1), {"a": nearly, "b": rare})
    assert found.rows == (DegenerateRows(None, "nobody", 5600, 118, 11),)
    usual = counts(800, 900, 2800)
    found = find_degenerate(Linear(1), {"a": usual, "b": rare})
    assert [one.client for one in found.rows] == ["b"]


@pytest.mark.parametrize("n_rows", [2_000, 100_000])
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("rate", [0.001, 0.02, 0.1, 0.4, 0.97])
def test_the_search_finds_the_threshold_that_selects_as_many_as_have_the_label(
    rate, spread, n_rows
):
    rng = np.random.default_rng(0)
    scores = expit(np.log(rate / (1 - rate)) + spread * rng.standard_normal(n_rows))
    wanted, asked = max(round(rate * n_rows), 20), []

    def select(threshold):
        asked.append(threshold)
        return int((scores >= threshold).sum())

    threshold, selected = threshold_selecting(wanted, n_rows, select)
    assert selected == (scores >= threshold).sum()
    assert abs(selected - wanted) <= 0.05 * min(wanted, n_rows - wanted) + 1
    assert len(asked) <= MAX_COUNTS
    assert len(f"{min(threshold, 1 - threshold):g}".lstrip("0.")) <= 3  # a person can type it


def test_scores_that_are_all_alike_have_no_such_threshold():
    assert threshold_selecting(50, 1000, lambda threshold: 1000 * (threshold <= 0.05)) is None


def test_advice_names_the_option_as_it_is_typed():
    rows = (DegenerateRows("a", "nobody", 1000, 50, 1),)
    found = Degenerate(rows, 0.5, 0.12, 51)
    assert "--threshold 0.12." in found.way_out("--threshold ")
    assert "threshold=0.12." in found.in_python
    unknown = Degenerate(rows, 0.5)
    assert "(--threshold)" in unknown.way_out("--threshold ")


# --- a rare label from beginning to end ---


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("rare") / "stays.csv"
    rare().to_csv(path, index=False)
    return path


def train_at(table, folder, *options):
    given = ("--client", "site", "--label", "died", "--sensitive", "race", "--budget", "0.05")
    outcome = fcfl("train", table, *given, "--test-size", "0", "--out", folder, *options)
    return outcome, read_result(folder / "result.json")


def test_a_rare_label_fails_at_one_half_and_succeeds_at_the_advised_threshold(table, tmp_path):
    outcome, result = train_at(table, tmp_path / "half")
    assert outcome.exit_code == 3
    found = result.degenerate
    assert [one.client for one in found.rows] == list(CLIENTS)
    assert all(one.whom == "nobody" for one in found.rows) and found.threshold == 0.5
    assert result.threshold == 0.5
    advised = f"{found.advised_threshold:g}"
    page = (tmp_path / "half" / "report.html").read_text()
    title = page.split("<h1>")[1].split("</h1>")[0]
    assert "selects nearly nobody" in title
    for shown in (outcome.stdout, page):
        assert f"--threshold {advised}" in " ".join(shown.split())

    outcome, result = train_at(table, tmp_path / "advised", "--threshold", advised)
    assert outcome.exit_code == 0, outcome.output
    assert result.degenerate is None and result.threshold == found.advised_threshold
    scored = tmp_path / "scored.csv"
    assert fcfl("predict", tmp_path / "advised", table, "--out", scored).exit_code == 0
    frame = pd.read_csv(scored)
    selected, died = frame["prediction"] == "yes", frame["died"] == "yes"
    assert selected.mean() == pytest.approx(died.mean(), rel=0.2)
    for name, rows in frame.groupby("site"):
        own = selected[rows.index]
        assert own.mean() == pytest.approx(died[rows.index].mean(), rel=0.35), name
        by_race = own.groupby(rows["race"]).mean()
        assert by_race.max() - by_race.min() <= 0.05
        (entry,) = result.clients[name].train.disparities
        assert entry.value == pytest.approx(by_race.max() - by_race.min(), abs=1e-12)
    model = json.loads((tmp_path / "advised" / "model.json").read_text())
    assert model["threshold"] == found.advised_threshold


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("sweep", ("--budgets", "0.05", "--objective", "mean", "--confidence", 0)),
        pytest.param(
            *("compare", ("--budget", "0.05", "--methods", "sqp", "--confidence", 0)),
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_many_runs_take_the_threshold(table, tmp_path, command, options):
    names = ("--client", "site", "--label", "died", "--sensitive", "race")
    given = (*options, "--l2", "0.001", "--threshold", "0.1", "--out", tmp_path)
    outcome = fcfl(command, table, *names, *given)
    assert outcome.exit_code == 0, outcome.output
    for path in tmp_path.glob("*/result.json"):
        result = read_result(path)
        assert result.threshold == 0.1 and result.degenerate is None
        test = result.overall.test
        assert 0.5 < test.selected / test.positives < 2.0


@pytest.mark.thorough
def test_a_negotiation_takes_the_threshold(table, tmp_path):
    names = ("--client", "site", "--label", "died", "--sensitive", "race")
    given = ("--budgets", "0.2,0.05", "--most", 2, "--l2", "0.001", "--objective", "mean")
    outcome = fcfl("negotiate", table, *names, *given, "--threshold", "0.1", "--out", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    assert "--threshold 0.1" in outcome.stdout  # of the command that trains the agreement


def fitted(frame, **options):
    model = FCFLClassifier(budget=0.05, l2=0.001, objective="mean", confidence=0.0, **options)
    labels = (frame["died"] == "yes").astype(int)
    X = frame[["x0", "x1", "x2"]].to_numpy()
    return model.fit(X, labels, clients=frame["site"], sensitive_features=frame["race"])


def test_the_estimator_warns_and_takes_the_threshold(tmp_path):
    frame = rare()
    with pytest.warns(UserWarning, match=r"selects nearly nobody.*threshold=0\.\d+"):
        plain = fitted(frame)
    advised = plain.result_.degenerate.advised_threshold
    better = fitted(frame, threshold=advised)  # any warning is an error
    X = frame[["x0", "x1", "x2"]].to_numpy()
    selected = better.predict(X)
    assert selected.mean() == pytest.approx((frame["died"] == "yes").mean(), rel=0.2)
    np.testing.assert_array_equal(selected, better.predict_proba(X)[:, 1] >= advised)
    better.save(tmp_path)
    read = FCFLClassifier.load(tmp_path)
    assert read.threshold == advised
    np.testing.assert_array_equal(read.predict(X), selected)
    audit = better.audit(
        X, frame["died"] == "yes", clients=frame["site"], sensitive_features=frame["race"]
    )
    rows = frame["site"] == "north"
    by_race = pd.Series(selected)[rows].groupby(frame["race"][rows]).mean()
    found = audit.clients["north"].disparities[0].value
    assert found == pytest.approx(by_race.max() - by_race.min())


def test_a_run_in_python_has_the_finding_in_its_notes():
    from fcfl.data import Columns, federate

    table = federate(rare(), Columns("site", "died", ("race",)), test_size=0.0)
    rules = [Difference("demographic_parity", "race", 0.05)]
    clients = Federation.from_rows(table.train)
    given = {"l2": 0.001, "objective": "mean", "confidence": 0.0}
    trained = train(clients, Linear(table.schema.n_features), rules, **given)
    assert trained.degenerate.in_python in trained.notes
    again = train(
        clients,
        Linear(table.schema.n_features),
        rules,
        threshold=trained.degenerate.advised_threshold,
        **given,
    )
    assert again.degenerate is None and again.model.threshold != 0.5


def test_a_frequent_label_is_advised_a_higher_threshold():
    frame = rare().assign(died=lambda rows: np.where(rows["died"] == "yes", "no", "yes"))
    with pytest.warns(UserWarning, match="selects nearly everybody"):
        plain = fitted(frame)
    assert plain.result_.degenerate.advised_threshold > 0.8
    fitted(frame, threshold=plain.result_.degenerate.advised_threshold)


def test_thresholds_by_group_are_relative_to_the_common_one():
    frame = rare()
    X, given = frame[["x0", "x1", "x2"]].to_numpy(), {"clients": frame["site"]}
    model = fitted(frame, threshold=0.1, thresholds="group")
    given["sensitive_features"] = frame["race"]
    selected = pd.Series(model.predict(X, **given))
    assert selected.mean() == pytest.approx((frame["died"] == "yes").mean(), rel=0.5)
    cut = np.log(0.1 / 0.9)
    for (client, race), rows in frame.groupby(["site", "race"]):
        own = cut + model.thresholds_.by_client[client][race]
        expected = model.decision_function(X[rows.index]) >= own
        np.testing.assert_array_equal(selected[rows.index].to_numpy(bool), expected)
        assert abs(own - cut) < 2.0


def test_a_client_with_a_model_of_its_own_takes_the_threshold_of_the_run():
    from fcfl.client.client import LocalClient, Setup
    from helpers import RACE, all_rates, simulated_data

    data = simulated_data(0, n_rows=200)
    own = LocalClient("a", data, model=Linear(4))
    plain = LocalClient("a", data)
    params = np.array([0.3, -0.2, 0.5, 0.1, -1.0])
    setup = Setup(Linear(4, threshold=0.2), all_rates(RACE))
    half = Setup(Linear(4), all_rates(RACE))
    found, expected = own.count(setup, params), plain.count(setup, params)
    assert replace(found.train, scores=()).true_positive == expected.train.true_positive
    assert found.train.true_positive != plain.count(half, params).train.true_positive
    np.testing.assert_array_equal(found.rates, expected.rates)
