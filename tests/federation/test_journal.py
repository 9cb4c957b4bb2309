"""What was recorded stays recorded, whatever happens to the process, and changes are noticed."""

import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass

import pytest

from fcfl.errors import DataError
from fcfl.federation.journal import Journal, JournalError, Secret


@dataclass(frozen=True)
class Note:
    number: float
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Other:
    text: str


def add(journal, *values):
    with journal.locked():
        for value in values:
            journal.append(value)


def notes(journal):
    with journal.locked():
        return list(journal.read(Note))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "journal.sqlite"


def test_records_are_read_back_to_the_last_bit_by_class_and_in_order(path):
    values = [Note(1 / 3), Note(float("inf"), ("é\n", "")), Note(-0.0)]
    journal = Journal(path)
    add(journal, values[0], Other("x"), *values[1:])
    for one in (journal, Journal(path)):
        assert repr(notes(one)) == repr(values)
        with one.locked():
            assert one.read(Other) == [Other("x")]
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o077 == 0


def test_without_a_path_records_are_in_memory():
    journal = Journal()
    add(journal, Note(1.0))
    assert notes(journal) == [Note(1.0)] and notes(Journal()) == []


def test_a_secret_is_made_once(path):
    with Journal(path).locked():
        pass
    journal = Journal(path)
    with journal.locked():
        first, second = journal.secret("a"), journal.secret("b")
    again = Journal(path)
    with again.locked():
        assert again.secret("a") == first != second and len(first) == 32


def test_an_error_while_the_lock_is_held_takes_back_what_was_appended(path):
    journal = Journal(path)
    add(journal, Note(1.0))
    with pytest.raises(KeyboardInterrupt), journal.locked():
        journal.append(Note(2.0))
        raise KeyboardInterrupt
    assert notes(journal) == notes(Journal(path)) == [Note(1.0)]
    add(journal, Note(3.0))
    assert notes(Journal(path)) == [Note(1.0), Note(3.0)]


def test_a_killed_process_leaves_whole_records_only(path):
    add(Journal(path), Note(1.0))
    script = """
        import os, signal, sys
        from pathlib import Path
        from fcfl.federation.journal import Journal, Secret
        journal = Journal(Path(sys.argv[1]))
        with journal.locked():
            journal.append(Secret("kept", "00"))
        with journal.locked():
            journal.append(Secret("lost", "00"))
            os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(path)], check=False)
    journal = Journal(path)
    with journal.locked():
        assert [one.name for one in journal.read(Secret)] == ["kept"]
    add(journal, Note(2.0))
    assert notes(journal) == [Note(1.0), Note(2.0)]


def test_several_processes_share_one_journal(path):
    journals = [Journal(path) for _ in range(4)]

    def work(who):
        for number in range(10):
            add(journals[who % 4], Note(float(number), (str(who),)))

    threads = [threading.Thread(target=work, args=[who]) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for journal in (*journals, Journal(path)):
        assert len(notes(journal)) == 60
        for who in range(6):
            own = [note.number for note in notes(journal) if note.words == (str(who),)]
            assert own == list(range(10))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE records SET body = replace(body, '1.0', '0.0') WHERE id = 1",
        "UPDATE records SET kind = 'Other' WHERE id = 2",
        "DELETE FROM records WHERE id = 1",
        "DELETE FROM records WHERE id = 2",
        "INSERT INTO records VALUES (4, 'Note', '{}', '')",
        "DROP TABLE records; CREATE TABLE records (id INTEGER)",
    ],
)
def test_a_change_is_noticed(path, change):
    add(Journal(path), Note(1.0), Note(2.0), Note(3.0))
    connection = sqlite3.connect(path)
    connection.executescript(change)
    connection.commit()
    connection.close()
    with pytest.raises(JournalError, match=r"journal.sqlite.*somebody has looked at it"):
        notes(Journal(path))
    with pytest.raises(DataError):
        add(Journal(path), Note(4.0))


def test_a_torn_file_is_noticed(path):
    add(Journal(path), *(Note(float(number)) for number in range(200)))
    whole = path.read_bytes()
    for place in range(100, len(whole), 997):
        path.write_bytes(whole[:place])
        with pytest.raises(JournalError):
            pytest.fail(f"{place} of {len(whole)}: {len(notes(Journal(path)))} records")


@pytest.mark.parametrize("content", [b"hello" * 1000, b"SQLite format 3\x00" + b"x" * 5000])
def test_another_file_is_not_overwritten(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"journal.sqlite"):
        add(Journal(path), Note(1.0))
    assert path.read_bytes() == content


def test_a_file_that_was_put_back_is_read_again(path):
    journal = Journal(path)
    add(journal, Note(1.0))
    before = path.read_bytes()
    add(journal, Note(2.0))
    path.write_bytes(before)
    assert notes(journal) == [Note(1.0)]


@pytest.mark.skipif(os.name != "posix", reason="needs resource limits")
def test_a_full_disk_is_an_error_and_loses_nothing(path):
    add(Journal(path), Note(1.0))
    script = """
        import resource, signal, sys
        from pathlib import Path
        from fcfl.federation.journal import Journal, JournalError, Secret
        journal = Journal(Path(sys.argv[1]))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        try:
            with journal.locked():
                journal.append(Secret("large", "0" * 200_000))
        except (JournalError, OSError) as error:
            print("refused")
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "refused\n", done.stderr
    assert notes(Journal(path)) == [Note(1.0)]
