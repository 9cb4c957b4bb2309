"""Advice about columns, labels, groups and names; columns that are left out."""

import numpy as np
import pandas as pd
import pytest

from fcfl.data import Category, Choices, Columns, Schema, choose_columns, federate, summarise
from fcfl.data.cells import Texts
from fcfl.data.columns import (
    giveaway,
    label_pair,
    labelled_rows,
    may_be_codes,
    on_command_line,
    without_advice,
)
from fcfl.errors import DataError
from hospital import fcfl, stays, written

ROLES = Columns("site", "y", ("sex",))
ROWS = np.arange(200)


def table(n_rows=200, seed=0, **more):
    rng = np.random.default_rng(seed)
    sites, sexes = rng.choice(["a", "b"], n_rows), rng.choice(["f", "m"], n_rows)
    plain = {"site": sites, "sex": sexes, "x": rng.normal(size=n_rows)}
    return pd.DataFrame(plain | {"y": np.resize([0, 1], n_rows)}).assign(**more)


def chosen(frame, **choices):
    frame, columns = choose_columns(frame, ROLES, Choices(**choices))
    return frame, columns.drop, " ".join(frame.attrs.get("notes", ()))


# --- columns that are left out --------------------------------------------------------------------

IDENTIFIERS = {
    "person_id": ROWS * 7 + 3,
    "mrn": 10_000.0 - ROWS,
    "row": ROWS + 5,
    "uuid": [f"a{i:04x}" for i in ROWS],
}
DATES = {
    "iso": pd.date_range("2020-01-01", periods=200).strftime("%Y-%m-%d"),
    "times": pd.date_range("2020-01-01", periods=200, freq="min").strftime("%Y-%m-%d %H:%M"),
    "german": pd.date_range("2020-01-01", periods=200).strftime("%d.%m.%Y"),
    "american": ["1/31/20", None] * 100,
    "parsed": pd.date_range("2020-01-01", periods=200),
}
GIVEAWAYS = {
    "same": np.resize(["no", "yes"], 200),
    "several": np.resize(["no", "yes", "never", "always"], 200),
    "amount": np.where(ROWS % 2, 500.0 + ROWS, 499.0 - ROWS),
    "falling": np.where(ROWS % 2, -ROWS - 1, ROWS),
    "filled": np.where(ROWS % 2, ROWS % 13, np.nan),
    "reason": np.where(ROWS % 2, "late", None),
}


@pytest.mark.parametrize(
    ("found", "what"), [(IDENTIFIERS, "identifiers"), (DATES, "dates"), (GIVEAWAYS, "label 'y'")]
)
def test_identifiers_dates_and_giveaways_are_left_out(found, what):
    _, dropped, notes = chosen(table(**found))
    assert set(dropped) == set(found) and f"`keep={list(found)}`" in notes and what in notes


def test_a_column_without_a_name_is_no_feature_whatever_it_holds():
    _, dropped, notes = chosen(table(**{"Unnamed: 0": ROWS}))
    assert dropped == () and notes == ""  # `federate` notes that it is left out


def test_columns_that_the_user_names_are_used():
    more = {"id": ROWS, "copy": GIVEAWAYS["same"]}
    _, dropped, notes = chosen(table(**more), keep=("id",))
    assert dropped == ("copy",) and "'id'" not in notes
    _, dropped, notes = chosen(table(**more), features=("id", "copy"))
    assert dropped == ("x",) and notes == ""


@pytest.mark.parametrize(
    "cells",
    [
        np.random.default_rng(1).normal(size=200),  # a measurement never repeats
        ROWS * 3 + 1,  # nor do whole numbers that neither count rows nor are named like ids
        np.resize(["low", "high", "no date"], 200),
        np.resize(["2020-01-31", "later", "never"], 200),
        np.resize(["1.5", "2.5", "3.5"], 200),
        np.resize([0, 1, 1, 0], 200),
    ],
)
def test_other_columns_are_not_left_out(cells):
    assert chosen(table(cells=cells))[1] == ()


def test_sixteen_rows_are_too_few_to_leave_a_column_out():
    assert chosen(table(16, id=np.arange(16), copy=np.resize([0, 1], 16)))[1] == ()


def test_a_column_that_nearly_equals_the_label_is_named_and_used():
    _, dropped, notes = chosen(table(copy=np.where(ROWS == 7, "no", GIVEAWAYS["same"])))
    assert dropped == () and "`drop=['copy']`" in notes


