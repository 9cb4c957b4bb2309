"""A run that is killed, stopped or out of disk: real processes, and the same bits in the end."""

import errno
import json
import os
import random
import resource
import signal
import time

import pytest

from fcfl.data import load_adult_frames
from fcfl.errors import DataError, Interrupted
from fcfl.federation import session as training
from fcfl.federation.checkpoint import checkpoint_path, previous_path
from fcfl.runs import Experiment, run_experiment
from hospital import (
    COLUMNS,
    SHORT,
    fcfl,
    only_error,
    result_of,
    start_process,
    stays,
    weights_of,
    written,
)

TWO_STAGE = ("--method", "two-stage", "--rounds")
ADULT = ("adult", "--sensitive", "race", "--budget", "0.05", *TWO_STAGE, "300,300")
PATIENCE = 120  # seconds until a process that should have got somewhere counts as hung


def finish(process):
    """Wait for a process and keep what it said."""
    process.said = process.communicate(timeout=PATIENCE)[1]
    return process


def undisturbed(folder, arguments):
    process = finish(start_process("train", *arguments, "--out", folder))
    assert process.returncode in (0, 3), process.said
    return folder


@pytest.fixture(scope="module")
def adult(tmp_path_factory):
    """Folder of a run on Adult that nobody disturbed."""
    try:
        load_adult_frames()
    except DataError as error:
        pytest.skip(str(error))
    return undisturbed(tmp_path_factory.mktemp("adult"), ADULT)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Arguments of a run that takes a second or so."""
    path = written(stays(n_rows=3000), tmp_path_factory.mktemp("table") / "stays.csv")
    return (path, *COLUMNS, "--budget", "0.02", *TWO_STAGE, "1000,1000")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, table):
    """Folder of that run when nobody disturbs it."""
    return undisturbed(tmp_path_factory.mktemp("whole"), table)


def stopped_by(kill, folder, arguments, *, wait_for=checkpoint_path, pause=0.0):
    """Start a run, wait for a checkpoint and a little longer, and send the signal."""
    process = start_process("train", *arguments, "--out", folder)
    deadline = time.monotonic() + PATIENCE
    while not wait_for(folder).exists() and process.poll() is None:
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.005)
    time.sleep(pause)
    process.send_signal(kill)
    finish(process)
    assert not (folder / "result.json").exists(), "the run was over before it was stopped"
    return process


def resumed(folder):
    process = finish(start_process("train", "--resume", "--out", folder))
    assert process.returncode in (0, 3), process.said  # two-stage holds no decisions
    return process


def assert_same_run(folder, other, *, was_stopped=True):
    """Two folders hold the same weights to the last bit, the same rounds and the same result.

    If the first was stopped, what was asked again after that counts again.
    """
    assert weights_of(folder) == weights_of(other)
    (lines, count), (others, least) = rounds_and_exchanges(folder), rounds_and_exchanges(other)
    assert lines == others and sorted(count) == count
    assert (count[-1] > least[-1]) == was_stopped
    left, right = result_of(folder), result_of(other)
    for result in (left, right):
        del result["seconds"]
    more = left.pop("exchanges"), right.pop("exchanges")
    assert more[0]["total"] == sum(more[0]["by_phase"].values())
    assert (more[0]["total"] > more[1]["total"]) == was_stopped
    assert left == right


def rounds_and_exchanges(folder):
    """The lines of a run's history, and the numbers of exchanges in them."""
    text = (folder / "history.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    return lines, [line.pop("exchange") for line in lines]


@pytest.mark.thorough
@pytest.mark.parametrize("attempt", range(2))
def test_a_killed_run_continues_to_the_same_bits(tmp_path, adult, attempt):
    pause = random.Random(attempt).uniform(0, 0.3)
    process = stopped_by(signal.SIGKILL, tmp_path, ADULT, pause=pause)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "model.json").exists()
    resumed(tmp_path)
    assert_same_run(tmp_path, adult)
    assert list(tmp_path.glob("*.draft")) == []


