"""The documentation in a real browser: it builds without a warning, pages open, search finds."""

import subprocess
import sys
from pathlib import Path

import pytest
from test_page import browse, console, pytestmark  # noqa: F401 - the same conditions

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "index": "fcfl",
    "start": "Start: ten minutes",
    "data": "Your table",
    "budgets": "Choosing a budget",
    "page": "The page",
    "gate": "An audit as a gate in CI",
    "promise": "What a budget promises",
    "reference/python": "FCFLClassifier",
    "reference/commands": "--min-group-rows",
    "reference/settings": "site-timeout",
    "own-method": "Write a method",
    "glossary": "Undetermined",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built with warnings as errors; links inside it are checked by Sphinx."""
    out = tmp_path_factory.mktemp("site")
    _build("html", out / "html", out / "read")
    return out


@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens(site, page, tmp_path):
    done = browse((site / "html" / f"{page}.html").as_uri(), tmp_path, "--dump-dom")
    assert PAGES[page] in done.stdout
    assert not [
        line for line in console(done) if "INFO:CONSOLE" not in line
    ]  # the theme's own message


def test_search_finds_a_page(site, tmp_path):
    where = (site / "html" / "search.html").as_uri() + "?q=four-fifths"
    done = browse(where, tmp_path, "--dump-dom", "--virtual-time-budget=8000")
    assert "budgets.html" in done.stdout


def test_the_examples_in_the_text_are_true(site):
    _build("doctest", site / "doctest", site / "read")


def _build(builder, out, read):
    """Run Sphinx with warnings as errors; what was read once is not read again."""
    options = ["-W", "-q", "-b", builder, "-d", str(read), str(DOCS), str(out)]
    command = [sys.executable, "-m", "sphinx", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
