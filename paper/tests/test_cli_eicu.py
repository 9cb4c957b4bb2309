"""`fcfl data eicu` as a person uses it: from simulated tables to a trained model."""

import json
import os
import shlex
from pathlib import Path

import pandas as pd
import pytest

from hospital import fcfl, only_error, result_of

ROOT = Path(__file__).parents[2]
DEMO = Path(os.environ.get("FCFL_EICU_DEMO") or ROOT.parent / "shared" / "data" / "eicu-demo")
needs_demo = pytest.mark.skipif(
    not (DEMO / "patient.csv.gz").is_file(),
    reason="needs the open eICU demo: name its folder in FCFL_EICU_DEMO",
)


@pytest.fixture(scope="module")
def eleven(tmp_path_factory):
    """Eleven hospitals; of 400 stays, a fifth of the default, to be quick."""
    folder = tmp_path_factory.mktemp("eleven") / "tables"
    outcome = fcfl("data", "eicu", "--simulated", folder, "--hospitals", 11, "--stays", 400)
    assert outcome.exit_code == 0, outcome.output
    told = " ".join(outcome.stdout.split())
    assert "no patient behind any row" in told
    assert f"Next: fcfl data eicu {folder} --min-stays 300 --out stays.parquet" in told
    return folder


@pytest.fixture
def small(tmp_path):
    """Three hospitals of 120 stays, in the folder the test works in."""
    outcome = fcfl("data", "eicu", "--simulated", tmp_path / "mu", "--hospitals", 3, "--stays", 120)
    assert "--min-stays 90 --out stays.parquet" in outcome.stdout
    return tmp_path / "mu"


def next_command(outcome):
    """The arguments of the command that the screen says comes next."""
    line = outcome.stdout.splitlines()[-1]
    assert line.startswith("Next: fcfl train ")
    return shlex.split(line)[2:]


def test_eleven_hospitals_from_tables_to_clients(eleven, tmp_path):
    out = tmp_path / "stays.parquet"
    outcome = fcfl("data", "eicu", eleven, "--min-stays", 300, "--out", out)
    assert outcome.exit_code == 0, outcome.output
    assert max(map(len, outcome.stdout.splitlines()[:-2])) <= 80
    frame = pd.read_parquet(out)
    assert frame["hospital"].nunique() == 11
    assert frame["hospital"].value_counts().min() >= 300
    assert len(frame.columns) == 3 + 53 - 4
    lines = [" ".join(line.split()) for line in outcome.stdout.splitlines()]
    record = json.loads((tmp_path / "stays.cohort.json").read_text())
    assert f"stays read {record['stays_read']:,}" in lines
    for step in record["flow"]:
        assert f"{step['words']} {step['removed']:,} {step['left']:,}" in lines
        assert step["removed"] > 0
    assert f"stays kept {len(frame):,}" in lines
    assert next_command(outcome) == [
        "train", str(out), "--client", "hospital", "--label", "los7", "--sensitive", "race",
        "--budget", "0.05", "--test-size", "0.33",
    ]  # fmt: skip


@pytest.mark.parametrize(("label", "sensitive"), [("los7", "race"), ("mortality", "gender")])
def test_the_next_command_trains_within_its_budget(small, tmp_path, label, sensitive):
    outcome = fcfl(
        "data", "eicu", small, "--label", label, "--sensitive", sensitive, "--min-stays", 60,
        "--out", tmp_path / "stays.parquet",
    )  # fmt: skip
    command = [*next_command(outcome), "--l2", "0.1", "--objective", "1", "--min-group-rows", "1"]
    trained = fcfl(*command, "--out", tmp_path / "run")
    assert trained.exit_code in (0, 3), trained.output
    result = result_of(tmp_path / "run")
    assert sorted(result["clients"]) == ["101", "102", "103"]
    for client in result["clients"].values():
        (disparity,) = client["train"]["disparities"]
        assert disparity["attribute"] == sensitive
        assert disparity["smooth"] <= 0.05 + 1e-6
    assert (tmp_path / "run" / "report.html").is_file()


