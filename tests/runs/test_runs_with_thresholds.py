"""A run with thresholds by group: its files, predictions of new rows, the page, the refusals."""

import numpy as np
import pandas as pd
import pytest

from fcfl import FCFLClassifier, Linear
from fcfl.client.client import Count, Setup
from fcfl.errors import DataError, FCFLError
from fcfl.export import model_as
from fcfl.models.linear import load_model
from fcfl.models.model import GroupThresholds
from fcfl.policy import Limits
from fcfl.report.page import write_page
from fcfl.results import read_result
from fcfl.runs import Experiment, run_experiment
from fcfl.sites.guards import check_question
from fcfl.sites.remote import RemoteFederation
from hospital import NAMES, fcfl, only_error, stays, written

TABLE = {"client": "hospital", "label": "died", "sensitive": ("race",)}
SETTLED = {"l2": 0.01, "objective": 1.0, "min_group_rows": 5, "confidence": 0.0}
ODD = "<b>01"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on a table with a group whose name is markup; the client column is numbers as text."""
    folder = tmp_path_factory.mktemp("thresholds")
    frame = stays(300, hospitals=("01", "02"), races=(ODD, "white"))
    table = written(frame, folder / "stays.csv")
    experiment = Experiment(str(table), **TABLE, **SETTLED, budget=0.05, thresholds="group")
    return run_experiment(experiment, folder / "run"), table, frame


def test_files_state_which_thresholds_and_predictions_are_those_counted(trained):
    finished, table, frame = trained
    read = read_result(finished.folder / "result.json")
    assert finished.budgets_met
    assert (
        finished.result.thresholds
        == read.thresholds
        == load_model(finished.folder).inputs.thresholds
    )
    assert set(read.thresholds.by_client) == {"01", "02"}
    assert set(read.thresholds.by_client["01"]) == {ODD, "white"}
    assert any("unlawful" in note for note in read.notes)
    outcome = fcfl("predict", finished.folder, table, "--out", table.parent / "out.csv")
    assert outcome.exit_code == 0, outcome.output
    assert "by client and group" in outcome.stderr and "unlawful" in outcome.stderr
    found = pd.read_csv(table.parent / "out.csv", dtype=str)
    for name, client in read.clients.items():
        for part, judged in (("train", client.train), ("held-out", client.test)):
            here = found[(found["hospital"] == name) & (found["part"] == part)]
            assert (here["prediction"] == here["died"]).mean() == judged.accuracy
            for group in judged.disparities[0].groups:
                own = here[here["race"] == group.group]
                assert (len(own), (own["prediction"] == "yes").sum()) == (
                    group.rows, group.selected,
                )  # fmt: skip
    classifier = FCFLClassifier.load(finished.folder)
    assert classifier.thresholds == "group"
    given = {"clients": frame["hospital"], "sensitive_features": frame["race"]}
    assert (classifier.predict(frame, **given) == found["prediction"]).all()


def test_rows_without_a_threshold_are_decided_by_the_common_one_and_counted(trained, tmp_path):
    finished, _, frame = trained
    new = frame.head(40).drop(columns="died").assign(hospital="elsewhere")
    new.loc[new.index[:3], "race"] = None
    table = written(new, tmp_path / "new.csv")
    outcome = fcfl("predict", finished.folder, table, "--out", tmp_path / "out.csv")
    assert "40 rows of a client or group" in outcome.stderr
    found = pd.read_csv(tmp_path / "out.csv")
    assert ((found["prediction"] == "yes") == (found["score"] >= 0.5)).all()


def test_predictions_need_the_columns_of_client_and_group_and_no_other_threshold(trained, tmp_path):
    finished, table, frame = trained
    for name in ("hospital", "race"):
        less = written(frame.drop(columns=name), tmp_path / f"no-{name}.csv")
        sentence = only_error(fcfl("predict", finished.folder, less))
        assert f"needs a column {name!r}" in sentence
    outcome = fcfl("predict", finished.folder, table, "--threshold", "0.3")
    assert "`--threshold` must be left out" in only_error(outcome)


def test_other_formats_have_no_place_for_thresholds(trained):
    with pytest.raises(DataError, match="thresholds by client and group"):
        model_as(load_model(trained[0].folder), "csv")
    assert "thresholds by client and group" in only_error(
        fcfl("export", trained[0].folder, "--to", "onnx")
    )


def test_the_page_lists_thresholds_and_states_where_they_may_be_unlawful(trained):
    page = write_page(trained[0].folder).read_text(encoding="utf-8")
    for word in ('id="thresholds"', "unlawful", "employment", "&lt;b&gt;01"):
        assert word in page
    own = trained[0].result.thresholds.by_client["01"]
    assert f"{own['white']:.6g}" in page and ODD not in page


def test_settings_that_do_not_go_with_thresholds_are_rejected(tmp_path):
    table = written(stays(60), tmp_path / "stays.csv")
    for more, sentence in (
        ({"scope": "both", "budget": 0.1}, "needs scope 'client', got 'both'"),
        ({"thresholds": "own"}, "`thresholds` must be"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Experiment(str(table), **{**TABLE, **SETTLED, "thresholds": "group", **more})
    outcome = fcfl("train", table, *NAMES, "--thresholds", "group", "--out", tmp_path / "run")
    assert "`--thresholds` 'group' needs a budget" in only_error(outcome)
    synthetic = Experiment("synthetic", budget=0.1, l2=0.0, objective="max", thresholds="group")
    with pytest.raises(FCFLError, match="has no `choose_thresholds`"):
        run_experiment(synthetic, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    again = Experiment.from_toml(written_settings(synthetic, tmp_path / "settings.toml"))
    assert again.thresholds == "group"


def written_settings(experiment, path):
    path.write_text(experiment.to_toml(), encoding="utf-8")
    return path


def test_sites_reject_thresholds_for_now():
    sites = RemoteFederation.__new__(RemoteFederation)  # nobody is asked anything
    with pytest.raises(FCFLError, match="'common' in a run over sites"):
        sites.check_chooses_thresholds()
    by_group = Setup(Linear(1), (), thresholds=GroupThresholds("race", {}))
    with pytest.raises(DataError, match="one common threshold"):
        check_question(Count(by_group, np.zeros(2)), None, Limits())


def test_a_model_file_with_torn_thresholds_is_not_whole(trained, tmp_path):
    text = (trained[0].folder / "model.json").read_text(encoding="utf-8")
    (tmp_path / "model.json").write_text(
        text.replace('"by_client"', '"by_clients"'), encoding="utf-8"
    )
    with pytest.raises(DataError, match="not a whole model"):
        load_model(tmp_path)
    assert np.isfinite(load_model(trained[0].folder).params).all()


@pytest.fixture(scope="module")
def of_files(tmp_path_factory):
    """A run on two files, whose names are the clients."""
    folder = tmp_path_factory.mktemp("files")
    for name, rows in stays(300, hospitals=("north", "south")).groupby("hospital"):
        written(rows.drop(columns="hospital"), folder / f"{name}.csv")
    columns = {"label": "died", "sensitive": ("race",)}
    table = f"{folder / 'south.csv'},{folder / 'north.csv'}"
    experiment = Experiment(table, **columns, **SETTLED, budget=0.05, thresholds="group")
    return run_experiment(experiment, folder / "run"), folder


def test_a_model_of_several_files_takes_a_files_name_as_its_client(of_files):
    finished, folder = of_files
    for name, client in finished.result.clients.items():
        outcome = fcfl(
            "predict", finished.folder, folder / f"{name}.csv", "--out", folder / "o.csv"
        )
        assert outcome.exit_code == 0, outcome.output
        assert "without a threshold" not in outcome.stderr
        found = pd.read_csv(folder / "o.csv", dtype=str)
        assert "(file)" not in found.columns
        for part, judged in (("train", client.train), ("held-out", client.test)):
            here = found[found["part"] == part]
            assert (here["prediction"] == here["died"]).mean() == judged.accuracy


@pytest.mark.parametrize("name", ["north.csv", "west.csv"])
def test_a_file_elsewhere_has_no_held_out_rows_that_are_known(of_files, tmp_path, name):
    finished, folder = of_files
    table = tmp_path / name
    table.write_bytes((folder / "north.csv").read_bytes())
    outcome = fcfl("predict", finished.folder, table, "--out", tmp_path / "o.csv")
    assert outcome.exit_code == 0, outcome.output
    is_new = name == "west.csv"
    assert ("rows of a client or group" in outcome.stderr) == is_new
    assert ("held-out rows of 'north.csv'" in outcome.stderr) == (not is_new)
    assert "part" not in pd.read_csv(tmp_path / "o.csv").columns
