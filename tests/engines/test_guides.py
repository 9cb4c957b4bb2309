"""The guides for sites, followed literally: each command is run, each file is used."""

# ruff: noqa: T201

import json
import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from fcfl.policy import read_policy
from fcfl.sites.settings import SiteSettings
from hospital import fcfl, result_of, start_process, stays, weights_of
from in_one_process import hospitals, open_policy, train_joined

DOCS = Path(__file__).parents[2] / "docs"
NVFLARE, FLOWER, SITES = (
    (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("nvflare", "deployment", "sites")
)
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", NVFLARE + FLOWER, re.M | re.S))
NAMES = ("north", "south", "west")
BESIDE = Path(sys.executable).parent


def commands(section, start):
    """The commands of a section that begin with ``start``."""
    found = re.findall(r"^    (\S.*?)(?: +#.*)?$", SECTIONS[section], re.M)
    return [command for command in found if command.startswith(start)]


def listing(text, first_words):
    """The indented block that begins with these words."""
    parts = ["\n".join(re.findall(r"^    (.*)$", part, re.M)) for part in text.split("\n\n")]
    (found,) = [part for part in parts if part.startswith(first_words)]
    return found + "\n"


@pytest.mark.parametrize(("page", "least"), [(NVFLARE, 9), (FLOWER, 1), (SITES, 1)])
def test_every_command_of_a_guide_exists(page, least):
    ours = re.findall(r"^    (fcfl .*?)(?: +#.*)?$", page, re.M)
    assert len(ours) >= least
    for command in ours:
        _, *words = shlex.split(command)
        outcome = fcfl(*words[:2], "--help")
        assert outcome.exit_code == 0, command
        for option in (word for word in words if word.startswith("--")):
            assert option in outcome.output, command


def test_the_files_of_a_site_are_read(tmp_path):
    policy = listing(SITES, "withhold-below")
    (tmp_path / "policy.toml").write_text(policy)
    for page in (SITES, NVFLARE):
        text = listing(page, 'name = "north"').replace("/srv/fcfl", str(tmp_path))
        (tmp_path / "site.toml").write_text(text)
        settings = SiteSettings.from_file(tmp_path / "site.toml")
        closed = SiteSettings("north", settings.table)  # the page's policy is the default
        found = replace(settings.read_policy, policy_rules=(), source="", sha256="")
        assert settings.name == "north" and found == closed.read_policy
    commented = re.sub(r"^# (?=\w)", "", policy, flags=re.M)  # the optional lines, too
    (tmp_path / "all.toml").write_text(commented, encoding="utf-8")
    assert read_policy(tmp_path / "all.toml").limits.modules == ("our_networks.small:mlp",)


@contextmanager
def started(command, log, **more):
    """A command in the background; it and all that it started end with the test."""
    with open(log, "wb") as output:
        process = psutil.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, **more,
        )  # fmt: skip
    try:
        yield process
    finally:
        family = [process, *process.children(recursive=True)] if process.is_running() else []
        for end in (psutil.Process.terminate, psutil.Process.kill):
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    end(one)
            family = psutil.wait_procs(family, timeout=5)[1]


def with_tools():
    return os.environ | {"PATH": os.pathsep.join([str(BESIDE), os.environ["PATH"]])}


def said(outcome, *codes):
    print(outcome.output)
    assert outcome.exit_code in (0, *codes), outcome.output
    return outcome.output


def started_kit(script):
    """A kit's own script, as systemd would run it."""
    return started([script], f"{script}.log", env=with_tools())


def words_of(command, here):
    """A command's words, with the guide's places as they are here."""
    changed = command.replace("/srv/fcfl", str(here)).replace("server.example.org", "localhost")
    return shlex.split(changed)[1:]


