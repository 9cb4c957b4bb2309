"""Bad input gets one sentence that names the column, client or value, or a sensible result."""

import numpy as np
import pandas as pd
import pytest

from hospital import (
    COLUMNS,
    SHORT,
    code_by_decisions,
    fcfl,
    only_error,
    result_of,
    stays,
    written,
)

BOUNDED = ("--budget", "0.05")
GLOBAL = ("--scope", "global")
NO_TWO_GROUPS = "No two groups of 'race' have enough of the training rows that "


def train_on(tmp_path, table, *options, columns=COLUMNS, rounds=SHORT, name="stays.csv"):
    """Train on a frame, a text or raw bytes."""
    path = tmp_path / name
    if isinstance(table, pd.DataFrame):
        written(table, path)
    else:
        path.write_bytes(table if isinstance(table, bytes) else table.encode())
    return fcfl("train", path, *columns, *rounds, "--out", tmp_path / "run", *options)


def with_cell(column, value, row=3):
    frame = stays()
    frame[column] = frame[column].astype(object)
    frame.loc[row, column] = value
    return frame


def at_north(column, value):
    frame = stays()
    frame.loc[frame["hospital"] == "north", column] = value
    return frame


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("", "The file '.*stays.csv' is empty. It needs a header and rows."),
        ("hospital,died,race,age\n", "The file .* has no rows, only a header."),
        (b"\x00\xff\xfe" * 20, "Cannot read '.*stays.csv': "),
        ("hospital,died,race\na,1,b,2,3\n", "Cannot read '.*stays.csv': "),
        ("died,died,race\n1,1,b\n", "Column 'died' occurs twice in "),
        (
            stays().rename(columns={"hospital": "hospitl"}),
            "`--client`",
        ),
        (with_cell("died", None), "'died' is empty .*'north' 1"),
        (
            with_cell("died", "maybe"),
            "Label column 'died' must have two values, got 3: 'maybe', 'no', 'yes'. ",
        ),
        (stays().assign(died="no"), "Label column 'died' must have two values, got 1: 'no'."),
        (with_cell("hospital", None), "Client column 'hospital' is empty in 1 of 240 rows."),
        (stays().assign(race=None), "Sensitive column 'race' is empty in every row."),
        (stays().assign(race=range(240)), "Sensitive column 'race' is a number with 240 distinct"),
        (
            stays()[["hospital", "died", "race"]],
            "The table must have at least one feature column that varies.*got none.",
        ),
        (
            stays()[["hospital", "died", "race"]].assign(k=1),
            r"The table must have at least one feature column that varies.*got \['k'\]",
        ),
        (stays().assign(z=np.inf), "Column 'z' has 240 infinite values. Replace them "),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "table",
)
def test_a_table_that_cannot_be_used_is_reported(tmp_path, table, sentence):
    told = only_error(train_on(tmp_path, table, *BOUNDED))
    assert pd.Series([told]).str.contains(sentence).all(), told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--budget", "-1"), 2, "`--budget`"),
        (("--budget", "nan"), 2, "`--budget`"),
        (("--budget", "2"), 2, "`--budget`"),
        (("--budget", "abc"), 2, "`--budget`"),
        (("--budget", "nroth=.1"), 1, "`--budget`"),
        (("--method", "sgd"), 2, "`--method`"),
        (("--metric", "parity"), 2, "`--metric`"),
        (("--scope", "site"), 2, "`--scope`"),
        (("--rounds", "a"), 2, "`--rounds`"),
        (("--rounds", ""), 2, "`--rounds`"),
        (("--rounds", "5"), 2, "`--rounds`"),
        (("--rounds", "-1,5"), 2, "`--rounds`"),
        (("--method", "fedavg", "--rounds", "0"), 2, "`--rounds`"),
        (("--test-size", "1"), 2, "`--test-size`"),
        (("--test-size", "-1"), 2, "`--test-size`"),
        (("--seed", "-1"), 2, "`--seed`"),
        (("--l2", "-1"), 2, "`--l2`"),
        (("--l2", "nan"), 2, "`--l2`"),
        (("--l2", "x"), 2, "`--l2`"),
        (
            ("--objective", "x"),
            2,
            "`--objective`",
        ),
        (("--curvature", "x"), 2, "`--curvature`"),
        (("--seed", "1.5"), 2, "`--seed`"),
        (("--test-size", "x"), 2, "`--test-size`"),
        (("--confidence", "2"), 2, "`--confidence`"),
        (("--option", "q"), 2, "`--option`"),
        (
            ("--method", "q-ffl", "--rounds", "5", "--option", "k=1"),
            2,
            "Unknown key `k` in the options of method 'q-ffl'. Known: ",
        ),
        (("--step-size", "0"), 2, "`--step-size`"),
        (("--ratio", "2"), 2, "`--ratio`"),
        (
            ("--sensitive", "hospital"),
            1,
            "Column 'hospital' must have one role, got `--client` and",
        ),
        (("--sensitive", "rcae"), 1, "`--sensitive`"),
        (("--positive", "maybe"), 1, "`--positive`"),
        (("--drop", "nothing"), 1, "`--drop`"),
    ],
    ids=str,
)
def test_a_bad_option_is_reported(tmp_path, options, code, sentence):
    told = only_error(train_on(tmp_path, stays(), *options), code)
    assert told.startswith(sentence), told
    assert not (tmp_path / "run").exists()


