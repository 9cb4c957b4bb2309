"""Files of every format, dialect and encoding; several files; files that cannot be read."""

import gzip
import time

import numpy as np
import pandas as pd
import pytest

from fcfl.data import read_table, read_tables, table_files
from fcfl.data.rows import dialect_of, read_as_written
from fcfl.errors import DataError

FRAME = pd.DataFrame({"site": [12, 7], "who": ["Zoë <script>", "b,c"], "x": [0.5, None]})


def read(folder, content, name="t.csv", **options):
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(folder / name, **options)


def table(n_rows=200, seed=0, **more):
    rng = np.random.default_rng(seed)
    sites, sexes = rng.choice(["a", "b"], n_rows), rng.choice(["f", "m"], n_rows)
    plain = {"site": sites, "sex": sexes, "x": rng.normal(size=n_rows)}
    return pd.DataFrame(plain | {"y": np.resize([0, 1], n_rows)}).assign(**more)


# --- formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".CSV", ".csv.gz", ".parquet"])
def test_formats_give_the_same_table_with_text_as_codes(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    FRAME.to_parquet(path) if suffix == ".parquet" else FRAME.to_csv(path, index=False)
    found = read_table(path)
    assert isinstance(found["who"].dtype, pd.CategoricalDtype)
    pd.testing.assert_frame_equal(found.astype({"who": FRAME["who"].dtype}), FRAME)


def test_a_named_index_is_a_column(tmp_path):
    FRAME.set_index("site").to_parquet(tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet").columns) == ["site", "who", "x"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_no_column_has_python_objects(tmp_path, suffix):
    words = {"truth": [True, None, False], "empty": [None] * 3, "word": ["a", None, "b"]}
    path = tmp_path / f"t{suffix}"
    frame = pd.DataFrame(words)
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    found = read_table(path)
    assert object not in set(found.dtypes) and found["empty"].isna().all()
    assert found["truth"].isna().tolist() == [False, True, False]


def test_text_columns_are_read_as_they_stand(tmp_path):
    content = "site,x\n007,1\n7,2\n"
    assert read(tmp_path, content)["site"].tolist() == [7, 7]
    assert read(tmp_path, content, text=["site", "no"])["site"].tolist() == ["007", "7"]


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
    assert any("2 sheets" in note and "'rows'" in note for note in found.attrs["notes"])


def test_a_workbook_may_have_numbers_as_headers(tmp_path):
    frame = pd.DataFrame({2020: ["?", "a"], 2021: [1, 2], "x": [7, 8]})
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    found = read_table(tmp_path / "t.xlsx", text=["2021"])
    assert list(found.columns) == ["2020", "2021", "x"]
    assert found["2020"].isna().tolist() == [True, False]
    assert found["2021"].astype(object).tolist() == ["1", "2"]


def test_cells_as_written_keep_marks_zeros_and_decimal_commas(tmp_path):
    read(tmp_path, "id;x;w\n007;1,5;?\n08;;N/A\n")
    cells, dialect = read_as_written(tmp_path / "t.csv")
    assert cells.to_dict("list") == {"id": ["007", "08"], "x": ["1,5", ""], "w": ["?", "N/A"]}
    assert (dialect.separator, dialect.decimal) == (";", ",")
    pd.DataFrame({"a": [1, "x", None]}).to_excel(tmp_path / "t.xlsx", index=False)
    assert read_as_written(tmp_path / "t.xlsx")[0]["a"].tolist()[:2] == ["1", "x"]


# --- dialects -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "encoding", "separator", "decimal"),
    [
        (b"a,b\n1,2\n", "utf-8", ",", "."),
        (b"a;b\n1,5;2\n", "utf-8", ";", ","),
        (b"a;b\n1.000,5;2\n", "utf-8", ";", ","),
        (b"a;b\n1.5;2\n", "utf-8", ";", "."),
        (b"a\tb\n1,5\t2\n", "utf-8", "\t", ","),
        ("\ufeffa|b\n".encode(), "utf-8-sig", "|", "."),
        ("a;b\n1,5;2\n".encode("utf-16"), "utf-16", ";", ","),
        ("a;b\nZoë;2\n".encode("cp1252"), "cp1252", ";", "."),
    ],
)
def test_dialects_are_detected(tmp_path, content, encoding, separator, decimal):
    (tmp_path / "t.csv").write_bytes(content)
    found = dialect_of(tmp_path / "t.csv")
    assert (found.encoding, found.separator, found.decimal) == (encoding, separator, decimal)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("after", [0, 100_000])
def test_encodings_are_detected_however_late_the_first_unusual_letter(tmp_path, encoding, after):
    rows = "\n".join(["site,x", *["plain,1"] * after, "Zoë,2"])
    frame = read(tmp_path, rows.encode(encoding))
    assert list(frame.columns) == ["site", "x"] and frame["site"].iloc[-1] == "Zoë"
    notes = frame.attrs.get("notes", ())
    assert [("Windows-1252" in note) for note in notes] == [True] * (encoding == "cp1252")


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_separator_is_that_of_the_header(tmp_path, mark):
    lines = [["site", "who, when", "x"], ["a", "b", "1"], ["c", "d,e|f;g\th", "2.5"]]
    quoted = [mark.join(f'"{cell}"' for cell in line) for line in lines]
    frame = read(tmp_path, "\n".join(quoted))
    assert list(frame.columns) == lines[0]
    assert frame["who, when"].tolist() == ["b", "d,e|f;g\th"] and frame["x"].tolist() == [1, 2.5]


def test_numbers_with_a_decimal_comma_beside_semicolons(tmp_path):
    content = "x;y;code;word;z\n1,5;2;1,5;a;?\n;3;2;b,c;2,5\n-2;4;3;1,5;3\n"
    frame = read(tmp_path, content, text=["code"])
    assert frame["x"].tolist()[::2] == [1.5, -2.0] and frame["z"].tolist()[1:] == [2.5, 3]
    assert frame["x"].isna().tolist()[1] and frame["code"].tolist() == ["1,5", "2", "3"]
    assert frame["word"].tolist() == ["a", "b,c", "1,5"]


def test_spaces_around_names_and_cells_are_dropped(tmp_path):
    for content in (" site , x \na,1\n", '" site "," x "\na,1\n', '\ufeffsite, x\n a, "1"\n'):
        frame = read(tmp_path, content, text=("site",))
        assert frame.to_dict("list") == {"site": ["a"], "x": [1]}


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
        'a, b\n1, "x, y"\n2, z\n',
        '"a\nb",c\n1,2\n',
        "\n\na,b\n1,2\n",
        "a,b\n1, x\n2, NA\n",
        "a\n1\n\n2\n",
        "a,b\n,\n,\n",
        "a,b\nyes,1\nno,2\nyes,\n",
    ],
)
def test_cells_are_those_that_pandas_reads(tmp_path, content):
    found = read(tmp_path, content)
    expected = pd.read_csv(
        tmp_path / "t.csv", index_col=False, skipinitialspace=True, low_memory=False
    )
    assert list(found.columns) == list(expected.columns)
    for name in expected.columns:
        assert found[name].isna().tolist() == expected[name].isna().tolist()
        left, right = (frame[name].dropna().tolist() for frame in (found, expected))
        assert left == right


