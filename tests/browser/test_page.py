"""The page in a real browser, on a desk, on a phone, in the dark and on paper.

Nothing overlaps, nothing is cut, every number is on the paper, nothing leaves the machine.
"""

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
from hospital import COLUMNS, fcfl, stays, written

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
    """A run beside plain FedAvg, as `fcfl demo` leaves it."""
    folder = tmp_path_factory.mktemp("demo")
    table = written(stays(600), folder / "stays.csv")
    for more in (
        ("--budget", "0.05", "--l2", "0.01", "--objective", "max", "--out", folder / "run"),
        ("--method", "fedavg", "--rounds", "50", "--out", folder / "run" / "fedavg"),
    ):
        outcome = fcfl("train", table, *COLUMNS, *more)
        assert outcome.exit_code in (0, 3), outcome.output
    return write_page(folder / "run")


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
        "--min-group-rows", "1",
        "--out", folder / "run",
    )  # fmt: skip
    assert outcome.exit_code in (0, 3), outcome.output
    return write_page(folder / "run")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept")
    table = written(stays(600), folder / "stays.csv")
    options = ("--budgets", "0.3,0.1,0.05", "--l2", "0.01", "--objective", "max")
    outcome = fcfl("sweep", table, *COLUMNS, *options, "--out", folder / "run")
    assert outcome.exit_code in (0, 3), outcome.output
    return folder / "run" / "report.html"


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Methods on three large branches and one with 18 people."""
    folder = tmp_path_factory.mktemp("compared")
    small = stays(18, seed=1, hospitals=("harbour",))
    table = written(pd.concat([stays(600), small]), folder / "stays.csv")
    options = ("--budget", "0.05", "--l2", "0.01", "--methods", "sqp,q-ffl")
    outcome = fcfl("compare", table, *COLUMNS, *options, "--out", folder / "run")
    assert outcome.exit_code == 0, outcome.output
    return folder / "run" / "report.html"


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audited")
    frame = stays(600)
    frame["yhat"] = np.where(frame["ward"] == "icu", "yes", "no")
    table = written(frame, folder / "stays.csv")
    options = ("--prediction", "yhat", "--budget", "0.1", "--ratio", "0.8")
    outcome = fcfl("audit", table, *COLUMNS, *options, "--out", folder / "run")
    assert outcome.exit_code == 0, outcome.output
    return folder / "run" / "report.html"


@pytest.fixture(params=["demo", "many"])
def run_page(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["demo", "many", "swept", "compared", "audited"])
def page(request):
    return request.getfixturevalue(request.param)


def test_the_headline_and_every_figure_are_there_and_the_console_is_silent(run_page, tmp_path):
    done = browse(run_page.as_uri(), tmp_path, "--dump-dom")
    assert console(done) == []
    told = "shown to be met on held-out|(is|are) exceeded on the training"
    assert re.search(rf"<h1>\d+ of \d+ budgets ({told}) rows", done.stdout)
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


def measured(page, place, width, *options):
    """What the script finds in a frame, which can be narrower than a window can."""
    source = html.escape(page.read_text(encoding="utf-8"))
    script = MEASURE.read_text().replace("const WIDTH = 0", f"const WIDTH = {width}")
    holder = place / "holder.html"
    holder.write_text(
        "<!doctype html><meta charset='utf-8'><body style='margin:0'><p id='found'></p>"
        f"<iframe id='frame' style='border:0;width:{width}px;height:4000px' srcdoc=\"{source}\">"
        f"</iframe><script>{script}</script>",
        encoding="utf-8",
    )
    size = f"--window-size={max(width, 500)},4000"
    done = browse(
        holder.as_uri(), place / "p", "--dump-dom", "--hide-scrollbars", size,
        "--virtual-time-budget=10000", *options,
    )  # fmt: skip
    return json.loads(html.unescape(re.search(r"FOUND(.*?)END<", done.stdout, re.S)[1]))


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_overlaps_and_nothing_is_cut(page, tmp_path, width):
    found = measured(page, tmp_path, width)
    assert (found["problems"], found["scripts"]) == ([], 0)


def test_on_a_phone_the_headline_is_on_the_first_screen_and_verdicts_are_in_sight(page, tmp_path):
    found = measured(page, tmp_path, 390)
    assert found["headline"]["bottom"] < 844
    assert found["verdicts"] or "Sweep of budgets" in page.read_text(encoding="utf-8")
    assert all(box["left"] >= 0 and box["right"] <= 390 for box in found["verdicts"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_the_light_and_in_the_dark(demo, tmp_path, scheme):
    wanted = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    found = measured(demo, tmp_path, 1400, wanted)
    ink, soft, paper = (luminance(found["colours"][name]) for name in ("ink", "soft", "paper"))
    assert (paper < ink) == (scheme == "dark")
    assert contrast(ink, paper) >= 7 and contrast(soft, paper) >= 4.5


def luminance(colour):
    """WCAG's relative luminance of ``rgb(r, g, b)``."""
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs poppler-utils")
def test_every_number_of_every_table_is_on_the_paper(page, tmp_path):
    pdf = tmp_path / "page.pdf"
    browse(page.as_uri(), tmp_path / "p", "--no-pdf-header-footer", f"--print-to-pdf={pdf}")
    printed = subprocess.run(
        ["pdftotext", "-raw", pdf, "-"], capture_output=True, text=True, check=True
    ).stdout
    words = re.findall(r"[\d.,]*\d", printed)
    counts = {word: words.count(word) for word in set(words)}
    source = page.read_text(encoding="utf-8")
    cells = re.findall(r'<td class="n">(.*?)</td>', source, re.S)
    numbers = [number for cell in cells for number in re.findall(r"[\d.,]*\d", cell)]
    assert len(numbers) > 20
    missing = {n for n in set(numbers) if counts.get(n, 0) < numbers.count(n)}
    assert missing == set()
