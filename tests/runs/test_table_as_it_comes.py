"""One command on a table with everything that tables have: said, left out, predicted alike."""

import numpy as np
import pandas as pd
import pytest

from fcfl.data import load_adult_frames
from fcfl.runs import Experiment, run_experiment
from hospital import NAMES, fcfl, only_error, stays, written

N_ROWS = 1000


def rows_of_adult():
    """1,000 people: codes, an id, a date, a leak, nine groups of which one has two people."""
    people = load_adult_frames()[0][:N_ROWS]
    rng = np.random.default_rng(0)
    codes = {name: code for code, name in enumerate(sorted(people["workclass"].dropna().unique()))}
    origin = rng.choice(list("ABCDEFGH"), N_ROWS)
    origin[:2] = "I"
    rich = people["income"] == ">50K"
    return pd.DataFrame(
        {
            "person_id": 10_000 + np.arange(N_ROWS),
            "day": pd.date_range("2020-01-01", periods=N_ROWS, freq="h").strftime("%Y-%m-%d"),
            "site": np.where(people["age"] < 40, "young", "old"),
            "sex": (people["sex"] == "Male").astype(int),
            "origin": origin,
            "sector": people["workclass"].map(codes),
            "job": people["occupation"],
            "marital": people["marital-status"],
            "hours": people["hours-per-week"].where(rng.random(N_ROWS) > 0.03),
            "amount": np.where(rich, 1000 + rng.integers(0, 500, N_ROWS), 0),
            "income": people["income"],
        }
    )


def as_it_comes(clean):
    """The same rows as a table may really be: ``?`` and ``-``, ``0`` beside ``0.0``."""
    odd = np.arange(len(clean)) % 2 == 1
    sector = clean["sector"].map("{:g}".format, na_action="ignore")
    return clean.assign(
        sex=np.where(odd, clean["sex"].astype(str), clean["sex"].astype(str) + ".0"),
        sector=np.where(odd, sector, sector + ".0"),
        hours=clean["hours"].map("{:g}".format, na_action="ignore").fillna("-"),
        job=clean["job"].fillna("?"),
    ).fillna({"sector": "?"})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("as-it-comes")
    clean = rows_of_adult()
    tables = {
        "clean": written(clean, folder / "clean.csv"),
        "messy": written(as_it_comes(clean), folder / "messy.csv"),
    }
    outcome = fcfl(
        "train", tables["messy"], "--client", "site", "--label", "income",
        "--sensitive", "sex,origin", "--budget", 0.2, "--categorical", "sector",
        "--l2", 0.01, "--objective", "mean", "--confidence", 0, "--out", folder / "run",
    )  # fmt: skip
    assert outcome.exit_code in (0, 3), outcome.output
    return folder / "run", tables, " ".join(outcome.stderr.split())


def test_all_that_matters_is_said_before_training(trained):
    notes = trained[2]
    for sentence in (
        "Cells with '-' or '?' count as empty: ",
        "identifiers, with another value in every row: 'person_id'",
        "Left out as dates: 'day' (`--keep day` uses them).",
        "give the label 'income' away in every row: 'amount'",
        "of origin = 'I': that group is left out of the comparison.",
    ):
        assert sentence in notes


def test_rows_written_the_clean_way_are_predicted_the_same(trained, tmp_path):
    folder, tables, _ = trained
    found = {}
    for name, path in tables.items():
        out = tmp_path / f"{name}.csv"
        assert fcfl("predict", folder, path, "--out", out).exit_code == 0
        found[name] = pd.read_csv(out)
    messy, clean = found["messy"], found["clean"]
    assert len(messy) == N_ROWS and 0 < (messy["prediction"] == ">50K").sum() < N_ROWS
    assert int((messy["prediction"] != clean["prediction"]).sum()) == 0
    assert messy["score"].tolist() == clean["score"].tolist()
    assert messy["part"].tolist() == clean["part"].tolist()


