"""A site's ledger: what was answered stays answered, and a limit once reached stays reached."""

import errno
import json
import os
import threading
from dataclasses import replace

import pytest

from fcfl.errors import DataError
from fcfl.limits import Limits
from fcfl.sites.ledger import Entry, Ledger, LedgerError

HASH = "f" * 64


def entry(number=0, run="run", **changes):
    given = Entry("table", run, f"question {number}", "evaluate", 100, points=2)
    return replace(given, **changes)


def test_every_question_is_a_line_that_is_there_before_the_answer(tmp_path):
    ledger = Ledger(tmp_path / "state")
    ledger.record(entry(), Limits())
    (line,) = (tmp_path / "state" / "ledger.jsonl").read_text().splitlines()
    written = json.loads(line)["entry"]
    assert written["question"] == "question 0" and written["purpose"] == "evaluate"
    assert written["size"] == 100 and written["at"].endswith("Z")
    if os.name == "posix":
        assert (tmp_path / "state" / "ledger.jsonl").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("limits", "change", "key"),
    [
        ({"questions_per_run": 3}, {}, "questions-per-run"),
        ({"questions_per_table": 3}, {"run": "other"}, "questions-per-table"),
        ({"points_per_run": 6}, {}, "points-per-run"),
        ({"points_per_table": 7}, {"run": "other"}, "points-per-table"),
        ({"counts_per_run": 0}, {"counted": ("m",)}, "counts-per-run"),
        ({"counts_per_table": 0}, {"counted": ("m",), "run": "other"}, "counts-per-table"),
        ({"runs_per_table": 1}, {"run": "other"}, "runs-per-table"),
        ({"splits_per_table": 1}, {"splits": ("rows:2",)}, "splits-per-table"),
        ({"questions_per_table": 3}, {"run": "", "points": 0}, "questions-per-table"),
    ],
)
def test_a_limit_once_reached_stays_reached_over_restarts(tmp_path, limits, change, key):
    most = Limits(**limits)
    for number in range(3):
        Ledger(tmp_path).record(entry(number, splits=("rows:1",)), most)
    for number in (3, 4):
        with pytest.raises(DataError, match=f"This site's limit `{key}` of .* is reached"):
            Ledger(tmp_path).record(entry(number, **change), most)
    assert Ledger(tmp_path).usages()["table"].in_all.questions == 3


def test_a_question_that_is_asked_again_is_written_and_not_counted(tmp_path):
    ledger, most = Ledger(tmp_path), Limits(questions_per_run=1)
    for _ in range(3):
        ledger.record(entry(), most)
    assert len(ledger.path.read_text().splitlines()) == 3
    assert ledger.usages()["table"].in_all.questions == 1
    assert Ledger(tmp_path).usages()["table"].runs["run"].points == 2


def test_a_model_is_counted_once_however_often_its_decisions_are(tmp_path):
    ledger, most = Ledger(tmp_path), Limits(counts_per_run=3, counts_per_table=4)
    for number in range(5):
        ledger.record(entry(number, counted=("a", "b", "c")), most)
    with pytest.raises(DataError, match="`counts-per-run` of 3 is reached"):
        ledger.record(entry(9, counted=("a", "d")), most)
    ledger.record(entry(9, run="other", counted=("a", "d")), most)
    with pytest.raises(DataError, match="`counts-per-table` of 4 is reached"):
        Ledger(tmp_path).record(entry(10, run="other", counted=("e",)), most)
    ledger.record(entry(11), most)
    assert Ledger(tmp_path).usages()["table"].in_all.counts == 4


def test_another_table_has_limits_of_its_own(tmp_path):
    ledger, most = Ledger(tmp_path), Limits(questions_per_table=1)
    ledger.record(entry(0), most)
    ledger.record(entry(1, table="another"), most)
    with pytest.raises(DataError, match="is reached"):
        ledger.record(entry(2, table="another"), most)


def torn(text):
    yield "the last line", text[:-20]
    yield "the last byte", text[:-1]
    yield "a number", text.replace(b'"points":2', b'"points":0', 1)
    yield "a line is gone", b"".join(text.splitlines(keepends=True)[1:])
    yield "lines changed places", b"".join(reversed(text.splitlines(keepends=True)))
    yield "something else", text + b"hello\n"
    yield "nested", text + b"[" * 100_000 + b"\n"


def test_a_ledger_that_was_torn_or_changed_answers_nothing(tmp_path):
    ledger = Ledger(tmp_path)
    for number in range(3):
        ledger.record(entry(number), Limits())
    whole = ledger.path.read_bytes()
    for what, text in torn(whole):
        ledger.path.write_bytes(text)
        with pytest.raises(LedgerError, match=r"is torn or was changed at line \d.*fcfl site mend"):
            Ledger(tmp_path).record(entry(9), Limits())
            pytest.fail(what)
        assert ledger.path.read_bytes() == text


def test_a_mended_ledger_has_all_whole_lines_and_answers_again(tmp_path):
    for number in range(3):
        Ledger(tmp_path).record(entry(number), Limits())
    path = Ledger(tmp_path).path
    path.write_bytes(path.read_bytes()[:-20])
    assert Ledger(tmp_path).mend() > 0
    assert Ledger(tmp_path).mend() == 0
    Ledger(tmp_path).record(entry(3), Limits())
    assert Ledger(tmp_path).usages()["table"].in_all.questions == 3


def test_several_processes_of_a_site_share_one_ledger(tmp_path):
    ledgers = [Ledger(tmp_path) for _ in range(4)]

    def ask(who):
        for number in range(10):
            ledgers[who].record(entry(f"{who} {number}"), Limits())

    threads = [threading.Thread(target=ask, args=[who]) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ledger in (*ledgers, Ledger(tmp_path)):
        assert ledger.usages()["table"].in_all.questions == 40


def test_an_entry_that_the_disk_takes_in_part_is_finished_or_refused_and_taken_back(
    tmp_path, monkeypatch
):
    ledger, write, room = Ledger(tmp_path), os.write, [10**6]

    def short(file, content):
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(file, bytes(content)[: min(20, room[0])])
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", short)
    ledger.record(entry(1), Limits())
    assert Ledger(tmp_path).usages()["table"].in_all.questions == 1
    whole, room[0] = ledger.path.read_bytes(), 50
    with pytest.raises(OSError, match="No space left"):
        ledger.record(entry(2), Limits())
    assert ledger.path.read_bytes() == whole
    monkeypatch.undo()
    ledger.record(entry(2), Limits())
    assert Ledger(tmp_path).usages()["table"].in_all.questions == 2