@pytest.mark.parametrize("errors", [0, 1, 5, 30])
@pytest.mark.parametrize("n_rows", [300, 6_000])
def test_giveaways_are_found_in_text_and_numbers_alike(errors, n_rows):
    rng = np.random.default_rng(errors)
    y = (rng.random(n_rows) < 0.4).astype(float)
    copy = y.copy()
    wrong = rng.choice(n_rows, errors, replace=False)
    copy[wrong] = 1 - copy[wrong]
    is_near = errors <= 0.05 * min(y.sum(), n_rows - y.sum())
    expected = "certain" if errors == 0 else "likely" if is_near else None
    assert giveaway(Texts(copy.astype(np.int32), ("0", "1")), y) == expected
    assert giveaway(copy + rng.random(n_rows) / 2, y) == expected
    assert giveaway(-copy, y) == expected


def test_levels_of_one_row_each_give_nothing_away():
    y = np.resize([0.0, 1.0], 100)
    assert giveaway(Texts(np.arange(100, dtype=np.int32), tuple(map(str, range(100)))), y) is None


def test_a_level_whose_other_rows_have_one_label_each_predicts_neither():
    """Of labels 1, 1, 0 at one level no row's is predicted by the other two: three errors."""
    for levels, expected in ((3, "likely"), (4, None)):  # 9 and 12 errors, with 10 allowed
        y = np.append(np.repeat([0.0, 1.0], 200), np.tile([1.0, 1.0, 0.0], levels))
        codes = np.append(np.repeat([0, 1], 200), 2 + np.repeat(np.arange(levels), 3))
        cells = Texts(codes.astype(np.int32), tuple(map(str, range(2 + levels))))
        assert giveaway(cells, y) == expected


@pytest.mark.parametrize(
    ("choices", "named"),
    [
        ({"keep": ("xx",)}, "`keep` .* 'xx'. Did you mean 'x'"),
        ({"features": ("y",)}, "'y' must have one role, got `label` and `features`"),
        ({"categorical": ("x",), "numeric": ("x",)}, "'x' is in `categorical` and in `numeric`"),
    ],
)
def test_choices_that_do_not_fit(choices, named):
    with pytest.raises(DataError, match=named):
        chosen(table(), **choices)


# --- codes and numbers ----------------------------------------------------------------------------


def test_numbers_that_may_be_codes_are_noted_until_the_user_decides():
    more = {"sector": np.resize([1, 2, 5], 200), "zip_code": 10_000 + ROWS // 2}
    _, _, notes = chosen(table(**more, flag=ROWS % 7 % 2))
    assert "`categorical=['sector', 'zip_code']`" in notes and "flag" not in notes
    frame, _, notes = chosen(table(**more), categorical=("sector",), numeric=("zip_code",))
    assert "code" not in notes
    assert isinstance(frame["sector"].dtype, pd.CategoricalDtype)
    assert sorted(frame["sector"].unique()) == ["1", "2", "5"]
    with pytest.raises(DataError, match="'x' must hold numbers, got 'sixty'"):
        chosen(table(x=["sixty", *["1"] * 199]), numeric=("x",))


@pytest.mark.parametrize("seed", range(3))
def test_codes_are_distinguished_from_counts_ages_and_amounts(seed):
    rng = np.random.default_rng(seed)
    listed = rng.choice(np.arange(1, 1000), 300, replace=False)
    weights = rng.pareto(1.5, 300) + 0.05
    codes = {
        "diagnosis": rng.choice(listed, 20_000, p=weights / weights.sum()),
        "drg": rng.choice(listed, 20_000),
        "ward": rng.choice(listed[:40] * 100, 20_000),
        "zip": rng.integers(10_000, 99_999, 20_000),
    }
    numbers = {
        "age": rng.integers(18, 95, 20_000),
        "days": rng.geometric(0.1, 20_000),
        "visits": np.where(rng.random(20_000) < 0.001, 5_000, rng.poisson(30, 20_000)),
        "gain": np.where(rng.random(20_000) < 0.9, 0, rng.choice(listed * 37, 20_000)),
        "income": rng.lognormal(10, 1, 20_000).round(),
        "rounded": 500 * rng.poisson(80, 20_000),
        "year": rng.integers(1960, 2020, 20_000),
        "lab": rng.normal(size=20_000),
        "weight": rng.normal(80, 15, 20_000).round(1),
    }
    every = {**codes, **numbers}
    found = [name for name, cells in every.items() if may_be_codes(pd.Series(cells, name=name))]
    assert found == list(codes)


def agreed(cells, **options):
    frame = pd.DataFrame({"age": pd.Series(cells, dtype=object)})
    return Schema.from_statistics({"a": summarise(frame, ["age"])}, **options)


AGES = [str(age) for age in range(30, 90)]


@pytest.mark.parametrize(
    ("others", "because"),
    [
        (["sixty"], "'sixty'; 60 of 61"),
        (["<0.5", None, None], "'<0.5'; 60 of 61"),
        (["?", "sixty", "unknown"], "'?' and 2 more; 60 of 63"),
        (["inf"], "'inf'; 60 of 61"),
    ],
)
def test_a_few_cells_that_make_text_of_numbers_are_noted(others, because):
    schema = agreed(AGES + others)
    (note,) = schema.notes
    assert "'age' is taken as text" in note and because in note
    assert isinstance(schema.columns[0], Category)


def test_the_note_on_numbers_replaces_the_advice_on_identifiers():
    (note,) = agreed([*AGES, "sixty"], max_levels=20).notes
    assert "61 levels" in note and "'sixty'; 60 of 61" in note and "identifier" not in note


@pytest.mark.parametrize(
    "cells",
    [
        AGES,  # codes, kept as text
        [*AGES[:9], "sixty"],  # too few numbers
        [*AGES, *["unknown"] * 7],  # less than nine tenths
        [*["0", "1"] * 30, "unknown"],  # two codes and a third
        ["a", "b"] * 30,
    ],
)
def test_other_text_is_not_noted(cells):
    assert agreed(cells).notes == ()


@pytest.mark.thorough
def test_training_shows_the_note(tmp_path):
    frame = stays().astype({"age": object})
    frame.loc[0, "age"] = "sixty"
    outcome = fcfl(
        "train", written(frame, tmp_path / "stays.csv"), "--client", "hospital", "--label", "died",
        "--sensitive", "race", "--l2", "0.01", "--test-size", "0", "--method", "two-stage",
        "--rounds", "1,1", "--out", tmp_path / "run",
    )  # fmt: skip
    assert "'age' is taken as text because of 'sixty'; " in " ".join(outcome.output.split())


# --- labels, clients and groups -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("negative", "positive"),
    [
        ("no", "Yes"),
        ("denied", "approved"),
        ("rejected", "approved"),
        ("False", "True"),
        ("not approved", "approved"),
        ("non-smoker", "smoker"),
        ("unemployed", "employed"),
        ("nein", "ja"),
        ("control", "case"),
        ("9", "10"),
        ("-1", "1"),
        ("alpha", "beta"),
    ],
)
def test_the_positive_label_is_chosen_by_meaning(negative, positive):
    for values in ((negative, positive), (positive, negative)):
        assert label_pair(values, ROLES) == (negative, positive)


