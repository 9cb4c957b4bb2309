"""Attacks on real processes: refused, and named in a log. Minutes: ``pytest -m deployment``."""

import json
import shutil
import signal
import sys
import time
from itertools import pairwise

import pytest
import tomli_w
from in_one_process import hospitals
from stage import descendants, is_running, staged

from fcfl.engines.flower.certificates import make_certificates
from fcfl.engines.flower.proxy import proxy_configuration
from fcfl.engines.processes import HOST, free_port, listens
from hospital import fcfl, start_process, stays

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")

CURIOUS_SERVER = """
import logging
import numpy as np
from fcfl import Linear, Point, RateId, RemoteFederation, Request, Terms
from fcfl.client.questions import Setup
from fcfl.engines.flower.server_app import server_app
from fcfl.runs.site_config import SitesConfig

log = logging.getLogger("fcfl")


def ask(transport, config):
    run = SitesConfig.from_run_config(config)
    sites = RemoteFederation(
        transport, run.sites, run.terms, nodes=run.nodes, timeout=300.0, on_message=log.info
    )
    log.info("met %s", ", ".join(sites.introductions))
    model = Linear(sites.agreement.schema.n_features)
    rates = tuple(RateId("selection", "race", group) for group in sites.agreement.levels["race"])
    for count in (373, 150):  # models that select everybody older than so many ages
        params = np.zeros((count, model.n_params))
        age = sites.agreement.schema.feature_names.index("age")
        params[:, age], params[:, -1] = 1.0, np.linspace(-3, 3, count)
        points = tuple(Point(one, "decisions") for one in params)
        for name, reports in sites.report(Setup(model, rates), Request(points)).items():
            told = sorted({round(float(one.rates @ one.group_counts)) for one in reports})
            log.info("counts of %s: %s", name, told)


app = server_app(ask)
"""


@pytest.mark.skipif(NGINX is None, reason="there is no nginx: apt-get install nginx")
def test_three_attacks_are_refused_and_named_in_a_log_while_sites_go_on(tmp_path):
    """An app started from outside, a second key called "north", and counting by 373 models.

    The sites have no policy file.
    """
    files = hospitals(tmp_path, stays(600, hospitals=("north", "superlink")))
    with staged(tmp_path, files, 600) as stage:
        cluster, port = stage.local_cluster, free_port()
        (stage.app / "server_app.py").write_text(CURIOUS_SERVER, encoding="utf-8")
        text = proxy_configuration(stage.app, superlink=cluster.address, host=HOST, port=port)
        (stage.app / "nginx.conf").write_text(text)
        outside = f"{HOST}:{port}"
        cluster.start_superlink()
        cluster.start_proxy(stage.app / "nginx.conf")
        while not listens(port):
            time.sleep(0.1)
        make_certificates(cluster.certificates, ["impostor"])
        nodes = {name: cluster.register(name) for name in files}
        stranger = cluster.register("impostor")  # a registered key, bound to no site
        configs = {name: stage.config(name) for name in files}
        for name, config in configs.items():
            del config["policy"]
            cluster.start_site(name, config, address=outside)
        claimed = configs["north"] | {"cache": str(tmp_path / "cache" / "impostor")}
        cluster.start_site("impostor", claimed, address=outside)
        home = cluster.folder / "flwr" / "config.toml"
        ca = str(cluster.certificates / "ca.crt")
        attack = {"superlink": {"outside": {"address": outside, "root-certificates": ca}}}
        home.write_text(home.read_text() + tomli_w.dumps(attack))

        told = []
        bound = ",".join(f"{name}={node}" for name, node in nodes.items())
        for line in stage.run(nodes=bound):
            told.append(line)
            print(line)  # noqa: T201
            if line.startswith("met "):
                for command in (
                    ("run", str(stage.app), "outside"),
                    (
                        "supernode",
                        "register",
                        str(cluster.certificates / "impostor.pub"),
                        "outside",
                    ),
                    ("supernode", "list", "outside"),
                    ("list", "outside"),
                ):
                    done = cluster.flwr(*command)
                    print(done.stdout[-300:])  # noqa: T201
                    assert done.returncode != 0 and "success" not in done.stdout.lower()
        assert "met north, superlink" in told
        for name in files:
            limit = "This site's limit `counts-per-table` of 300 is reached"
            assert [line for line in told if f"'{name}' is absent: {limit}" in line]
            assert f"Site '{name}': {limit}" in cluster.log(name).read_text(encoding="utf-8")
            (line,) = [line for line in told if line.startswith(f"counts of {name}: ")]
            counts = json.loads(line.partition(": ")[2])
            assert len(counts) > 4 and min(b - a for a, b in pairwise(counts)) >= 20
        sentence = f"Node {stranger} is left out: its key is bound to no site of this run."
        assert sentence in told
    access = (stage.app / "proxy-access.log").read_text().splitlines()
    refused = [line for line in access if "/v1/control/" in line]
    assert len(refused) >= 4 and all('" 403 ' in line for line in refused)
    assert any("/v1/fleet/pull-messages" in line and '" 200 ' in line for line in access)


def test_two_signals_to_a_rehearsal_leave_no_processes(tmp_path):
    files = hospitals(tmp_path, stays(120, hospitals=("north", "south")))
    app = tmp_path / "app"
    sites = ",".join(f"{name}={path}" for name, path in files.items())
    made = ("--sites", "north,south", "--label", "died", "--sensitive", "race", "--budget", "0.05")
    assert fcfl("flower", "new", app, *made).exit_code == 0
    process = start_process("flower", "up", app, "--sites", sites)
    started = set()
    try:
        for line in process.stdout:
            print(line.rstrip())  # noqa: T201
            if line.startswith("Waiting for"):
                started.update(descendants(process.pid))
                process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
                process.send_signal(signal.SIGTERM)
        assert process.wait(120) != 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    assert len(started) >= 4 and not [pid for pid in started if is_running(pid)]
