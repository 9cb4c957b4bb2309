import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from fcfl.data import read_table
from fcfl.data.cells import (
    kind_of,
    look_alikes,
    named_columns,
    numbers,
    text_of,
    texts,
)
from fcfl.data.rows import written_numbers
from fcfl.errors import DataError


def column(values, dtype=None):
    return pd.Series(values, dtype=dtype, name="col")


NUMBERS = [
    column([1, 2, 3]),
    column([1.5, np.nan, 3]),
    column([1, None, 3], "Int64"),
    column([1.5, None, 3], "Float32"),
    column([1, None, 2.5], object),
    column([Decimal("1.5"), None, Decimal(3)], object),
    column([1, 2, 3], "uint8"),
    column([1, None, 3], "int64[pyarrow]"),
    column([None, None], object),
]
TEXT = [
    column(["a", None, "b"]),
    column(["a", None, "b"], object),
    column(["a", None, "b"], "string"),
    column(["a", None, "b"], "category"),
    column(["a", None, "b"], "string[pyarrow]"),
    column([True, False]),
    column([True, None, False], object),
    column([True, None, False], "boolean"),
    column([1, "a"], object),
    column([1, 2], "category"),
]


@pytest.mark.parametrize("values", NUMBERS, ids=lambda c: str(c.dtype))
def test_numbers_whatever_their_type(values):
    assert kind_of(values) == "number"
    read = numbers(values)
    assert read.dtype == np.float64
    assert np.isnan(read).tolist() == values.isna().tolist()
    assert read[~np.isnan(read)].tolist() == [float(v) for v in values.dropna()]


@pytest.mark.parametrize("values", TEXT, ids=lambda c: str(c.dtype))
def test_text_whatever_its_type(values):
    assert kind_of(values) == "category"
    read = texts(values)
    assert (read.codes < 0).tolist() == values.isna().tolist()
    found = [read.levels[code] for code in read.codes if code >= 0]
    assert found == [str(v) for v in values.dropna()]
    assert list(read.levels) == sorted(set(found))


@pytest.mark.parametrize(
    "values",
    [
        pd.to_datetime(["2020-01-01", None]),
        pd.to_datetime(["2020-01-01"]).tz_localize("UTC"),
        [dt.date(2020, 1, 1)],
        pd.to_timedelta(["1h"]),
        pd.period_range("2020", periods=2, freq="M"),
    ],
    ids=["datetime", "zone", "date", "timedelta", "period"],
)
def test_dates_are_rejected(values):
    with pytest.raises(DataError, match="'col' holds dates"):
        kind_of(column(values))


def test_other_values_are_rejected():
    for values in ([b"x"], [1j]):
        with pytest.raises(DataError, match="'col'"):
            kind_of(column(values))
    with pytest.raises(DataError, match="'col' holds lists"):
        texts(column([[1], [2]]))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12, "12"),
        (12.0, "12"),
        (np.float32(0.5), "0.5"),
        (-0.0, "0"),
        (1e300, "1e+300"),
        (np.True_, "True"),
        (" x ", "x"),
    ],
)
def test_text_of_one_cell(value, text):
    assert text_of(value) == text


def test_spaces_are_stripped_and_blanks_are_missing():
    read = texts(column(["a", " a ", "", "  ", "b"]))
    assert read.levels == ("a", "b")
    assert read.codes.tolist() == [0, 0, -1, -1, 1]


@pytest.mark.parametrize("values", [[12, 7], [12.0, 7.0], ["12.0", "7.0"], ["12", "7"]])
def test_whole_numbers_name_clients_without_a_point(values):
    assert texts(column(values)).levels == ("12", "7")


def test_leading_zeros_and_decimals_are_kept():
    assert texts(column(["007", "7"])).levels == ("007", "7")
    assert texts(column(["1.5", "1.50", "1.2.0"])).levels == ("1.2.0", "1.5", "1.50")


@pytest.mark.parametrize("dtype", [object, "category", "string"])
def test_zero_and_zero_point_zero_are_one_level(dtype):
    read = texts(column(["0", "0.0", "-0.0", " 0.00 ", "1", "1.0", "unknown"], dtype))
    assert read.levels == ("0", "1", "unknown")
    assert read.codes.tolist() == [0, 0, 0, 0, 1, 1, 2]


def test_text_is_parsed_as_numbers_or_named():
    read = numbers(column(["1", " 2.5", None, ""]))
    assert read[:2].tolist() == [1, 2.5] and np.isnan(read[2:]).all()
    with pytest.raises(DataError, match="'col' must hold numbers, got 'twelve'"):
        numbers(column(["1", "twelve"]))
    for values in ([1, np.inf, -np.inf], ["inf", "1", "-inf"]):
        with pytest.raises(DataError, match="'col' has 2 infinite"):
            numbers(column(values))


def test_names_are_text_and_all_different():
    assert list(named_columns(pd.DataFrame(np.eye(2))).columns) == ["0", "1"]
    with pytest.raises(DataError, match="'a' occurs twice"):
        named_columns(pd.DataFrame(np.eye(2), columns=["a", "a"]))


