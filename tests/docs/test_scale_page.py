"""The page on large tables is what its benchmark makes of the numbers that it kept."""

import json

from benchmarks.scale import DOCS, RESULTS, page


def test_the_page_on_large_tables_is_made_of_the_numbers_kept():
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert DOCS.read_text(encoding="utf-8") == page(found)
