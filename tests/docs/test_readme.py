"""The front page: its links lead somewhere, and it is short."""

import re

from tests.docs.page_blocks import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
LINKS = re.findall(r"\]\(([^)\s]+)\)", README)


def heading_anchors(text):
    """Anchors as GitHub and MyST make them of headings."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_its_links_lead_somewhere():
    ours = [link for link in LINKS if not link.startswith("http")]
    assert len(ours) >= 20
    for link in ours:
        name, _, anchor = link.partition("#")
        assert (ROOT / name).exists(), link
        if anchor:
            assert anchor in heading_anchors((ROOT / name).read_text(encoding="utf-8")), link


def test_it_is_read_in_minutes_and_its_first_screen_in_seconds():
    first, *_ = README.split("\n## ")
    assert len(README.split()) < 1000
    assert len(re.sub(r"```.*?```", "", first, flags=re.DOTALL).split()) < 180


def test_the_files_that_contributing_names_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./]+\.(?:py|html|c|toml|md))`", text))
    assert len(named) >= 30
    places = (ROOT, ROOT / "src" / "fcfl")
    assert not [name for name in named if not any((place / name).exists() for place in places)]