def test_levels_that_look_alike_are_named():
    assert look_alikes(["a", "b", "a b"]) == ""
    found = look_alikes(["New  York", "new york", "b"])
    assert found.startswith("'New  York' and 'new york' differ")
    assert look_alikes(["Zu\u0308rich", "Zürich"])


# --- marks and written numbers --------------------------------------------------------------------


def read(folder, content, **options):
    (folder / "t.csv").write_text(content)
    return read_table(folder / "t.csv", **options)


def test_usual_marks_are_empty_cells_and_counted(tmp_path):
    frame = read(tmp_path, "a,b,c,d\n1,x,true,1\n?,-,?,2\n3.5,n.a.,False,3\n-,y,true,4\n")
    assert frame["a"].tolist()[::2] == [1.0, 3.5] and frame["a"].isna().sum() == 2
    assert frame["b"].isna().tolist() == [False, True, True, False]
    assert frame["c"].tolist()[0] == "True" and frame["d"].tolist() == [1, 2, 3, 4]
    (note,) = frame.attrs["notes"]
    for part in ("'-' or '?' or 'n.a.'", "'a' 2, 'b' 2, 'c' 1", "`missing=`"):
        assert part in note


def test_a_minus_beside_a_plus_is_a_level(tmp_path):
    frame = read(tmp_path, "rhesus,x\n+,1\n-,2\n?,3\n")
    assert frame["rhesus"].tolist()[:2] == ["+", "-"] and frame["rhesus"].isna().sum() == 1


def test_given_marks_count_alone_and_in_numbers_too(tmp_path):
    content = "a,b\n1,?\n-9,x\n3,unknown\n"
    frame = read(tmp_path, content, missing=("-9", "unknown"))
    assert frame["a"].isna().tolist() == [False, True, False]
    assert frame["b"].tolist()[:2] == ["?", "x"] and frame["b"].isna().sum() == 1
    assert "notes" not in read(tmp_path, content, missing=()).attrs


def test_text_stays_text_without_its_marks(tmp_path):
    frame = read(tmp_path, "code,x\n01,1\n?,2\n1,3\n", text=("code",))
    assert frame["code"].tolist()[::2] == ["01", "1"]


@pytest.mark.parametrize(
    ("words", "decimal", "expected", "is_plain"),
    [
        (["1", "2.5", "-3e2"], ".", [1, 2.5, -300], True),
        (["1,5", "2"], ",", [1.5, 2], True),
        (["1.5", "2"], ",", [1.5, 2], False),
        (["1,5", "2"], ".", [1.5, 2], False),
        (["12%", "5.5 %", "-1%"], ".", [0.12, 0.055, -0.01], False),
        (["12,5%", "1.000%"], ",", [0.125, 10], False),
        (["1,000.50", "7"], ".", [1000.5, 7], False),
        (["1,234,567", "-1,000"], ".", [1234567, -1000], False),
        (["1.234.567", "12"], ".", [1234567, 12], False),
        (["1.000,50", "7"], ".", [1000.5, 7], False),
        (["1.000", "950"], ",", [1000, 950], False),
        (["1.000", "950"], ".", [1, 950], True),
        (["1.5", "2,5"], ",", None, None),
        (["1,000", "950"], ",", [1, 950], True),
        (["1 000", "2\u00a0500,5", "3\u202f000"], ",", [1000, 2500.5, 3000], False),
        (["1'000.5", "12"], ".", [1000.5, 12], False),
        (["1,00", "1,0000", "1,000"], ".", [1, 1, 1], False),
        (["1,2,3", "1"], ".", None, None),
        (["12%", "5"], ".", None, None),
        (["inf", "1"], ".", None, None),
        (["2020-01-31", "1"], ".", None, None),
        ([], ".", None, None),
        (["%"], ".", None, None),
    ],
)
def test_words_that_are_numbers_and_an_example_of_unusual_ones(words, decimal, expected, is_plain):
    found, example = written_numbers(words, decimal)
    if expected is None:
        assert found is None
    else:
        assert found.tolist() == pytest.approx(expected) and (example is None) == is_plain


def test_written_numbers_are_noted_with_an_example_and_an_option(tmp_path):
    content = 'p,i,w\n12%,"1,000.50",a\n?,900,"1,5"\n'
    frame = read(tmp_path, content)
    assert frame["p"].tolist()[0] == 0.12 and frame["i"].tolist() == [1000.5, 900]
    assert frame["w"].tolist() == ["a", "1,5"]
    note = frame.attrs["notes"][-1]
    assert "'12%' is 0.12" in note and "`categorical=['p', 'i']`" in note
    assert read(tmp_path, content, text=("p", "i"))["i"].tolist() == ["1,000.50", "900"]


def test_text_that_a_file_declares_stays_text(tmp_path):
    words = {"code": ["01", "02"], "p": ["5%", "6%"], "q": ["1", "?"]}
    pd.DataFrame(words).to_parquet(tmp_path / "t.parquet")
    frame = read_table(tmp_path / "t.parquet")
    assert frame["code"].tolist() == ["01", "02"] and frame["p"].tolist() == [0.05, 0.06]
    assert frame["q"].tolist()[0] == 1