def test_an_arbitrary_positive_label_is_noted_with_the_option_that_chooses():
    label = np.random.default_rng(0).choice(["alpha", "beta"], 60)
    note = federate(table(60, y=label), ROLES).notes[0]
    assert "'beta'" in note and "`positive=`" in note
    note = federate(table(60, y=np.where(label == "beta", "Yes", "no ")), ROLES).notes[0]
    assert "'Yes' is the positive value" in note and "`positive=`" not in note


def test_clients_groups_and_levels_that_look_alike_are_noted():
    alike = {"site": ["a", "A"] * 30, "sex": ["f", "F", "m"] * 20, "w": ["er", "ER", "icu"] * 20}
    notes = " ".join(federate(table(60, **alike), ROLES).notes)
    assert all(pair in notes for pair in ("'A' and 'a'", "'F' and 'f'", "'ER' and 'er'"))


def test_clients_with_one_group_or_one_label_are_noted():
    frame = table(60, site=np.repeat(["a", "b", "c"], 20), sex=["f"] * 40 + ["f", "m"] * 10)
    frame["y"] = np.where(frame["site"] == "c", 1, frame["y"])
    notes = federate(frame, ROLES, test_size=0).notes
    assert "Only one group of 'sex' among the training rows of clients 'a', 'b'." in notes
    assert "Only one label value among the training rows of client 'c'." in notes


def test_rows_without_a_label_are_left_out_and_counted():
    labels = pd.Series(["yes", "no"] * 30).mask(np.arange(60) < 7)
    kept = labelled_rows(table(60, y=labels), "y")
    assert len(kept) == 53 and "left out: 7" in kept.attrs["notes"][0]
    assert federate(kept, ROLES).labels == ("no", "yes")
    with pytest.raises(DataError, match="'y' is empty in every row"):
        labelled_rows(table(60, y=None), "y")


def test_notes_name_options_as_in_python_or_on_the_command_line():
    note = "Left out: 'a b', 'c' (`keep=['a b', 'c']` uses them, `max_levels=` more)."
    assert on_command_line(note) == (
        "Left out: 'a b', 'c' (`--keep 'a b,c'` uses them, `--max-levels` more)."
    )
    assert without_advice(note) == "Left out: 'a b', 'c'."