@pytest.mark.thorough
@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_states_how_to_continue_and_does(tmp_path, table, whole, kill):
    folder = tmp_path / "a folder"
    process = stopped_by(kill, folder, table)
    assert process.returncode == 1
    (line,) = [text for text in process.said.splitlines() if not text.startswith("note")]
    told, _, command = line.partition(" Continue with: ")
    assert told.startswith("error: Stopped after round ")
    assert command == f"fcfl train --resume --out '{folder}'"
    rounds = int(told.removeprefix("error: Stopped after round ").rstrip("."))
    assert 0 < rounds < sum(result_of(whole)["rounds"].values())
    resumed(folder)
    assert_same_run(folder, whole)


@pytest.mark.thorough
def test_a_torn_checkpoint_is_reported_and_the_previous_one_used(tmp_path, table, whole):
    stopped_by(signal.SIGKILL, tmp_path, table, wait_for=previous_path)
    newest = checkpoint_path(tmp_path)
    content = newest.read_bytes() if newest.exists() else previous_path(tmp_path).read_bytes()
    newest.write_bytes(content[:-100])
    said = resumed(tmp_path).said
    assert "is torn: its checksum does not match. The previous checkpoint is used." in said
    assert_same_run(tmp_path, whole)


@pytest.mark.thorough
def test_two_torn_checkpoints_start_from_the_beginning(tmp_path, table, whole):
    stopped_by(signal.SIGKILL, tmp_path, table)
    for path in (checkpoint_path(tmp_path), previous_path(tmp_path)):
        path.write_bytes(b"torn")
    assert "Starting from the beginning." in resumed(tmp_path).said
    assert_same_run(tmp_path, whole)


@pytest.mark.thorough
def test_resuming_a_finished_run_changes_nothing(whole):
    before = {path.name: path.read_bytes() for path in whole.iterdir()}
    resumed(whole)
    after = {path.name: path.read_bytes() for path in whole.iterdir()}
    assert after.keys() <= before.keys() | {previous_path(whole).name}
    for name in ("model.json", "history.jsonl", "experiment.toml", "rows.sha256"):
        assert after[name] == before[name]


# --- in this process ------------------------------------------------------------------------------


def stop_after(n_rounds):
    def on_round(info, share):
        if info.round == n_rounds:
            raise KeyboardInterrupt

    return on_round


def table_run(tmp_path, **options):
    table = written(stays(), tmp_path / "stays.csv")
    settings = {"client": "hospital", "label": "died", "sensitive": ("race",), "min_group_rows": 1}
    settings |= {"method": "two-stage", "rounds": (20, 20)}
    return Experiment(str(table), **{**settings, **options})


@pytest.mark.parametrize("n_rounds", [1, 19, 30])
@pytest.mark.parametrize("options", [{"budget": 0.02}, {"method": "fedavg", "rounds": (40,)}])
def test_a_run_can_be_stopped_after_any_round(tmp_path, options, n_rounds):
    experiment = table_run(tmp_path, **options)
    whole = run_experiment(experiment, tmp_path / "whole")
    with pytest.raises(Interrupted, match=rf"Stopped after round {n_rounds}\."):
        run_experiment(experiment, tmp_path / "parts", on_round=stop_after(n_rounds))
    parts = run_experiment(experiment, tmp_path / "parts", resume=True)
    assert_same_run(parts.folder, whole.folder)


def test_a_run_with_relative_budgets_can_be_stopped_in_both_halves(tmp_path):
    experiment = table_run(tmp_path, relative_budget=0.5)
    whole = run_experiment(experiment, tmp_path / "whole")
    seen = []

    def stop_in_second_half(info, share):
        seen.append(info.round)
        if seen.count(10) == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "parts"
    with pytest.raises(Interrupted):
        run_experiment(experiment, folder, on_round=stop_after(10))
    assert not checkpoint_path(folder).exists()
    seen.append(10)
    with pytest.raises(Interrupted):
        run_experiment(experiment, folder, resume=True, on_round=stop_in_second_half)
    assert checkpoint_path(folder).exists()
    parts = run_experiment(experiment, folder, resume=True)
    assert_same_run(parts.folder, whole.folder)


