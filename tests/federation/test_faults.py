"""Faults that outside trials found and that no other test here is about."""

import os
import re
import signal
import sys
import tomllib
from pathlib import Path

import pytest
from in_one_process import hospitals, node_configs

from fcfl.engines.flower.local_cluster import PROXY, RUN, SUPERLINK, LocalCluster
from fcfl.engines.local_processes import LocalProcesses
from fcfl.sites.messages import Introduce, Refusal, Terms, decode_answer, encode_message
from fcfl.sites.site import reply_to
from hospital import stays

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("known", "forged"),
    [
        (b'"label":"died"', b'"label":1234'),
        (b'"sensitive":{"tuple":["race"]}', b'"sensitive":1'),
        (b'"positive":null', b'"positive":[[]]'),
        (b'"seed":0', b'"seed":1' + b"0" * 400),
        (b'"seed":0', b'"seed":{"tuple":[]}'),
    ],
    ids=str,
)
def test_the_error_handler_itself_does_not_fail_on_terms_that_are_none(tmp_path, known, forged):
    """Names in the question are kept in the sentence: they may be no names at all."""
    files = hospitals(tmp_path, stays(60, hospitals=("north",)))
    (config,) = node_configs(files, tmp_path).values()
    message = encode_message(Introduce(Terms("died", ("race",))))
    magic, _, rest = message.partition(b" ")
    size, _, body = rest.partition(b"\n")
    assert known in body
    body = body.replace(known, forged)
    length = b"%d" % (int(size) + len(forged) - len(known))
    answer = decode_answer(reply_to(magic + b" " + length + b"\n" + body, config))
    assert answer.name == "north" and isinstance(answer.content, Refusal)
    assert "Unexpected" not in answer.content.sentence


def test_a_site_may_be_named_like_a_process_of_ours(tmp_path):
    cluster = LocalCluster(tmp_path)
    names = ("superlink", "run", "proxy", "north", SUPERLINK, RUN, PROXY)
    assert len({cluster.log(name) for name in names}) == len(names)


def test_the_guide_needs_no_option_that_the_oldest_flower_lacks():
    """--port and --disable-runtime-dependency-installation came with 1.36, which pip makes sure of.

    --trusted-entities would refuse our own app: no listing has it, and the guide says why.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (flwr,) = [d for d in project["project"]["optional-dependencies"]["flower"] if "flwr" in d]
    least = re.search(r">=(\d+)\.(\d+)", flwr)
    assert tuple(map(int, least.groups())) >= (1, 36)
    guide = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    assert "--trusted-entities" in guide and "refuses ours" in guide
    assert not re.findall(r"^    .*--trusted-entities", guide, re.M)


class Sleepers(LocalProcesses):
    """Processes that would outlive the test; a second SIGTERM comes while the first is stopped."""

    words, own_names = ("sleep",), ()

    def stop(self, name):
        os.kill(os.getpid(), signal.SIGTERM)
        super().stop(name)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_second_sigterm_while_processes_are_stopped_leaves_none(tmp_path):
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as `up` has it
    processes = Sleepers(tmp_path)
    try:
        with processes:
            for name in ("north", "south"):
                processes._start(name, ["sleep", "30"])
            started = list(processes.processes.values())
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in started:
            is_left = process.poll() is None
            process.kill()
            process.wait()
            assert not is_left
