"""Real processes, and what can happen to them. Minutes: ``pytest -m deployment``."""

# ruff: noqa: T201

import os
import signal
import sys
import time

import pytest
from in_one_process import hospitals, open_policy, train_joined
from stage import descendants, is_running, staged

from fcfl.data import load_adult_frames
from fcfl.data.builtin import GROUPS
from fcfl.engines.flower.local_cluster import RUN, SUPERLINK
from fcfl.engines.processes import signal_group
from hospital import fcfl, result_of, start_process, stays, weights_of

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]

NAMES = ("north", "south")
PLAIN = {"min-group-rows": 1, "confidence": 0.0, "starts": 1}
SHORT = {"rounds": "4,4", **PLAIN}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The weights of the same run in one process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    short = {"rounds": (4, 4), "confidence": 0.0, "starts": 1}
    train_joined(two_hospitals(folder), folder / "out", **short)
    return weights_of(folder / "out")


def two_hospitals(folder):
    return hospitals(folder, stays(300, hospitals=NAMES))


def shown(lines, at=None):
    """All lines, printed as they come; ``at`` maps the start of a line to what then happens."""
    told = []
    for line in lines:
        print(f"{time.strftime('%H:%M:%S')} {line}")
        told.append(line)
        for start, act in (at or {}).items():
            if line.startswith(start):
                act()
    return told


def test_adult_as_two_supernodes_is_the_model_of_one_process(tmp_path):
    files = adult_files(tmp_path)
    with staged(tmp_path, files, 900, label="income", **PLAIN) as stage:
        stage.start()
        shown(stage.run())
    plain = {"confidence": 0.0, "starts": 1}
    train_joined(files, tmp_path / "joined", label="income", client="client", **plain)
    result = result_of(tmp_path / "out")
    theirs, ours = (weights_of(tmp_path / place) for place in ("out", "joined"))
    assert theirs.keys() == ours.keys()
    assert max(abs(float(theirs[key]) - float(ours[key])) for key in ours) <= 1e-9
    assert result["status"] == "converged" and sum(result["rounds"].values()) <= 40
    section = result["deployment"]
    print(
        f"{result['exchanges']['total']} exchanges, {result['seconds']:.0f} s, "
        f"{section['bytes_from_sites']} bytes from sites, {section['bytes_to_sites']} to them"
    )


def adult_files(folder):
    """Both original files together, doctorates and others, categories only, race in two groups."""
    import pandas as pd

    frame = pd.concat(load_adult_frames(), ignore_index=True).select_dtypes(exclude="number")
    frame["race"] = frame["race"].where(frame["race"] == "White", GROUPS["race"][1])
    frame["client"] = (frame["education"] == "Doctorate").map({True: "phd", False: "non-phd"})
    frame.to_csv(folder / "joined.csv", index=False)
    files = {}
    for name, rows in frame.groupby("client"):
        files[name] = folder / f"{name}.csv"
        rows.drop(columns="client").to_csv(files[name], index=False)
    return files


@pytest.mark.parametrize("secure", [True, False], ids=["with keys", "without keys"])
def test_a_supernode_killed_in_a_round_and_started_again(tmp_path, undisturbed, secure):
    with staged(
        tmp_path, two_hospitals(tmp_path), 900, secure=secure, faulty=True, **SHORT
    ) as stage:

        def kill_in_the_next_round():
            busy = stage.faults / "south.busy"
            busy.unlink()
            stage.spoil("south", "sleeps", "5")
            deadline = time.monotonic() + 60
            while not busy.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            stage.local_cluster.kill("south")
            print("SIGKILL to the SuperNode of the south, which had a message in hand")
            stage.supervise("south")

        stage.start()
        shown(stage.run(), {"round 1:": kill_in_the_next_round})
    assert weights_of(tmp_path / "out") == undisturbed


def test_a_site_that_raises_stops_the_run_by_name_and_it_can_be_resumed(tmp_path, undisturbed):
    with staged(tmp_path, two_hospitals(tmp_path), 900, faulty=True, **SHORT) as stage:
        stage.start()
        told = shown(stage.run(), {"round 2:": lambda: stage.spoil("south", "raises")})
        assert "Client 'south': its app failed: its app raised (Flower's code 2)" in told[-1]
        assert told[-1].startswith("error: Client 'south' did not answer")
        assert not (tmp_path / "out" / "result.json").exists()
        shown(stage.run(resume=True))
    assert weights_of(tmp_path / "out") == undisturbed


def test_a_site_slower_than_the_timeout_is_stood_in_for(tmp_path):
    late = {"site-timeout": 45.0, "max-age": 1}
    with staged(tmp_path, two_hospitals(tmp_path), 900, faulty=True, **SHORT, **late) as stage:
        stage.start()
        told = shown(stage.run(), {"round 2:": lambda: stage.spoil("south", "sleeps", "70")})
    assert [line for line in told if "'south' is absent: it did not answer within 45 s" in line]
    result = result_of(tmp_path / "out")
    assert sum(result["rounds"].values()) == 4