def test_a_table_that_is_not_there_is_reported(tmp_path):
    assert only_error(fcfl("train", tmp_path, *COLUMNS)) == (
        f"The folder {str(tmp_path)!r} has no file that ends in .csv, .csv.gz, .parquet, .xlsx."
    )
    assert only_error(fcfl("train", tmp_path / "no.csv", *COLUMNS)).startswith("There is no file ")
    assert only_error(fcfl("train", "adlt")) == (
        "There is no file and no built-in set 'adlt'. Did you mean 'adult'?"
    )
    (tmp_path / "stays.txt").write_text("a\n1\n")
    assert "must end in .csv, .csv.gz, .parquet or .xlsx." in only_error(
        fcfl("train", tmp_path / "stays.txt", *COLUMNS)
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("adult", "--client", "x"), "`--client`"),
        (("adult", "--drop", "age"), "`--drop`"),
        (("synthetic", "--label", "y"), "`--label`"),
        (("synthetic", "--sensitive", "y"), "`--sensitive`"),
        (("synthetic", "--ratio", "0.8"), "`--ratio`"),
        (("synthetic", "--budget", "a=0.8"), "`--budget`"),
        (("synthetic", "--relative-budget", "0.8"), "`--relative-budget`"),
        (("synthetic", "--loss", "hinge"), "`--loss`"),
    ],
)
def test_options_that_would_be_ignored_are_rejected(tmp_path, arguments, sentence):
    told = only_error(fcfl("train", *arguments, "--out", tmp_path / "run"))
    assert told.startswith(sentence)


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").write_text("mine")
    for out, sentence in {
        tmp_path / "file": "`--out` must be a folder",
        tmp_path / "file" / "run": "': Not a directory.",
    }.items():
        assert sentence in only_error(train_on(tmp_path, stays(), "--out", out))
    assert (tmp_path / "file").read_text() == "mine"


# --- odd, and still trained -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "note"),
    [
        (
            pd.concat([stays(), stays().head(1).assign(hospital="solo")]),
            "Only one training row at client 'solo'.",
        ),
        (at_north("died", "no"), "Only one label value among the training rows of client 'north'."),
        (at_north("race", "white"), "Only one group of 'race' among the training rows of client"),
        (at_north("race", None), "Rows without a value in 'race' belong to no group"),
        (stays().assign(k=1, s="x"), "Column 'k' is '1' in every training row and was left out."),
        (stays().assign(e=np.nan), "Column 'e' is empty and was left out."),
    ],
    ids=["one row", "one class", "one group", "no group", "constant", "empty column"],
)
def test_a_meagre_table_is_trained_with_a_note(tmp_path, table, note):
    outcome = train_on(tmp_path, table, *BOUNDED)
    assert outcome.exit_code == code_by_decisions(tmp_path / "run"), outcome.output
    assert f"note: {note}" in outcome.stderr
    for client in result_of(tmp_path / "run")["clients"].values():
        (entry,) = client["train"]["disparities"]
        assert entry["smooth"] is None or entry["smooth"] <= 0.05 + 1e-6


