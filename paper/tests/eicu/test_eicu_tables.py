"""Tables on disk: how they are found and read, and what is said of bad ones."""

import gzip

import numpy as np
import pytest
from hand_made import DAY, charted, stay, write_table, write_tables

from fcfl.errors import DataError
from fcfl_paper.eicu import Options, prepare
from fcfl_paper.eicu.events import CHARTING, read_events
from fcfl_paper.eicu.tables import NUMBER, TEXT, WHOLE, find_tables, read_batches, read_frame

DAY_ONE = Options(min_stays=1)
APACHE = Options(features="apache", client="region")


def refused(folder, options=DAY_ONE):
    with pytest.raises(DataError) as caught:
        prepare(folder, options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_names_are_found_in_any_letter_case_packed_or_not(tmp_path):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for folder, is_packed in ((plain, False), (packed, True)):
        folder.mkdir()
        write_tables(folder, [stay(1), stay(2)], packed=is_packed)
    for number, path in enumerate(sorted(packed.iterdir())):
        name = path.name.upper() if number % 2 else path.name.lower()
        path.rename(packed / name)
    frames = [prepare(folder, DAY_ONE).frame for folder in (plain, packed)]
    assert frames[0].equals(frames[1])


def test_column_names_are_found_in_any_letter_case_and_order(tmp_path):
    write_tables(tmp_path, [stay()])
    before = prepare(tmp_path, DAY_ONE).frame
    rows = [charted("hr", minute, 80) for minute in (0, 2 * DAY)]
    upper = [{name.upper(): value for name, value in row.items()} for row in rows]
    write_table(tmp_path, "nurseCharting", upper, columns=sorted(upper[0]))
    assert prepare(tmp_path, DAY_ONE).frame.equals(before)


def test_a_folder_that_is_not_there_or_holds_nothing(tmp_path):
    assert refused(tmp_path / "none").startswith(f"There is no folder '{tmp_path / 'none'}'")
    told = refused(tmp_path)
    assert told.startswith(f"The folder '{tmp_path}' holds none of the eICU tables")
    assert "patient.csv.gz" in told


@pytest.mark.parametrize("options", [DAY_ONE, APACHE], ids=["day1", "apache"])
def test_each_missing_table_is_named(tmp_path, options):
    from fcfl_paper.eicu.prepare import needed_tables

    for missing in needed_tables(options):
        folder = tmp_path / missing
        folder.mkdir()
        write_tables(folder, [stay()])
        (folder / f"{missing}.csv").unlink()
        told = refused(folder, options)
        assert f"has no table {missing} ({missing}.csv.gz or {missing}.csv), which --" in told
        assert "Download it" in told


@pytest.mark.parametrize(
    ("table", "column", "options"),
    [
        ("patient", "uniquepid", DAY_ONE),
        ("nurseCharting", "nursingchartvalue", DAY_ONE),
        ("lab", "labresult", DAY_ONE),
        ("intakeOutput", "cellpath", DAY_ONE),
        ("carePlanGeneral", "cplitemoffset", DAY_ONE),
        ("apachePatientResult", "predictedhospitalmortality", DAY_ONE),
        ("apachePredVar", "electivesurgery", DAY_ONE),
        ("apacheApsVar", "heartrate", APACHE),
        ("hospital", "region", APACHE),
    ],
)
def test_a_renamed_column_is_named_with_its_file(tmp_path, table, column, options):
    write_tables(tmp_path, [stay()])
    path = tmp_path / f"{table}.csv"
    header, _, rest = path.read_text().partition("\n")
    renamed = header.split(",")
    renamed[renamed.index(column)] = f"{column}s"
    path.write_text(",".join(renamed) + "\n" + rest)
    told = refused(tmp_path, options)
    assert told.startswith(f"The table '{path}' has no column {column!r}. Did you mean '{column}s'")


@pytest.mark.parametrize(
    ("table", "column"), [("lab", "labname"), ("apachePredVar", "electivesurgery")]
)
def test_a_renamed_column_is_told_before_the_large_table_is_read(tmp_path, table, column):
    """The large table is damaged too, but nobody has waited for that yet."""
    write_tables(tmp_path, [stay()])
    for path, text in ((tmp_path / f"{table}.csv", ""), (tmp_path / "nurseCharting.csv", "1,1")):
        header = path.read_text().splitlines()[0].replace(column, "renamed")
        path.write_text(f"{header}\n{text}")
    assert f"{table}.csv' has no column {column!r}" in refused(tmp_path)


def test_a_packed_table_that_is_cut_short(tmp_path):
    rng = np.random.default_rng(0)
    beats = [
        charted("hr", int(at), int(rng.integers(60, 99))) for at in rng.integers(0, 3000, 9000)
    ]
    write_tables(tmp_path, [stay()], packed=True, nurseCharting=beats)
    path = tmp_path / "nurseCharting.csv.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    told = refused(tmp_path)
    assert told.startswith(f"The file '{path}' is cut short")
    assert "'nursingchartvalue' are missing. Download it again." in told
    path.write_bytes(whole[:12])
    assert f"Cannot read '{path}'" in refused(tmp_path)
    path.write_bytes(b"not packed at all")
    assert f"Cannot read '{path}'" in refused(tmp_path)


def test_a_plain_table_that_is_cut_short(tmp_path):
    write_tables(tmp_path, [stay()])
    path = tmp_path / "lab.csv"
    path.write_text(path.read_text() + "5,1,30")
    told = refused(tmp_path)
    assert f"A row of '{path}' has 3 cells instead of 10, without column 'labtypeid'." in told
    path.write_text("")
    assert refused(tmp_path).startswith(f"The table '{path}' is empty, without even a header.")


def test_a_cell_that_is_no_number_is_named(tmp_path):
    write_tables(tmp_path, [stay()], lab=[{"patientunitstayid": 1, "labresult": "high"}])
    told = refused(tmp_path)
    path = tmp_path / "lab.csv"
    assert told == f"Column 'labresult' of '{path}' must hold numbers, got 'high'."
    write_tables(tmp_path, [stay(age="old")])
    assert "Column 'age' of" in refused(tmp_path) and "got 'old'" in refused(tmp_path)


def test_the_same_table_twice_the_same_stay_twice_and_no_stay(tmp_path):
    write_tables(tmp_path, [stay(), stay()])
    assert "must differ in every row, got 1 twice" in refused(tmp_path)
    write_tables(tmp_path, [])
    assert refused(tmp_path).endswith("has no rows, only a header.")
    write_table(tmp_path, "lab", [], packed=True)
    told = refused(tmp_path)
    assert "'lab.csv' and 'lab.csv.gz'" in told and "Keep one of them." in told


def test_an_empty_key_is_refused(tmp_path):
    write_tables(tmp_path, [stay(1), stay(2)], apachePredVar=[{"electivesurgery": 1}])
    assert "Column 'patientunitstayid' of" in refused(tmp_path)


def test_text_that_is_not_utf8_and_cells_with_newlines_pass(tmp_path):
    write_tables(tmp_path, [stay()])
    path = tmp_path / "nurseCharting.csv"
    cells = '9,1,30,30,Other,"two\nlines",caf\xe9,"a ""quoted"" word"\n'
    with path.open("ab") as file:
        file.write(cells.encode("latin-1"))
        file.write(b"9,1,40,40,Vital Signs,Heart Rate,Heart Rate,91\n")
    assert prepare(tmp_path, DAY_ONE).frame["heart_rate_last"].tolist() == [91.0]


def test_batches_have_the_asked_columns_in_the_asked_order(tmp_path):
    write_tables(tmp_path, [stay(3, age="> 89", gender="")])
    table = find_tables(tmp_path, {"patient": "which the test needs"})["patient"]
    asked = {"patientunitstayid": WHOLE, "gender": TEXT, "age": TEXT, "hospitaladmitoffset": NUMBER}
    assert [batch.schema.names for batch in read_batches(table, asked)] == [list(asked)]
    frame = read_frame(table, asked)
    assert frame["gender"].isna().tolist() == [True]
    assert frame["age"].tolist() == ["> 89"]


def test_the_share_read_grows_to_one(tmp_path, monkeypatch):
    monkeypatch.setattr("fcfl_paper.eicu.tables.BLOCK", 1024)
    beats = [charted("hr", minute, 80) for minute in range(3000)]
    write_tables(tmp_path, [stay()], nurseCharting=beats)
    table = find_tables(tmp_path, {"nurseCharting": ""})["nurseCharting"]
    seen = []
    events = list(
        read_events(table, CHARTING, np.array([1]), lambda name, share: seen.append((name, share)))
    )
    assert len(events) > 20
    assert sum(part.value.size for part in events) == 3000
    shares = [share for _, share in seen]
    assert shares == sorted(shares) and shares[-1] == 1.0 and shares[0] < 0.5
    assert {name for name, _ in seen} == {"nurseCharting"}


def test_a_packed_file_with_a_byte_order_mark(tmp_path):
    write_tables(tmp_path, [stay()])
    path = tmp_path / "hospital.csv"
    with gzip.open(tmp_path / "hospital.csv.gz", "wb") as file:
        file.write(b"\xef\xbb\xbf" + path.read_bytes())
    path.unlink()
    assert prepare(tmp_path, APACHE).frame["region"].tolist() == ["South"]
