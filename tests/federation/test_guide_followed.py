"""docs/deployment.md typed in, in a folder for each machine. Minutes: ``pytest -m deployment``.

Only what must differ on one machine is changed: folders, ports and the server's name.
"""

# ruff: noqa: T201

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import pytest
from test_guide import COMMANDS, GUIDE, listing

from fcfl.engines.processes import HOST, descendants, free_port, listens, program
from hospital import fcfl, result_of, stays, written

pytest.importorskip("flwr")
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
    pytest.mark.skipif(NGINX is None, reason="there is no nginx: apt-get install nginx"),
]
SITES = ("north", "south", "west")
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


@contextmanager
def running(command, folder, env):
    """A command of the guide in the background; it and all it has started end with the test."""
    words = shlex.split(command.replace("\\\n", " "))
    with open(folder / "process.log", "ab") as log:
        process = subprocess.Popen(
            [program(words[0].rpartition("/")[2]), *words[1:]],
            cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        started = descendants(process.pid)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in (process.pid, *started):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            time.sleep(3 if number == signal.SIGTERM else 0)
        process.wait()


def typed(words, folder, env):
    """A command of the guide, to its end."""
    done = subprocess.run(
        [program(words[0]), *words[1:]],
        cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip
    print(done.stdout[-2000:], done.stderr[-2000:])
    return done


def after(words, text):
    """The part of a listing from these words on, without its comments."""
    found = text[text.index(words) :].replace("\\\n", " ").split("\n")[0]
    return re.sub(r"\s#.*| &$", "", found).strip()


def test_the_guide_leads_from_nothing_to_a_model_and_a_ledger(tmp_path, monkeypatch):
    link, outside = free_port(), free_port()
    server = tmp_path / "server"
    server.mkdir()

    def here(text, folder):
        changed = text.replace("/srv/fcfl", str(folder)).replace("127.0.0.1:8000", f"{HOST}:{link}")
        changed = changed.replace("--port 8000", f"--port {link}")
        return changed.replace("superlink.example.org:8443", f"{HOST}:{outside}")

    monkeypatch.chdir(server)
    for start in ("fcfl flower new", "fcfl flower certs"):
        outcome = fcfl(*shlex.split(next(c for c in COMMANDS if c.startswith(start)))[1:])
        assert outcome.exit_code == 0, outcome.output
    proxy = server / "app" / "nginx.conf"
    text = proxy.read_text().replace("127.0.0.1:8000", f"{HOST}:{link}")
    proxy.write_text(text.replace("0.0.0.0:8443", f"{HOST}:{outside}"))
    env = os.environ | QUIET | {"FLWR_HOME": str(server / "flwr")}
    env["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), env["PATH"]])
    start = here(listing("export FLWR_HOME"), server)
    with ExitStack() as everything:
        everything.enter_context(running(after("flower-superlink", start), server, env))
        while not listens(link):
            time.sleep(0.2)
        nginx = shlex.split(after("nginx -c", start))
        assert typed(nginx, server, env).returncode == 0
        everything.callback(typed, [*nginx, "-s", "stop"], server, env)
        (server / "flwr").mkdir(exist_ok=True)
        (server / "flwr" / "config.toml").write_text(here(listing("[superlink]"), server))
        monkeypatch.setenv("FLWR_HOME", str(server / "flwr"))
        (register,) = [c for c in COMMANDS if c.startswith("fcfl flower register")]
        outcome = fcfl(*shlex.split(register)[1:])
        assert outcome.exit_code == 0, outcome.output
        frame = stays(900)
        for name in SITES:
            site = tmp_path / name
            site.mkdir()
            rows = frame[frame["hospital"] == name].drop(columns="hospital")
            written(rows, site / f"{name}.csv")
            shutil.copy(server / "app" / "certs" / "ca.crt", site)
            shutil.copy(server / "app" / "certs" / name, site)
            (site / "policy.toml").write_text(listing("withhold-below"))
            own = here(listing('name = "north"'), site).replace("north", name)
            (site / "site.toml").write_text(own)
            unit = here(GUIDE[GUIDE.index("ExecStart=") :], site)
            node = after("ExecStart=", re.sub(r"\n    ", "\n", unit)).removeprefix("ExecStart=")
            node = node.replace(f"{site}/north", f"{site}/{name}")
            node = node.replace("--port 9094", f"--port {free_port()}")
            home = env | {"FLWR_HOME": str(site / "flwr")}
            everything.enter_context(running(node, site, home))
        run = shlex.split(re.search(r"^    (flwr run app hospitals --stream)$", GUIDE, re.M)[1])
        short = 'rounds="3,2" confidence=0.0 starts=1'
        done = typed([*run, "--run-config", short], server, env)
        assert "Budgets are" in done.stdout
    result = result_of(server / "app" / "runs" / "run")
    assert set(result["clients"]) == set(SITES)
    assert (server / "app" / "runs" / "run" / "report.html").exists()
    for site in result["deployment"]["sites"].values():
        assert site["min_group_rows"] == 20 and len(site["policy_sha256"]) == 64
    budgets = [part["train"]["disparities"][0]["budget"] for part in result["clients"].values()]
    assert budgets == [0.03] * 3  # the sites' own, stricter than the server's
    (status,) = [c for c in COMMANDS if c.startswith("fcfl site status")]
    outcome = fcfl(*shlex.split(here(status, tmp_path / "south"))[1:])
    assert outcome.exit_code == 0 and "1 of 100 runs" in outcome.output
