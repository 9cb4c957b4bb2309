import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from fcfl.data.cells import kind_of, named_columns, numbers, text_of, texts
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
def test_dates_are_refused_with_a_way_out(values):
    with pytest.raises(DataError, match=r"Column 'col' holds dates or times.*or drop it"):
        kind_of(column(values))


@pytest.mark.parametrize("values", [[b"x"], [1j]])
def test_other_values_are_refused(values):
    with pytest.raises(DataError, match=r"Column 'col' holds (bytes|complex) values"):
        kind_of(column(values))


def test_nested_values_are_refused():
    with pytest.raises(DataError, match="Column 'col' holds lists"):
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


def test_text_that_is_a_number_is_parsed():
    read = numbers(column(["1", " 2.5", None, ""]))
    assert read[:2].tolist() == [1, 2.5] and np.isnan(read[2:]).all()


def test_text_that_is_no_number_is_named():
    with pytest.raises(DataError, match="Column 'col' must hold numbers, got 'twelve'"):
        numbers(column(["1", "twelve"]))


@pytest.mark.parametrize("values", [[1, np.inf, -np.inf], ["inf", "1", "-inf"]])
def test_infinite_values_are_counted(values):
    with pytest.raises(DataError, match="Column 'col' has 2 infinite values"):
        numbers(column(values))


def test_duplicate_and_number_names():
    assert list(named_columns(pd.DataFrame(np.eye(2))).columns) == ["0", "1"]
    with pytest.raises(DataError, match="Column 'a' occurs twice"):
        named_columns(pd.DataFrame(np.eye(2), columns=["a", "a"]))
