"""Neighbours from file to rows: one row more changes nothing about how the others are encoded."""

import gzip

import numpy as np
import pandas as pd
import pytest

from fcfl.data.columns import Columns
from fcfl.data.declared_rows import federate_declared, read_declared, split_by_content
from fcfl.data.table import SITE
from fcfl.errors import DataError
from helpers import TWO_ATTRIBUTES, simulated_data

SCHEMA = """
label = ["0", "1"]
[groups]
sign = ["+", "-"]
[numbers]
age = [60, 15]
dose = [1, 1]
[categories]
ward = ["07", "er"]
fits = ["true", "false"]
"""
COLUMNS = Columns(SITE, "died", ("sign",))
HEADER = "ward,sign,fits,age,dose,died"
ROWS = ["07,-,true,61,1.5,0", "07,-,false,59,2,1", "7,-,true,?,1e3,0"] * 10
MORE = [
    "er,-,true,61,1.5,0", "07,+,true,61,1.5,0", "07,-,True,61,1.5,0", "07,-,maybe,61,1.5,0",
    "07,-,true,old,1.5,0", "07,-,true,inf,nan,0", "07,-,true,99999999999999999999,-1,0",
    '07,-,true,61,"1,5",0', "2020-01-31,?,,,,0", " 07 , - ,true, 61,1.5,0", "NA,NA,NA,NA,NA,1.0",
    "1.0,1,1,2020-01-31,0x1A,1", "ë,-,true,61,1.5,0",
]  # fmt: skip


@pytest.fixture
def declared(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return read_declared(tmp_path / "schema.toml")


def encoded(path, declared):
    return federate_declared(path, COLUMNS, declared, client="a").train["a"]


def check_neighbours(one, other):
    """The first is the second without its last row."""
    n = one.n_rows
    assert other.n_rows == n + 1
    np.testing.assert_array_equal(np.asarray(one.X), np.asarray(other.X)[:n])
    np.testing.assert_array_equal(one.y, other.y[:n])
    np.testing.assert_array_equal(one.groups["sign"], other.groups["sign"][:n])


def as_csv(rows, path, separator=",", encoding="utf-8"):
    text = "\n".join([HEADER.replace(",", separator), *rows, ""])
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_a_row_more_in_a_csv_file_changes_no_other_row(more, encoding, tmp_path, declared):
    one = encoded(as_csv(ROWS, tmp_path / "one.csv"), declared)
    other = encoded(as_csv([*ROWS, more], tmp_path / "other.csv", encoding=encoding), declared)
    check_neighbours(one, other)
    names = list(declared.schema.feature_names)
    assert one.X[:, names.index("ward=07")].sum() == 20  # as it stands: a 7 is none
    assert (one.groups["sign"] == 1).all() and one.X[2, names.index("age")] == 0.0
    assert one.X[2, names.index("dose")] == 999.0


def test_beside_semicolons_each_number_may_have_a_comma(tmp_path, declared):
    rows = ["07;-;true;61,5;1.5;0"]
    one, other = (
        encoded(as_csv(some, tmp_path / "some.csv", ";"), declared)
        for some in (rows, [*rows, "07;-;true;old;a,b;0"])
    )
    check_neighbours(one, other)
    assert one.X[0, 0] == 0.1 and one.X[0, 1] == 0.5


@pytest.mark.parametrize("more", MORE[:-1])
def test_a_row_more_in_a_parquet_file_of_texts_changes_no_other_row(more, tmp_path, declared):
    def of(rows):
        path = tmp_path / "some.parquet"
        cells = [row.replace('"1,5"', "1;5").split(",") for row in rows]
        pd.DataFrame(cells, columns=HEADER.split(",")).to_parquet(path)
        return encoded(path, declared)

    check_neighbours(of(ROWS), of([*ROWS, more]))


def test_types_of_a_parquet_file_hold_cell_by_cell(tmp_path, declared):
    import pyarrow as pa
    from pyarrow import parquet

    types = {"ward": pa.string(), "sign": pa.string(), "fits": pa.bool_(), "age": pa.int64(),
             "dose": pa.float64(), "died": pa.int8()}  # fmt: skip
    row = {"ward": "07", "sign": "-", "fits": True, "age": 2**53 + 1, "dose": 1.5, "died": 1}
    gaps = row | {"age": None, "dose": None, "fits": None}

    def of(rows):
        table = pa.Table.from_pylist(rows, pa.schema(list(types.items())))
        parquet.write_table(table, tmp_path / "typed.parquet")
        return encoded(tmp_path / "typed.parquet", declared)

    check_neighbours(of([row] * 3), of([row] * 3 + [gaps]))
    assert of([gaps]).X[0, :2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ('"07,-,true,61,1.5,0', "a quote in row 1 is never closed"),
        ('"07,-\n",true,61,1.5,0', "line 2 has a quote that is not closed"),
        ("07,-,true,61,1,5,0", "line 2 has 7 cells instead of 6"),
        ("07,-", "'died' is empty.*'a' 1"),
    ],
)
def test_a_row_that_spans_others_is_rejected(more, sentence, tmp_path, declared):
    with pytest.raises(DataError, match=sentence):
        encoded(as_csv([more, *ROWS], tmp_path / "some.csv"), declared)


