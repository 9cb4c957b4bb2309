"""NVIDIA FLARE with real processes: numbers, rejected jobs, faults; `pytest -m deployment`."""

# ruff: noqa: T201

import json
import re
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import pandas as pd
import pytest

from fcfl._files import read_json
from fcfl.data import load_adult_frames
from fcfl.data.builtin import GROUPS
from fcfl.results.negotiation import Negotiation
from hospital import COLUMNS, fcfl, result_of, start_process, stays, weights_of
from in_one_process import hospitals, open_policy, train_joined

pytest.importorskip("nvflare")
import psutil

from fcfl.engines.nvflare.kits import make_kits
from fcfl.engines.nvflare.lead import Flare, write_job
from fcfl.engines.nvflare.rehearsal import SERVER_PROCESS, LocalFlare, free_port

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # nvflare's own, of aiohttp
    pytest.mark.skipif(sys.platform != "linux", reason="reads command lines of processes"),
]
RUN = {"label": "died", "sensitive": "race", "budget": "0.05", "min-group-rows": 1}


@contextmanager
def flare(folder, files, *, more=(), loosened=False, wishes=None):
    """A server and a site for each file; kits for ``more`` names are made and not started.

    ``wishes`` are texts that sites add to their policies.
    """
    make_kits(folder, [*files, *more], "localhost", free_port())
    if loosened:  # a server whose owner is on nobody's side
        path = folder / "kits" / "server" / "local" / "authorization.json"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace('"byoc": "none"', '"byoc": "any"'), encoding="utf-8")
    with LocalFlare(folder / "machines", folder / "kits") as local:
        local.start_server()
        for name in files:
            wish = (wishes or {}).get(name, "")
            local.start_site(name, site_file(folder, name, files[name], wish))
        with Flare(folder) as server:
            server.wait_for_sites(list(files), 120)
            yield local, server


def site_file(folder, name, table, wish=""):
    place = folder / "policies" / name
    place.mkdir(parents=True, exist_ok=True)
    policy = open_policy(place, wish)
    cache = str(folder / "cache" / name)
    return {"name": name, "table": str(table), "cache": cache, "policy": policy}


def run_job(server, files, config):
    """Submit, follow, and print the log."""
    began = time.monotonic()
    job = server.submit(list(files), config)
    told = []

    def show(line):
        told.append(line)
        print(f"{time.monotonic() - began:6.1f} {line}")

    server.follow(job, list(files), 120, show)
    return told


def adult_files(folder):
    """Both original files together, doctorates and others, categories only, race in two groups."""
    frame = pd.concat(load_adult_frames(), ignore_index=True).select_dtypes(exclude="number")
    frame["race"] = frame["race"].where(frame["race"] == "White", GROUPS["race"][1])
    frame["client"] = (frame["education"] == "Doctorate").map({True: "phd", False: "non-phd"})
    frame.to_csv(folder / "joined.csv", index=False)
    files = {}
    for name, rows in frame.groupby("client"):
        files[name] = folder / f"{name}.csv"
        rows.drop(columns="client").to_csv(files[name], index=False)
    return files


def test_adult_at_two_sites_equals_the_model_in_process(tmp_path):
    files = adult_files(tmp_path)
    with flare(tmp_path, files, more=["stranger"]) as (local, server):
        claimed = site_file(tmp_path, "phd", files["phd"])
        local.start_site("stranger", claimed, claims="phd")
        config = {
            "sites": ",".join(files), "out": str(tmp_path / "out"), "label": "income",
            "sensitive": "race", "budget": "0.05", "l2": 0.003, "objective": 10.0,
        }  # fmt: skip
        run_job(server, files, config)
        assert server.sites() == ("non-phd", "phd")
        log = local.log(SERVER_PROCESS).read_text(errors="replace")
    refused = re.findall(r"authenticated as '?stranger'? but claimed[^\n]*", log)
    print(refused[:1])
    assert refused and "phd" in refused[0]
    train_joined(files, tmp_path / "joined", label="income", client="client", min_group_rows=None)
    theirs, ours = (weights_of(tmp_path / place) for place in ("out", "joined"))
    assert theirs == ours
    result = result_of(tmp_path / "out")
    print(f"{result['exchanges']['total']} exchanges, {result['seconds']:.1f} s")