def test_a_server_app_killed_goes_on_from_its_checkpoint_to_the_same_bits(tmp_path, undisturbed):
    with staged(tmp_path, two_hospitals(tmp_path), 900, **SHORT) as stage:

        def kill():
            (pid,) = stage.server_app_pids()
            os.kill(pid, signal.SIGKILL)
            print(f"SIGKILL to the server app, process {pid}")
            time.sleep(1)
            signal_group(
                stage.local_cluster.processes[RUN], signal.SIGTERM
            )  # it only shows the log

        stage.start()
        told = shown(stage.run(), {"round 2:": kill})
        assert not [line for line in told if line.startswith("round 4:")]
        told = shown(stage.run(resume=True))
        assert [line for line in told if line.startswith("round 4:")]
        assert not [line for line in told if line.startswith("round 1:")]
    assert weights_of(tmp_path / "out") == undisturbed


def test_a_superlink_killed_and_started_again_takes_the_run_up(tmp_path, undisturbed):
    database = ("--database", str(tmp_path / "superlink.db"))  # without it, keys are forgotten
    with staged(tmp_path, two_hospitals(tmp_path), 900, **SHORT) as stage:

        def kill():
            stage.local_cluster.kill(SUPERLINK)
            print("SIGKILL to the SuperLink")

        stage.start(*database)
        shown(stage.run(), {"round 2:": kill})
        before = {name: stage.local_cluster.processes[name] for name in NAMES}
        stage.start(*database, register=False)
        shown(stage.run(resume=True))
        for name, process in before.items():
            print(name, "reconnected" if process.poll() is None else "ended")
            assert stage.local_cluster.processes[name] is process and process.poll() is None
    assert weights_of(tmp_path / "out") == undisturbed


def test_a_site_the_server_app_and_the_superlink_killed_in_one_run(tmp_path, undisturbed):
    database = ("--database", str(tmp_path / "superlink.db"))
    with staged(tmp_path, two_hospitals(tmp_path), 1500, faulty=True, **SHORT) as stage:
        cluster = stage.local_cluster

        def kill_the_site():
            cluster.kill("south")
            print("SIGKILL to the SuperNode of the south")
            stage.supervise("south")

        def kill_the_server_app():
            (pid,) = stage.server_app_pids()
            os.kill(pid, signal.SIGKILL)
            print(f"SIGKILL to the server app, process {pid}")
            time.sleep(1)
            signal_group(cluster.processes[RUN], signal.SIGTERM)

        def kill_the_superlink():
            cluster.kill(SUPERLINK)
            print("SIGKILL to the SuperLink")

        stage.start(*database)
        shown(stage.run(), {"round 1:": kill_the_site, "round 2:": kill_the_server_app})
        shown(stage.run(resume=True), {"round 3:": kill_the_superlink})
        cluster.start_superlink(*database)
        shown(stage.run(resume=True))
    assert weights_of(tmp_path / "out") == undisturbed


def test_two_sites_with_one_name_are_refused(tmp_path):
    with staged(tmp_path, two_hospitals(tmp_path), 900, secure=False, **SHORT) as stage:
        stage.start()
        config = stage.config("south") | {"table": str(stage.files["north"])}
        stage.local_cluster.start_site("impostor", config)
        time.sleep(5)
        told = shown(stage.run())
    assert "Two nodes call themselves 'south'" in told[-1]


def test_a_newcomer_from_nothing_to_a_result_with_ctrl_c_in_between(tmp_path, undisturbed):
    files = two_hospitals(tmp_path)
    app = tmp_path / "app"
    sites = ",".join(f"{name}={path}" for name, path in files.items())
    made = ("--sites", "north,south", "--label", "died", "--sensitive", "race", "--budget", "0.05")
    assert fcfl("flower", "new", app, *made).exit_code == 0
    assert fcfl("flower", "certs", app, "--sites", "north,south").exit_code == 0
    policy = open_policy(tmp_path)
    own = ",".join(f"{name}={policy}" for name in files)
    up = ("flower", "up", app, "--sites", sites, "--site-policy", own)
    up += tuple(word for key, value in SHORT.items() for word in ("--set", f"{key}={value}"))
    process = start_process(*up)
    started = set()
    try:
        for line in process.stdout:
            print(line.rstrip())
            if line.startswith("round 1:"):
                started.update(descendants(process.pid))
                process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1
        said = process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    print(said)
    assert said.count("\n") == 1 and "Stopped. Continue with: fcfl flower up" in said
    assert len(started) >= 5 and not [pid for pid in started if is_running(pid)]
    outcome = fcfl(*up, "--resume")
    print(outcome.output)
    assert outcome.exit_code == 0 and "round 1:" not in outcome.output
    assert weights_of(app / "runs" / "rehearsal") == undisturbed
