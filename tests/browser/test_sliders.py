"""The negotiation page in a real browser: a slider is moved and the figures are read."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

from test_negotiation_page import CLIENTS, LADDER, simulated
from test_page import browse, console, pytestmark  # noqa: F401 - the same conditions

from fcfl.report.negotiation import render_negotiation

MOVE = """
<script>
addEventListener("load", () => {
  const slider = document.getElementById("slider-0");
  slider.value = "2";
  slider.dispatchEvent(new Event("input"));
  const cells = (k) => [...document.getElementById("figures-" + k).cells].map((c) => c.textContent);
  const told = { rows: [0, 1, 2].map(cells),
                 nearest: document.getElementById("nearest").textContent,
                 chosen: document.getElementById("chosen-0").textContent,
                 wide: document.documentElement.scrollWidth > innerWidth };
  const out = document.createElement("pre");
  out.id = "told";
  out.textContent = JSON.stringify(told);
  document.body.append(out);
});
</script></body>"""


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render_negotiation(simulated()), encoding="utf-8")
    return path


def test_the_script_runs_under_the_pages_own_rules_and_shows_the_agreement(page, tmp_path):
    done = browse(page.as_uri(), tmp_path / "profile", "--dump-dom")
    assert not console(done)
    assert '<section id="try" aria-labelledby="try-it">' in done.stdout
    found = simulated()
    agreed = found.offers[found.agreed].views["north"]
    row = re.search(r'<tr id="figures-0">(.*?)</tr>', done.stdout, re.S).group(1)
    assert f"{agreed.accuracy:.3f}" in row and f"{agreed.disparity:.3f}" in row


def test_a_moved_slider_shows_the_nearest_combination_that_was_trained(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    assert text.count("script-src") == 1
    text = re.sub(r"script-src [^;]*;", "script-src 'unsafe-inline';", text)
    page.write_text(text.replace("</body>", MOVE), encoding="utf-8")
    done = browse(page.as_uri(), tmp_path / "profile", "--dump-dom", "--window-size=400,900")
    told = json.loads(re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.S).group(1))
    found = simulated()
    start = found.offers[found.agreed].budgets
    wanted = [2, *(LADDER.index(start[c]) for c in CLIENTS[1:])]

    def steps(offer):
        levels = [LADDER.index(offer.budgets[c]) for c in CLIENTS]
        return sum(abs(a - b) for a, b in zip(levels, wanted, strict=True))

    nearest = min(found.offers, key=steps)
    assert told["chosen"] == "0.05" and not told["wide"]
    for row, client in zip(told["rows"], CLIENTS, strict=True):
        view = nearest.views[client]
        figures = [f"{view.accuracy:.3f}", f"{view.loss:.3f}", f"{view.disparity:.3f}"]
        assert row[1:] == [f"{nearest.budgets[client]:g}", *figures]
    assert told["nearest"].startswith(f"No. {found.offers.index(nearest) + 1}:")


def test_where_scripts_are_forbidden_nothing_is_missing_but_the_sliders(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r"script-src [^;]*;", "script-src 'none';", text), encoding="utf-8")
    done = browse(page.as_uri(), tmp_path / "profile", "--dump-dom")
    assert '<section id="try" aria-labelledby="try-it" hidden' in done.stdout
    assert 'id="all-combinations"' in done.stdout
