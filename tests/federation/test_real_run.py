"""One run on real processes: TLS, node keys, two sites, and three nodes that may not come in."""

import json
import sys

import pytest
from in_one_process import hospitals, train_joined
from stage import descendants, is_running, staged

from fcfl._files import to_json
from fcfl.engines.flower.certificates import make_certificates
from hospital import result_of, stays, weights_of

pytest.importorskip("flwr")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

PLAIN = {"confidence": 0.0, "starts": 1, "min-group-rows": 1}
ROUNDS = "3,2"  # a round takes seconds whatever it does
WIDE = 0.5  # a budget that needs no turns until decisions keep it


def test_a_real_run_is_the_run_of_one_process_and_keeps_others_out(tmp_path):
    files = hospitals(tmp_path, stays(300, hospitals=("north", "south")))
    foreign = tmp_path / "foreign"
    make_certificates(foreign, ["stranger"])
    told = []
    with staged(tmp_path, files, 240, rounds=ROUNDS, budget=str(WIDE), **PLAIN) as stage:
        local_cluster = stage.local_cluster
        stage.start()
        ca, key = str(local_cluster.certificates / "ca.crt"), str(foreign / "stranger")
        own_key = str(local_cluster.certificates / "north")
        kept_out = {
            "insecure": ["--insecure"],
            "unregistered": ["--root-certificates", ca, "--auth-supernode-private-key", key],
            "foreign-ca": ["--root-certificates", str(foreign / "ca.crt"),
                           "--auth-supernode-private-key", own_key],
        }  # fmt: skip
        for name, secure in kept_out.items():
            config = stage.config("north") | {"name": name}
            local_cluster.start_site(name, config, secure=[*secure, "--max-retries", "1"])
        told += stage.run()
        for name in kept_out:
            assert local_cluster.processes[name].wait(60) != 0, name
            assert "Exit Code: 305" in local_cluster.log(name).read_text(encoding="utf-8"), name
        everything = [
            pid for process in local_cluster.processes.values() for pid in descendants(process.pid)
        ]
    plain = {"budget": WIDE, "rounds": (3, 2), "confidence": 0.0, "starts": 1}
    joined = train_joined(files, tmp_path / "joined", **plain)
    result = result_of(tmp_path / "out")
    assert weights_of(tmp_path / "out") == weights_of(tmp_path / "joined")
    assert result["clients"] == json.loads(to_json(joined.result.clients))
    assert result["exchanges"]["total"] >= 6
    assert (tmp_path / "out" / "report.html").exists()
    assert not [line for line in told if "calls itself" in line]
    assert everything and not [pid for pid in everything if is_running(pid)]