@needs_demo
def test_the_demo_by_region(tmp_path):
    outcome = fcfl(
        "data", "eicu", DEMO, "--features", "apache", "--client", "region",
        "--out", tmp_path / "demo.parquet",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    lines = [" ".join(line.split()) for line in outcome.stdout.splitlines()]
    assert "stays read 2,520" in lines
    assert "no heart rate charted not applied 2,519" in lines
    assert "stays kept 816" in lines
    assert any(line.startswith("note: 10 stays left out") for line in outcome.stderr.splitlines())
    trained = fcfl(
        *next_command(outcome), "--l2", "0.1", "--objective", "10", "--out", tmp_path / "run"
    )
    assert trained.exit_code in (0, 3), trained.output
    assert "of 5 budgets " in " ".join(trained.stdout.split())


@needs_demo
def test_the_demo_has_no_charts(tmp_path):
    told = only_error(fcfl("data", "eicu", DEMO, "--out", tmp_path / "demo.parquet"))
    assert "has no table nurseCharting (nurseCharting.csv.gz or nurseCharting.csv)" in told
    assert told.endswith("or use --features apache.")


def test_what_goes_wrong_is_one_sentence(small, tmp_path):
    out = ("--out", tmp_path / "stays.parquet")
    told = only_error(fcfl("data", "eicu", tmp_path / "nowhere", *out))
    assert told.startswith("There is no folder")
    told = only_error(fcfl("data", "eicu", small, *out))
    assert told.startswith("No hospital has at least 1500 stays left; the largest, ")
    whole = (small / "lab.csv.gz").read_bytes()
    (small / "lab.csv.gz").write_bytes(whole[: len(whole) // 2])
    told = only_error(fcfl("data", "eicu", small, "--min-stays", 60, *out))
    assert "lab.csv.gz' is cut short" in told and "'labresult'" in told
    assert not (tmp_path / "stays.parquet").exists()
    told = only_error(fcfl("data", "eicu", "--simulated", tmp_path))
    assert "must not be mixed with real ones" in told


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--features", "day2"], "`--features` must be one of day1, day1-all, apache, got 'day2'."),
        (["--label", "los3"], "`--label` must be one of los7, mortality, got 'los3'."),
        (["--client", "ward"], "`--client` must be one of hospital, region, got 'ward'."),
        (["--sensitive", "age"], "`--sensitive` must be one of race, gender, got 'age'."),
        (["--min-stays", "-1"], "`--min-stays` must be a whole number, 0 or more, got -1."),
        (["--out", "stays.csv"], "`--out` must end in .parquet, got 'stays.csv'."),
        (["--seed", "1"], "`--seed` only goes with --simulated."),
        (["--simulated", "--label", "los7"], "`--label` only goes without --simulated."),
        (["--simulated", "--stays", "3"], "`--stays` must be at least 24, got 3."),
        (["--simulated", "--hospitals", "0"], "`--hospitals` must be at least 1, got 0."),
    ],
)
def test_wrong_usage(tmp_path, arguments, sentence):
    outcome = fcfl("data", "eicu", tmp_path / "tables", *arguments)
    assert only_error(outcome, code=2).startswith(sentence)
    assert not list(tmp_path.iterdir())


def test_both_helps_read_well():
    for arguments, expected in (
        (["data"], ["Usage: fcfl data ", "eicu"]),
        (
            ["data", "eicu"],
            [
                "Usage: fcfl data eicu [OPTIONS] DIR",
                "fcfl data eicu --simulated simulated",
                "Examples",
            ],
        ),
    ):
        shown = fcfl(*arguments, "--help")
        assert shown.exit_code == 0
        assert max(map(len, shown.stdout.splitlines())) <= 80
        text = " ".join(shown.stdout.replace("│", " ").split())
        for words in expected:
            assert words in text
        for word in ("fair ", "unbiased", "debias"):
            assert word not in text.lower()


def test_without_a_folder_the_usage_is_told_and_the_list_of_sets_names_it():
    outcome = fcfl("data", "eicu")
    assert outcome.exit_code == 2
    assert "DIR" in outcome.stderr
    assert "fcfl data eicu --help" in " ".join(fcfl("data").stdout.split())
    assert "no built-in set 'eicus'" in only_error(fcfl("data", "eicus"))
