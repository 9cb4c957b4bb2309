"""Tables as people have them: what is certain is done and said, what is not is said."""

import numpy as np
import pandas as pd
import pytest

from fcfl.data import Choices, Columns, choose_columns, read_table, read_tables, table_files
from fcfl.data.cells import Texts
from fcfl.data.lint import giveaway
from fcfl.errors import DataError

ROLES = Columns("site", "y", ("sex",))


def table(n_rows=200, seed=0, **more):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "site": rng.choice(["a", "b"], n_rows),
            "sex": rng.choice(["f", "m"], n_rows),
            "x": rng.normal(size=n_rows),
            "y": np.resize([0, 1], n_rows),
        }
    )
    return frame.assign(**more)


def chosen(frame, **choices):
    frame, columns = choose_columns(frame, ROLES, Choices(**choices))
    return frame, columns.drop, " ".join(frame.attrs.get("notes", ()))


# --- what is left out -----------------------------------------------------------------------------

ROWS = np.arange(200)
NAMED = {
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
LABELS = {
    "same": np.resize(["no", "yes"], 200),
    "several": np.resize(["no", "yes", "never", "always"], 200),
    "amount": np.where(ROWS % 2, 500.0 + ROWS, 499.0 - ROWS),
    "falling": np.where(ROWS % 2, -ROWS - 1, ROWS),
    "filled": np.where(ROWS % 2, ROWS % 13, np.nan),
    "reason": np.where(ROWS % 2, "late", None),
}


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (NAMED, "Left out as identifiers, with another value in every row: 'person_id', 'mrn', "),
        (DATES, "Left out as dates: 'iso', 'times', 'german', 'american', 'parsed' ("),
        (LABELS, "Left out as columns that give the label 'y' away in every row: "),
    ],
)
def test_identifiers_dates_and_the_label_again_are_left_out(found, sentence):
    _, dropped, notes = chosen(table(**found))
    assert set(dropped) == set(found) and sentence in notes
    assert f"`keep={list(found)}`" in notes


def test_what_is_kept_or_named_as_a_feature_is_not_left_out():
    more = {"id": ROWS, "said": LABELS["same"]}
    _, dropped, notes = chosen(table(**more), keep=("id",))
    assert dropped == ("said",) and "'id'" not in notes
    _, dropped, notes = chosen(table(**more), features=("id", "said"))
    assert dropped == ("x",) and notes == ""


@pytest.mark.parametrize(
    "cells",
    [
        np.random.default_rng(1).normal(size=200),  # a measurement never repeats
        ROWS * 3 + 1,  # nor do whole numbers that neither count rows nor are named so
        np.resize(["low", "high", "no date"], 200),
        np.resize(["2020-01-31", "later", "never"], 200),
        np.resize(["1.5", "2.5", "3.5"], 200),
        np.resize([0, 1, 1, 0], 200),
    ],
)
def test_other_columns_are_not_left_out(cells):
    _, dropped, _ = chosen(table(cells=cells))
    assert dropped == ()


def test_few_rows_prove_nothing():
    few = table(16, id=np.arange(16), said=np.resize([0, 1], 16))
    assert chosen(few)[1] == ()


def test_what_nearly_says_the_label_is_named_and_used():
    said = np.where(ROWS == 7, "no", LABELS["same"])
    _, dropped, notes = chosen(table(said=said))
    assert dropped == () and "`drop=['said']`" in notes


@pytest.mark.parametrize("errors", [0, 1, 5, 30])
@pytest.mark.parametrize("n_rows", [300, 6_000])
def test_giveaways_are_found_by_text_and_by_number_alike(errors, n_rows):
    rng = np.random.default_rng(errors)
    y = (rng.random(n_rows) < 0.4).astype(float)
    said = y.copy()
    wrong = rng.choice(n_rows, errors, replace=False)
    said[wrong] = 1 - said[wrong]
    is_near = errors <= 0.05 * min(y.sum(), n_rows - y.sum())
    expected = "certain" if errors == 0 else "likely" if is_near else None
    assert giveaway(Texts(said.astype(np.int32), ("0", "1")), y) == expected
    assert giveaway(said + rng.random(n_rows) / 2, y) == expected
    assert giveaway(-said, y) == expected


