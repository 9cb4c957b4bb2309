"""docs/nvflare.md, followed literally: each command is run, each file used as it is written."""

# ruff: noqa: T201

import json
import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from in_one_process import hospitals
from stage import descendants, is_running

from fcfl.engines.processes import free_port, signal_group
from fcfl.sites.settings import SiteSettings
from hospital import fcfl, result_of, start_process, stays

GUIDE = (Path(__file__).parents[2] / "docs" / "nvflare.md").read_text(encoding="utf-8")
FLOWER_GUIDE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", GUIDE, re.M | re.S))
COMMANDS = re.findall(r"^    ((?:fcfl|/srv|mkdir|pip) ?\S.*?)(?: +#.*)?$", GUIDE, re.M)
NAMES = ("north", "south", "west")


def commands(section, start):
    found = re.findall(r"^    (\S.*?)(?: +#.*)?$", SECTIONS[section], re.M)
    return [command for command in found if command.startswith(start)]


def listing(text, first_words):
    """The indented block that begins with these words."""
    parts = ["\n".join(re.findall(r"^    (.*)$", part, re.M)) for part in text.split("\n\n")]
    (found,) = [part for part in parts if part.startswith(first_words)]
    return found + "\n"


def test_every_command_of_the_guide_is_one_that_there_is():
    ours = [command for command in COMMANDS if command.startswith("fcfl ")]
    assert len(ours) >= 9
    for command in ours:
        _, *words = shlex.split(command)
        outcome = fcfl(*words[:2], "--help")
        assert outcome.exit_code == 0, command
        for option in (word for word in words if word.startswith("--")):
            assert option in outcome.output, command


def test_the_files_of_a_site_are_read(tmp_path):
    (tmp_path / "policy.toml").write_text(listing(FLOWER_GUIDE, "withhold-below"))
    text = listing(GUIDE, 'name = "north"').replace("/srv/fcfl", str(tmp_path))
    (tmp_path / "site.toml").write_text(text)
    settings = SiteSettings.from_file(tmp_path / "site.toml")
    assert settings.name == "north" and settings.min_group_rows == 20


@contextmanager
def started(script):
    """A kit's own script, as systemd would run it; all it has started ends with the test."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with open(script.parents[1] / "output.log", "wb") as log:
        process = subprocess.Popen(
            [str(script)], env=os.environ | {"PATH": path}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        known = descendants(process.pid)
        signal_group(process, 9)
        process.wait()
        for pid in known:
            if is_running(pid):
                os.kill(pid, 9)


def words_of(command, here):
    """A command's words, with the guide's places as they are here."""
    changed = command.replace("/srv/fcfl", str(here)).replace("server.example.org", "localhost")
    return shlex.split(changed)[1:]


@pytest.mark.deployment
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # nvflare's own, of aiohttp
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_a_newcomer_follows_the_guide_on_machines_of_their_own(tmp_path, monkeypatch):
    pytest.importorskip("nvflare")
    files = hospitals(tmp_path, stays(600, hospitals=NAMES))
    monkeypatch.chdir(tmp_path)
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
    nodes = [started(Path(start.replace("/srv/fcfl", str(server))))]
    for name in NAMES:
        machine = tmp_path / f"machine-{name}"
        machine.mkdir()
        (server / "app" / "kits" / name).rename(machine / name)
        files[name].rename(machine / f"{name}.csv")
        text = listing(GUIDE, 'name = "north"').replace("north", name)
        site = machine / name / "local" / "site.toml"
        site.write_text(text.replace("/srv/fcfl", str(machine)))
        policy = listing(FLOWER_GUIDE, "withhold-below")
        (machine / "policy.toml").write_text(policy)
        (start,) = commands("3. Each site", "/srv")
        script = start.replace("/srv/fcfl/north", f"{machine}/{name}")
        nodes.append(started(Path(script)))

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
    assert "There is nothing to go on with" not in said(fcfl(*words_of(go_on, server)), 3)


def said(outcome, *codes):
    print(outcome.output)
    assert outcome.exit_code in (0, *codes), outcome.output
    return outcome.output