def test_newlines_in_quotes_across_blocks_and_quotes_never_closed(tmp_path):
    n_rows = 60_000
    rows = "".join(f'{i},"line\n{i % 7}"\n' for i in range(n_rows))
    frame = read(tmp_path, "a,b\n" + rows)
    assert frame["a"].tolist() == list(range(n_rows)) and frame["b"].nunique() == 7
    with pytest.raises(DataError, match="quote in row 60,001"):
        read(tmp_path, "a,b\n" + rows + '1,"x\n2,y\n')
    assert read(tmp_path, 'a,b\n1,5" tall\n')["b"].tolist() == ['5" tall']


@pytest.mark.thorough
def test_reading_is_linear_in_the_rows(tmp_path):
    """Four times the rows, nearly all of them distinct, in less than 2 · 4 times the time."""
    rng = np.random.default_rng(0)
    seconds = []
    for n_rows in (60_000, 240_000):
        words = [f"{value:.6f}".replace(".", ",") for value in rng.normal(size=n_rows)]
        words[7] = "?"
        (tmp_path / "t.csv").write_text("x;y\n" + "".join(f"{word};1\n" for word in words))
        spent = []
        for _ in range(3):
            began = time.process_time()
            frame = read_table(tmp_path / "t.csv")
            spent.append(time.process_time() - began)
        seconds.append(min(spent))
        assert frame["x"].isna().sum() == 1
    assert seconds[1] < 2 * 4 * seconds[0] and seconds[1] < 3


