"""Masked sums over real processes, two of five killed at each step; ``pytest -m deployment``."""

import sys
import threading
import time

import numpy as np
import pytest
from in_one_process import OPEN, hospitals, train_joined
from stage import staged
from test_deployment import shown

from hospital import result_of, stays, weights_of

pytest.importorskip("cryptography")
pytestmark = [
    pytest.mark.deployment,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # nvflare's own, of aiohttp
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]

NAMES = ("east", "mid", "north", "south", "west")
KILLED = ("mid", "west")
STEPS = ("PrepareMasks", "MaskedAsk", "Unmask")
SETTINGS = {"rounds": "4,4", "min-group-rows": 1, "confidence": 0.0, "starts": 1}
WAITS = """
import os, time
from pathlib import Path
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from fcfl.engines.flower.client_app import from_record, log_to_stderr, to_record
from fcfl.sites.messages import Ask, decode_question
from fcfl.sites.site import reply_to

FAULTS = Path({faults!r})
app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    log_to_stderr()
    name, content = context.node_config["name"], from_record(message.content)
    asked = decode_question(content)
    kind = type(asked.question if isinstance(asked, Ask) else asked).__name__
    reply = reply_to(content, context.node_config)
    if (FAULTS / f"{{name}}.{{kind}}").exists():
        (FAULTS / f"{{name}}.{{kind}}").rename(FAULTS / f"{{name}}.waits")
        time.sleep(600)
    return Message(to_record(reply), reply_to=message)
"""


def five_hospitals(folder):
    return hospitals(folder, stays(300, hospitals=NAMES))


def masked_policy(folder):
    """A policy by which curvature leaves a site under masks only."""
    path = folder / "masked-policy.toml"
    path.write_text(OPEN + 'curvature = "masked"\n', encoding="utf-8")
    return str(path)


def assert_same(folder, files):
    """The model of as many rounds without masks in one process."""
    train_joined(files, folder / "joined", rounds=(4, 4), confidence=0.0, starts=1)
    theirs, ours = (weights_of(folder / place) for place in ("out", "joined"))
    assert theirs.keys() == ours.keys()
    apart = np.array([float(theirs[key]) - float(ours[key]) for key in ours])
    assert np.abs(apart).max() < 1e-8
    assert result_of(folder / "out")["exchanges"]["total"] >= 10


def test_two_of_five_supernodes_killed_at_every_step_and_started_again(tmp_path):
    """They are asked again; with the keys on their disks they answer to the bit as before."""
    pytest.importorskip("flwr")
    files, policy = five_hospitals(tmp_path), masked_policy(tmp_path)
    with staged(tmp_path, files, 1800, secure=False, faulty=True, masked=True, **SETTINGS) as stage:
        text = WAITS.format(faults=str(stage.faults))
        (stage.app / "client_app.py").write_text(text, encoding="utf-8")
        usual = stage.config
        stage.config = lambda name: {**usual(name), "policy": policy}
        stage.start()
        killed = []
        killer = threading.Thread(target=kill_at_every_step, args=(stage, killed), daemon=True)
        killer.start()
        shown(stage.run())
    assert killed == [(step, name) for step in STEPS for name in KILLED]
    assert_same(tmp_path, files)


def kill_at_every_step(stage, killed):
    """SIGKILL to two SuperNodes, each when it has the step's answer and has not sent it."""
    for step in STEPS:
        for name in KILLED:
            stage.spoil(name, step)
        for name in KILLED:
            waits = stage.faults / f"{name}.waits"
            while not waits.exists():
                if stage.over.wait(0.1):
                    return
            waits.unlink()
            stage.local_cluster.kill(name)
            killed.append((step, name))
            print(f"{time.strftime('%H:%M:%S')} SIGKILL to {name} at {step}")  # noqa: T201
        for name in KILLED:
            stage.local_cluster.start_site(name, stage.config(name))


def test_three_sites_of_nvflare_sum_under_masks(tmp_path):
    pytest.importorskip("nvflare")
    from test_nvflare_deployment import RUN, flare, run_job

    files = hospitals(tmp_path, stays(300, hospitals=NAMES[:3]))
    masked = {"sites": ",".join(files), "out": str(tmp_path / "out"), "masked": True}
    with flare(tmp_path, files) as (_, server):
        ended, told = run_job(server, files, {**RUN, **SETTINGS, **masked})
    assert ended.error == "", told[-3:]
    assert_same(tmp_path, files)
