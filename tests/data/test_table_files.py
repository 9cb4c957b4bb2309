import gzip

import pandas as pd
import pytest

from fcfl.data import read_table
from fcfl.errors import DataError

FRAME = pd.DataFrame({"site": [12, 7], "who": ["Zoë <script>", "b,c"], "x": [0.5, None]})


@pytest.mark.parametrize("suffix", [".csv", ".CSV", ".csv.gz", ".parquet"])
def test_formats_give_the_same_table(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    if suffix == ".parquet":
        FRAME.to_parquet(path)
    else:
        FRAME.to_csv(path, index=False)
    found = read_table(path)
    assert isinstance(found["who"].dtype, pd.CategoricalDtype)  # codes, no Python objects
    pd.testing.assert_frame_equal(found.astype({"who": FRAME["who"].dtype}), FRAME)


def test_a_named_index_is_a_column(tmp_path):
    FRAME.set_index("site").to_parquet(tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet").columns) == ["site", "who", "x"]


def test_text_columns_are_read_as_they_stand(tmp_path):
    (tmp_path / "t.csv").write_text("site,x\n007,1\n7,2\n")
    assert read_table(tmp_path / "t.csv")["site"].tolist() == [7, 7]
    assert read_table(tmp_path / "t.csv", text=["site", "no"])["site"].tolist() == ["007", "7"]


def test_byte_order_mark_and_spaces_after_commas(tmp_path):
    (tmp_path / "t.csv").write_bytes("\ufeffsite, x\na, 1\n".encode())
    frame = read_table(tmp_path / "t.csv")
    assert list(frame.columns) == ["site", "x"] and frame["x"].tolist() == [1]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("t.csv", None, "There is no file .*t.csv"),
        ("t.xls", b"x", r"must end in .csv, .csv.gz, .parquet or .xlsx"),
        ("t.xlsx", b"x", "Cannot read .*t.xlsx.: it is damaged or not a .xlsx file"),
        ("t.csv", b"", "t.csv' is empty"),
        ("t.csv", b"\n\n", "t.csv' has no header"),
        ("t.csv", b"a,b\n", "t.csv' has no rows"),
        ("t.csv", b"a,b\n1,2\n1,2,3\n", "Cannot read .*t.csv.*line 3"),
        ("t.csv", b"a,b\n1,2,3\n1,2,3\n", "Cannot read .*t.csv"),
        ("t.csv", b"a,b\n1,2\n1,2,3\n", "t.csv': line 3 has 3 cells instead of 2; a cell with a "),
        ("t.csv", b"a,b\n1,2,3\n1,2\n", "t.csv': line 2 has 3 cells instead of 2"),
        ("t.csv", b"a\n\x81\n", "Cannot read .*neither UTF-8 nor Windows-1252; save it as UTF-8"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16-le"), "holds zero bytes.*save it as UTF-8"),
        ("t.csv", b"a;b;a\n1;2;3\n", "Column 'a' occurs twice in .*t.csv"),
        ("t.csv", b"a, b, a\n1, 2, 3\n", "Column 'a' occurs twice in .*t.csv"),
        ("t.csv", b"a,b,a\n1,2,3\n", "Column 'a' occurs twice in .*t.csv"),
        ("t.csv.gz", b"not gzip", "Cannot read .*t.csv.gz"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-20], "Cannot read .*t.csv.gz"),
        ("t.parquet", b"not parquet", "Cannot read .*t.parquet"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=sentence) as caught:
        read_table(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_table(tmp_path):
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(DataError, match="There is no file"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_separator_is_that_of_the_header(tmp_path, mark):
    lines = [["site", "who, when", "x"], ["a", "b", "1"], ["c", "d,e|f;g\th", "2.5"]]
    quoted = [mark.join(f'"{cell}"' for cell in line) for line in lines]
    (tmp_path / "t.csv").write_text("\n".join(quoted))
    frame = read_table(tmp_path / "t.csv")
    assert list(frame.columns) == lines[0]
    assert frame["who, when"].tolist() == ["b", "d,e|f;g\th"] and frame["x"].tolist() == [1, 2.5]


def test_numbers_with_a_decimal_comma_beside_semicolons(tmp_path):
    (tmp_path / "t.csv").write_text("x;y;code;word\n1,5;2;1,5;a\n;3;2;b,c\n-2;4;3;1,5\n")
    frame = read_table(tmp_path / "t.csv", text=["code"])
    assert frame["x"].tolist()[::2] == [1.5, -2.0] and frame["x"].isna().tolist()[1]
    assert frame["code"].tolist() == ["1,5", "2", "3"]
    assert frame["word"].tolist() == ["a", "b,c", "1,5"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("after", [0, 100_000])
def test_encodings_are_recognised(tmp_path, encoding, after):
    """Also where the first unusual letter comes late."""
    rows = ["site,x", *["plain,1"] * after, "Zoë,2"]
    (tmp_path / "t.csv").write_bytes("\n".join(rows).encode(encoding))
    frame = read_table(tmp_path / "t.csv")
    assert list(frame.columns) == ["site", "x"] and frame["site"].iloc[-1] == "Zoë"
    notes = frame.attrs.get("notes", ())
    assert [("Windows-1252" in note) for note in notes] == [True] * (encoding == "cp1252")


def by_pandas(path):
    return pd.read_csv(path, index_col=False, skipinitialspace=True, low_memory=False)


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,x\nNA,\n-3,null\n",
        "a,b\n1.5,True\n2,False\n",
        "a,b\n2020-01-31,10:30\n2020-02-01,11:45\n",
        "a,b\n2020-01-31 10:00:00,1\nlater,2\n",
        "a,b\n007,1e5\n08,-inf\n",
        "a,b,\n1,2,\n3,4,\n",
        "a,b\n1,2\n3\n",
        'a,b\n1,"x\ny"\n2,z\n',
        '"a\nb",c\n1,2\n',
        "\n\na,b\n1,2\n",
        "a,b\n1, x\n2, NA\n",
        "a\n1\n\n2\n",
        "a,b\n,\n,\n",
        "a,b\nyes,1\nno,2\nyes,\n",
    ],
)
def test_cells_are_what_pandas_reads(tmp_path, content):
    (tmp_path / "t.csv").write_text(content)
    found, expected = read_table(tmp_path / "t.csv"), by_pandas(tmp_path / "t.csv")
    assert list(found.columns) == list(expected.columns)
    for name in expected.columns:
        assert found[name].isna().tolist() == expected[name].isna().tolist()
        left, right = (frame[name].dropna().tolist() for frame in (found, expected))
        assert left == right


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_no_column_is_one_of_python_objects(tmp_path, suffix):
    frame = pd.DataFrame(
        {
            "truth": [True, None, False],
            "empty": [None] * 3,
            "word": ["a", None, "b"],
            "x": [1, 2, 3],
        }
    )
    path = tmp_path / f"t{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    found = read_table(path)
    assert object not in set(found.dtypes)
    assert found["truth"].isna().tolist() == [False, True, False] and found["empty"].isna().all()
