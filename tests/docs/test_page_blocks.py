"""Every command of Start and of the guides runs, and prints what the page shows."""

import pytest
from tests.docs.console_blocks import FENCE, ROOT, comparable, run_page

PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if FENCE.search(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_shows(page, tmp_path):
    for step, printed in run_page(page.read_text(encoding="utf-8"), tmp_path):
        assert comparable(printed) == comparable(step.shown), step.command


def test_the_pages_that_teach_have_commands():
    assert {"start", "budgets", "gate"} <= {page.stem for page in PAGES}