@pytest.mark.deployment
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # nvflare's own, of aiohttp
def test_the_guide_for_nvflare_leads_to_a_model(tmp_path, monkeypatch):
    pytest.importorskip("nvflare")
    files = hospitals(tmp_path, stays(600, hospitals=NAMES))
    monkeypatch.chdir(tmp_path)
    from fcfl.engines.nvflare.rehearsal import free_port

    for command in commands("1. Rehearse on one machine", "fcfl"):
        said(fcfl(*words_of(command, tmp_path)))
    assert result_of(tmp_path / "app" / "runs" / "rehearsal")["status"] == "converged"

    server = tmp_path / "server"
    server.mkdir()
    monkeypatch.chdir(server)
    for command in commands("2. The server", "fcfl"):
        more = ["--port", free_port()] if "provision" in command else []
        said(fcfl(*words_of(command, server), *more))
    (start,) = commands("2. The server", "/srv")
    nodes = [started_kit(start.replace("/srv/fcfl", str(server)))]
    for name in NAMES:
        machine = tmp_path / f"machine-{name}"
        machine.mkdir()
        (server / "app" / "kits" / name).rename(machine / name)
        files[name].rename(machine / f"{name}.csv")
        text = listing(NVFLARE, 'name = "north"').replace("north", name)
        site = machine / name / "local" / "site.toml"
        site.write_text(text.replace("/srv/fcfl", str(machine)))
        policy = listing(SITES, "withhold-below")
        (machine / "policy.toml").write_text(policy)
        (start,) = commands("3. Each site", "/srv")
        nodes.append(started_kit(start.replace("/srv/fcfl/north", f"{machine}/{name}")))

    with nodes[0], nodes[1], nodes[2], nodes[3]:
        train_as_told(server)
        (status,) = commands("3. Each site", "fcfl")
        outcome = fcfl(*words_of(status, tmp_path / "machine-north"))
        assert "this table" in said(outcome) and "Last asked" in outcome.output
    result = result_of(server / "app" / "runs" / "run")
    deployment = result["deployment"]
    assert {site["min_group_rows"] for site in deployment["sites"].values()} == {20}
    cost = {"exchanges": result["exchanges"], "bytes": deployment["bytes_from_sites"]}
    print(json.dumps(cost))


def train_as_told(server):
    """Section 4: status, run, stop it from elsewhere, go on."""
    status, run, stop, go_on = commands("4. Train", "fcfl")
    deadline = time.monotonic() + 120
    while "Connected: north, south, west" not in said(fcfl(*words_of(status, server)), 1):
        assert time.monotonic() < deadline
        time.sleep(1)
    process = start_process(*words_of(run, server), cwd=server)
    try:
        stopped = False
        for line in process.stdout:
            print(line.rstrip())
            if not stopped and line.startswith("round 3:"):
                said(fcfl(*words_of(stop, server)))
                stopped = True
        assert process.wait(60) == 1
        error = process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    assert stopped and "The run was stopped" in error and error.count("\n") == 1
    assert "has no run to resume" not in said(fcfl(*words_of(go_on, server)), 3)


@pytest.mark.deployment
def test_the_guide_for_flower_leads_to_the_model_of_one_process(tmp_path, monkeypatch):
    """A SuperLink and two SuperNodes; only folders, ports and a shorter run are different."""
    pytest.importorskip("flwr")
    pytest.importorskip("nvflare")  # whose rehearsal finds free ports
    from fcfl.engines.nvflare.rehearsal import free_port

    files = hospitals(tmp_path, stays(300, hospitals=NAMES[:2]))
    monkeypatch.chdir(tmp_path)
    for command in commands("1. Write the app", "fcfl"):
        said(fcfl(*shlex.split(command)[1:], "--budget", "0.5"))
    ports = {8000: free_port(), 9094: free_port(), 9095: free_port()}

    def here(text):
        for usual, free in ports.items():
            text = text.replace(str(usual), str(free))
        return text.replace("/srv/fcfl", str(tmp_path))

    policy = open_policy(tmp_path)
    for name in files:
        site = here(listing(FLOWER, 'name = "north"')).replace("north", name)
        site = site.replace("/ledger", f"/ledger-{name}")
        (tmp_path / f"{name}.toml").write_text(site + f'policy = "{policy}"\n')
    (tmp_path / "flwr").mkdir()
    (tmp_path / "flwr" / "config.toml").write_text(here(listing(FLOWER, "[superlink]")))
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    faster = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}
    env = with_tools() | quiet | faster | {"FLWR_HOME": str(tmp_path / "flwr")}
    link, north, south = commands("2. Try it on one machine", "flower-")
    link += f" --port {ports[8000]}"

    def node(command, name):
        return started(shlex.split(here(command)), tmp_path / f"{name}.log", env=env)

    with node(link, "link") as process:
        while all(one.status != "LISTEN" for one in process.net_connections(kind="tcp")):
            assert process.is_running(), (tmp_path / "link.log").read_text()
            time.sleep(0.2)
        with node(north, "north"), node(south, "south"):
            (run,) = commands("2. Try it on one machine", "flwr run")
            short = 'rounds="3,2" confidence=0.0 starts=1 min-group-rows=1'
            done = subprocess.run(
                [*shlex.split(run), "--run-config", short], env=env, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=900, check=False,
            )  # fmt: skip
    assert "fcfl: round 1:" in done.stdout, done.stdout + done.stderr
    out = tmp_path / "app" / "runs" / "run"
    train_joined(files, tmp_path / "joined", budget=0.5, rounds=(3, 2), confidence=0.0, starts=1)
    assert weights_of(out) == weights_of(tmp_path / "joined")
    assert {*result_of(out)["clients"]} == {"north", "south"}
    assert (out / "report.html").exists()