def test_codes_with_a_leading_zero_are_levels_when_training_and_when_predicting(tmp_path):
    frame = stays(240)
    frame["kind"] = np.where(frame["died"] == "yes", "01", np.resize(["1", "2"], 240))
    table = written(frame, tmp_path / "t.csv")
    experiment = Experiment(
        str(table), client="hospital", label="died", sensitive=("race",), keep=("kind",),
        categorical=("kind",), features=("kind",), method="fedavg", rounds=(300,), l2=0.01,
    )  # fmt: skip
    run_experiment(experiment, tmp_path / "run")
    assert fcfl("predict", tmp_path / "run", table, "--out", tmp_path / "p.csv").exit_code == 0
    found = pd.read_csv(tmp_path / "p.csv", dtype=str)
    assert (found["prediction"] == found["died"]).all()


def test_a_folder_with_a_file_for_each_client_needs_no_client_column(tmp_path):
    (tmp_path / "hospitals").mkdir()
    for name, rows in stays(240).groupby("hospital"):
        written(rows.drop(columns="hospital"), tmp_path / "hospitals" / f"{name}.csv")
    outcome = fcfl("data", tmp_path / "hospitals", "--label", "died", "--sensitive", "race")
    assert outcome.exit_code == 0, outcome.output
    assert all(name in outcome.stdout for name in ("north", "south", "west"))
    several = sorted((tmp_path / "hospitals").iterdir())
    again = fcfl("data", *several, "--label", "died", "--sensitive", "race")
    assert again.stdout.startswith("3 files")
    rows = again.stdout.splitlines()[1:]
    assert rows == outcome.stdout.splitlines()[-len(rows) :]


def test_files_of_one_name_may_hold_a_column_of_clients(tmp_path):
    paths = [tmp_path / year / "stays.csv" for year in ("2023", "2024")]
    for seed, path in enumerate(paths):
        path.parent.mkdir()
        written(stays(120, seed=seed), path)
    outcome = fcfl("data", *paths, *NAMES)
    assert outcome.exit_code == 0, outcome.output
    assert "north" in outcome.stdout
    said = only_error(fcfl("data", *paths, "--label", "died", "--sensitive", "race"))
    assert said.startswith("Two files are named 'stays'")


def test_many_files_are_not_called_a_column(tmp_path):
    for name, rows in stays(240).groupby("hospital"):
        written(rows.drop(columns="hospital"), tmp_path / f"{name}.csv")
    columns = ("--label", "died", "--sensitive", "race", "--max-clients", "2")
    said = only_error(fcfl("data", tmp_path, *columns))
    assert said.startswith("There are 3 files, one per client. If each of them")


def test_columns_in_advice_can_be_copied_to_the_command_line(tmp_path):
    frame = stays(240).assign(**{"stay id": [f"s{i}" for i in range(240)]})
    outcome = fcfl("data", written(frame, tmp_path / "t.csv"), *NAMES)
    assert "(`--keep 'stay id'` uses them)" in outcome.output


def test_thousands_of_clients_need_confirmation(tmp_path):
    frame = stays(2200).assign(person=[f"p{i // 2}" for i in range(2200)])
    table = written(frame, tmp_path / "t.csv")
    given = ("data", table, "--client", "person", "--label", "died", "--sensitive", "race")
    sentence = only_error(fcfl(*given))
    assert "Column 'person' names 1,100 clients." in sentence
    assert "`--max-clients 1100`" in sentence
    assert fcfl(*given, "--max-clients", 1100).exit_code == 0


def test_the_split_of_adult_is_its_own_unless_another_is_asked_for():
    given = ("data", "adult", "--sensitive", "sex")
    assert "`--test-size`" in only_error(fcfl(*given, "--test-size", 0.5))
    published, first, second = (
        fcfl(*given, *options).stdout
        for options in ((), ("--resplit",), ("--resplit", "--test-size", "0.5"))
    )
    assert len({published, first, second}) == 3
    assert "is always split" in only_error(fcfl("data", "adult-5", "--resplit"))
