"""`fcfl train --privacy`: the command, the folder, the page, and the estimator."""

import json

import numpy as np
import pandas as pd
import pytest

from fcfl import FCFLClassifier
from fcfl.federation.session import Session
from fcfl.runs import Experiment
from fcfl.runs.many_runs import run_comparison, run_sweep
from hospital import fcfl, only_error, stays, written

SCHEMA = """
label = ["no", "yes"]
[groups]
race = ["black", "white"]
[numbers]
age = [60, 15]
[categories]
ward = ["icu", "er", "07"]
"""
COLUMNS = ("--client", "hospital", "--label", "died", "--sensitive", "race")
PRIVACY = ("--privacy", "epsilon=4,delta=1e-6")


@pytest.fixture
def table(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    frame = pd.concat([stays(6000), stays(3, seed=1).assign(race="unheard of")])
    return written(frame, tmp_path / "stays.csv")


def test_a_private_run_states_its_epsilon_on_the_screen_the_page_and_in_the_result(table, tmp_path):
    schema = ("--schema", tmp_path / "schema.toml")
    out = tmp_path / "out"
    done = fcfl("train", table, *COLUMNS, *PRIVACY, *schema, "--budget", "0.1", "--out", out)
    assert done.exit_code in (0, 3), done.output
    shown = " ".join(done.output.split())
    assert "epsilon 4 at delta 1e-06 for each of north, south, west" in shown
    assert "Privacy does not cover" in shown and "report no losses" in shown
    result = json.loads((out / "result.json").read_text())
    assert result["privacy"]["clients"]["north"] == {"epsilon": 4.0, "delta": 1e-6}
    assert result["method"] == "private" and result["selection"] is None
    assert result["data"]["sha256"] == "withheld: the rows are private"
    assert result["settings"]["privacy"] == {"epsilon": 4.0, "delta": 1e-6}
    page = (out / "report.html").read_text()
    assert "<h3>Privacy</h3>" in page and "epsilon 4 at delta 1e-06" in page
    again = fcfl("train", "--resume", "--out", out)
    assert again.exit_code == done.exit_code, again.output
    predicted = fcfl("predict", out, table, "--out", tmp_path / "predicted.csv")
    assert predicted.exit_code == 0, predicted.output


def test_without_a_declared_schema_nothing_is_read_off_the_rows(table):
    said = only_error(fcfl("train", table, *COLUMNS, *PRIVACY, "--budget", "0.1"))
    assert said.startswith("`--privacy` requires `--schema FILE`")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--privacy", "epsilon=2"), "epsilon=E,delta=D"),
        (("--privacy", "epsilon=2,delta=x"), "epsilon=E,delta=D"),
        (("--privacy", "epsilon=0,delta=1e-6"), "`epsilon` must be"),
        (("--method", "private"), "`--privacy` and method 'private' belong together"),
        (("--method", "fedavg", *PRIVACY), "`--privacy` and method 'private' belong together"),
    ],
)
def test_settings_that_do_not_fit_are_wrong_usage(table, options, sentence):
    assert sentence in only_error(fcfl("train", table, *COLUMNS, *options), code=2)


@pytest.mark.parametrize(
    "options",
    [
        ("--drop", "ward"),
        ("--keep", "age"),
        ("--features", "age"),
        ("--categorical", "age"),
        ("--numeric", "ward"),
        ("--missing", "x"),
        ("--max-levels", "3"),
        ("--max-clients", "3"),
        ("--positive", "no"),
        ("--confidence", "0"),
        ("--max-accuracy-loss", "0.1"),
        ("--start", "uniform"),
        ("--starts", "2"),
    ],
    ids=lambda options: options[0],
)
def test_an_option_that_would_do_nothing_is_rejected(table, tmp_path, options):
    schema = ("--schema", tmp_path / "schema.toml")
    said = only_error(fcfl("train", table, *COLUMNS, *PRIVACY, *schema, *options), code=2)
    assert said.startswith(f"`{options[0]}` must be left out with `--privacy`, got ")


@pytest.mark.parametrize("options", [("--resplit",), ("--test-size", "0.2")])
def test_adult_keeps_its_split_in_a_private_run(options):
    said = only_error(fcfl("train", "adult", *PRIVACY, *options), code=2)
    assert "must be left out with `--privacy`" in said


def test_several_files_are_not_clients_of_a_private_run(table, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("north", "south"):
        written(stays(), folder / f"{name}.csv")
    columns = ("--label", "died", "--sensitive", "race", "--schema", tmp_path / "schema.toml")
    said = only_error(fcfl("train", folder, *columns, *PRIVACY))
    assert "`--privacy` requires a table in one file" in said and "2 files" in said


@pytest.mark.parametrize("command", ["train", "data", "compare"])
def test_a_schema_without_privacy_is_rejected(command, table, tmp_path):
    schema = ("--schema", tmp_path / "schema.toml")
    said = only_error(fcfl(command, table, *COLUMNS, *schema))
    assert said.startswith("`--schema` belongs to `fcfl train --privacy`")


def test_settings_are_written_and_read_back(tmp_path):
    settings = Experiment("adult-5", privacy={"epsilon": 2.0, "delta": 1e-6}, budget=0.05)
    (tmp_path / "run.toml").write_text(settings.to_toml())
    assert Experiment.from_toml(tmp_path / "run.toml") == settings
    assert settings.method == "private"


def test_the_estimator_takes_a_privacy_budget():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 4000)
    X = rng.standard_normal((4000, 3))
    X[:, 0] += sex == "m"
    y = (X[:, 0] + 2 * X[:, 1] + rng.logistic(size=4000) > 0.5).astype(int)
    model = FCFLClassifier(0.1, privacy={"epsilon": 4.0, "delta": 1e-6})
    model.fit(X, y, sensitive_features=sex)
    assert model.result_.privacy.clients["all rows"].epsilon == 4.0
    assert model.result_.method == "private" and model.score(X, y) > 0.55
    with pytest.raises(ValueError, match="`privacy` must be"):
        FCFLClassifier(privacy={"epsilon": 1.0}).fit(X, y, sensitive_features=sex)
    with pytest.raises(ValueError, match="`confidence` must be left out with `privacy`"):
        FCFLClassifier(confidence=0.9, privacy={"epsilon": 1.0, "delta": 1e-6}).fit(X, y)
    with pytest.raises(ValueError, match="`method` must be left out"):
        FCFLClassifier(method="fedavg", privacy={"epsilon": 1.0, "delta": 1e-6}).fit(X, y)


def test_what_trains_several_times_is_rejected(tmp_path):
    """Each run would state its own epsilon, and all together cost more."""
    settings = Experiment("adult-5", privacy={"epsilon": 2.0, "delta": 1e-6})
    with pytest.raises(ValueError, match="`privacy` must be left out of a sweep"):
        run_sweep(settings, [0.1, 0.05], Session(tmp_path), relative=False)
    with pytest.raises(ValueError, match="`privacy` must be left out of a comparison"):
        run_comparison(settings, ["private"], [0, 1], Session(tmp_path))
    assert not list(tmp_path.iterdir())