def test_levels_with_one_row_each_say_nothing():
    y = np.resize([0.0, 1.0], 100)
    assert giveaway(Texts(np.arange(100, dtype=np.int32), tuple(map(str, range(100)))), y) is None


# --- codes ----------------------------------------------------------------------------------------


def test_numbers_thatmay_be_codes_are_noted_until_somebody_says_what_they_are():
    more = {
        "sector": np.resize([1, 2, 5], 200),
        "zip_code": 10_000 + ROWS // 2,
        "flag": ROWS % 7 % 2,
    }
    _, _, notes = chosen(table(**more))
    assert "`categorical=['sector', 'zip_code']`" in notes and "flag" not in notes
    frame, _, notes = chosen(table(**more), categorical=("sector",), numeric=("zip_code",))
    assert "code" not in notes
    assert isinstance(frame["sector"].dtype, pd.CategoricalDtype)
    assert sorted(frame["sector"].unique()) == ["1", "2", "5"]


def test_numeric_refuses_text_by_name():
    with pytest.raises(DataError, match="Column 'x' must hold numbers, got 'sixty'"):
        chosen(table(x=["sixty", *["1"] * 199]), numeric=("x",))


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"keep": ("xx",)}, "`keep` must name columns of the table, got 'xx'. Did you mean 'x'"),
        ({"features": ("y",)}, "Column 'y' must have one role, got `label` and `features`"),
        ({"categorical": ("x",), "numeric": ("x",)}, "'x' is in `categorical` and in `numeric`"),
    ],
)
def test_choices_that_do_not_fit(choices, sentence):
    with pytest.raises(DataError, match=sentence):
        chosen(table(), **choices)


# --- empty cells ----------------------------------------------------------------------------------


def read(tmp_path, content, **options):
    (tmp_path / "t.csv").write_text(content)
    return read_table(tmp_path / "t.csv", **options)


def test_usual_marks_are_empty_cells_and_counted(tmp_path):
    frame = read(tmp_path, "a,b,c,d\n1,x,true,1\n?,-,?,2\n3.5,n.a.,False,3\n-,y,true,4\n")
    assert frame["a"].tolist()[::2] == [1.0, 3.5] and frame["a"].isna().sum() == 2
    assert frame["b"].isna().tolist() == [False, True, True, False]
    assert frame["c"].tolist()[0] == "True" and frame["d"].tolist() == [1, 2, 3, 4]
    (note,) = frame.attrs["notes"]
    assert note.startswith(
        "Cells with '-' or '?' or 'n.a.' count as empty: 'a' 2, 'b' 2, 'c' 1 (`missing=`"
    )


def test_a_minus_beside_a_plus_is_a_level(tmp_path):
    frame = read(tmp_path, "rhesus,x\n+,1\n-,2\n?,3\n")
    assert frame["rhesus"].tolist()[:2] == ["+", "-"] and frame["rhesus"].isna().sum() == 1


def test_marks_that_are_given_count_alone_and_in_numbers_too(tmp_path):
    content = "a,b\n1,?\n-9,x\n3,unknown\n"
    frame = read(tmp_path, content, missing=("-9", "unknown"))
    assert frame["a"].isna().tolist() == [False, True, False]
    assert frame["b"].tolist()[:2] == ["?", "x"] and frame["b"].isna().sum() == 1
    assert "notes" not in read(tmp_path, content, missing=()).attrs


def test_marks_beside_decimal_commas(tmp_path):
    frame = read(tmp_path, "x;y\n1,5;a\n?;b\n2;c\n")
    assert frame["x"].tolist()[::2] == [1.5, 2.0]