@pytest.mark.parametrize(
    "budget", [BOUNDED, ("--ratio", "0.8"), ("--relative-budget", "0.5"), (*BOUNDED, *GLOBAL)]
)
def test_a_budget_with_one_group_everywhere_is_rejected(tmp_path, budget):
    told = only_error(train_on(tmp_path, stays().assign(race="white"), *budget))
    assert "two groups of 'race'" in told and "groups are 'white'" in told
    assert "--scope" not in told and "--sensitive" in told
    assert not (tmp_path / "run").exists()


def test_one_group_everywhere_is_trained_without_a_budget(tmp_path):
    assert train_on(tmp_path, stays().assign(race="white")).exit_code == 0


def test_clients_of_one_group_each_have_a_budget_only_together(tmp_path):
    frame = stays()
    frame["race"] = np.where(frame["hospital"] == "north", "black", "white")
    told = only_error(train_on(tmp_path, frame, *BOUNDED))
    assert told.startswith(NO_TWO_GROUPS)
    assert "compare all rows together with `--scope global`" in told
    assert train_on(tmp_path, frame, *BOUNDED, *GLOBAL).exit_code in (0, 3)


def test_spaces_around_a_client_do_not_make_another_client(tmp_path):
    frame = stays()
    frame.loc[::7, "hospital"] = " " + frame.loc[::7, "hospital"] + " "
    outcome = train_on(tmp_path, frame, "--budget", "north=0.05", name="stays.parquet")
    assert outcome.exit_code == code_by_decisions(tmp_path / "run")
    assert result_of(tmp_path / "run")["clients"].keys() == {"north", "south", "west"}


AWKWARD = [
    "<script>alert(1)</script>",
    "[bold]x[/bold]",
    "[/]",
    "Zürich 🏥",
    "a=b c",
    "back\\",
    "all rows",
    "a\x1b[31mred",
    "a" * 90,
]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_awkward_client_names_are_kept_and_shown_as_they_are(tmp_path, suffix):
    frame = stays(n_rows=60 * len(AWKWARD), hospitals=AWKWARD)
    budgets = ("--budget", ",".join(f"{name}=0.05" for name in AWKWARD))
    outcome = train_on(tmp_path, frame, *budgets, name=f"stays.{suffix}")
    assert outcome.exit_code == code_by_decisions(tmp_path / "run"), outcome.output
    clients = result_of(tmp_path / "run")["clients"]
    assert "\x1b" not in outcome.stdout and set(clients) == set(AWKWARD)
    for name in AWKWARD:
        assert clients[name]["train"]["disparities"][0]["budget"] == 0.05
        assert name.replace("\x1b", "\\x1b")[:8] in outcome.stdout
    assert fcfl("train", "--resume", "--out", tmp_path / "run").exit_code == outcome.exit_code


def test_no_rounds_leave_the_first_parameters(tmp_path):
    rounds = ("--method", "two-stage", "--rounds", "0,0")
    assert train_on(tmp_path, stays(), rounds=rounds).exit_code == 3  # it decides alike on all rows
    losses = {c["train"]["loss"] for c in result_of(tmp_path / "run")["clients"].values()}
    assert [round(loss, 12) for loss in losses] == [round(float(np.log(2)), 12)] * len(losses)


@pytest.mark.thorough
def test_two_hundred_thousand_rows_are_trained(tmp_path):
    frame = stays(n_rows=200_000, hospitals=tuple(f"h{i}" for i in range(50)))
    short = ("--rounds", "3,3", "--l2", 0.01, "--objective", 10, "--confidence", 0, "--starts", 1)
    outcome = train_on(tmp_path, frame, *BOUNDED, rounds=short, name="s.parquet")
    assert outcome.exit_code == code_by_decisions(tmp_path / "run"), outcome.output
    assert "… and 10 more clients in result.json" in outcome.stdout
    rows = [client["rows"] for client in result_of(tmp_path / "run")["clients"].values()]
    assert sum(part["train"] + part["test"] for part in rows) == 200_000
