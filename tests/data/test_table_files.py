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
    pd.testing.assert_frame_equal(read_table(path), FRAME)


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
        ("t.xlsx", b"x", r"must end in .csv, .csv.gz or .parquet"),
        ("t.csv", b"", "t.csv' is empty"),
        ("t.csv", b"\n\n", "Cannot read .*t.csv"),
        ("t.csv", b"a,b\n", "t.csv' has no rows"),
        ("t.csv", b"a,b\n1,2\n1,2,3\n", "Cannot read .*t.csv.*line 3"),
        ("t.csv", b"a,b\n1,2,3\n1,2,3\n", "Cannot read .*t.csv"),
        ("t.csv", b"a,b\n1,2\n1,2,3\n", "t.csv': line 3 has 3 cells instead of 2; a cell with a "),
        ("t.csv", b"a,b\n1,2,3\n1,2\n", "t.csv': its first row has more cells than the header; "),
        ("t.csv", b"a\n\xff\xfe\n", "Cannot read .*t.csv.*utf-8"),
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
