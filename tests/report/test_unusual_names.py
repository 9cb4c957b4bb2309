"""A client may be called like the total, and may have a long name."""

import io

from rich.console import Console

from fcfl.report.page import write_page
from fcfl.report.terminal import print_result, result_tables, runs_table
from fcfl.report.words import (
    claims_of,
    claims_with_price,
    finding_sentences,
    trained_sentence,
    verdict_sentence,
    worst_served_first,
)
from simulated import client, judged, parsed, part, result, write


def shown(*things):
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    console.print(*things)
    return console.file.getvalue()


def named(*names, price=0.4, together_price=None):
    """Clients whose budgets have a price, and perhaps a budget over all rows with one."""
    entry = judged(0.1, 0.0, 0.19, 0.05, "undetermined", price=price, smooth=0.04)
    total = judged(0.3, 0.2, 0.4, None, "unconstrained", price=together_price, smooth=0.3)
    return result({name: client(entry) for name in names}, [total])


def priced(content):
    return [(claim.client, claim.is_together) for claim in claims_with_price(parsed(content))]


def test_the_price_of_a_client_called_all_rows_is_that_client_s():
    content = named("all rows", "b", price=0.4, together_price=0.9)
    assert priced(content) == [("all rows together", True), ("all rows", False), ("b", False)]
    assert priced(named("all rows")) == [("all rows", False)]


def test_the_total_keeps_its_name_where_no_client_has_it():
    content = named("a", "b", price=0.0, together_price=0.9)
    assert priced(content) == [("all rows", True)]
    assert [c.client for c in claims_of(parsed(content)) if c.is_together] == ["all rows"]


def test_the_total_is_never_called_as_a_client_is(tmp_path):
    content = named("all rows", "all rows together")
    total = "all rows together together"
    assert [c.client for c in claims_of(parsed(content)) if c.is_together] == [total]
    assert [name for name, _ in worst_served_first(parsed(content))] == [
        *content["clients"], total,
    ]  # fmt: skip
    page = write_page(write(tmp_path, content)).read_text(encoding="utf-8")
    assert page.count(f'<tr><th scope="row">{total}</th>') == 5  # two of them groups
    content["global"]["train"] = part([judged(0.3, 0.2, 0.4, 0.1, "exceeded", smooth=0.3)])
    (told,) = finding_sentences(parsed(content))
    assert f": {total} by 0.2 (" in told


def test_the_total_has_its_own_line_on_the_screen_and_on_the_page(tmp_path):
    content = named("all rows", "b")
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    print_result(console, parsed(content))
    assert "together" in console.file.getvalue().split("Worst served")[0]
    page = write_page(write(tmp_path, content)).read_text(encoding="utf-8")
    assert "all rows together" in page


def test_numbers_stand_on_the_line_of_their_verdict():
    name = "Sankt-Katharinen-Krankenhaus " * 4
    (table,) = result_tables(parsed(named(name, "b")))
    lines = [line for line in shown(table).splitlines() if ".000–.190" in line]
    assert len(lines) == 2 and all("undetermined" in line for line in lines)


def test_runs_are_told_in_the_words_of_the_page():
    runs = {"one": named("north", "south"), "two": named("south")}
    text = shown(runs_table({name: parsed(content) for name, content in runs.items()}))
    assert max(map(len, text.splitlines())) <= 80
    head, words = (
        text.split("─")[0],
        "worst served its train loss lowest accuracy largest difference",
    )
    assert all(word in head.split() for word in words.split())
    (row,) = [line.split() for line in text.splitlines() if line.startswith("one")]
    assert row == ["one", "north", "0.5000", "0.750", "0.100", "0", "0", "2"]


def test_one_budget_is_counted_as_the_headline_counts_it():
    content = named("a")
    assert verdict_sentence(parsed(content)).startswith("0 of 1 budget shown to be met on")
    assert "1 of 1 budget met on the training rows" in trained_sentence(parsed(content))
