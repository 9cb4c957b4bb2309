import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from fcfl import _files as files_module
from fcfl._types import Point, RateId, Report, Request, Vector
from fcfl.errors import CheckpointError
from fcfl.federation.checkpoint import (
    OtherMethodError,
    checkpoint_path,
    load_checkpoint,
    previous_path,
    save_checkpoint,
)
from fcfl.federation.loop import Progress, Tally, run
from fcfl.federation.serialise import TAG, WIRE, Serialiser, seal
from fcfl.methods.baselines import FedAvg
from fcfl.methods.method import Status, describe_round
from fcfl.methods.sqp.curvature import LimitedMemory
from fcfl.methods.sqp.sqp import SQP, SQPState
from fcfl.methods.sqp.subproblem import Search
from fcfl.methods.two_stage import TwoStage, TwoStageState
from fcfl.problem import Constraints, Problem, Row, evaluate_point
from fcfl.rules import Difference
from helpers import RACE, identical, pose, simulated_clients, train, zeros_for

METHODS = {
    "two-stage": TwoStage(step_size=2.0, rounds=(12, 12)),
    "published": TwoStage.published(0.5, (6, 6)),
    "fedavg": FedAvg(rounds=9, tolerance=0.0),
    "sqp, exact": SQP(curvature="exact"),
    "sqp, lbfgs": SQP(curvature="lbfgs"),
    "sqp, few lengths": SQP(curvature="lbfgs", lookahead=(), n_full_points=1, memory=3),
}


@dataclass(frozen=True)
class Unknown:
    """A class that no type hint mentions."""


@pytest.fixture(scope="module")
def posed():
    rules = [Difference("demographic_parity", "race", {"client-0": 0.02, "client-2": 0.05})]
    return pose(simulated_clients(0, levels=RACE), rules)


@pytest.fixture(scope="module")
def some(posed):
    """Two progresses of one run, an earlier and a later one."""
    problem, runtime = posed
    rounds = train(METHODS["two-stage"], problem, runtime, zeros_for(runtime))
    return rounds[4][0], rounds[5][0]


def leftovers(folder):
    """Files that are neither of the two checkpoints."""
    kept = {checkpoint_path(folder).name, previous_path(folder).name}
    return {path.name for path in folder.iterdir()} - kept


