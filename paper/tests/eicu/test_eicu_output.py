"""What is written: whole or not at all, counts beside it, rows as they were prepared."""

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from hand_made import stay, write_tables

from fcfl.errors import DataError
from fcfl_paper.eicu import Options, prepare, write_prepared
from fcfl_paper.eicu.prepare import cohort_path
from fcfl_paper.eicu.simulate import simulate


@pytest.fixture
def prepared(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    stays = [stay(1), stay(2, ethnicity="Asian"), stay(3, hospitalid=8), stay(4, age="3")]
    write_tables(folder, stays)
    return prepare(folder, Options(min_stays=1))


def test_the_table_and_its_record_agree(prepared, tmp_path):
    out = tmp_path / "stays.parquet"
    assert write_prepared(prepared, out) == cohort_path(out) == tmp_path / "stays.cohort.json"
    assert pd.read_parquet(out).equals(prepared.frame)
    record = json.loads(cohort_path(out).read_text())
    assert record["stays_read"] == 4
    assert record["flow"][1] == {
        "rule": "age", "words": "younger than 16", "removed": 1, "left": 3,
    }  # fmt: skip
    assert record["flow"][-1]["left"] == sum(client["rows"] for client in record["clients"]) == 3
    assert record["clients"][0] == {
        "name": "7", "rows": 2, "positive_rate": 0.0,
        "groups": {"race": {"Caucasian": 1, "not Caucasian": 1}},
    }  # fmt: skip
    assert record["inputs"] == prepared.features
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "stays.cohort.json", "stays.parquet",
    ]  # fmt: skip


def test_files_that_cannot_be_written_are_refused_before_anything_is_read(prepared, tmp_path):
    for out, sentence in (
        (tmp_path / "stays.csv", "must end in .parquet"),
        (tmp_path / "none" / "stays.parquet", "There is no folder"),
    ):
        with pytest.raises(ValueError, match=sentence):
            write_prepared(prepared, out)
    (tmp_path / "d.parquet").mkdir()
    with pytest.raises(DataError, match="must be a file"):
        write_prepared(prepared, tmp_path / "d.parquet")


def run(folder, out, **options):
    command = ["data", "eicu", str(folder), "--min-stays", "100", "--out", str(out)]
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from fcfl.cli import main; main()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def no_more_than(size):
    """In the new process: files end at ``size`` bytes, as on a full disk."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def test_a_full_disk_leaves_the_old_file_and_no_draft(tmp_path):
    simulate(tmp_path / "tables", 1, 200)
    out = tmp_path / "stays.parquet"
    out.write_bytes(b"the old one")
    process = run(tmp_path / "tables", out, preexec_fn=no_more_than(20_000))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    assert [line for line in errors.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in errors
    assert out.read_bytes() == b"the old one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stays.parquet", "tables"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to see open files")
def test_stopped_while_reading_nothing_is_written(tmp_path):
    simulate(tmp_path / "tables", 1, 2000)
    charts = tmp_path / "tables" / "nurseCharting.csv.gz"
    rows = gzip.decompress(charts.read_bytes()).split(b"\n", 1)[1]
    with charts.open("ab") as file:  # so long that whoever waits for it is not late
        file.write(4 * gzip.compress(rows))
    process = run(tmp_path / "tables", tmp_path / "stays.parquet")
    folder = Path(f"/proc/{process.pid}/fd")
    while process.poll() is None and not _has_open(folder, "nurseCharting.csv.gz"):
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == "error: Stopped."
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def _has_open(folder, name):
    try:
        return any(os.readlink(link).endswith(name) for link in folder.iterdir())
    except OSError:
        return False