def test_resuming_with_other_settings_or_rows_is_rejected(tmp_path):
    table = written(stays(), tmp_path / "stays.csv")
    command = ("train", table, *COLUMNS, *SHORT, "--out", tmp_path / "run")
    assert fcfl(*command, "--budget", "0.05").exit_code in (0, 3)
    told = only_error(fcfl(*command, "--budget", "0.06", "--resume"))
    assert told.endswith(
        "holds a run with other settings (budget is 0.05, got 0.06). Choose another `--out`, "
        "or pass `--overwrite`."
    )
    changed = stays()
    changed.loc[0, "age"] += 1  # the same counts, so that only the rows tell
    written(changed, table)
    told = only_error(fcfl("train", "--resume", "--out", tmp_path / "run"))
    assert f"The run in {str(tmp_path / 'run')!r}" in told


def test_starting_again_over_an_unfinished_run_is_reported(tmp_path):
    experiment = table_run(tmp_path)
    with pytest.raises(Interrupted):
        run_experiment(experiment, tmp_path / "run", on_round=stop_after(3))
    told = []
    run_experiment(experiment, tmp_path / "run", on_message=told.append)
    assert any("`--resume` would continue it" in note for note in told)


# --- a full disk ----------------------------------------------------------------------------------


def wide_stays():
    """So many levels that a checkpoint is larger than a short history."""
    frame = stays(n_rows=400)
    return frame.assign(code=[f"c{i % 90}" for i in range(len(frame))])


def run_with_largest_file(n_bytes, tmp_path, rounds):
    table = written(wide_stays(), tmp_path / "stays.csv")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))

    arguments = ("train", table, *COLUMNS, *TWO_STAGE, rounds, "--out", tmp_path / "run")
    process = start_process(*arguments, checkpoint_seconds=0.0, preexec_fn=limit)
    return finish(process)


def assert_nothing_torn(folder):
    names = {path.name for path in folder.iterdir()}
    whole = {"model.json", "result.json", "exchanges.json"}
    assert names <= {"experiment.toml", "rows.sha256", "history.jsonl", *whole}
    lines = (folder / "history.jsonl").read_text(encoding="utf-8")
    assert lines.endswith("\n") or not lines
    for line in lines.splitlines():
        json.loads(line)
    for name in names & whole:
        json.loads((folder / name).read_text(encoding="utf-8"))


@pytest.mark.skipif(os.name != "posix", reason="needs resource limits")
@pytest.mark.thorough
@pytest.mark.parametrize(("n_bytes", "rounds"), [(1800, "4,4"), (1800, "20,20")])
def test_a_full_disk_is_reported_and_leaves_nothing_torn(tmp_path, n_bytes, rounds):
    process = run_with_largest_file(n_bytes, tmp_path, rounds)
    notes = [line for line in process.said.splitlines() if "checkpoint" in line]
    errors = [line for line in process.said.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in process.said
    assert notes == ["note: Cannot write a checkpoint (File too large); training continues."]
    assert process.returncode == 1
    assert errors == [
        f"error: Cannot write to the folder {str(tmp_path / 'run')!r}: File too large."
    ]
    assert_nothing_torn(tmp_path / "run")
    assert fcfl("train", "--resume", "--out", tmp_path / "run").exit_code in (0, 3)


def test_training_continues_where_checkpoints_cannot_be_written(tmp_path, monkeypatch):
    experiment = table_run(tmp_path)
    whole = run_experiment(experiment, tmp_path / "whole")

    def full(folder, progress):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(training.checkpoint, "save_checkpoint", full)
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    told = []
    parts = run_experiment(experiment, tmp_path / "parts", on_message=told.append)
    assert_same_run(parts.folder, whole.folder, was_stopped=False)
    about = [note for note in told if "checkpoint" in note]
    assert about == ["Cannot write a checkpoint (No space left on device); training continues."]