def test_a_column_that_is_read_has_one_name_and_others_may_share_theirs(tmp_path, declared):
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER},note,note\n07,-,true,61,1.5,0,a,b\n")
    assert encoded(path, declared).n_rows == 1
    path.write_text(f"{HEADER},age\n07,-,true,61,1.5,0,35\n")
    with pytest.raises(DataError, match="'age' occurs twice"):
        encoded(path, declared)


def test_compressed_files_are_read_and_workbooks_are_not(tmp_path, declared):
    plain = as_csv(ROWS, tmp_path / "some.csv")
    packed = tmp_path / "some.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    np.testing.assert_array_equal(encoded(packed, declared).X, encoded(plain, declared).X)
    with pytest.raises(DataError, match="Save it as CSV"):
        encoded(tmp_path / "some.xlsx", declared)
    with pytest.raises(DataError, match="no column 'ward'"):
        encoded(written_header(tmp_path), declared)


def written_header(folder):
    path = folder / "other.csv"
    path.write_text("sign,fits,age,dose,died\n-,true,1,1,0\n")
    return path


def test_rows_without_a_label_are_left_out_on_request(tmp_path, declared):
    path = as_csv([*ROWS, "07,-,true,61,1.5,"], tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"'died' is empty.*--drop-unlabelled"):
        encoded(path, declared)
    kept = federate_declared(path, COLUMNS, declared, client="a", drop_unlabelled=True)
    assert kept.train["a"].n_rows == len(ROWS)


# --- declarations and splits ----------------------------------------------------------------------

WHOLE = """
label = ["no", "yes"]
[groups]
sex = ["f", "m"]
[numbers]
age = [40, 15.5]
[categories]
ward = ["icu", "er"]
"""


def declare(folder, text):
    (folder / "schema.toml").write_text(text)
    return read_declared(folder / "schema.toml")


def test_a_file_declares_labels_groups_and_columns(tmp_path):
    found = declare(tmp_path, WHOLE)
    assert found.labels == ("no", "yes") and found.levels == {"sex": ("f", "m")}
    assert found.schema.feature_names == ("age", "ward=icu", "ward=er")
    assert found.schema.columns[0].scale == 15.5


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('["no", "yes"]', '["no"]', "`label`"),
        ("[40, 15.5]", "[40, 0]", "`numbers"),
        ('["icu", "er"]', '["icu", "icu"]', "categories.ward"),
        ('["f", "m"]', '["f"]', "`groups"),
        ("[numbers]", "[number]", "`number`"),
        ("label =", "label", "not TOML"),
    ],
)
def test_an_error_names_the_key(tmp_path, old, new, sentence):
    with pytest.raises(DataError, match=sentence):
        declare(tmp_path, WHOLE.replace(old, new))
    with pytest.raises(DataError, match=r"nowhere\.toml"):
        read_declared(tmp_path / "nowhere.toml")


def test_where_a_row_goes_depends_on_that_row_alone():
    data = simulated_data(0, n_rows=400, levels=TWO_ATTRIBUTES, n_features=6)
    data.X[:] += np.random.default_rng(1).standard_normal(data.X.shape)
    whole = {tuple(row) for row in split_by_content(data, 0.3, 5)[1].X}
    some = data.take(np.arange(0, 400, 3)[::-1])
    train, test = split_by_content(some, 0.3, 5)
    assert {tuple(row) for row in test.X} == whole & {tuple(row) for row in some.X}
    assert train.n_rows + test.n_rows == some.n_rows
    assert 0.2 < len(whole) / 400 < 0.4
    assert {tuple(row) for row in split_by_content(data, 0.3, 6)[1].X} != whole
    assert split_by_content(data, 0.0, 5)[1].n_rows == 0