WISHES = {
    "north": "[preference]\ndisparity-per-accuracy = 3.25\n",
    "south": "[preference]\nmax-disparity = 0.3\n",
}


def test_sites_negotiate_as_in_process_and_keep_their_preferences(tmp_path):
    files = hospitals(tmp_path, stays(300, hospitals=("north", "south")))
    settled = {"budgets": "0.3,0.05", "l2": 0.01, "objective": "mean"}
    config = {**RUN, **settled, "budget": "", "command": "negotiate", "sites": "north,south"}
    with flare(tmp_path, files, wishes=WISHES) as (_, server):
        told = run_job(server, files, {**config, "out": str(tmp_path / "out")})
    wishes = tmp_path / "wishes"
    wishes.mkdir()
    for name, text in WISHES.items():
        (wishes / f"{name}.toml").write_text(text)
    outcome = fcfl(
        "negotiate", tmp_path / "joined.csv", *COLUMNS, "--budgets", "0.3,0.05", "--l2", "0.01",
        "--objective", "mean", "--policies", wishes, "--out", tmp_path / "joined",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    apart, joined = (
        read_json(tmp_path / place / "negotiation.json", Negotiation) for place in ("out", "joined")
    )
    assert len(apart.offers) == 4
    assert replace(apart, table="", command="") == replace(joined, table="", command="")
    at_the_server = [*(tmp_path / "out").rglob("*"), *(tmp_path / "kits" / "server").rglob("*")]
    for path in [path for path in at_the_server if path.is_file()]:
        assert b"3.25" not in path.read_bytes().replace(b"0.3.25", b""), path
    assert any("could be agreed on" in line or "would leave" in line for line in told)


BAD_EXECUTOR = """
from pathlib import Path
from nvflare.apis.executor import Executor
class Reads(Executor):
    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        Path({mark!r}).write_text("was here")
        return shareable
"""


def spoiled_job(folder, files, change):
    """A job of ours in which something was changed."""
    job = write_job(folder, list(files), {"sites": ",".join(files), "out": str(folder), **RUN})
    change(job)
    return job


def submit_folder(server, job):
    """Submit a folder as it is, and wait for its end."""
    job_id = server._ask(lambda session: session.submit_job(str(job)))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        meta = server._ask(lambda session: session.get_job_meta(job_id))
        if str(meta["status"]).startswith("FINISHED"):
            return meta
        time.sleep(0.5)
    raise AssertionError(meta)


def test_a_job_that_brings_code_or_names_other_classes_runs_at_no_site(tmp_path):
    files = hospitals(tmp_path, stays(120, hospitals=("north", "south")))
    mark = tmp_path / "mark"

    def with_code(job):
        for part in ("at-server", "at-sites"):
            custom = job / part / "custom"
            custom.mkdir()
            (custom / "reads.py").write_text(BAD_EXECUTOR.format(mark=str(mark)))
        name_class(job, "reads.Reads")

    def name_class(job, path, **arguments):
        config = job / "at-sites" / "config" / "config_fed_client.json"
        table = json.loads(config.read_text())
        table["executors"][0]["executor"] = {"path": path, "args": arguments}
        config.write_text(json.dumps(table))

    def with_a_command(job):
        name_class(job, "subprocess.Popen", args=["touch", str(mark)])

    def with_a_log_streamer(job):
        config = job / "at-sites" / "config" / "config_fed_client.json"
        table = json.loads(config.read_text())
        streamer = "nvflare.app_common.logging.job_log_streamer.JobLogStreamer"
        table["components"] = [{"id": "logs", "path": streamer, "args": {}}]
        config.write_text(json.dumps(table))

    with flare(tmp_path, files, loosened=True) as (local, server):
        for change in (with_code, with_a_command, with_a_log_streamer):
            job = spoiled_job(tmp_path / change.__name__, files, change)
            meta = submit_folder(server, job)
            detail = " ".join(meta.get("job_deploy_detail", []))
            print(change.__name__, meta["status"], detail)
            assert meta["status"] != "FINISHED:COMPLETED"
            if change is with_code:
                assert "server: OK" in detail  # it was talked into it; the sites were not
                assert re.search("north: .*BYOC not permitted south: .*BYOC not permitted", detail)
            else:
                logs = [local.log(name).read_text(errors="replace") for name in files]
                assert any("is not in allow_list" in log for log in logs)
        assert not mark.exists()
        config = {"sites": "north,south", "out": str(tmp_path / "out"), **RUN, "l2": 0.01}
        run_job(server, files, config)


def test_kill_of_a_site_the_servers_job_and_the_server_ends_in_the_same_bits(tmp_path):
    files = hospitals(tmp_path, stays(300, hospitals=("north", "south")))
    slow = {"method": "two-stage", "rounds": (60, 60), "l2": None, "objective": None}
    train_joined(files, tmp_path / "joined", confidence=0.0, **slow)
    made = ("--sites", "north,south", "--label", "died", "--sensitive", "race", "--budget", "0.05")
    assert fcfl("nvflare", "new", tmp_path / "app", *made).exit_code == 0
    app = tmp_path / "app"
    with flare(app, files) as (local, _):
        run = start_process(
            "nvflare", "run", app, "--set", "method=two-stage", "--set", "rounds=60,60",
            "--set", "confidence=0", "--set", "min-group-rows=1", "--set", "site-timeout=40",
        )  # fmt: skip
        faults = [kill_sites_job, kill_site, kill_servers_job, kill_server]
        told = []
        try:
            for line in run.stdout:
                told.append(line)
                print(f"{time.strftime('%H:%M:%S')} {line.rstrip()}")
                number = re.match(r"round (\d+):", line)
                if faults and number and int(number.group(1)) % 8 == 0:
                    faults.pop(0)(local, files, app)
            assert run.wait(60) in (0, 3), run.stderr.read()
        finally:
            run.kill()
            run.wait()
            run.stdout.close()
            run.stderr.close()
    assert not faults
    assert sum("Continuing as soon as" in line for line in told) == 4
    assert weights_of(app / "runs" / "run") == weights_of(tmp_path / "joined")


def kill_site(local, files, app):
    print("SIGKILL to the site in the south, with all it has started; then started again")
    local.stop("south", kill=True)
    local.start_site("south", site_file(app, "south", files["south"]))


def kill_job(process, module):
    """SIGKILL to the job process that a server or a site has started."""
    children = process.children(recursive=True)
    (job,) = [child for child in children if module in " ".join(child.cmdline())]
    print(f"SIGKILL to the job process {job.pid}")
    job.kill()


def kill_sites_job(local, files, app):
    kill_job(local.processes["north"], "worker_process")


def kill_servers_job(local, files, app):
    kill_job(local.processes[SERVER_PROCESS], "runner_process")


def kill_server(local, files, app):
    print("SIGKILL to the server, with all it has started; then started again")
    local.stop(SERVER_PROCESS, kill=True)
    time.sleep(3)
    local.start_server()


def test_a_rehearsal_stopped_twice_leaves_no_process_and_resumes(tmp_path):
    files = hospitals(tmp_path, stays(300, hospitals=("north", "south")))
    app = tmp_path / "app"
    made = ("--sites", "north,south", "--label", "died", "--sensitive", "race", "--budget", "0.05")
    assert fcfl("nvflare", "new", app, *made).exit_code == 0
    policy = open_policy(tmp_path)
    sites = ("--sites", ",".join(f"{name}={path}" for name, path in files.items()))
    own = ("--site-policy", ",".join(f"{name}={policy}" for name in files))
    short = ("--set", "rounds=60,60", "--set", "method=two-stage", "--set", "confidence=0")
    up = ("nvflare", "up", app, *sites, *own, *short, "--set", "min-group-rows=1")
    process = start_process(*up)
    started = []
    try:
        for line in process.stdout:
            print(line.rstrip())
            if line.startswith("round 3:"):
                started = psutil.Process(process.pid).children(recursive=True)
                process.terminate()
                time.sleep(0.3)
                process.terminate()
        assert process.wait(60) == 1
        said = process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    assert "Stopped. Continue with: fcfl nvflare up" in said and said.count("\n") == 1
    assert len(started) >= 5 and not [one for one in started if one.is_running()]
    outcome = fcfl(*up, "--resume")
    print(outcome.output)
    assert outcome.exit_code in (0, 3) and "round 1:" not in outcome.output