# --- resuming ---


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_an_interrupted_run_ends_as_the_uninterrupted_one_bit_for_bit(method, posed, tmp_path):
    problem, runtime = posed
    whole = train(method, problem, runtime, zeros_for(runtime))
    stages = set()
    for stop in sorted({0, 1, 2, len(whole) // 3, len(whole) // 2, len(whole) - 2, len(whole) - 1}):
        progress = whole[stop][0]
        stages.add(getattr(progress.state, "stage", 1))
        save_checkpoint(tmp_path, progress)
        loaded = load_checkpoint(tmp_path, method.state_class)
        assert loaded.warning is None
        assert identical(loaded.progress, progress)
        rest = list(run(method, loaded.progress, runtime))
        assert identical(tuple(rest), tuple(whole[stop + 1 :]))
    assert stages == ({1} if method.name == "fedavg" else {1, 2})


def test_reports_in_memory_are_part_of_a_checkpoint(some, tmp_path):
    report = Report(3.0, -0.0, np.zeros(2), np.ones(2), np.arange(5.0), np.full((2, 5), 1e-300))
    progress = replace(
        some[0],
        tally=Tally(1, 2, 3, 2**62),
        memory={"åb": replace(report, age=2), "c\n": replace(report, loss_grad=None)},
    )
    save_checkpoint(tmp_path, progress)
    assert identical(load_checkpoint(tmp_path, TwoStageState).progress, progress)


def test_arrays_in_any_memory_order(some, tmp_path):
    progress = replace(some[0], state=replace(some[0].state, params=np.arange(10.0)[::-2]))
    save_checkpoint(tmp_path, progress)
    assert identical(load_checkpoint(tmp_path, TwoStageState).progress, progress)


# --- torn files ---


def tear(path, how, place):
    """Cut a file off, or flip one bit of it."""
    content = path.read_bytes()
    at = round(place * (len(content) - 1))
    if how == "cut":
        path.write_bytes(content[:at])
    else:
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


@pytest.mark.parametrize("place", [0.0, 0.0001, 0.5, 1.0])
@pytest.mark.parametrize("how", ["cut", "flip"])
def test_a_torn_checkpoint_is_named_and_the_previous_one_used(some, tmp_path, how, place):
    for progress in some:
        save_checkpoint(tmp_path, progress)
    tear(checkpoint_path(tmp_path), how, place)
    loaded = load_checkpoint(tmp_path, TwoStageState)
    assert identical(loaded.progress, some[0])
    assert "torn" in loaded.warning and str(checkpoint_path(tmp_path)) in loaded.warning


def test_two_torn_checkpoints_cannot_be_used(some, tmp_path):
    for progress in some:
        save_checkpoint(tmp_path, progress)
    for path in (checkpoint_path(tmp_path), previous_path(tmp_path)):
        tear(path, "cut", 0.5)
    with pytest.raises(CheckpointError, match=r"checkpoint\.previous\.fcfl' is torn"):
        load_checkpoint(tmp_path, TwoStageState)
    previous_path(tmp_path).unlink()
    with pytest.raises(CheckpointError, match=r"checkpoint\.fcfl' is torn"):
        load_checkpoint(tmp_path, TwoStageState)


def test_no_checkpoint(tmp_path):
    sentence = r"There is no checkpoint in '.*'; start without resuming\."
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(tmp_path, TwoStageState)
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(tmp_path / "nowhere", TwoStageState)


# --- writing ---


def test_the_last_two_checkpoints_are_kept_and_nothing_else(some, tmp_path):
    for progress in (*some, *some):
        save_checkpoint(tmp_path, progress)
    assert leftovers(tmp_path) == set()
    assert identical(load_checkpoint(tmp_path, TwoStageState).progress, some[1])
    checkpoint_path(tmp_path).unlink()
    assert identical(load_checkpoint(tmp_path, TwoStageState).progress, some[0])


def test_the_same_progress_makes_the_same_bytes(some, tmp_path):
    save_checkpoint(tmp_path, some[0])
    first = checkpoint_path(tmp_path).read_bytes()
    save_checkpoint(tmp_path, some[0])
    assert checkpoint_path(tmp_path).read_bytes() == first


def test_a_full_disk_leaves_what_was_there_and_no_draft(some, tmp_path):
    """A process whose files may not grow past 10 kB writes 100 kB."""
    for progress in some:
        save_checkpoint(tmp_path, progress)
    script = """
        import resource, sys
        from pathlib import Path
        from fcfl._files import replace_file
        from fcfl.federation.checkpoint import checkpoint_path, previous_path

        folder = Path(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            replace_file(checkpoint_path(folder), bytes(100_000), keep=previous_path(folder))
        except OSError as error:
            print("refused", error.errno)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("refused")
    assert leftovers(tmp_path) == set()
    loaded = load_checkpoint(tmp_path, TwoStageState)
    assert loaded.warning is None and identical(loaded.progress, some[1])


@pytest.fixture
def fail_at_rename(monkeypatch):
    """Let the n-th rename from now on fail, as when the power goes."""

    def arm(n):
        real, calls = os.replace, []

        def rename(source, target):
            calls.append(source)
            if len(calls) == n:
                raise OSError("no power")
            real(source, target)

        monkeypatch.setattr(files_module.os, "replace", rename)

    return arm


FILES = ("whole", "torn", "of another version", "a folder", "missing")


def put(path, kind, progress):
    """Lay a checkpoint of this kind at the path."""
    if kind == "missing":
        return
    if kind == "a folder":
        path.mkdir()
        return
    folder = path.parent / "elsewhere"
    folder.mkdir()
    if kind == "of another version":
        forge(folder, {TAG: "Path"})
    else:
        save_checkpoint(folder, progress)
        if kind == "torn":
            tear(checkpoint_path(folder), "cut", 0.5)
    os.replace(checkpoint_path(folder), path)
    folder.rmdir()


@pytest.mark.parametrize("failing", ["nothing", "writing", "rename 1", "rename 2"])
@pytest.mark.parametrize(
    ("newest", "previous"), [(n, p) for n in FILES for p in FILES if "whole" in (n, p)]
)
def test_a_whole_checkpoint_survives_any_failure_of_the_next(
    some, tmp_path, monkeypatch, fail_at_rename, newest, previous, failing
):
    put(checkpoint_path(tmp_path), newest, some[1])
    put(previous_path(tmp_path), previous, some[0])
    there = load_checkpoint(tmp_path, TwoStageState).progress
    if failing.startswith("rename"):
        fail_at_rename(int(failing[-1]))
    elif failing == "writing":
        monkeypatch.setattr(os, "fsync", lambda handle: os.close(handle))
    new = replace(there, tally=Tally(7, 7, 7, 7))
    try:
        save_checkpoint(tmp_path, new)
    except OSError:
        assert identical(load_checkpoint(tmp_path, TwoStageState).progress, there)
    else:
        assert identical(load_checkpoint(tmp_path, TwoStageState).progress, new)
    assert leftovers(tmp_path) == set()


def test_a_whole_previous_checkpoint_outlives_a_torn_newest(some, tmp_path):
    """What cannot be read is overwritten, not kept."""
    for progress in some:
        save_checkpoint(tmp_path, progress)
    tear(checkpoint_path(tmp_path), "flip", 0.5)
    save_checkpoint(tmp_path, some[1])
    assert load_checkpoint(tmp_path, TwoStageState).warning is None
    tear(checkpoint_path(tmp_path), "flip", 0.5)
    assert identical(load_checkpoint(tmp_path, TwoStageState).progress, some[0])


def test_the_folder_is_synced_after_the_last_rename(some, tmp_path, monkeypatch):
    seen = []
    real_replace, real_sync = os.replace, os.fsync

    def sync(handle):
        seen.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        real_sync(handle)

    def rename(source, target):
        seen.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    for progress in some:
        save_checkpoint(tmp_path, progress)
    assert seen == ["file", "rename", "folder", "file", "rename", "rename", "folder"]


def test_a_folder_that_cannot_be_synced_is_no_error(some, tmp_path, monkeypatch):
    real = os.fsync

    def sync(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError("not supported")
        real(handle)

    monkeypatch.setattr(os, "fsync", sync)
    save_checkpoint(tmp_path, some[0])
    assert identical(load_checkpoint(tmp_path, TwoStageState).progress, some[0])


def test_a_folder_in_place_of_a_checkpoint_is_named(some, tmp_path):
    checkpoint_path(tmp_path).mkdir()
    with pytest.raises(CheckpointError, match=r"^The checkpoint '.*\.fcfl' is not a file\.$"):
        load_checkpoint(tmp_path, TwoStageState)
    with pytest.raises(OSError):
        save_checkpoint(tmp_path, some[0])


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"params": np.array([None])}, "an array of type object"),
        ({"message": object()}, "a object"),
        ({"request": {1: 2}}, "a map with the key 1"),
        ({"problem": Unknown()}, "a Unknown"),
    ],
    ids=["object array", "object", "key", "class"],
)
def test_unreadable_values_are_not_written(part, sentence, some, tmp_path):
    save_checkpoint(tmp_path, some[0])
    with pytest.raises(TypeError, match=f"Cannot write {sentence}"):
        save_checkpoint(tmp_path, replace(some[1], state=replace(some[1].state, **part)))
    assert identical(load_checkpoint(tmp_path, TwoStageState).progress, some[0])


def test_an_array_without_dimensions_comes_back_as_such(some, tmp_path):
    progress = replace(some[0], state=replace(some[0].state, params=np.array(0.25)))
    save_checkpoint(tmp_path, progress)
    assert identical(load_checkpoint(tmp_path, TwoStageState).progress, progress)


def test_memory_order_is_kept_so_that_sums_round_the_same(some, tmp_path):
    matrix = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    progress = replace(some[0], state=replace(some[0].state, params=matrix))
    save_checkpoint(tmp_path, progress)
    params = load_checkpoint(tmp_path, TwoStageState).progress.state.params
    assert params.flags.f_contiguous and identical(params, matrix)


# --- user-defined methods: the state class determines what a checkpoint may build ---


@dataclass(frozen=True)
class Velocity:
    """Part of a state of one's own."""

    vector: Vector
    decay: float


@dataclass(frozen=True)
class Trail:
    """A part of a part."""

    losses: tuple[float, ...]


@dataclass(frozen=True)
class MomentumState:
    """A state that no module of ours has heard of."""

    problem: Problem
    params: Vector
    request: Request
    rounds: tuple[int, ...]
    velocity: Velocity
    trails: Mapping[str, Trail | None]
    status: Status = "running"
    message: str = ""


@dataclass(frozen=True)
class Momentum:
    """Gradient descent on the mean loss with momentum."""

    name: str = "momentum"
    state_class: ClassVar[type[MomentumState]] = MomentumState

    def init(self, params, problem):
        request = Request((Point(params, "gradients"),))
        velocity = Velocity(np.zeros(params.size), 0.7)
        trails = dict.fromkeys(problem.clients)
        return MomentumState(problem, params, request, (0,), velocity, trails)

    def step(self, state, reports):
        at = evaluate_point(state.problem, state.request.points[0].params, reports)
        taken = state.rounds[0] + 1
        vector = state.velocity.decay * state.velocity.vector + at.loss_grads.mean(axis=0)
        trails = {
            name: Trail((*(state.trails[name].losses if taken > 1 else ()), float(loss)))
            for name, loss in zip(state.problem.clients, at.losses, strict=True)
        }
        state = replace(
            state,
            params=at.params,
            request=Request((Point(at.params - 0.3 * vector, "gradients"),)),
            rounds=(taken,),
            velocity=replace(state.velocity, vector=vector),
            trails=trails,
            status="stopped" if taken == 9 else "running",
        )
        return state, describe_round(at, round=taken, stage=1, step=0.3)

    def fraction_done(self, state):
        return state.rounds[0] / 9


def test_an_unregistered_method_resumes_bit_for_bit(posed, tmp_path):
    problem, runtime = posed
    whole = train(Momentum(), problem, runtime, zeros_for(runtime))
    for stop in (0, 1, 5, len(whole) - 1):
        save_checkpoint(tmp_path, whole[stop][0])
        loaded = load_checkpoint(tmp_path, Momentum.state_class).progress
        assert identical(loaded, whole[stop][0])
        assert type(loaded.state.velocity) is Velocity
        rest = list(run(Momentum(), loaded, runtime))
        assert identical(tuple(rest), tuple(whole[stop + 1 :]))


def test_only_what_type_hints_mention_is_built():
    found = set(Serialiser(Progress[MomentumState]).classes.values())
    of_ours = {Progress, Tally, Report, Problem, Constraints, Row, Request, Point, RateId}
    assert found >= {MomentumState, Velocity, Trail, *of_ours}
    assert not found & {TwoStageState, SQPState, LimitedMemory, Unknown}
    assert {Search, LimitedMemory} <= set(Serialiser(SQPState).classes.values())


@dataclass(frozen=True)
class Vague(MomentumState):
    """A state with a field that says nothing about what it holds."""

    extra: Any = None


def test_a_class_that_no_type_hint_mentions_is_rejected_on_writing(posed, tmp_path):
    problem, runtime = posed
    plain = Momentum().init(zeros_for(runtime), problem)
    parts = {field.name: getattr(plain, field.name) for field in fields(plain)}
    save_checkpoint(tmp_path, Progress(Vague(**parts)))
    sentence = r"Cannot write a Unknown: its class is not .* that the state's type hints mention"
    with pytest.raises(TypeError, match=sentence):
        save_checkpoint(tmp_path, Progress(Vague(**parts, extra=Unknown())))


def test_a_checkpoint_of_another_method_is_rejected_by_its_name(posed, some, tmp_path):
    save_checkpoint(tmp_path, some[0])
    save_checkpoint(tmp_path, some[1])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    sentence = (
        r"was written by method 'TwoStage' \(its state is a TwoStageState\); this run's method "
        r"has a MomentumState\. Resume with the method it began with\."
    )
    with pytest.raises(OtherMethodError, match=sentence):
        load_checkpoint(tmp_path, MomentumState)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_class_hidden_in_a_checkpoint_is_not_built(some, tmp_path):
    """A file that names a class of another method inside a state of this one."""
    content = Serialiser(Progress[TwoStageState]).dump(some[0])
    state = msgspec.msgpack.decode(content.partition(b"\n")[2])
    state["state"]["problem"] = {TAG: "Search"}
    forge(tmp_path, state)
    with pytest.raises(CheckpointError, match="was written by another version of fcfl"):
        load_checkpoint(tmp_path, TwoStageState)


# --- other files ---


def forge(folder, tree):
    """Write a file with a right checksum around any content."""
    content = b"fcfl-%d\n" % WIRE + msgspec.msgpack.encode(tree)
    checkpoint_path(folder).write_bytes(seal(content))


@pytest.mark.parametrize(
    "tree",
    [{TAG: "Path"}, {TAG: "Progress", "unknown": 1}, {TAG: "Tally"}, {"nothing": 1}, None, []],
    ids=str,
)
def test_a_checkpoint_of_another_version_is_rejected(tree, tmp_path):
    forge(tmp_path, tree)
    with pytest.raises(CheckpointError, match="was written by another version of fcfl"):
        load_checkpoint(tmp_path, TwoStageState)


def test_another_kind_of_file_is_rejected(tmp_path):
    for content in (b"", b"\n", b"{}", b"fcfl-checkpoint-2 00\n"):
        checkpoint_path(tmp_path).write_bytes(content)
        with pytest.raises(CheckpointError, match="is torn"):
            load_checkpoint(tmp_path, TwoStageState)
