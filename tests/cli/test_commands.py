"""The command line as a person uses it: help, training, predicting, exit codes."""

import json
import re

import pandas as pd
import pytest

from fcfl import __version__
from fcfl.cli import COMMANDS
from fcfl.models.linear import load_model
from hospital import (
    COLUMNS,
    NAMES,
    SHORT,
    fcfl,
    only_error,
    result_of,
    stays,
    written,
)

HAND_WRITTEN = """\
site,died,race,age,ward,visits
north,yes,black,71,icu,3
north,no,white,40,er,1
north,yes,white,66,icu,
north,no,black,35,,2
south,no,black,52,er,0
south,yes,white,80,icu,4
south,yes,black,77,,5
south,no,white,,er,1
west,no,white,29,er,0
west,yes,black,90,icu,
west,no,black,,er,1
west,yes,white,68,icu,2
"""
NEW_ROWS = """\
age,ward,visits,name
50,moon,1,an unseen level
,icu,,a missing age
70,,2,a missing ward
"""
HAND_COLUMNS = (
    "--client",
    "site",
    "--label",
    "died",
    "--sensitive",
    "race",
    "--min-group-rows",
    "1",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder of a run on the hand-written table, all of it training rows."""
    place = tmp_path_factory.mktemp("hand")
    (place / "hand.csv").write_text(HAND_WRITTEN)
    outcome = fcfl(
        "train", place / "hand.csv", *HAND_COLUMNS, *SHORT, "--test-size", 0, "--budget", 0.1,
        "--out", place / "run",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    assert f"Written to {place / 'run'}" in outcome.stdout
    return place / "run"


def test_training_writes_the_folder_and_states_who_is_served_worst(trained):
    names = {path.name for path in trained.iterdir()}
    assert names >= {"result.json", "model.json", "history.jsonl", "experiment.toml"}
    result = result_of(trained)
    assert {name: client["rows"]["train"] for name, client in result["clients"].items()} == {
        "north": 4,
        "south": 4,
        "west": 4,
    }
    model = load_model(trained)
    assert model.inputs.schema.feature_names == (
        "age", "age missing", "ward=er", "ward=icu", "ward missing", "visits", "visits missing",
    )  # fmt: skip


def test_new_rows_are_predicted_though_a_level_is_unseen_and_cells_are_empty(trained, tmp_path):
    (tmp_path / "new.csv").write_text(NEW_ROWS)
    outcome = fcfl("predict", trained, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert outcome.exit_code == 0
    assert "has 1 level not seen in training, in 1 row: 'moon'" in outcome.stderr
    assert f"note: 3 rows written to {tmp_path / 'out.csv'}: " in outcome.stderr
    predicted = pd.read_csv(tmp_path / "out.csv")
    assert list(predicted.columns) == ["age", "ward", "visits", "name", "score", "prediction"]
    assert predicted["score"].between(0, 1).all()
    assert list(predicted["prediction"] == "yes") == list(predicted["score"] >= 0.5)
    weights = json.loads((trained / "model.json").read_text())["weights"]
    model = load_model(trained)
    age, visits = model.inputs.schema.columns[0], model.inputs.schema.columns[2]
    logit = weights["(intercept)"] + weights["age"] * (50 - age.mean) / age.scale
    logit += weights["visits"] * (1 - visits.mean) / visits.scale
    assert predicted["score"][0] == pytest.approx(1 / (1 + 2.718281828459045**-logit))


def test_predictions_of_the_training_rows_are_the_runs_own(trained, tmp_path):
    table = trained.parent / "hand.csv"
    fcfl("predict", trained, table, "--out", tmp_path / "out.parquet")
    predicted = pd.read_parquet(tmp_path / "out.parquet")
    assert predicted["score"].tolist() == load_model(trained).scores(pd.read_csv(table)).tolist()
    for name, client in result_of(trained)["clients"].items():
        here = predicted[predicted["site"] == name]
        assert (here["prediction"] == here["died"]).mean() == client["train"]["accuracy"]


def test_predictions_go_to_the_screen_as_csv(trained, tmp_path):
    (tmp_path / "new.csv").write_text(NEW_ROWS)
    outcome = fcfl("predict", trained / "model.json", tmp_path / "new.csv")
    assert outcome.stdout.splitlines()[0] == "age,ward,visits,name,score,prediction"
    assert len(outcome.stdout.splitlines()) == 4


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("age,ward\n1,er\n", "The table has no column 'visits'. Known: 'age', 'ward'."),
        ("age,ward,vists\n1,er,1\n", "The table has no column 'visits'. Did you mean 'vists'?"),
        ("age,ward,visits\n", "has no rows, only a header."),
        ("", "is empty. It needs a header and rows."),
        ("age,ward,visits\nold,er,1\n", "Column 'age' must hold numbers, got 'old'."),
        ("age,ward,visits,score\n1,er,1,1\n", "The table already has a column 'score'"),
    ],
)
def test_new_rows_that_do_not_fit_are_reported(trained, tmp_path, text, sentence):
    (tmp_path / "new.csv").write_text(text)
    outcome = fcfl("predict", trained, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert sentence in only_error(outcome)
    assert not (tmp_path / "out.csv").exists()


def test_a_torn_or_absent_model_is_reported(trained, tmp_path):
    (tmp_path / "new.csv").write_text(NEW_ROWS)
    text = (trained / "model.json").read_text()
    (tmp_path / "model.json").write_text(text[: len(text) // 2])
    assert "is not a whole model" in only_error(fcfl("predict", tmp_path, tmp_path / "new.csv"))
    told = only_error(fcfl("predict", tmp_path / "none", tmp_path / "new.csv"))
    assert told.startswith("There is no model at ")


# --- exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [("--method", "fedavg", "--rounds", "60"), (*SHORT, "--published", "--step-size", 2)]
)
def test_exceeded_budgets_give_exit_code_3_and_are_named(tmp_path, options):
    table = written(stays(), tmp_path / "stays.csv")
    outcome = fcfl(
        "train", table, *COLUMNS, "--budget", "0.0001", *options, "--out", tmp_path / "run"
    )
    assert outcome.exit_code == 3
    shown, page = " ".join(outcome.stdout.split()), (tmp_path / "run" / "report.html").read_text()
    assert " exceeded on the training rows: " in shown and "(exit code 3)." in page
    exceeded = {name for name, client in result_of(tmp_path / "run")["clients"].items()
                if client["train"]["disparities"][0]["value"] > 0.0001}  # fmt: skip
    assert exceeded and all(f"{name} by" in shown and f"{name} by" in page for name in exceeded)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train"], "`TABLE` is missing: a CSV, Parquet or xlsx file, or a built-in set."),
        (["train", "--resume"], "--resume without a table requires --out."),
        (["train", "t.csv"], "A table requires --client, --label and --sensitive"),
        (["train", "t.csv", "--client", "c", "--label", "y"], "A table requires --sensitive"),
        (["data", "t.csv", "--label", "y"], "A table requires --client and --sensitive"),
        (["train", "adult", "--resume", "--overwrite"], "Give --resume or --overwrite, not both."),
    ],
)
def test_wrong_usage_gives_exit_code_2_and_a_sentence(arguments, sentence):
    assert only_error(fcfl(*arguments), code=2).startswith(sentence)


def test_resume_takes_the_settings_of_the_folder(trained):
    assert "`--budget`" in only_error(
        fcfl("train", "--resume", "--out", trained, "--budget", "0.1"), code=2
    )


def test_debug_shows_where_an_error_comes_from(tmp_path):
    outcome = fcfl("train", tmp_path / "none.csv", *COLUMNS, "--debug")
    assert "There is no file" in str(outcome.exception)
    assert outcome.exception.__traceback__ is not None


def test_an_unexpected_error_is_one_line_too(monkeypatch, tmp_path):
    def break_down(*arguments, **options):
        raise KeyError("gone")

    monkeypatch.setattr("fcfl.cli.train.run_session", break_down)
    told = only_error(fcfl("train", "adult", "--out", tmp_path / "run"))
    assert told == "Unexpected KeyError: 'gone'. For the traceback, add --debug."


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["train", "predict", "audit", "report", "demo", "data"])
def test_help_describes_every_argument_and_option_within_80_columns(command):
    shown = fcfl(command, "--help")
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    text = " ".join(shown.stdout.replace("│", " ").split())
    expected = {
        "train": "CSV, Parquet or xlsx file, several files, a folder ",
        "predict": "Folder of a run, or of a classifier saved in Python.",
        "demo": "Folder to write.",
        "data": "Default: list the built-in sets.",
        "audit": "Column with predicted classes or scores.",
        "report": "fcfl report runs/mine",
    }
    assert expected[command] in text
    for word in ("fair ", "unbiased", "debias"):
        assert word not in text.lower()


def test_the_version_and_the_commands_in_order_of_use_are_listed():
    assert fcfl("--version").stdout == f"fcfl {__version__}\n"
    bare = fcfl()
    listed = re.findall(r"^│ (\w\S*)", bare.stdout, re.MULTILINE)
    assert listed[: len(COMMANDS)] == list(COMMANDS)  # others may be installed


def test_data_lists_the_built_in_sets_and_describes_a_table(tmp_path):
    listed = fcfl("data").stdout
    for name in ("adult", "adult-5", "adult-occupation", "synthetic"):
        assert name in listed
    assert "Two non-convex objectives" in fcfl("data", "synthetic").stdout
    table = written(stays(), tmp_path / "stays.csv")
    shown = fcfl("data", table, *NAMES, "--drop", "sex")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[-1] == "6 features, label died: yes counts as 1"
    assert "race = black" in shown.stdout


def test_several_rules_give_one_table_each(tmp_path):
    table = written(stays(), tmp_path / "stays.csv")
    outcome = fcfl(
        "train", table, "--client", "hospital", "--label", "died", "--sensitive", "race,sex",
        "--min-group-rows", 1,
        "--budget", "0.1", "--ratio", "0.8", "--scope", "both", *SHORT, "--out", tmp_path / "run",
    )  # fmt: skip
    titles = [line.strip() for line in outcome.stdout.splitlines() if line.startswith("two-stage")]
    assert titles == [
        "two-stage: demographic parity difference, race, budget 0.1",
        "two-stage: demographic parity ratio, race, budget 0.8",
        "two-stage: demographic parity difference, sex, budget 0.1",
        "two-stage: demographic parity ratio, sex, budget 0.8",
    ]
    assert " of 16 budgets " in " ".join(outcome.stdout.split())
    assert sum(line.startswith("all rows ") for line in outcome.stdout.splitlines()) == 4
