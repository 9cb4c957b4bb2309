"""The page in a real browser: nothing overlaps, nothing is cut, nothing leaves the machine."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcfl.report.page import write_page
from hospital import fcfl

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
BAD_NAME = "<script>alert(1)</script>"
LONG_NAME = "Sankt-Katharinen-Krankenhaus der Barmherzigen Schwestern zu Unterammergau"
MEASURE = Path(__file__).with_name("measure.js")

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium"),
    pytest.mark.skipif("FCFL_NO_BROWSER" in os.environ, reason="FCFL_NO_BROWSER is set"),
]


def browse(url, profile, *options):
    """Open a page without a screen; the names of all hosts lead nowhere."""
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}",
        "--enable-logging=stderr", "--v=0", *options, url,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def console(done):
    """What pages and scripts complained about."""
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "run"
    outcome = fcfl("demo", "--out", folder)
    assert outcome.exit_code == 0, outcome.output
    return write_page(folder)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """The page of 200 clients, three of them with awkward names."""
    folder = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(0)
    names = [*(f"Hospital {i}" for i in range(197)), BAD_NAME, LONG_NAME, "東京医療センター 🏥"]
    n_rows = 40 * len(names)
    frame = pd.DataFrame(
        {
            "site": np.repeat(names, 40),
            "race": rng.choice(["black", "white", "other"], n_rows, p=[0.3, 0.6, 0.1]),
            "age": rng.normal(60, 15, n_rows).round(),
        }
    )
    leaning = (frame["age"] - 60) / 15 + (frame["race"] == "black")
    frame["died"] = np.where(leaning + rng.logistic(size=n_rows) > 0.5, "yes", "no")
    frame.to_csv(folder / "many.csv", index=False)
    outcome = fcfl(
        "train", folder / "many.csv", "--client", "site", "--label", "died", "--sensitive", "race",
        "--budget", "0.1", "--ratio", "0.8", "--method", "fedavg", "--rounds", "30",
        "--out", folder / "run",
    )  # fmt: skip
    assert outcome.exit_code in (0, 3), outcome.output
    return write_page(folder / "run")


@pytest.fixture(params=["demo", "many"])
def page(request):
    return request.getfixturevalue(request.param)


def test_the_headline_and_every_figure_are_there_and_the_console_is_silent(page, tmp_path):
    done = browse(page.as_uri(), tmp_path, "--dump-dom")
    assert console(done) == []
    assert re.search(r"<h1>\d+ of \d+ budgets met on held-out rows, \d+ exceeded, ", done.stdout)
    for figure in ("strip-0-0", "strip-0-1", "scatter-0", "path-loss", "path-violation"):
        assert f'id="{figure}-title"' in done.stdout
    assert "<script" not in done.stdout


def test_a_script_in_a_name_is_text(many, tmp_path):
    done = browse(many.as_uri(), tmp_path, "--dump-dom")
    assert html.escape(BAD_NAME) in done.stdout
    assert "alert(1)" in done.stdout and "<script" not in done.stdout


def requests_of(page, place):
    """What the page asked for; what the browser asks for itself has no origin, and is not it."""
    log = place / "net.json"
    browse(page.as_uri(), place / "profile", f"--log-net-log={log}", "--dump-dom")
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    started = [event for event in events if "url" in event and "initiator" in event]
    return {event["url"] for event in started if event["initiator"] != "not an origin"}


def test_no_request_leaves_the_machine(page, tmp_path):
    assert requests_of(page, tmp_path) == set()


def test_a_request_would_have_been_seen(tmp_path):
    control = tmp_path / "control.html"
    control.write_text("<!doctype html><img src='https://example.org/x.png'>")
    assert requests_of(control, tmp_path) == {"https://example.org/x.png"}


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_overlaps_and_nothing_is_cut(page, tmp_path, width):
    """Measured in a frame, which can be narrower than a window can."""
    source = html.escape(page.read_text(encoding="utf-8"))
    script = MEASURE.read_text().replace("const WIDTH = 0", f"const WIDTH = {width}")
    holder = tmp_path / "holder.html"
    holder.write_text(
        "<!doctype html><meta charset='utf-8'><body style='margin:0'><p id='found'></p>"
        f"<iframe id='frame' style='border:0;width:{width}px;height:4000px' srcdoc=\"{source}\">"
        f"</iframe><script>{script}</script>",
        encoding="utf-8",
    )
    size = f"--window-size={max(width, 500)},4000"
    done = browse(
        holder.as_uri(), tmp_path / "p", "--dump-dom", "--hide-scrollbars", size,
        "--virtual-time-budget=10000",
    )  # fmt: skip
    found = json.loads(html.unescape(re.search(r"FOUND(.*?)END<", done.stdout, re.S)[1]))
    assert found == {"problems": [], "scripts": 0}
