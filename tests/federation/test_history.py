import json
import os

import pytest

from fcfl.federation.checkpoint import History, join_histories, read_history
from fcfl.methods.method import RoundInfo


def info(round, client="münchen", **changed):
    values = {"worst_loss": 0.1 + 0.2, "mean_loss": 0.2, "largest_violation": -0.01, "step": 0.5}
    return RoundInfo(round, 1, client, **{**values, **changed}, note="accepted")


def write(path, rounds, **options):
    with History(path, **options) as history:
        for round in rounds:
            history.append(info(round))


def test_every_line_is_plain_json(tmp_path):
    path = tmp_path / "history.jsonl"
    with History(path) as history:
        history.append(info(1, largest_violation=float("-inf"), worst_loss=float("nan")))

    def refuse(word):
        raise AssertionError(word)

    line = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert line["largest_violation"] is None and line["worst_loss"] is None


def test_rounds_are_read_as_written_without_empty_fields(tmp_path):
    path = tmp_path / "history.jsonl"
    told = info(2, loss_gap=0.25)
    with History(path) as history:
        history.append(info(1))
        history.append(told)
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert "loss_gap" not in first and second["loss_gap"] == 0.25
    assert read_history(path) == [info(1), told]


def test_flushed_rounds_are_on_disk(tmp_path):
    path = tmp_path / "history.jsonl"
    with History(path) as history:
        history.append(info(1))
        history.flush()
        assert len(read_history(path)) == 1


@pytest.mark.parametrize("kept", [0, 1, 5, 9])
def test_resuming_keeps_the_given_number_of_rounds(tmp_path, kept):
    path = tmp_path / "history.jsonl"
    write(path, range(1, 6))
    write(path, [77], rounds_kept=kept)
    rounds = [line.round for line in read_history(path)]
    assert rounds == [*range(1, min(kept, 5) + 1), 77]


def test_a_torn_last_line_is_left_out_wherever_it_is_torn(tmp_path):
    """Also in the middle of a character of two bytes."""
    path = tmp_path / "history.jsonl"
    write(path, range(1, 4))
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        lacks_only_its_end = content[length : length + 1] == b"\n"
        whole = content[:length].count(b"\n") + lacks_only_its_end
        assert [line.round for line in read_history(path)] == list(range(1, whole + 1))


def test_a_torn_history_can_be_resumed(tmp_path):
    path = tmp_path / "history.jsonl"
    write(path, range(1, 6))
    path.write_bytes(path.read_bytes()[:-9])
    write(path, [5, 6], rounds_kept=4)
    assert [line.round for line in read_history(path)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("kept", [0, 3, 5])
def test_a_run_killed_on_resuming_loses_no_line(tmp_path, kept):
    """Before anything is appended, flushed or closed, the kept lines are on disk."""
    path = tmp_path / "history.jsonl"
    write(path, range(1, 6))
    history = History(path, rounds_kept=kept)
    try:
        assert [line.round for line in read_history(path)] == list(range(1, kept + 1))
    finally:
        history.__exit__()


def test_a_full_disk_at_resuming_leaves_the_history_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "history.jsonl"
    write(path, range(1, 6))
    before = path.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        History(path, rounds_kept=5)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]


def test_kept_lines_keep_their_bytes(tmp_path):
    path = tmp_path / "history.jsonl"
    with History(path) as history:
        history.append(info(1, largest_violation=float("-inf"), worst_loss=1e-300))
        history.append(info(2, client="a\nb\u2028"))
    before = path.read_bytes()
    write(path, [], rounds_kept=2)
    assert path.read_bytes() == before


def test_histories_of_several_files_are_joined(tmp_path):
    """A file may have a line too many: what was written after the last checkpoint."""
    parts = []
    for place, (written_rounds, counted) in enumerate(((4, 3), (2, 2), (1, 0))):
        path = tmp_path / f"{place}.jsonl"
        with History(path) as history:
            for round in range(1, written_rounds + 1):
                history.append(info(round, worst_loss=place + round / 10))
        parts.append((path, counted))
    whole = tmp_path / "0.jsonl"  # the first part itself is replaced
    join_histories(parts, whole)
    losses = [0.1, 0.2, 0.3, 1.1, 1.2]
    assert read_history(whole) == [
        info(number, worst_loss=loss) for number, loss in enumerate(losses, start=1)
    ]
    join_histories(parts, whole)  # once more, as on resuming: nothing is there twice
    assert [found.worst_loss for found in read_history(whole)] == losses