# --- several files --------------------------------------------------------------------------------


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


def test_file_names_matter_only_if_they_are_the_clients(tmp_path):
    for name in ("ward.2023.csv", "ward.2024.csv"):
        table(30).to_csv(tmp_path / name, index=False)
    paths = table_files(str(tmp_path))
    assert set(read_tables(paths)["(file)"]) == {"ward.2023", "ward.2024"}
    twice = [paths[0], paths[0]]
    with pytest.raises(DataError, match=r"'ward.2023'"):
        read_tables(twice)
    assert list(read_tables(twice, are_clients=False).columns) == list(table(30).columns)


def test_several_files_after_commas(tmp_path):
    names = [tmp_path / "a.csv", tmp_path / "b, c.csv"]
    for name in names:
        name.write_text("x\n1\n")
    assert table_files(str(names[1])) == [names[1]]
    assert table_files(f"{names[0]},{names[0]}") == [names[0]] * 2


@pytest.mark.parametrize(
    ("contents", "named"),
    [
        ({}, r"\.csv"),
        ({"a.csv": "x,y\n1,2\n", "b.csv": "x,z\n1,2\n"}, "'y'"),
        ({"a.csv": "x\n1\n", "b.csv": "x\nu\n"}, "'x' is a number in file 'a' and text .* 'b'"),
        ({"a.csv": "x\n1\n", "a.csv.gz": ""}, "is empty"),
    ],
)
def test_folders_that_cannot_be_read(tmp_path, contents, named):
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=named):
        read_tables(table_files(str(tmp_path)))


# --- files that cannot be read --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("t.csv", None, "There is no file"),
        ("t.xls", b"x", ".csv, .csv.gz, .parquet or .xlsx"),
        ("t.xlsx", b"x", "not a .xlsx file"),
        ("t.csv", b"", "is empty"),
        ("t.csv", b"\n\n", "no header"),
        ("t.csv", b"a,b\n", "no rows"),
        ("t.csv", b"a,b\n1,2\n1,2,3\n", "line 3 has 3 cells instead of 2"),
        ("t.csv", b"a,b\n1,2,3\n1,2\n", "line 2 has 3 cells instead of 2"),
        ("t.csv", b"a\n\x81\n", "neither UTF-8 nor Windows-1252"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16-le"), "zero bytes"),
        ("t.csv", b"a;b;a\n1;2;3\n", "'a' occurs twice"),
        ("t.csv", b"a, b, a\n1, 2, 3\n", "'a' occurs twice"),
        ("t.csv.gz", b"not gzip", "Cannot read"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-20], "Cannot read"),
        ("t.parquet", b"not parquet", "Cannot read"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, named):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=named) as caught:
        read_table(tmp_path / name)
    assert "\n" not in str(caught.value) and "/t." in str(caught.value)


def test_a_folder_is_no_file_and_a_workbook_has_each_name_once(tmp_path):
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(DataError, match="There is no file"):
        read_table(tmp_path / "t.csv")
    for header in (["x", "x"], ["7", 7]):
        frame = pd.DataFrame([[1, 2], [3, 4]], columns=header)
        frame.to_excel(tmp_path / "t.xlsx", index=False)
        with pytest.raises(DataError, match=f"'{header[0]}' occurs twice"):
            read_table(tmp_path / "t.xlsx")