def test_text_stays_text_without_its_marks(tmp_path):
    frame = read(tmp_path, "code,x\n01,1\n?,2\n1,3\n", text=("code",))
    assert frame["code"].tolist()[::2] == ["01", "1"]


# --- several files, workbooks ---------------------------------------------------------------------


def test_a_folder_is_its_files_in_order(tmp_path):
    table(30).to_csv(tmp_path / "north.csv", index=False)
    table(20, seed=1).to_parquet(tmp_path / "east.parquet")
    (tmp_path / "readme.txt").write_text("no table")
    found = table_files(str(tmp_path))
    assert [path.name for path in found] == ["east.parquet", "north.csv"]
    frame = read_tables(found)
    assert frame["(file)"].tolist() == ["east"] * 20 + ["north"] * 30
    assert frame["x"].tolist() == [*table(20, seed=1)["x"], *table(30)["x"]]
    assert isinstance(frame["sex"].dtype, pd.CategoricalDtype)


def test_names_of_files_matter_only_where_they_are_the_clients(tmp_path):
    names = ["ward.2023.csv", "ward.2024.csv"]
    for name in names:
        table(30).to_csv(tmp_path / name, index=False)
    paths = table_files(str(tmp_path))
    assert set(read_tables(paths)["(file)"]) == {"ward.2023", "ward.2024"}
    twice = [paths[0], paths[0]]
    with pytest.raises(DataError, match=r"Two files are called 'ward.2023'"):
        read_tables(twice)
    assert list(read_tables(twice, are_clients=False).columns) == list(table(30).columns)


def test_several_files_after_commas(tmp_path):
    names = [tmp_path / "a.csv", tmp_path / "b, c.csv"]
    for name in names:
        name.write_text("x\n1\n")
    assert table_files(str(names[1])) == [names[1]]
    assert table_files(f"{names[0]},{names[0]}") == [names[0]] * 2


@pytest.mark.parametrize(
    ("contents", "sentence"),
    [
        ({}, "has no file that ends in .csv"),
        ({"a.csv": "x,y\n1,2\n", "b.csv": "x,z\n1,2\n"}, "only one of them has 'y'"),
        ({"a.csv": "x\n1\n", "a.csv.gz": ""}, "is empty"),
    ],
)
def test_folders_that_cannot_be_read(tmp_path, contents, sentence):
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=sentence):
        read_tables(table_files(str(tmp_path)))


def test_a_workbook_is_read_like_the_same_csv(tmp_path):
    frame = table(40, code=["007", "7"] * 20, word=["a", "?", None, "b"] * 10)
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        frame.to_excel(book, sheet_name="rows", index=False)
        frame[:3].to_excel(book, sheet_name="other", index=False)
    frame.to_csv(tmp_path / "t.csv", index=False)
    found, expected = (read_table(tmp_path / name, text=["code"]) for name in ("t.xlsx", "t.csv"))
    for name in expected.columns:
        left, right = found[name].astype(object), expected[name].astype(object)
        pd.testing.assert_series_equal(left, right, check_exact=False)
    assert "The file 't.xlsx' has 2 sheets; 'rows' was read." in found.attrs["notes"]


def test_a_workbook_may_have_numbers_as_headers(tmp_path):
    pd.DataFrame({2020: ["?", "a"], 2021: [1, 2], "x": [7, 8]}).to_excel(
        tmp_path / "t.xlsx", index=False
    )
    found = read_table(tmp_path / "t.xlsx", text=["2021"])
    assert list(found.columns) == ["2020", "2021", "x"]
    assert found["2020"].isna().tolist() == [True, False]
    assert found["2021"].astype(object).tolist() == ["1", "2"]


@pytest.mark.parametrize("header", [["x", "x"], ["7", 7]])
def test_a_workbook_with_a_name_twice_is_refused(tmp_path, header):
    frame = pd.DataFrame([[1, 2], [3, 4]], columns=header)
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    with pytest.raises(DataError, match=f"Column '{header[0]}' occurs twice in .*t.xlsx"):
        read_table(tmp_path / "t.xlsx")
