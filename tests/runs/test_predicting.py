"""fcfl predict: cells stay as they are, and what the model has never seen is said."""

import numpy as np
import pandas as pd
import pytest

from fcfl import FCFLClassifier
from fcfl.models.linear import load_model
from fcfl.runs import Experiment, run_experiment
from hospital import fcfl, only_error, stays, written

TABLE = {"client": "hospital", "label": "died", "sensitive": ("race",)}
SHORT = {"method": "fedavg", "rounds": (300,), "l2": 0.01}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short run on a table with awkward cells, which are not features."""
    folder = tmp_path_factory.mktemp("predicting")
    frame = stays(90)
    frame["age"] = frame["age"].fillna(50)
    frame["bed"] = [f"{i:03d}" for i in range(90)]
    frame["remark"] = ["=1+1", " two ", "-5", "N/A", '"q"', "@x"] * 15
    table = written(frame, folder / "stays.csv")
    experiment = Experiment(str(table), **TABLE, **SHORT, drop=("bed", "remark"), test_size=0.3)
    return run_experiment(experiment, folder / "run"), table


def predicted(trained, table, tmp_path, *options):
    out = tmp_path / "out.csv"
    outcome = fcfl("predict", trained[0].folder, table, "--out", out, *options)
    assert outcome.exit_code == 0, outcome.output
    return pd.read_csv(out, dtype=str, keep_default_na=False), outcome.stderr


def test_other_cells_are_those_of_the_file(trained, tmp_path):
    found, _ = predicted(trained, trained[1], tmp_path)
    before = pd.read_csv(trained[1], dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(found[list(before.columns)], before)
    assert list(found.columns[-3:]) == ["score", "prediction", "part"]


def test_no_option_is_advised_that_predict_does_not_have(trained, tmp_path):
    frame = stays(90).assign(ward=["?", "icu", "er"] * 30)
    _, notes = predicted(trained, written(frame, tmp_path / "marks.csv"), tmp_path)
    assert "Cells with '?' count as empty: 'ward' 30." in notes and "--missing" not in notes


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", ["parquet", "xlsx"])
@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
def test_marked_cells_of_other_files_stay_too(trained, tmp_path, suffix, out):
    frame = pd.read_csv(trained[1], dtype={"bed": str}, keep_default_na=False)[:6]
    frame["remark"] = ["?", "a", "N/A", "-", "b", None]
    if suffix == "xlsx":
        frame["code"] = ["?", 1, 2.5, 3, 4, None]
    table = tmp_path / f"t.{suffix}"
    getattr(frame, {"xlsx": "to_excel", "parquet": "to_parquet"}[suffix])(table, index=False)
    outcome = fcfl("predict", trained[0].folder, table, "--out", tmp_path / out)
    assert outcome.exit_code == 0, outcome.output
    read = pd.read_parquet if out.endswith("parquet") else pd.read_csv
    kept = {} if read is pd.read_parquet else {"keep_default_na": False, "na_values": [""]}
    found = read(tmp_path / out, **kept)
    assert found["remark"].astype(object).fillna("").tolist() == ["?", "a", "N/A", "-", "b", ""]
    if suffix == "xlsx":
        assert found["code"].astype(object).fillna("").tolist() == ["?", "1", "2.5", "3", "4", ""]


def test_held_out_rows_of_the_runs_own_table_are_marked(trained, tmp_path):
    found, notes = predicted(trained, trained[1], tmp_path)
    for name, client in trained[0].result.clients.items():
        parts = found.loc[found["hospital"] == name]
        assert (parts["part"] == "held-out").sum() == client.rows.test > 0
        for part, judged in (("train", client.train), ("held-out", client.test)):
            here = parts[parts["part"] == part]
            assert (here["prediction"] == here["died"]).mean() == judged.accuracy
    assert "of 90 were held out of training and are marked in column 'part'" in notes


@pytest.mark.parametrize("change", ["a row less", "a label changed", "no label"])
def test_rows_of_another_table_are_not_marked(trained, tmp_path, change):
    frame = pd.read_csv(trained[1], dtype=str)
    if change == "a row less":
        frame = frame[:-1]
    elif change == "no label":
        frame = frame.drop(columns="died")
    else:
        frame.loc[0, "died"] = "no" if frame.loc[0, "died"] == "yes" else "yes"
    found, notes = predicted(trained, written(frame, tmp_path / "t.csv"), tmp_path)
    assert "part" not in found.columns and "held out" not in notes


@pytest.mark.parametrize("threshold", [0.3, 0.6])
def test_a_row_is_positive_from_the_threshold_on(trained, tmp_path, threshold):
    found, notes = predicted(trained, trained[1], tmp_path, "--threshold", threshold)
    selected = found["score"].astype(float) >= threshold
    assert 0 < selected.sum() < 90
    assert ((found["prediction"] == "yes") == selected).all()
    assert f"{selected.sum()} positive, from a score of {threshold:g}" in notes


@pytest.mark.parametrize("threshold", ["0", "1", "nan"])
def test_a_threshold_that_selects_all_or_nobody_is_rejected(trained, threshold):
    outcome = fcfl("predict", trained[0].folder, trained[1], "--threshold", threshold)
    assert "`--threshold` must lie strictly between 0 and 1" in only_error(outcome, 2)


def test_unseen_levels_and_empty_cells_are_counted(trained, tmp_path):
    frame = pd.read_csv(trained[1], dtype=str)[:8]
    frame.loc[:5, "ward"] = ["a", "b", "c", "d", "d", "d"]
    frame.loc[[1, 2], "age"] = None
    _, notes = predicted(trained, written(frame, tmp_path / "t.csv"), tmp_path)
    assert "'ward' has 4 levels not seen in training, in 6 rows: 'a', 'b', 'c' and 1 more" in notes
    assert "Column 'age' is empty in 2 rows" in notes
    _, notes = predicted(trained, trained[1], tmp_path)
    assert "never" not in notes


def test_cells_that_a_spreadsheet_would_compute_are_escaped_on_request_only(trained, tmp_path):
    found, _ = predicted(trained, trained[1], tmp_path)
    assert found["remark"][0] == "=1+1"
    found, _ = predicted(trained, trained[1], tmp_path, "--escape-formulas")
    assert list(found["remark"][:6]) == ["'=1+1", " two ", "-5", "N/A", '"q"', "'@x"]


@pytest.mark.parametrize("name", ["out.xlsx", "out", "nowhere/out.csv", "."])
def test_a_place_where_predictions_cannot_be_written_is_rejected(trained, tmp_path, name):
    outcome = fcfl("predict", trained[0].folder, trained[1], "--out", tmp_path / name)
    told = only_error(outcome)
    assert "--out" in told or "nowhere" in told
    assert list(tmp_path.iterdir()) == []


# --- one format for the command line and Python ---------------------------------------------------


def test_a_classifier_loaded_from_a_run_predicts_what_the_command_line_does(trained, tmp_path):
    frame = pd.read_csv(trained[1])
    classifier = FCFLClassifier.load(trained[0].folder)
    found, _ = predicted(trained, trained[1], tmp_path)
    assert classifier.predict_proba(frame)[:, 1].tolist() == found["score"].astype(float).tolist()
    assert classifier.predict(frame).tolist() == found["prediction"].tolist()
    assert classifier.clients_ == ("north", "south", "west")
    audit = classifier.audit(
        frame, frame["died"], clients=frame["hospital"], sensitive_features=frame[["race"]]
    )
    assert set(audit.clients) == {"north", "south", "west"}


@pytest.mark.parametrize(
    "more",
    [
        {"budget": {"north": 0.1, "south": 0.2}, "ratio": 0.7},
        {"budget": 0.1, "scope": "both"},
        {"budget": 0.1, "scope": "global"},
        {},
    ],
)
def test_budgets_of_a_run_are_the_classifiers(tmp_path, more):
    table = written(stays(600), tmp_path / "stays.csv")
    experiment = Experiment(str(table), **TABLE, **SHORT, **more)
    run_experiment(experiment, tmp_path / "run")
    found = FCFLClassifier.load(tmp_path / "run").rules_
    asked = experiment.make_rules(("race",), ("north", "south", "west"))
    assert budgets_of(found) == budgets_of(asked)


def budgets_of(rules):
    """Every client's budget, and that over all rows, by rule."""
    budgets = {}
    for rule in rules:
        who = (None,) if rule.scope == "global" else ("north", "south", "west")
        budgets |= {(type(rule), rule.metric, rule.scope, c): rule.budget_of(c) for c in who}
    return {key: budget for key, budget in budgets.items() if budget is not None}


def numbers_only(tmp_path, labels=("no", "yes")):
    frame = stays(120)[["hospital", "race", "age"]].fillna(40)
    frame["other"] = np.arange(120) % 7
    y = np.where(frame["age"] + 9 * frame["other"] > 90, labels[1], labels[0])
    classifier = FCFLClassifier(l2=0.01, method="fedavg", rounds=5)
    X = frame[["age", "other"]]
    classifier.fit(X, y, clients=frame["hospital"], sensitive_features=frame["race"])
    classifier.save(tmp_path / "saved")
    return classifier, X


@pytest.mark.parametrize("labels", [("no", "yes"), (0, 1), (False, True)])
@pytest.mark.filterwarnings("ignore:The model selects nearly")
def test_a_classifier_saved_in_python_predicts_on_the_command_line(tmp_path, labels):
    classifier, X = numbers_only(tmp_path, labels)
    X.to_csv(tmp_path / "new.csv", index=False)
    outcome = fcfl("predict", tmp_path / "saved", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert outcome.exit_code == 0, outcome.output
    found = pd.read_csv(tmp_path / "p.csv")
    assert found["score"].tolist() == classifier.predict_proba(X)[:, 1].tolist()
    assert found["prediction"].tolist() == classifier.predict(X).tolist()
    again = FCFLClassifier.load(tmp_path / "saved")
    assert again.classes_.dtype == classifier.classes_.dtype
    assert fcfl("report", tmp_path / "saved").exit_code in (0, 3)


@pytest.mark.filterwarnings("ignore:The model selects nearly")
def test_a_model_of_plain_numbers_rejects_an_empty_cell(tmp_path):
    _, X = numbers_only(tmp_path)
    X.astype(object).mask(X["other"] == 3).to_csv(tmp_path / "new.csv", index=False)
    outcome = fcfl("predict", tmp_path / "saved", tmp_path / "new.csv")
    assert "trained on numbers only. Fill the cells in." in only_error(outcome)


def test_a_network_is_reported_to_need_python(tmp_path):
    torch = pytest.importorskip("torch")
    from fcfl.torch import save_module

    save_module(torch.nn.Linear(2, 1), tmp_path)
    with pytest.raises(Exception, match=r"is a network.*FCFLClassifier\.load"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("separator", "decimal", "encoding"),
    [(";", ",", "cp1252"), ("\t", ",", "utf-8-sig"), (",", ".", "utf-16")],
)
def test_predictions_keep_the_dialect_of_the_table(tmp_path, separator, decimal, encoding):
    frame = stays(90).assign(lab=np.linspace(0, 3.5, 90), who="Zoë")
    frame.loc[::7, "died"] = None
    path, out = tmp_path / "t.csv", tmp_path / "out.csv"
    frame.to_csv(path, index=False, sep=separator, decimal=decimal, encoding=encoding)
    experiment = Experiment(str(path), **TABLE, **SHORT, drop_unlabelled=True)
    run = run_experiment(experiment, tmp_path / "run")
    assert any("without a label" in note for note in run.result.notes)
    outcome = fcfl("predict", run.folder, path, "--out", out)
    assert outcome.exit_code == 0, outcome.output
    texts = (one.read_text(encoding=encoding).splitlines() for one in (path, out))
    lines = zip(*texts, strict=True)
    added = [after.removeprefix(before).split(separator) for before, after in lines]
    assert added[0] == ["", "score", "prediction", "part"]
    assert all(0 < float(score.replace(decimal, ".")) < 1 for _, score, _, _ in added[1:])
    parts = [part for *_, part in added[1:]]
    assert set(parts[::7]) == {""} and "" not in parts[1::7]
    assert f"{parts.count('held-out'):,} of 90 were held out" in outcome.stderr


def test_a_label_that_the_tables_encoding_does_not_have_is_named(trained, tmp_path):
    frame = stays(60).replace({"died": {"yes": "→"}})
    run = run_experiment(
        Experiment(str(written(frame, tmp_path / "a.csv")), **TABLE, **SHORT), tmp_path / "run"
    )
    new = frame.drop(columns="died").assign(who="Zoë")
    new.to_csv(tmp_path / "b.csv", index=False, encoding="cp1252")
    out = tmp_path / "out.csv"
    assert "'→'" in only_error(fcfl("predict", run.folder, tmp_path / "b.csv", "--out", out))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv", "run"]
